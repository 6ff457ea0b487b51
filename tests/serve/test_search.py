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
