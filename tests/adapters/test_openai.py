"""`OpenAISession` over homes of our own. The real SDK uses it in `test_sdks.py`."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from session_core import Conflict, InvalidInput, OpenedHome, Unsupported, aopen_home, open_home
from session_core.adapters.openai import SOURCE, OpenAISession, build_message
from tests import homes

pytestmark = pytest.mark.anyio

ITEMS: list[Any] = [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look up."}]},
    {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"in":"Oslo"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "rain \u0000 \ud800 é"},
    {
        "type": "message",
        "role": "assistant",
        "id": "m_1",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "It rains.", "annotations": [], "logprobs": []}
        ],
    },
    {"type": "an_item_of_the_future", "data": {"deep": [1, 2.5, None, True]}},
]


@pytest.fixture
def home(tmp_path):
    with open_home(tmp_path / "home") as home:
        yield home


@pytest.fixture
def session(home: OpenedHome) -> OpenAISession:
    return OpenAISession("user/42: Ann", home)


@pytest.mark.requirement("adapters:openai")
async def test_items_are_returned_exactly(session):
    await session.add_items(ITEMS)
    assert await session.get_items() == ITEMS


async def test_limit_returns_latest_items(session):
    await session.add_items(ITEMS)
    assert await session.get_items(2) == ITEMS[-2:]
    assert await session.get_items(100) == ITEMS
    assert await session.get_items(0) == []
    assert await session.get_items(-1) == ITEMS


async def test_settings_limit_counts_without_argument(home):
    class Settings:
        limit = 1

    session = OpenAISession("s", home, session_settings=Settings())
    await session.add_items(ITEMS)
    assert await session.get_items() == ITEMS[-1:]
    assert await session.get_items(3) == ITEMS[-3:]


async def test_unknown_session_is_empty(session, home):
    assert await session.get_items() == []
    assert await session.get_items(3) == []
    assert await session.pop_item() is None
    await session.clear_session()
    await session.add_items([])
    assert not home.path.exists()


async def test_pop_returns_newest_item(session, home):
    await session.add_items(ITEMS)
    assert await session.pop_item() == ITEMS[-1]
    assert await session.get_items() == ITEMS[:-1]
    await session.add_items(ITEMS[:1])
    assert await session.get_items() == ITEMS[:-1] + ITEMS[:1]
    assert home.db.get_session(session.session_id)["message_count"] == len(ITEMS)


async def test_pop_until_empty(session):
    await session.add_items(ITEMS[:2])
    popped = [await session.pop_item() for _ in range(3)]
    assert popped == [ITEMS[1], ITEMS[0], None]


@pytest.mark.requirement("adapters:undo")
async def test_cleared_session_is_restored(session, home):
    await session.add_items(ITEMS)
    await session.clear_session()
    assert await session.get_items() == []
    batch = home.ledger.list_batches().items[0]
    home.maintenance.restore(batch.id)
    assert await session.get_items() == ITEMS


async def test_cleared_session_begins_again(session):
    await session.add_items(ITEMS)
    await session.clear_session()
    await session.add_items(ITEMS[:1])
    assert await session.get_items() == ITEMS[:1]


async def test_pinned_session_is_not_cleared(session, home):
    await session.add_items(ITEMS)
    home.maintenance.edit(session.session_id, pinned=True)
    with pytest.raises(Conflict, match="it is pinned"):
        await session.clear_session()
    assert await session.get_items() == ITEMS


async def test_items_are_listed_and_searched(session, home):
    await session.add_items(ITEMS)
    (row,) = home.db.list_sessions().items
    assert (row.source, row.preview) == (SOURCE, "What is the weather in Oslo?")
    assert [hit.session_id for hit in home.db.search("rains").hits] == [session.session_id]
    assert [hit.session_id for hit in home.db.search("rain é").hits] == [session.session_id]
    assert home.db.get_session(session.session_id)["tool_call_count"] == 1


@pytest.mark.parametrize("size", [1, 3, 6])
async def test_result_has_name_of_tool(session, home, size):
    for start in range(0, len(ITEMS), size):
        await session.add_items(ITEMS[start : start + size])
    (row,) = [row for row in home.db.get_messages(session.session_id) if row["role"] == "tool"]
    assert row["tool_name"] == "get_weather"
    assert await session.get_items() == ITEMS


async def test_result_long_after_call_has_name(session, home):
    chat = [{"role": "user", "content": str(number)} for number in range(50)]
    result = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
    await session.add_items([ITEMS[2], *chat])
    await session.add_items([result])
    assert home.db.get_messages(session.session_id)[-1]["tool_name"] == "get_weather"


async def test_result_without_call_is_stored(session, home):
    call = {"type": "function_call", "call_id": ["c9"], "name": "look", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c9", "output": "rain"}
    await session.add_items([call, result])
    _, row = home.db.get_messages(session.session_id)
    assert (row["content"], row["tool_name"]) == ("rain", None)


@pytest.mark.parametrize("session_id", ["", None, 7])
async def test_session_without_id_is_refused(home, session_id):
    with pytest.raises(InvalidInput, match="session_id must be non-empty text"):
        OpenAISession(session_id, home)


@pytest.mark.parametrize(
    ("items", "error", "reason"),
    [
        (ITEMS[0], InvalidInput, "items must be a list of mappings, got dict"),
        ("text", InvalidInput, "items must be a list of mappings, got str"),
        ([ITEMS[0], "text"], InvalidInput, r"items\[1\] must be a mapping, got 'text'"),
        ([{"cost": float("nan")}], InvalidInput, r"items\[0\] cannot be stored as JSON: Out of"),
        ([ITEMS[0], {"content": object()}], TypeError, r"items\[1\] cannot be stored as JSON"),
    ],
)
async def test_invalid_item_is_named(session, home, items, error, reason):
    with pytest.raises(error, match=reason):
        await session.add_items(items)
    assert home.db.get_session(session.session_id) is None


@pytest.mark.parametrize("limit", ["3", 1.5, True])
async def test_invalid_limit_is_refused(session, limit):
    with pytest.raises(InvalidInput, match="limit must be an integer or None, got"):
        await session.get_items(limit)


async def test_invalid_home_is_refused(home):
    with pytest.raises(InvalidInput, match=r"home must be a path, .*not its db.*, got SessionDB"):
        OpenAISession("s", home.db)
    with pytest.raises(InvalidInput, match="home is a coroutine; await it first"):
        OpenAISession("s", aopen_home(":memory:"))


async def test_id_too_long_is_refused(home):
    assert OpenAISession("x" * 500, home).session_id == "x" * 500
    with pytest.raises(InvalidInput, match=r"at most 500 characters, got 501: 'xxx.*shorter id"):
        OpenAISession("x" * 501, home)


async def test_session_of_other_source_is_refused(home):
    home.db.append_message("tg", "user", "private", create={"source": "telegram"})
    for call in ("get_items", "pop_item", "clear_session"):
        with pytest.raises(Conflict, match="belongs to telegram, not to openai-agents"):
            await getattr(OpenAISession("tg", home), call)()
    assert home.db.get_session("tg")["message_count"] == 1


@pytest.mark.parametrize("shape", ["in_place", "continuation"])
async def test_compressed_session_goes_on(session, home, shape):
    items = [
        {"role": ("user", "assistant")[number % 2], "content": f"{number}: " + "text " * 300}
        for number in range(40)
    ]
    await session.add_items(items)
    home.compressor.compress(session.session_id, keep_last=5, shape=shape)
    await session.add_items(ITEMS[:1])
    stored = await session.get_items()
    assert stored[-6:] == [*items[-5:], ITEMS[0]]
    assert len(stored) < len(items)
    (row,) = home.db.list_sessions().items
    assert home.db.get_messages(row.id)[-1]["content"] == ITEMS[0]["content"]


async def test_foreign_messages_become_items(session, home):
    await session.add_items(ITEMS[:1])
    home.db.append_message(session.session_id, "assistant", "a summary")
    assert await session.get_items() == [
        ITEMS[0],
        {"role": "assistant", "content": "a summary"},
    ]
    assert await session.get_items(1) == [{"role": "assistant", "content": "a summary"}]


async def test_damaged_item_hides_no_others(session, home):
    await session.add_items(ITEMS[:2])
    message_id = home.db.get_messages(session.session_id)[1]["id"]
    with homes.connect(home.path) as connection:
        connection.execute(
            "UPDATE messages SET payload_json = '{broken' WHERE id = ?", (message_id,)
        )
    await session.add_items(ITEMS[2:3])
    assert await session.get_items() == [ITEMS[0], ITEMS[2]]
    assert await session.get_items(2) == [ITEMS[0], ITEMS[2]]
    assert [await session.pop_item() for _ in range(3)] == [ITEMS[2], ITEMS[0], None]


async def test_concurrent_first_writers_lose_nothing(home, tmp_path):
    sessions = [OpenAISession("s", home), OpenAISession("s", tmp_path / "home")]

    async def write(session, name):
        for number in range(20):
            await session.add_items([{"role": "user", "content": f"{name} {number}"}])

    async with anyio.create_task_group() as tasks:
        for name, session in enumerate(sessions):
            tasks.start_soon(write, session, name)
    stored = [item["content"] for item in await sessions[0].get_items()]
    for name in range(2):
        own = [text for text in stored if text.startswith(f"{name} ")]
        assert own == [f"{name} {number}" for number in range(20)]
    sessions[1].close()


async def test_batch_is_atomic(session):
    await session.add_items(ITEMS[:1])
    with pytest.raises(TypeError):
        await session.add_items([*ITEMS, {"role": "user", "content": object()}])
    assert await session.get_items() == ITEMS[:1]


async def test_close_leaves_given_home_open(home, tmp_path):
    with OpenAISession("s", home) as session:
        await session.add_items(ITEMS)
    assert home.db.get_session("s") is not None
    own = OpenAISession("s", tmp_path / "home")
    assert await own.get_items() == ITEMS
    own.close()


async def test_hermes_home_is_refused(tmp_path):
    folder = tmp_path / "hermes"
    homes.make_hermes_database(folder / "state.db")
    with (
        OpenAISession("s", folder) as session,
        pytest.raises(Unsupported, match="payload_json; store the payload in a home of our own"),
    ):
        await session.add_items(ITEMS)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"role": "developer", "content": "Be brief."}, ("system", "Be brief.")),
        ({"role": "user", "content": [{"type": "input_text", "text": "a"}]}, ("user", "a")),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            ("assistant", "no"),
        ),
        ({"type": "custom_tool_call_output", "output": [{"text": "b"}]}, ("tool", "b")),
        ({"role": 7, "content": {"a": 1}}, ("assistant", None)),
        ("text", ("assistant", None)),
    ],
)
def test_item_becomes_message(item, expected):
    message = build_message(item)
    assert (message["role"], message["content"]) == expected
    assert json.loads(message["payload_json"]) == item
