"""A moved home keeps its routes. A copied or hidden one adopts none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB, SessionStore
from session_core.state.sqlite.admin.admin import SqliteAdmin
from session_core.types import Holder
from tests.homes import connect
from tests.routing.chats import (
    KEY,
    OTHER,
    Clock,
    chat,
    get_session_ids,
    make_stored_entry,
    put_row,
    read_rows,
)


@pytest.fixture
def moved(make: Any, db: SessionDB, home_path: Path, tmp_path: Path) -> Path:
    """A home with two chats, moved to another folder without its mirror."""
    store = make(db)
    for chat_id in (42, 43):
        store.get_or_create_session(chat(chat_id))
    store.close()
    db.close()
    new_home = tmp_path / "moved"
    shutil.move(home_path, new_home)
    (new_home / "sessions" / "sessions.json").unlink()
    return new_home


def open_moved(home: Path, clock: Clock, **options: Any) -> tuple[SessionDB, SessionStore]:
    db = SessionDB(home / "state.db")
    return db, SessionStore(home / "sessions", db=db, now=clock, **options)


@pytest.mark.requirement("copies:moved")
def test_moved_home_keeps_routes(moved: Path, clock: Clock) -> None:
    db, store = open_moved(moved, clock)
    with db, store:
        assert set(get_session_ids(store)) == {KEY, OTHER}
        store.update_session(KEY)
        assert set(read_rows(db, moved / "sessions")) == {KEY, OTHER}


@pytest.mark.requirement("copies:moved")
def test_moved_home_keeps_removals(moved: Path, clock: Clock) -> None:
    db, store = open_moved(moved, clock)
    with db, store:
        store.remove(store.load_entries())
    db, store = open_moved(moved, clock)
    with db, store:
        assert get_session_ids(store) == {}


@pytest.mark.requirement("copies:moved")
def test_twice_moved_home_keeps_routes(moved: Path, clock: Clock, tmp_path: Path) -> None:
    db, store = open_moved(moved, clock)
    with db, store:
        new = store.reset_session(KEY)
        assert new is not None
    shutil.move(moved, tmp_path / "again")
    db, store = open_moved(tmp_path / "again", clock)
    with db, store:
        assert store.peek_session_id(KEY) == new.session_id
        assert len(get_session_ids(store)) == 2


def test_existing_home_keeps_own_routes(make: Any, db: SessionDB, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    put_row(db, elsewhere, make_stored_entry("theirs"))
    assert get_session_ids(make(db)) == {}


def test_copied_home_adopts_no_earlier_scope(
    make: Any, db: SessionDB, home_path: Path, tmp_path: Path, clock: Clock
) -> None:
    """A home that was moved once may have rows of a missing folder. So has its copy."""
    with make(db) as store:
        chat_id = store.get_or_create_session(chat(43)).session_id
    put_row(db, tmp_path / "earlier" / "sessions", make_stored_entry("stale"))
    with connect(db.path) as connection:
        connection.execute(
            "UPDATE gateway_routing SET updated_at = updated_at - 100 WHERE session_key = ?", (KEY,)
        )
    db.close()
    copy = shutil.copytree(home_path, tmp_path / "copy")
    copied, store = open_moved(copy, clock)
    with copied, store:
        assert get_session_ids(store) == {OTHER: chat_id}
        assert store.reset_session(OTHER) is not None
        assert set(read_rows(copied, copy / "sessions")) == {OTHER}


def test_routes_of_foreign_scope_are_ignored(make: Any, db: SessionDB) -> None:
    for scope in ("", "a name", "C:\\hermes\\sessions"):
        db.routes.save_entry(KEY, json.dumps(make_stored_entry()), scope=scope, expect=None)
    assert get_session_ids(make(db)) == {}


@pytest.mark.requirement("copies:moved")
def test_store_with_hidden_folder_keeps_routes(
    make: Any, db: SessionDB, home_path: Path, clock: Clock
) -> None:
    """Another container does not see the folder, or its disk is temporarily missing."""
    gone = home_path / "gone"
    gone.mkdir()
    running = SessionStore(gone / "sessions", db=db, now=clock)
    with running:
        running_id = running.get_or_create_session(chat()).session_id
        gone.rename(home_path / "hidden")
        store = make(db)
        store.get_or_create_session(chat(43))
        assert store.peek_session_id(KEY) == running_id
        (home_path / "hidden").rename(gone)
        assert get_session_ids(running) == {KEY: running_id}


@pytest.mark.requirement("copies:moved")
def test_open_home_keeps_former_routes(
    moved: Path, clock: Clock, home_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, store = open_moved(moved, clock)
    monkeypatch.setattr(SqliteAdmin, "list_holders", lambda _: [Holder(1, "another")])
    with db, store:
        store.update_session(KEY)
        assert set(get_session_ids(store)) == {KEY, OTHER}
        assert set(read_rows(db, home_path / "sessions")) == {KEY, OTHER}


def test_store_with_routes_ignores_missing_folder(
    make: Any, db: SessionDB, folder: Path, home_path: Path
) -> None:
    put_row(db, folder, make_stored_entry())
    gone = str(home_path / "gone" / "sessions")
    text = json.dumps(make_stored_entry("s2", OTHER))
    db.routes.save_entry(OTHER, text, scope=gone, expect=None)
    store = make(db)
    store.update_session(KEY)
    assert set(get_session_ids(store)) == {KEY}
