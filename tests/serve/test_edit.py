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
    edited = await call("sessions_edit", session="first", reopen=True)
    assert (edited["session"]["id"], edited["session"]["status"]) == ("tip", "open")
    assert db.get_session("first")["end_reason"] == "compression"
    await call("sessions_restore", batch=edited["batch"])
    assert db.get_session("tip")["end_reason"] == "user_exit"


@pytest.mark.requirement("changing:edited")
async def test_edit_reverses_previous_edit(call, db):
    db.append_message("s1", "user", "hi", create={"source": "cli"})
    plain = (await call("sessions_list"))["sessions"]
    await call("sessions_edit", session="s1", title="T", archived=True, pinned=True)
    await call("sessions_edit", session="s1", title="", archived=False, pinned=False)
    assert (await call("sessions_list"))["sessions"] == plain


@pytest.mark.requirement("changing:edits")
@pytest.mark.usefixtures("old_sessions")
async def test_edit_applies_at_once_and_restores(call):
    edited = await call("sessions_edit", session="new", title="Named", pinned=True, archived=True)
    assert edited["session"] | {"title": "Named", "pinned": True} == edited["session"]
    assert edited["session"]["status"] == "archived"
    restored = await call("sessions_restore", batch=edited["batch"])
    assert (restored["outcome"], restored["restored"] > 0) == ("applied", True)
    (row,) = (await call("sessions_list", status="open"))["sessions"]
    assert (row["title"], row["pinned"]) == (None, False)


@pytest.mark.requirement("changing:edits")
@pytest.mark.usefixtures("old_sessions")
async def test_edit_rejects_prefix_and_title(call, refused):
    text = await refused("sessions_edit", session="ne", title="x")
    assert text.startswith("no session 'ne'; a change requires a full id or a session key")
