"""The table and its mirror: precedence, adoption, and equal contents."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from session_core import Busy, Conflict, Denied, SessionDB, SessionStore
from session_core.config import GatewayConfig
from tests.homes import connect
from tests.routing.chats import (
    KEY,
    OTHER,
    UNMIRRORED,
    Clock,
    begin_session,
    chat,
    file_entries,
    get_session_ids,
    make_stored_entry,
    put_row,
    read_file,
    read_rows,
    write_file,
)

# Precedence


@pytest.mark.requirement("copies:precedence")
def test_table_precedes_file(make: Any, db: SessionDB, folder: Path) -> None:
    put_row(db, folder, make_stored_entry("in the table"))
    write_file(folder, {KEY: make_stored_entry("in the file")})
    assert get_session_ids(make(db)) == {KEY: "in the table"}


@pytest.mark.requirement("copies:precedence")
def test_file_entries_are_visible(make: Any, db: SessionDB, folder: Path) -> None:
    put_row(db, folder, make_stored_entry("s1"))
    write_file(folder, {OTHER: make_stored_entry("s2", OTHER)})
    store = make(db)
    assert get_session_ids(store) == {KEY: "s1", OTHER: "s2"}
    assert store.peek_session_id(OTHER) == "s2"


@pytest.mark.requirement("copies:precedence")
def test_reading_routes_does_not_write(make: Any, db: SessionDB, folder: Path) -> None:
    put_row(db, folder, make_stored_entry("s1"))
    path = write_file(folder, {OTHER: make_stored_entry("s2", OTHER), "bad": True})
    leftover = folder / ".sessions_old.tmp"
    leftover.touch()
    before = sorted(folder.iterdir()), path.read_bytes(), read_rows(db, folder)
    store = make(db)
    store.load_entries()
    store.get(KEY)
    store.close()
    assert (sorted(folder.iterdir()), path.read_bytes(), read_rows(db, folder)) == before


@pytest.mark.requirement("copies:precedence")
def test_change_imports_file_entries(make: Any, db: SessionDB, folder: Path) -> None:
    write_file(folder, {KEY: make_stored_entry("s1"), OTHER: make_stored_entry("s2", OTHER)})
    make(db).update_session(KEY)
    assert {key: row["session_id"] for key, row in read_rows(db, folder).items()} == {
        KEY: "s1",
        OTHER: "s2",
    }


def test_deleted_file_entry_stays_deleted(make: Any, db: SessionDB, folder: Path) -> None:
    write_file(folder, {KEY: make_stored_entry("s1"), OTHER: make_stored_entry("s2", OTHER)})
    reader, writer = make(db), make(db)
    assert len(get_session_ids(reader)) == 2
    writer.remove({OTHER: writer.load_entries()[OTHER]})
    assert get_session_ids(reader) == {KEY: "s1"}
    reader.update_session(KEY)
    assert list(read_rows(db, folder)) == [KEY]


# Equal contents


@pytest.mark.requirement("copies:step")
@pytest.mark.parametrize("config", [GatewayConfig(), UNMIRRORED])
def test_remove_deletes_table_and_file_entry(
    make: Any, db: SessionDB, folder: Path, config: GatewayConfig
) -> None:
    put_row(db, folder, make_stored_entry("s1"))
    write_file(folder, {KEY: make_stored_entry("s1"), OTHER: make_stored_entry("s2", OTHER)})
    store = make(db, config=config)
    assert set(store.remove(store.load_entries())) == {KEY, OTHER}
    assert read_rows(db, folder) == file_entries(folder) == {}
    assert get_session_ids(make(db)) == {}


@pytest.mark.requirement("copies:step")
def test_removed_entry_ignores_stale_file(make: Any, db: SessionDB, folder: Path) -> None:
    odd = {"_note": 1, "bad": True, "worse": {"session_key": "x"}}
    write_file(folder, {KEY: make_stored_entry("s1"), OTHER: make_stored_entry("s2", OTHER), **odd})
    store = make(db, config=UNMIRRORED)
    store.remove({KEY: store.load_entries()[KEY]})
    assert get_session_ids(make(db, config=UNMIRRORED)) == {OTHER: "s2"}
    members = read_file(folder)
    assert KEY not in members
    assert {key: members[key] for key in odd} == odd


@pytest.mark.parametrize("explained", [True, False])
def test_explanation_is_only_text_before_entries(
    make: Any, db: SessionDB, folder: Path, explained: bool
) -> None:
    """Hermes 0.17 stops reading at the first value that is not an entry."""
    first = {"_README": "by hand"} if explained else {}
    write_file(folder, {"_note": "by hand", **first, KEY: make_stored_entry(), "bad": True})
    store = make(db)
    store.suspend_session(KEY)
    store.close()
    assert list(read_file(folder)) == ["_README", KEY, "_note", "bad"]


@pytest.mark.requirement("copies:step")
def test_remove_keeps_changed_entry(make: Any, db: SessionDB, folder: Path) -> None:
    store = make(db)
    for chat_id in (42, 43):
        store.get_or_create_session(chat(chat_id))
    read = store.load_entries()
    store.suspend_session(KEY)
    assert store.remove(read) == [OTHER]
    assert list(file_entries(folder)) == list(read_rows(db, folder)) == [KEY]


def test_refused_removal_restores_mirror_on_close(
    make: Any, db: SessionDB, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(db)
    store.get_or_create_session(chat())

    def refuse(*_: Any, **__: Any) -> None:
        raise Conflict("not now")

    with monkeypatch.context() as patch:
        patch.setattr(db.routes, "delete_entries", refuse)
        with pytest.raises(Conflict):
            store.remove(store.load_entries())
    store.close()
    assert list(file_entries(folder)) == list(read_rows(db, folder)) == [KEY]


@pytest.mark.requirement("store:removal-refused")
def test_refused_removal_leaves_table_and_file(db: SessionDB, folder: Path) -> None:
    with SessionStore(folder, db=db) as store:
        store.get_or_create_session(chat())
    before = read_file(folder)
    hasty = SessionDB(db.path, patience_s=0)
    store = SessionStore(folder, db=hasty)
    with connect(db.path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy):
            store.remove(store.load_entries())
        assert read_file(folder) == before
        other.execute("ROLLBACK")
    hasty.close()
    assert list(file_entries(folder)) == list(read_rows(db, folder)) == [KEY]


@pytest.mark.requirement("store:removal-refused")
def test_read_only_database_refuses_route_changes(db: SessionDB, folder: Path) -> None:
    with SessionStore(folder, db=db) as store:
        begin_session(store, db)
    before = read_file(folder)
    with SessionDB(db.path, read_only=True) as reader, SessionStore(folder, db=reader) as store:
        members = store.load_entries()
        for change in (
            lambda: store.remove(members),
            lambda: store.reset_session(KEY),
            lambda: store.save(members[KEY]),
            store.repair_routes,
        ):
            with pytest.raises(Denied, match="read-only"):
                change()
    assert read_file(folder) == before


def test_old_temporary_files_are_removed(make: Any, db: SessionDB, folder: Path) -> None:
    folder.mkdir()
    for name, age_s in (("old", 7200), ("new", 0)):
        path = folder / f".sessions_{name}.tmp"
        path.touch()
        at = path.stat().st_mtime - age_s
        os.utime(path, (at, at))
    make(db).get_or_create_session(chat())
    assert [path.name for path in folder.glob("*.tmp")] == [".sessions_new.tmp"]


# Hermes homes


@pytest.mark.requirement("copies:file")
def test_hermes_home_without_table_uses_file(make: Any, older: SessionDB, folder: Path) -> None:
    assert not older.routes.is_available
    store = make(older)
    entry = store.get_or_create_session(chat())
    older.append_message(
        entry.session_id, "user", "hello", create=store.build_session_fields(entry)
    )
    new = store.reset_session(KEY)
    assert new is not None
    assert file_entries(folder)[KEY]["session_id"] == new.session_id
    row = older.get_session(entry.session_id)
    assert row is not None
    assert row["end_reason"] == "session_reset"


@pytest.mark.requirement("copies:file")
def test_hermes_home_without_database_is_read_only(
    make: Any, home_path: Path, folder: Path
) -> None:
    path = write_file(folder, {KEY: make_stored_entry("s1")})
    before = path.read_bytes()
    with SessionDB(home_path / "state.db", in_hermes_home=True) as db:
        store = make(db)
        assert get_session_ids(store) == {KEY: "s1"}
        for change in (
            lambda: store.reset_session(KEY),
            lambda: store.remove(store.load_entries()),
            lambda: store.get_or_create_session(chat(43)),
        ):
            with pytest.raises(Exception, match="without a state database"):
                change()
        store.close()
    assert path.read_bytes() == before
    assert not (home_path / "state.db").exists()


@pytest.mark.requirement("copies:file")
def test_file_store_entries_persist(make: Any, clock: Clock) -> None:
    entry = make().get_or_create_session(chat(chat_name="Ann"))
    clock.advance(minutes=1)
    again = make().get_or_create_session(chat())
    assert (again.session_id, again.display_name) == (entry.session_id, "Ann")
    assert again.updated_at == entry.updated_at + timedelta(minutes=1)
