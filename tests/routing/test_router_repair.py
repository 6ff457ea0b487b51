"""Repair of routes at a start: the damage of a crash is repaired, and no route is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import Hooks, SessionDB, SessionStore, StorageError
from tests.homes import connect
from tests.routing.chats import (
    KEY,
    Clock,
    begin_session,
    chat,
    file_entries,
    make_stored_entry,
    put_row,
    read_rows,
)


def rotate_session(db: SessionDB, parent: str, child: str = "child") -> None:
    """Compress a session as a process that is killed before it stores the route."""
    db.end_session(parent, "compression")
    db.create_session(child, "telegram", parent_session_id=parent)
    db.append_message(child, "user", "a summary")


def test_repair_keeps_route_of_open_session(store: SessionStore, db: SessionDB) -> None:
    begin_session(store, db)
    before = read_rows(db, store.folder)
    assert store.repair_routes() == []
    assert read_rows(db, store.folder) == before


def test_repair_keeps_route_without_session_row(store: SessionStore) -> None:
    entry = store.get_or_create_session(chat())
    assert store.repair_routes() == []
    assert store.get(KEY) == entry


def test_repair_keeps_route_without_end_reason(store: SessionStore, db: SessionDB) -> None:
    db.end_session(begin_session(store, db), None)
    assert store.repair_routes() == []


@pytest.mark.requirement("store:start")
def test_repair_follows_interrupted_rotation(store: SessionStore, db: SessionDB) -> None:
    """The child has no session key. Only its parent leads to it."""
    parent = begin_session(store, db, user_id="7", chat_name="Ann")
    rotate_session(db, parent)
    assert store.repair_routes() == [KEY]
    assert store.peek_session_id(KEY) == "child"
    assert store.get_or_create_session(chat()).session_id == "child"
    row = db.get_session("child")
    assert row is not None
    assert (row["session_key"], row["chat_id"], row["user_id"], row["display_name"]) == (
        KEY,
        "42",
        "7",
        "Ann",
    )
    assert file_entries(store.folder) == read_rows(db, store.folder)
    assert store.repair_routes() == []


def test_repair_follows_rotation_without_origin(
    store: SessionStore, db: SessionDB, folder: Any
) -> None:
    db.create_session("s1", "telegram")
    put_row(db, folder, make_stored_entry("s1"))
    rotate_session(db, "s1")
    assert store.repair_routes() == [KEY]
    assert store.peek_session_id(KEY) == "child"


def test_repair_reopens_agent_closed_continuation(store: SessionStore, db: SessionDB) -> None:
    rotate_session(db, begin_session(store, db))
    db.end_session("child", "agent_close")
    assert store.repair_routes() == [KEY]
    assert store.peek_session_id(KEY) == "child"
    row = db.get_session("child")
    assert row is not None
    assert row["end_reason"] is None


@pytest.mark.requirement("store:start")
def test_repair_keeps_interrupted_compression(store: SessionStore, db: SessionDB) -> None:
    parent = begin_session(store, db)
    db.end_session(parent, "compression")
    assert store.repair_routes() == [KEY]
    assert store.get_or_create_session(chat()).session_id == parent


@pytest.mark.requirement("store:start")
@pytest.mark.parametrize("reason", ["agent_close", "ws_orphan_reap"])
def test_repair_reopens_agent_closed_session(
    store: SessionStore, db: SessionDB, reason: str
) -> None:
    session_id = begin_session(store, db)
    db.end_session(session_id, reason)
    assert store.repair_routes() == [KEY]
    assert store.peek_session_id(KEY) == session_id
    row = db.get_session(session_id)
    assert row is not None
    assert row["end_reason"] is None


def test_repair_leads_route_to_resumable_session(store: SessionStore, db: SessionDB) -> None:
    old = begin_session(store, db)
    db.end_session(old, "cli_close")
    db.create_session("other", "telegram", session_key=KEY, started_at=4e9)
    db.append_message("other", "user", "said")
    assert store.repair_routes() == [KEY]
    assert store.peek_session_id(KEY) == "other"


@pytest.mark.requirement("store:start")
def test_repair_removes_dangling_route(store: SessionStore, db: SessionDB) -> None:
    begin_session(store, db)
    store.get_or_create_session(chat(43))
    db.end_session(store.peek_session_id(KEY), "session_reset")
    assert store.repair_routes() == [KEY]
    left = ["agent:main:telegram:dm:43"]
    assert list(read_rows(db, store.folder)) == list(file_entries(store.folder)) == left


def test_repair_removes_ended_route_without_origin(
    store: SessionStore, db: SessionDB, folder: Any
) -> None:
    db.create_session("s1", "telegram", session_key=KEY)
    db.append_message("s1", "user", "said")
    db.end_session("s1", "agent_close")
    put_row(db, folder, make_stored_entry("s1"))
    assert store.repair_routes() == [KEY]
    assert store.load_entries() == {}


@pytest.mark.requirement("store:start")
def test_repair_keeps_route_after_lookup_failure(
    store: SessionStore, db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.end_session(begin_session(store, db), "session_reset")

    def fail(*_: Any, **__: Any) -> None:
        raise StorageError("not now")

    monkeypatch.setattr(db.routes, "find_latest_session", fail)
    assert store.repair_routes() == []
    assert store.peek_session_id(KEY) is not None


@pytest.mark.parametrize("has_origin", [True, False])
def test_repair_keeps_entries_of_locked_database(
    make: Any, db: SessionDB, folder: Path, home_path: Path, *, has_origin: bool
) -> None:
    store = make(db)
    session_id = begin_session(store, db)
    db.end_session(session_id, "session_reset")
    if not has_origin:
        entry = make_stored_entry(session_id)
        entry.pop("origin", None)
        put_row(db, folder, entry)
    with (
        SessionDB(home_path / "state.db", patience_s=0.1) as hasty,
        connect(home_path / "state.db") as other,
    ):
        late = make(hasty)
        other.execute("BEGIN IMMEDIATE")
        assert late.repair_routes() == []
        assert late.peek_session_id(KEY) == session_id
        other.execute("ROLLBACK")
        assert late.repair_routes() == [KEY]


def test_repair_waits_once_for_lock(make: Any, db: SessionDB, home_path: Path) -> None:
    store = make(db)
    for number in range(20):
        session_id = store.get_or_create_session(chat(number)).session_id
        db.create_session(session_id, "telegram")
        db.end_session(session_id, "session_reset")
    waits: list[str] = []
    with (
        SessionDB(home_path / "state.db", patience_s=0.1) as hasty,
        connect(home_path / "state.db") as other,
    ):
        late = make(hasty)
        late.report = lambda what, _: waits.append(what)
        other.execute("BEGIN IMMEDIATE")
        assert late.repair_routes() == []
    assert len(waits) == 1


@pytest.mark.requirement("store:start")
def test_repair_keeps_activity_and_marks(store: SessionStore, db: SessionDB, clock: Clock) -> None:
    session_id = begin_session(store, db)
    store.suspend_session(KEY)
    store.set_model_override(KEY, {"model": "m"})
    before = store.get(KEY)
    clock.advance(hours=5)
    db.end_session(session_id, "agent_close")
    assert store.repair_routes() == [KEY]
    assert store.get(KEY) == before


def test_repaired_session_can_end_again(make: Any, db: SessionDB) -> None:
    hooks = Hooks(group=None, report=lambda *_: None)
    ended: list[str] = []
    hooks.add("on_session_finalize", lambda session_id: ended.append(str(session_id)))
    store = make(db, hooks=hooks)
    session_id = begin_session(store, db)
    hooks.call_once("on_session_finalize", session_id=session_id, platform="telegram")
    db.end_session(session_id, "agent_close")
    store.repair_routes()
    store.reset_session(KEY)
    assert ended == [session_id, session_id]


def test_repair_without_database_returns_no_keys(make: Any) -> None:
    store = make()
    store.get_or_create_session(chat())
    assert store.repair_routes() == []


def test_repair_retries_concurrently_changed_route(
    store: SessionStore, db: SessionDB, folder: Any
) -> None:
    parent = begin_session(store, db)
    rotate_session(db, parent)
    real, calls = store.router._follow_compression, []

    def heal(entry: Any) -> bool:
        calls.append(entry)
        if len(calls) == 1:
            put_row(db, folder, read_rows(db, folder)[KEY] | {"total_tokens": 7})
        return real(entry)

    store.router._follow_compression = heal
    assert store.repair_routes() == [KEY]
    entry = store.get(KEY)
    assert entry is not None
    assert (entry.session_id, entry.total_tokens, len(calls)) == ("child", 7, 2)


@pytest.mark.requirement("store:start")
def test_suspended_ended_chat_resets_after_repair(store: SessionStore, db: SessionDB) -> None:
    """Without its entry the session would be recovered as if it were not suspended."""
    old = begin_session(store, db)
    store.suspend_session(KEY)
    entry = store.get(KEY)
    assert entry is not None
    entry.origin = None
    store.save(entry)
    db.end_session(old, "compression")
    assert store.repair_routes() == []
    assert store.get_or_create_session(chat()).auto_reset_reason == "suspended"
