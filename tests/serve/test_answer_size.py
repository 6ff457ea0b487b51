"""Every answer of every tool is within its size limit, for any home and any arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client

from mcp_serve import answer_size, server
from mcp_serve.sdk.tool_schemas import make_input_schema
from mcp_serve.stores.stores import ServedStores, ServerOptions
from mcp_serve.tool_list import load_specs
from mcp_serve.tools.read import PageBuilder, ReadArguments
from session_core import SessionDB

OLD = 1_600_000_000
LONG = "s" * 100
LONGER = 'id-\u4e16\\"\x01' * 60
IDS = ("short", LONG, LONGER)
KEY = "agent:main:telegram:dm:" + "k" * 300
PAGES = 4
ERROR = 2_000


def make_tool_calls(number: int) -> list[dict[str, Any]]:
    """Return calls with many long names."""
    function = {"name": "tool\\" * 60 + str(number), "arguments": json.dumps({"a": "\\" * 900})}
    return [{"id": f"c{n}", "type": "function", "function": function} for n in range(20)]


def fill_database(db: SessionDB) -> None:
    """Fill a database with rows that take much room in an answer."""
    folder = "/srv/" + "long\\" * 180
    texts = ("word " * 30, "\x00\x01\n" * 100, "\u4e16\u754c\U0001f680" * 300, "word")
    for name in IDS:
        create = {"source": "cli", "cwd": folder, "started_at": OLD}
        for number in range(12):
            text, at = texts[number % 4], OLD + number
            db.append_message(name, "user", text, timestamp=at, create=create)
            db.append_message(
                name, "assistant", "w", tool_calls=make_tool_calls(number), timestamp=at
            )
            db.append_message(name, "tool", text * 3, tool_name="t" * 900, timestamp=at)
        db.set_session_title(name, ('"\\' * 45) + name[:5])
    for number in range(36):
        db.append_message("plain", "user", texts[number % 4], create={"source": "cli"})
    for number in range(300):
        name = f"{number}-{LONGER[:150]}"
        db.create_session(name, f"source-{number}-" + "\\" * 60, started_at=OLD)
        if number % 2:
            db.end_session(name, "reason\\" * 90)


def make_routes() -> dict[str, Any]:
    """Return routes with long keys and names."""
    now = datetime.now().isoformat()  # noqa: DTZ005 -- local, as the store has it
    entry = {"created_at": now, "updated_at": now, "platform": "telegram", "chat_type": "dm"}
    result = {}
    for number in range(150):
        key = f"{KEY}{number}"
        names = {"session_key": key, "session_id": LONGER, "display_name": "N\\" * 150}
        result[key] = entry | names
    return result


@pytest.fixture(name="portal")
def _portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(name="client_of_full_home")
def _planted(home_path: Path, portal: BlockingPortal) -> Iterator[Client]:
    """A client of a home with large rows."""
    with SessionDB(home_path / "state.db") as db, db.transaction():
        fill_database(db)
    (home_path / "sessions").mkdir()
    (home_path / "sessions" / "sessions.json").write_text(json.dumps(make_routes()))
    (home_path / "config.yaml").write_text("")
    served = ServedStores(ServerOptions(home=str(home_path)))
    with portal.wrap_async_context_manager(
        Client(server.create_server(served), cache=None)
    ) as client:
        yield client
    served.close()


def limits_for(spec: Any) -> st.SearchStrategy[int]:
    """Return limits that a tool accepts."""
    schema = make_input_schema(spec.arguments)["properties"].get("limit", {})
    return st.integers(1, schema.get("maximum", 1))


TEXT = st.text(max_size=2000) | st.sampled_from(["word", "w", "word " * 380, "\u4e16" * 1999])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "query": TEXT,
    "session": st.sampled_from([*IDS, f"{KEY}7", "nobody", "id-", "\\" * 499]),
    "sessions": st.lists(st.sampled_from([*IDS, f"{KEY}7"]), max_size=4),
    "project": st.sampled_from(["/srv", "/srv/" + "long\\" * 180, "\u4e16" * 1000]),
    "source": st.sampled_from(["cli", "cli\\" * 40, "\u4e16" * 200]),
    "end_reason": st.sampled_from(["user_exit", "reason\\" * 28]),
    "roles": st.lists(st.sampled_from(["user", "assistant", "tool", "\u4e16" * 50]), max_size=20),
    "since": st.sampled_from(["9000d", "yesterday" * 7]),
    "status": st.sampled_from(["open", "ended", "all"]),
    "order": st.sampled_from(["recent", "started", "size"]),
    "detail": st.sampled_from(["concise", "detailed"]),
    "view": st.sampled_from(["live", "full"]),
    "mode": st.sampled_from(["words", "substring"]),
    "per": st.sampled_from(["conversation", "message"]),
    "max_chars": st.integers(answer_size.MIN_CHARS, answer_size.MAX_CHARS)
    | st.just(answer_size.MIN_CHARS),
    "around": st.integers(1, 120),
    "after": st.integers(0, 120),
    "what": st.sampled_from(["sessions", "ghosts", "orphans", "index", "all", "abandoned"]),
    "older_than_days": st.sampled_from([0.0, 30.0]),
    "keep_last": st.integers(0, 4),
    "method": st.sampled_from(["summary", "extractive"]),
    "timeout_s": st.just(0.0),
}


@st.composite
def tool_requests(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Return a tool and arguments for it."""
    spec = draw(st.sampled_from([spec for spec in load_specs() if spec.name != "sessions_edit"]))
    names = sorted(VALUES.keys() & spec.arguments.model_fields.keys())
    chosen = draw(st.lists(st.sampled_from([*names, "limit"]), unique=True, max_size=5))
    expected = {*chosen, *spec.arguments.required, *({"timeout_s"} & {*names})}
    given = {name: draw(VALUES[name]) for name in sorted(expected - {"limit"})}
    if "limit" in expected and "limit" in spec.arguments.model_fields:
        given["limit"] = draw(limits_for(spec))
    return spec.name, given


