"""`sessions_list`: filters, order and pages of conversations."""

from __future__ import annotations

import pytest

from mcp_serve import answer_size

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _conversations(db):
    for number in range(5):
        at = 1_700_000_000 + number * 86_400
        db.append_message(
            f"s{number}",
            "user",
            f"question {number}",
            timestamp=at,
            create={"source": "cli" if number % 2 else "telegram", "started_at": at},
        )
    db.set_session_title("s3", "The schema")
    db.end_session("s1", "user_exit")
    db.set_session_archived("s2", archived=True)


@pytest.mark.requirement("serving:list")
async def test_list_row_has_contract_keys(call):
    page = await call("sessions_list", query="schema")
    assert page == {
        "sessions": [
            {
                "id": "s3",
                "title": "The schema",
                "preview": "question 3",
                "source": "cli",
                "status": "open",
                "started_at": "2023-11-17T22:13:20Z",
                "last_active_at": "2023-11-17T22:13:20Z",
                "messages": 1,
                "pinned": False,
            }
        ],
        "next_cursor": None,
    }


@pytest.mark.requirement("serving:list")
async def test_list_omits_archived_by_default(call):
    shown = await call("sessions_list")
    archived = await call("sessions_list", status="archived")
    everything = await call("sessions_list", status="all")
    assert [row["id"] for row in shown["sessions"]] == ["s4", "s3", "s1", "s0"]
    assert [row["id"] for row in archived["sessions"]] == ["s2"]
    assert len(everything["sessions"]) == 5


@pytest.mark.requirement("serving:list")
async def test_ended_session_shows_end_and_reason(call):
    (row,) = (await call("sessions_list", status="ended"))["sessions"]
    assert (row["status"], row["end_reason"]) == ("ended", "user_exit")
    assert row["ended_at"].endswith("Z")


@pytest.mark.requirement("serving:pages")
async def test_list_cursor_continues_page(call):
    first = await call("sessions_list", status="all", limit=2)
    alone = await call("sessions_list", cursor=first["next_cursor"], limit=2)
    same = await call("sessions_list", status="all", cursor=first["next_cursor"], limit=2)
    last = await call("sessions_list", cursor=alone["next_cursor"], limit=2)
    assert alone["sessions"] == same["sessions"]
    result = [row["id"] for page in (first, alone, last) for row in page["sessions"]]
    assert result == ["s4", "s3", "s2", "s1", "s0"]
    assert last["next_cursor"] is None


@pytest.mark.requirement("serving:pages")
async def test_cursor_keeps_age_fixed(call):
    first = await call("sessions_list", since="20000d", limit=1)
    again = await call("sessions_list", since="20000d", cursor=first["next_cursor"], limit=1)
    assert [row["id"] for row in again["sessions"]] == ["s3"]


@pytest.mark.requirement("serving:pages")
async def test_cursor_of_other_query_is_refused(call, refused):
    first = await call("sessions_list", limit=1)
    text = await refused("sessions_list", cursor=first["next_cursor"], status="ended")
    assert text == (
        "status differs from the query of the cursor; pass the cursor alone, "
        "or call without it for a new query."
    )


@pytest.mark.requirement("serving:pages")
@pytest.mark.parametrize("cursor", ["x", "é", "WyJ4Il0", "a" * 30_000])
async def test_malformed_cursor_is_refused(refused, cursor):
    text = await refused("sessions_list", cursor=cursor)
    assert text == "malformed cursor; pass next_cursor of the previous page unchanged."


@pytest.mark.requirement("serving:unknown")
async def test_unknown_argument_error_lists_valid_names(refused):
    text = await refused("sessions_list", stauts="all")
    assert text.startswith(
        "unknown argument 'stauts'; did you mean 'status'? valid arguments: store"
    )


