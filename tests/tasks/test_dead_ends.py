"""Everyday tasks that once took too many calls, each begun as a model begins it."""

from __future__ import annotations

import pytest

from session_core import SessionDB

pytestmark = pytest.mark.anyio

OLD = 1_600_000_000


@pytest.fixture(name="db")
def _db(home):
    with SessionDB(home / "state.db") as db:
        yield db


def add_old_session(db, session_id, *texts, source="cli", **fields):
    """Add an ended session from years ago."""
    create = {"source": source, "started_at": OLD, **fields}
    rows = [
        {"role": ("user", "assistant")[number % 2], "content": text, "timestamp": OLD + number}
        for number, text in enumerate(texts)
    ]
    db.append_messages(session_id, rows, create=create)
    db.end_session(session_id, "user_exit")


@pytest.mark.requirement("tasks:changing")
async def test_cleanup_keeps_one_subject(given, db):
    add_old_session(db, "tax", "Where do I send the tax return?", "To the office in Graz.")
    add_old_session(db, "bread", "How long does rye bread bake?", "An hour.")
    model = given("Clean up what is older than a year, but keep the tax return.", "plan", "apply")
    planned = await model.call("sessions_prune", older_than_days=365, keep=["tax return"])
    assert [item["id"] for item in planned["items"]] == ["bread"]
    (kept,) = [each for each in planned["protected"] if each["ids"]]
    assert (kept["why"], kept["ids"]) == ("keep names it", ["tax"])
    answer = await model.call("sessions_prune", plan=planned["plan"])
    assert (answer["removed"], db.get_session("tax") is None) == (1, False)
    model.check(most=1_300)


@pytest.mark.requirement("tasks:reading")
async def test_most_expensive_sessions_take_one_call(given, db):
    for session_id, cost in (("cheap", 0.5), ("dear", 40.0), ("dearer", 75.25)):
        add_old_session(db, session_id, "hello")
        db.update_token_counts(session_id, input_tokens=1000, actual_cost_usd=cost)
    model = given("Which sessions cost most?", "look")
    listed = await model.call("sessions_list", order="cost", detail="detailed", limit=2)
    costs = [(row["id"], row["cost"]) for row in listed["sessions"]]
    assert costs == [("dearer", 75.25), ("dear", 40.0)]
    model.check(most=900)


@pytest.mark.requirement("tasks:changing")
async def test_whole_source_is_archived_with_one_undo(given, db):
    model = given("Archive everything from Discord. No, undo that.", "which", "do it", "undo")
    listed = await model.call("sessions_list", source="Discord", limit=100)
    ids = [row["id"] for row in listed["sessions"]]
    assert len(ids) == 49
    assert listed["next_cursor"] is None
    edited = await model.call("sessions_edit", sessions=ids, archived=True)
    assert all(db.get_session(session_id)["archived"] for session_id in ids)
    await model.call("sessions_restore", batch=edited["batch"])
    assert not any(db.get_session(session_id)["archived"] for session_id in ids)
    model.check(most=36_000)


@pytest.mark.requirement("tasks:changing")
async def test_untitled_session_is_titled(given, db):
    model = given("Give my untitled chats a title.", "which", "do it")
    listed = await model.call("sessions_list", titled=False, min_messages=1)
    (row,) = listed["sessions"]
    assert row["preview"] == "See you at eight?"
    await model.call("sessions_edit", sessions=row["id"], title="Dinner at eight")
    assert db.get_session(row["id"])["title"] == "Dinner at eight"
    model.check(most=900)


@pytest.mark.requirement("tasks:reading")
async def test_work_of_week_in_project_is_listed(given):
    model = given("What did I do this week on shop?", "look")
    listed = await model.call("sessions_list", project="shop", since="last week")
    rows = listed["sessions"]
    assert rows
    assert {row["project"] for row in rows} == {"/home/sam/shop"}
    assert all(row["title"] or row["preview"] for row in rows)
    model.check(most=4_000)


@pytest.mark.requirement("tasks:changing")
async def test_last_change_is_undone_without_handle(given, db, client):
    add_old_session(db, "bread", "How long does rye bread bake?", "An hour.")
    await client.call_tool("sessions_edit", {"sessions": "bread", "title": "Rye"})
    model = given("Undo that.", "which", "undo")
    (batch,) = (await model.call("sessions_restore", limit=1))["batches"]
    assert batch["count"] == 1
    await model.call("sessions_restore", batch=batch["batch"])
    assert db.get_session("bread")["title"] is None
    model.check(most=600)


@pytest.mark.requirement("tasks:reading")
async def test_command_that_fixed_error_is_found(given, db):
    add_old_session(
        *(db, "disk", "cron mails ENOSPC-77 every night, what helps?"),
        "Run `journalctl --vacuum-size=200M`, the journal fills the disk.",
        "That helped, thanks.",
    )
    model = given("Which command fixed the error ENOSPC-77?", "find it")
    answer = await model.call("sessions_search", query="which command fixed the error ENOSPC-77?")
    best = answer["hits"][0]
    assert "journalctl --vacuum-size=200M" in best["snippet"] + best.get("next", "")
    model.check(most=5_000)


@pytest.mark.requirement("tasks:reading")
async def test_person_of_chat_is_found(given, db):
    add_old_session(db, "ann", "The keys are with Ann.", source="telegram", display_name="Ann B.")
    model = given("Who is Ann?", "which chats", "what is said")
    listed = await model.call("sessions_list", query="Ann")
    row = next(row for row in listed["sessions"] if row["id"] == "ann")
    assert (row["chat"], row["source"]) == ("Ann B.", "telegram")
    answer = await model.call("sessions_search", query="who is Ann", limit=3)
    assert any("The keys are with Ann." in hit["snippet"] for hit in answer["hits"])
    model.check(most=3_500)


@pytest.mark.requirement("tasks:reading")
async def test_wrong_value_is_corrected_from_note(given):
    model = given("What came in on WhatsUp?", "try", "do it as the note says")
    listed = await model.call("sessions_list", source="WhatsUp")
    assert listed["sessions"] == []
    assert "whatsapp" in listed["note"]
    listed = await model.call("sessions_list", source="whatsapp")
    assert len(listed["sessions"]) == 1
    model.check(most=700)


@pytest.mark.requirement("tasks:reading")
async def test_folder_is_continued_where_it_stopped(given, db):
    db.append_message("elsewhere", "user", "newest of all", create={"source": "cli"})
    model = given("Continue where I left off in /home/sam/shop.", "which one", "read it")
    listed = await model.call("sessions_list", project="/home/sam/shop", limit=3)
    row = listed["sessions"][0]
    assert row["id"] != "elsewhere"
    page = await model.call("sessions_read", session=row["id"], limit=10)
    assert page["messages"]
    model.check(most=5_000)