@pytest.mark.requirement("serving:budgets")
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(case=tool_requests())
def test_answers_stay_within_budget(client_of_full_home, portal, case):
    tool, arguments = case
    limit = arguments.get("max_chars", answer_size.DEFAULT_CHARS)
    for _ in range(PAGES):
        answer = portal.call(client_of_full_home.call_tool, tool, arguments)
        text = answer.content[0].text
        assert len(text) <= (ERROR if answer.is_error else limit), text[:300]
        assert "defect" not in text[:100]
        cursor = None if answer.is_error else answer.structured_content.get("next_cursor")
        if cursor is None:
            break
        arguments = {"cursor": cursor}
        if tool == "sessions_read":
            arguments["max_chars"] = limit


@pytest.mark.requirement("serving:budgets")
def test_small_pages_cover_every_message(client_of_full_home, portal):
    whole: dict[int, str] = {}
    given = {"session": "plain", "max_chars": answer_size.MIN_CHARS, "limit": 200}
    while True:
        answer = portal.call(client_of_full_home.call_tool, "sessions_read", given)
        assert not answer.is_error, answer.content[0].text
        page = answer.structured_content
        for message in page["messages"]:
            whole[message["id"]] = whole.get(message["id"], "") + message["text"]
        if page["next_cursor"] is None:
            break
        given = {"cursor": page["next_cursor"], "max_chars": answer_size.MIN_CHARS}
    assert len(whole) == 36
    assert whole[min(whole)] == "word " * 30


@pytest.mark.requirement("serving:budgets")
def test_finished_message_is_not_repeated(home_path):
    served = ServedStores(ServerOptions(home=str(home_path)))
    with SessionDB(home_path / "state.db") as db:
        db.append_message("s1", "user", "word", create={"source": "cli"})
        (row,) = db.get_messages("s1")
    filling = PageBuilder(served.get_home(), ReadArguments.read({"session": "s1"}), 10, "s1")
    assert filling.add_message(row)
    assert (filling.cut_inside, filling.room) == (None, 0)
    assert [message["text"] for message in filling.messages] == ["word"]
    served.close()


@pytest.mark.requirement("serving:budgets")
def test_oversized_answer_names_sufficient_max_chars(client_of_full_home, portal):
    given = {"session": LONGER, "max_chars": answer_size.MIN_CHARS, "roles": ["\u4e16" * 50] * 20}
    answer = portal.call(client_of_full_home.call_tool, "sessions_read", given)
    assert answer.is_error
    text = answer.content[0].text
    assert "is too small for one message of this session; pass max_chars=" in text
    expected = int(text.rpartition("max_chars=")[2].rstrip("."))
    again = portal.call(
        client_of_full_home.call_tool, "sessions_read", given | {"max_chars": expected}
    )
    assert not again.is_error, again.content[0].text


@pytest.mark.requirement("serving:budgets")
def test_stats_groups_rare_sources(client_of_full_home, portal):
    report = portal.call(client_of_full_home.call_tool, "sessions_stats", {}).structured_content[
        "sessions"
    ]
    assert len(report["by_source"]) == 51
    assert sum(report["by_source"].values()) == report["total"]
    assert report["by_source"]["(others)"] > 200
