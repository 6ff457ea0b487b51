"""Everyday tasks over a dirty Hermes home, and on a machine with transcripts of another agent."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from session_core import SessionDB
from tests.homes import add_message, add_session, connect, fill_database, make_hermes_database
from tests.transcripts.trees import ClaudeTree

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("home", ["dirty", "mixed"], indirect=True)]

OLD = 1_600_000_000.0
FIX = "Run `journalctl --vacuum-size=200M`, the journal fills the disk."


@pytest.fixture(name="home")
def _make_home(request, home_path: Path) -> Path:
    """A Hermes home with leftovers of every kind. Mixed: with transcripts next to it."""
    path = home_path / "state.db"
    make_hermes_database(path)
    fill_database(path, 30, 8, start=time.time() - 40 * 3600)
    with connect(path) as connection:
        _add_leftovers(connection)
        _add_conversations(connection)
    if request.param == "mixed":
        tree = ClaudeTree(Path(os.environ["HOME"]))
        for number in range(12):
            tree.write(f"talk-{number}", [f"Question {number} of the app?", "An answer."])
        tree.write("cron-disk", ["cron mails ENOSPC-77 every night, what helps?", FIX])
    else:
        with connect(path) as connection:
            _add_talk(connection, "cron-disk", "cron mails ENOSPC-77 every night, what helps?", FIX)
    return home_path


def _add_leftovers(connection) -> None:
    """Add rows as crashes, other programs and older versions leave them."""
    for number in range(20):
        add_session(connection, f"ghost{number}", started_at=OLD + number)
    add_session(connection, "cut", started_at=OLD, ended_at=OLD + 5, end_reason="compression")
    connection.execute("PRAGMA foreign_keys=OFF")
    add_session(connection, "lost-child", parent_session_id="gone", started_at=OLD)
    connection.execute("PRAGMA foreign_keys=ON")
    add_session(connection, "odd", title="", source="", started_at=OLD)
    for content in (
        None,
        "",
        "\x00json:{broken",
        b"\xff\xfebytes",
        "\ud800".encode(errors="ignore"),
    ):
        add_message(connection, "odd", content=content, timestamp=OLD)
    add_message(connection, "odd", "assistant", "", tool_calls="not json", timestamp=OLD)


def _add_talk(connection, session_id: str, *texts: str, **fields) -> None:
    columns = {"started_at": OLD, "ended_at": OLD + 60, "end_reason": "cli_close"} | fields
    add_session(connection, session_id, **columns)
    for number, text in enumerate(texts):
        role = ("user", "assistant")[number % 2]
        add_message(connection, session_id, role, text, timestamp=OLD + number)


def _add_conversations(connection) -> None:
    """Add the conversations that the tasks are about."""
    _add_talk(connection, "tax", "Where do I send the tax return?", "To the office in Graz.")
    _add_talk(connection, "bread", "How long does rye bread bake?", "An hour.")
    _add_talk(connection, "ann", "The keys are with Ann.", source="telegram", display_name="Ann B.")
    for session_id, cost in (("dear", 40.0), ("dearer", 75.25)):
        _add_talk(connection, session_id, "hello", actual_cost_usd=cost, input_tokens=1000)


def read_row(home: Path, session_id: str):
    """Return the row of a session, or None."""
    with SessionDB(home / "state.db", read_only=True) as db:
        return db.get_session(session_id)


@pytest.mark.requirement("tasks:changing")
async def test_cleanup_keeps_subject_in_any_home(given, home):
    model = given("Clean up what is older than a year, but keep the tax return.", "plan", "apply")
    planned = await model.call("sessions_prune", older_than_days=365, keep=["tax return"])
    planned_ids = {item["id"] for item in planned["items"]}
    assert {"bread", "ann"} <= planned_ids
    assert "tax" not in planned_ids
    answer = await model.call("sessions_prune", plan=planned["plan"])
    assert answer["outcome"] == "applied"
    assert (read_row(home, "tax") is None, read_row(home, "bread")) == (False, None)
    model.check(most=4_000)


@pytest.mark.requirement("tasks:reading")
async def test_expensive_sessions_are_listed_in_any_home(given):
    model = given("Which sessions cost most?", "look")
    listed = await model.call("sessions_list", order="cost", detail="detailed", limit=2)
    assert [(row["id"], row["cost"]) for row in listed["sessions"]] == [
        ("dearer", 75.25),
        ("dear", 40.0),
    ]
    model.check(most=1_200)


@pytest.mark.requirement("tasks:changing")
async def test_source_is_archived_in_any_home(given, home):
    model = given("Archive everything from Discord. No, undo that.", "which", "do it", "undo")
    listed = await model.call("sessions_list", source="Discord", limit=100)
    ids = [row["id"] for row in listed["sessions"]]
    assert len(ids) == 4
    edited = await model.call("sessions_edit", sessions=ids, archived=True)
    assert all(read_row(home, session_id)["archived"] for session_id in ids)
    await model.call("sessions_restore", batch=edited["batch"])
    assert not any(read_row(home, session_id)["archived"] for session_id in ids)
    model.check(most=4_000)


@pytest.mark.requirement("tasks:reading")
async def test_fix_is_found_in_any_home(given):
    model = given("Which command fixed the error ENOSPC-77?", "find it")
    answer = await model.call("sessions_search", query="which command fixed the error ENOSPC-77?")
    best = answer["hits"][0]
    assert "journalctl --vacuum-size=200M" in best["snippet"] + best.get("next", "")
    model.check(most=3_000)


@pytest.mark.requirement("tasks:reading")
async def test_person_is_found_in_any_home(given):
    model = given("Who is Ann?", "which chats", "what is said")
    listed = await model.call("sessions_list", query="Ann")
    assert [row["id"] for row in listed["sessions"]] == ["ann"]
    answer = await model.call("sessions_search", query="who is Ann", limit=3)
    assert any("The keys are with Ann." in hit["snippet"] for hit in answer["hits"])
    model.check(most=2_000)


@pytest.mark.requirement("tasks:reading")
async def test_latest_work_is_read_in_any_home(given):
    model = given("Continue where I left off in project.", "which one", "read it")
    listed = await model.call("sessions_list", project="project", limit=3)
    row = listed["sessions"][0]
    assert row["project"] == "/srv/project"
    page = await model.call("sessions_read", session=row["id"], limit=10)
    assert page["messages"]
    model.check(most=6_000)


@pytest.mark.requirement("tasks:changing")
async def test_untitled_session_is_titled_in_any_home(given, home):
    model = given("Give my newest untitled chat a title.", "which", "do it")
    listed = await model.call("sessions_list", titled=False, min_messages=1, limit=1)
    (row,) = listed["sessions"]
    edited = await model.call("sessions_edit", sessions=row["id"], title="Deploy script")
    assert [session["title"] for session in edited["sessions"]] == ["Deploy script"]
    model.check(most=1_500)


@pytest.mark.requirement("tasks:changing")
async def test_problems_are_found_and_tidied(given, home):
    model = given("Is anything wrong with my sessions? Tidy it up.", "look", "plan", "apply")
    stats = await model.call("sessions_stats")
    tools = [finding["tool"] or "" for finding in stats["findings"]]
    assert any(tool.startswith("sessions_prune(what='ghosts'") for tool in tools)
    planned = await model.call("sessions_prune", what="ghosts")
    assert planned["count"] >= 20
    answer = await model.call("sessions_prune", plan=planned["plan"])
    assert (answer["outcome"], read_row(home, "ghost3")) == ("applied", None)
    model.check(most=8_000)
