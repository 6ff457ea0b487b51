"""`sessions_search`: hits that lead to a read."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _said(db):
    create = {"source": "cli", "cwd": "/src/shop"}
    for number in range(6):
        text = f"we keep the ledger in SQLite, part {number}"
        db.append_message("shop", "user", text, timestamp=1_700_000_000 + number, create=create)
    db.append_message(
        "other", "assistant", "the ledger is elsewhere", create={"source": "telegram"}
    )
    db.set_session_title("shop", "The shop")


@pytest.mark.requirement("serving:search")
async def test_hit_has_contract_keys(call):
    result = await call("sessions_search", query='"part 3"')
    assert result["hits"] == [
        {
            "session_id": "shop",
            "message_id": result["hits"][0]["message_id"],
            "role": "user",
            "at": "2023-11-14T22:13:23Z",
            "snippet": "we keep the ledger in SQLite, part 3",
            "title": "The shop",
            "source": "cli",
        }
    ]
    assert (result["matched"], result["searched_back_to"]) == ("all", None)


@pytest.mark.requirement("serving:search")
async def test_hit_can_be_read_around(call):
    (hit,) = (await call("sessions_search", query='"part 3"'))["hits"]
    page = await call("sessions_read", session=hit["session_id"], around=hit["message_id"], limit=3)
    assert [message["text"][-1] for message in page["messages"]] == ["2", "3", "4"]


@pytest.mark.requirement("serving:search")
async def test_search_returns_best_hit_per_conversation(call):
    alone = await call("sessions_search", query="ledger")
    item = await call("sessions_search", query="ledger", per="message", limit=4)
    rest = await call("sessions_search", cursor=item["next_cursor"], limit=4)
    assert sorted(hit["session_id"] for hit in alone["hits"]) == ["other", "shop"]
    assert len({hit["message_id"] for hit in item["hits"] + rest["hits"]}) == 7


@pytest.mark.requirement("serving:search")
async def test_search_filters_narrow_hits(call):
    assert len((await call("sessions_search", query="ledger", source="telegram"))["hits"]) == 1
    assert len((await call("sessions_search", query="ledger", project="/src"))["hits"]) == 1
    assert len((await call("sessions_search", query="ledger", roles=["assistant"]))["hits"]) == 1
    assert (await call("sessions_search", query="ledger", until="2000-01-01"))["hits"] == []
    inside = await call("sessions_search", query="ledger", session="The shop", per="message")
    assert {hit["session_id"] for hit in inside["hits"]} == {"shop"}


@pytest.mark.requirement("serving:search")
async def test_search_requires_query(refused):
    assert "query is required" in await refused("sessions_search")


@pytest.mark.requirement("serving:search")
@pytest.mark.parametrize(
    "query", ['"', "null", "[1]", "a AND", "NEAR(", "'; DROP TABLE", "\x00", "*"]
)
async def test_search_answers_odd_queries(client, query):
    result = await client.call_tool("sessions_search", {"query": query})
    assert result.is_error is False or "query" in result.content[0].text, result


@pytest.mark.requirement("serving:search")
async def test_substring_search_finds_word_parts(call):
    assert (await call("sessions_search", query="QLite, pa"))["hits"] == []
    result = await call("sessions_search", query="QLite, pa", mode="substring", per="message")
    assert (len(result["hits"]), result["matched"]) == (6, "substring")


@pytest.mark.requirement("serving:search")
async def test_search_marks_compacted_hits(call, db):
    db.archive_and_compact("shop", [{"role": "user", "content": "[summary of the shop]"}])
    (hit,) = (await call("sessions_search", query='"part 3"'))["hits"]
    assert hit["compacted"] is True
    (hit,) = (await call("sessions_search", query="summary"))["hits"]
    assert "compacted" not in hit


@pytest.mark.requirement("serving:search")
async def test_later_hits_have_shorter_texts(call, db):
    text = "the needle is here. " + "Many other words. " * 30
    for number in range(6):
        rows = [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
        db.append_messages(f"long{number}", rows, create={"source": "cli"})
    hits = (await call("sessions_search", query="needle", roles=["user"]))["hits"]
    assert [len(hit["snippet"]) <= 120 for hit in hits] == [False] * 3 + [True] * 3
    assert [len(hit["next"]) <= 100 for hit in hits] == [False] * 3 + [True] * 3
    assert all(hit["snippet"].startswith("the needle") for hit in hits)
    detailed = await call("sessions_search", query="needle", roles=["user"], detail="detailed")
    assert all(len(hit["snippet"]) > 400 for hit in detailed["hits"])


@pytest.mark.requirement("serving:search")
async def test_detailed_search_shows_longer_snippets(call, db):
    text = f"{'before ' * 40}needle {'behind ' * 40}"
    db.append_message("long", "user", text, create={"source": "cli"})
    (short,) = (await call("sessions_search", query="needle"))["hits"]
    (long,) = (await call("sessions_search", query="needle", detail="detailed"))["hits"]
    assert "needle" in short["snippet"]
    assert short["snippet"].strip("…") in long["snippet"]
    assert len(long["snippet"]) > len(short["snippet"]) + 300


@pytest.mark.requirement("serving:search")
async def test_search_cursor_reaches_last_hit(call):
    result, page = [], await call("sessions_search", query="ledger", per="message", limit=2)
    while True:
        result += [hit["message_id"] for hit in page["hits"]]
        if page["next_cursor"] is None:
            break
        page = await call("sessions_search", cursor=page["next_cursor"])
    assert len(result) == len(set(result)) == 7


@pytest.mark.requirement("serving:search")
async def test_hit_of_user_carries_next_reply(call, db):
    db.append_message("ask", "user", "which zebra port?", create={"source": "cli"})
    db.append_message("ask", "assistant", "", tool_calls=[{"id": "1", "function": {"name": "run"}}])
    db.append_message("ask", "assistant", f"the zebra has {'many ' * 60}stripes")
    asked, replied = (await call("sessions_search", query="zebra", per="message"))["hits"]
    if asked["role"] == "assistant":
        asked, replied = replied, asked
    assert asked["next"].startswith("the zebra has many")
    assert len(asked["next"]) <= 200
    assert "next" not in replied


@pytest.mark.requirement("security:secrets")
async def test_next_reply_is_redacted_before_cut(call, db):
    key = "sk-ant-api03-" + "abcdefghij" * 8 + "abcdefghijklm-AAAAAA"
    db.append_message("ask", "user", "which zebra key?", create={"source": "cli"})
    db.append_message("ask", "assistant", f"{'x' * 170} {key}")
    (hit,) = (await call("sessions_search", query="zebra"))["hits"]
    assert "sk-ant" not in hit["next"]


@pytest.mark.requirement("serving:search")
async def test_search_takes_tool_order_exclusions(call, db):
    db.append_message("shop", "tool", "the ledger of a tool", tool_name="read")
    (hit,) = (await call("sessions_search", query="ledger", tool="Read"))["hits"]
    assert hit["role"] == "tool"
    oldest = await call("sessions_search", query="ledger -part", order="oldest")
    assert [hit["session_id"] for hit in oldest["hits"]] == ["other", "shop"]
    rest = await call("sessions_search", query="ledger", exclude_source="cli")
    assert [hit["session_id"] for hit in rest["hits"]] == ["other"]


@pytest.mark.requirement("serving:search")
async def test_unknown_source_names_existing_ones(call):
    result = await call("sessions_search", query="ledger", source="discord")
    assert result["hits"] == []
    assert "cli" in result["note"]
    again = await call("sessions_search", query="ledger", source="Telegram", roles=["Assistant"])
    assert len(again["hits"]) == 1
    inside = await call("sessions_search", query="ledger", project="shop")
    assert [hit["session_id"] for hit in inside["hits"]] == ["shop"]