@pytest.mark.requirement("serving:unknown")
async def test_invalid_value_error_lists_valid_values(refused):
    assert await refused("sessions_list", status="closed") == (
        "status must be one of 'open', 'ended', 'archived' or 'all'."
    )
    assert await refused("sessions_list", limit=101) == "limit must be <= 100."


@pytest.mark.requirement("serving:unknown")
async def test_null_argument_means_default(call):
    page = await call("sessions_list", query=None, limit=None, status=None)
    assert len(page["sessions"]) == 4


@pytest.mark.requirement("serving:unknown")
async def test_invalid_time_error_shows_examples(refused):
    text = await refused("sessions_list", since="soon")
    assert text == (
        "since 'soon' is not a valid time; pass an age such as '7d' or '12h', 'yesterday', "
        "'3 days ago', 'last week', or a time such as '2026-11-01T08:00:00Z'."
    )


@pytest.mark.parametrize(
    ("tool", "more"), [("sessions_list", {}), ("sessions_search", {"query": "x"})]
)
async def test_reversed_time_range_is_refused(refused, call, tool, more):
    text = await refused(tool, since="2026-02-01", until="2026-01-01", **more)
    assert text.startswith("since '2026-02-01' must not be later than until '2026-01-01'")
    await call(tool, since="7d", until="1d", **more)


@pytest.mark.requirement("serving:pages")
async def test_list_page_fits_budget_and_continues(db, call):
    for number in range(80):
        folder = f"/srv/{'long/' * 150}{number}"
        db.append_message(f"w{number:02}", "user", "x", create={"source": "cli", "cwd": folder})
    page = await call("sessions_list", project="/srv", limit=100)
    result = [row["id"] for row in page["sessions"]]
    assert answer_size.count_chars(page) <= answer_size.DEFAULT_CHARS
    assert 1 < len(result) < 80
    while page["next_cursor"]:
        page = await call("sessions_list", cursor=page["next_cursor"], limit=100)
        result += [row["id"] for row in page["sessions"]]
    assert sorted(result) == [f"w{number:02}" for number in range(80)]


@pytest.mark.requirement("serving:list")
async def test_title_loses_hidden_characters(db, call):
    db.set_session_title("s4", "safe \u202eevil\u202c \u200btitle")
    (row,) = (await call("sessions_list", query="title"))["sessions"]
    assert row["title"] == "safe evil title"


@pytest.mark.requirement("serving:list")
async def test_query_finds_earlier_titles(db, call):
    for name, parent in (("first", None), ("second", "first"), ("third", "second")):
        db.append_message(
            name, "user", "hello", create={"source": "cli", "parent_session_id": parent}
        )
        db.set_session_title(name, {"first": "Ledger export", "second": "Nightly run"}.get(name))
        db.end_session(name, "compression" if name != "third" else "done")
    for query in ("ledger", "nightly EXPORT", "firs export", "third"):
        assert [row["id"] for row in (await call("sessions_list", query=query))["sessions"]] == [
            "third"
        ], query
    assert (await call("sessions_list", query="ledger absent"))["sessions"] == []


@pytest.mark.requirement("serving:list")
async def test_detailed_row_has_longer_preview(db, call):
    text = "a long question " * 20
    db.append_message("long", "user", text, create={"source": "cli"})
    (short,) = (await call("sessions_list", limit=1))["sessions"]
    (long,) = (await call("sessions_list", limit=1, detail="detailed"))["sessions"]
    assert len(short["preview"]) < 70
    assert long["preview"] == text.strip()


@pytest.mark.requirement("faces:unknown-store")
async def test_unknown_store_error_lists_stores(refused):
    assert await refused("sessions_list", store="work") == "store 'work' is not served; valid: own."


@pytest.mark.requirement("serving:pages")
async def test_cursor_refuses_different_default(db, call, refused):
    for name in ("a", "b"):
        db.append_message(name, "user", "hello", create={"source": "cli"})
    page = await call("sessions_list", order="size", limit=1)
    cursor = page["next_cursor"]
    text = await refused("sessions_list", cursor=cursor, order="recent", limit=1)
    assert "order differs from the query of the cursor" in text
    assert (await call("sessions_list", cursor=cursor, order="size", limit=1))["sessions"]


