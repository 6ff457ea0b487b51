"""`sessions_edit`: its answer, and that another edit can undo each edit."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("changing:edited")
async def test_reopened_session_becomes_tip(call, db):
    db.append_message("first", "user", "hi", create={"source": "cli"})
    db.end_session("first", "compression")
    create = {"source": "cli", "parent_session_id": "first"}
    db.append_message("tip", "user", "more", create=create)
    db.end_session("tip", "user_exit")
    edited = await call("sessions_edit", sessions="first", reopen=True)
    assert (edited["sessions"][0]["id"], edited["sessions"][0]["status"]) == ("tip", "open")
    assert db.get_session("first")["end_reason"] == "compression"
    await call("sessions_restore", batch=edited["batch"])
    assert db.get_session("tip")["end_reason"] == "user_exit"


@pytest.mark.requirement("changing:edited")
async def test_edit_reverses_previous_edit(call, db):
    db.append_message("s1", "user", "hi", create={"source": "cli"})
    plain = (await call("sessions_list"))["sessions"]
    await call("sessions_edit", sessions="s1", title="T", archived=True, pinned=True)
    await call("sessions_edit", sessions="s1", title="", archived=False, pinned=False)
    assert (await call("sessions_list"))["sessions"] == plain


@pytest.mark.requirement("changing:edits")
@pytest.mark.usefixtures("old_sessions")
async def test_edit_applies_at_once_and_restores(call):
    edited = await call("sessions_edit", sessions="new", title="Named", pinned=True, archived=True)
    assert edited["sessions"][0] | {"title": "Named", "pinned": True} == edited["sessions"][0]
    assert edited["sessions"][0]["status"] == "archived"
    restored = await call("sessions_restore", batch=edited["batch"])
    assert (restored["outcome"], restored["restored"] > 0) == ("applied", True)
    (row,) = (await call("sessions_list", status="open"))["sessions"]
    assert (row["title"], row["pinned"]) == (None, False)


@pytest.mark.requirement("changing:edits")
@pytest.mark.usefixtures("old_sessions")
async def test_several_sessions_have_one_undo(call):
    edited = await call("sessions_edit", sessions=["old0", "old1", "new"], archived=True)
    assert {row["status"] for row in edited["sessions"]} == {"archived"}
    (listed,) = (await call("sessions_restore"))["batches"]
    assert (listed["batch"], listed["count"]) == (edited["batch"], 3)
    await call("sessions_restore", batch=edited["batch"])
    assert len((await call("sessions_list"))["sessions"]) == 4


@pytest.mark.requirement("changing:edits")
@pytest.mark.usefixtures("old_sessions")
async def test_title_of_several_sessions_is_refused(refused):
    text = await refused("sessions_edit", sessions=["old0", "old1"], title="Both")
    assert text.startswith("a title is set on one session, got 2")
    text = await refused("sessions_edit", sessions=["x"] * 101, archived=True)
    assert "sessions must have at most 100 entries" in text


@pytest.mark.requirement("changing:edits")
async def test_rows_of_many_sessions_fit(call, db):
    for number in range(100):
        create = {"source": "cli", "cwd": f"/srv/{'project' * 12}"}
        db.append_message(f"many{number:03}", "user", "long line " * 40, create=create)
    names = [f"many{number:03}" for number in range(100)]
    edited = await call("sessions_edit", sessions=names, pinned=True)
    assert "more were edited; call sessions_list" in edited["note"]
    assert 10 < len(edited["sessions"]) < 100