@pytest.mark.requirement("serving:list")
async def test_compressed_conversation_lists_tip_only(db, call):
    db.append_message("root", "user", "how it began", create={"source": "cli"})
    db.end_session("root", "compression")
    create = {"source": "cli", "parent_session_id": "root"}
    for number in range(3):
        db.append_message("tip", "user", f"how it goes on {number}", create=create)
    db.archive_and_compact("tip", [{"role": "user", "content": "[summary]"}])
    (row, *_) = (await call("sessions_list"))["sessions"]
    assert (row["id"], row["root_id"], row["messages"]) == ("tip", "root", 1)
    assert row["status"] == "open"
    assert "ended_at" not in row


@pytest.mark.requirement("serving:notes")
async def test_empty_list_explains_itself(call, db):
    async def explain(**arguments):
        page = await call("sessions_list", **arguments)
        assert page["sessions"] == []
        return page["note"]

    assert await explain(query="question 2") == (
        "No title, chat name or id has all these words; sessions_search looks into messages."
    )
    assert await explain(since="2023-11-16", until="2023-11-16") == (
        "Only archived conversations match; pass status='archived' for them."
    )
    assert await explain(min_messages=2) == ("No conversation meets all conditions; leave one out.")
    for number in range(5):
        db.delete_session(f"s{number}")
    assert await explain() == "There are no conversations yet."


@pytest.mark.requirement("serving:notes")
async def test_order_without_amounts_explains_itself(call, db):
    page = await call("sessions_list", order="cost")
    assert page["note"] == "No cost recorded for these sessions."
    db.update_token_counts("s0", input_tokens=5)
    assert "note" not in await call("sessions_list", order="tokens")


@pytest.mark.requirement("serving:list")
async def test_list_orders_by_cost_and_tokens(call, db):
    for number, (tokens, cost) in enumerate([(5, 0.1), (9, 0.0), (7, 3.0), (1, 0.5), (0, 0.0)]):
        db.update_token_counts(f"s{number}", input_tokens=tokens, actual_cost_usd=cost)
    costly = await call("sessions_list", order="cost", status="all", limit=3, detail="detailed")
    assert [(row["id"], row["cost"]) for row in costly["sessions"]] == [
        ("s2", 3.0),
        ("s3", 0.5),
        ("s0", 0.1),
    ]
    rest = await call("sessions_list", cursor=costly["next_cursor"])
    assert [row["id"] for row in rest["sessions"]] == ["s4", "s1"]
    assert "cost" not in rest["sessions"][0]
    spent = await call("sessions_list", order="tokens", detail="detailed")
    assert [row.get("tokens") for row in spent["sessions"]] == [9, 5, 1, None]


@pytest.mark.requirement("serving:list")
async def test_list_filters_by_title(call):
    titled = await call("sessions_list", titled=True)
    assert [row["id"] for row in titled["sessions"]] == ["s3"]
    untitled = await call("sessions_list", titled=False)
    assert [row["id"] for row in untitled["sessions"]] == ["s4", "s1", "s0"]


@pytest.mark.requirement("serving:list")
async def test_detailed_row_has_model_and_branch(call, db):
    create = {"source": "telegram", "model": "big", "git_branch": "feat", "display_name": "Ann"}
    db.append_message("chat", "user", "hello", create=create)
    (row,) = (await call("sessions_list", query="ann", detail="detailed"))["sessions"]
    assert (row["chat"], row["branch"], row["model"]) == ("Ann", "feat", "big")
    (row,) = (await call("sessions_list", query="ann"))["sessions"]
    assert row["chat"] == "Ann"
    assert not {"branch", "model", "cost", "tokens", "resume"} & set(row)
