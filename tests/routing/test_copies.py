"""The two copies of the routes: which comes first, what is imported, and that they stay in step."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from session_core import Conflict, SessionDB, SessionStore
from session_core.routing import table
from session_core.settings import GatewayConfig
from tests.routing.chats import (
    KEY,
    Clock,
    chat,
    count_writes,
    file_entries,
    put_row,
    read_file,
    rows,
    stored,
    write_file,
    written,
)

UNMIRRORED = GatewayConfig(write_sessions_json=False)
OTHER = "agent:main:telegram:dm:43"


@pytest.fixture
def hold_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror follows ordinary changes late, so that a test sees what is written at once."""
    monkeypatch.setattr(table, "MIRROR_DELAY_S", 3600.0)


def ids(store: SessionStore) -> dict[str, str]:
    """Return the session of each chat."""
    return {key: entry.session_id for key, entry in store.entries().items()}


# Precedence


def test_the_table_comes_before_the_file(make: Any, db: SessionDB, folder: Path) -> None:
    put_row(db, folder, stored("in the table"))
    write_file(folder, {KEY: stored("in the file")})
    assert ids(make(db)) == {KEY: "in the table"}


def test_what_is_in_the_file_alone_is_there_too(make: Any, db: SessionDB, folder: Path) -> None:
    put_row(db, folder, stored("s1"))
    write_file(folder, {OTHER: stored("s2", OTHER)})
    store = make(db)
    assert ids(store) == {KEY: "s1", OTHER: "s2"}
    assert store.peek_session_id(OTHER) == "s2"


def test_looking_writes_nothing(make: Any, db: SessionDB, folder: Path) -> None:
    put_row(db, folder, stored("s1"))
    path = write_file(folder, {OTHER: stored("s2", OTHER), "bad": True})
    leftover = folder / ".sessions_old.tmp"
    leftover.touch()
    before = sorted(folder.iterdir()), path.read_bytes(), rows(db, folder)
    store = make(db)
    store.entries()
    store.get(KEY)
    store.close()
    assert (sorted(folder.iterdir()), path.read_bytes(), rows(db, folder)) == before


def test_what_is_in_the_file_alone_is_in_the_table_after_the_next_change(
    make: Any, db: SessionDB, folder: Path
) -> None:
    write_file(folder, {KEY: stored("s1"), OTHER: stored("s2", OTHER)})
    make(db).update_session(KEY)
    assert {key: row["session_id"] for key, row in rows(db, folder).items()} == {
        KEY: "s1",
        OTHER: "s2",
    }


def test_what_was_deleted_while_it_was_looked_at_does_not_come_back(
    make: Any, db: SessionDB, folder: Path
) -> None:
    write_file(folder, {KEY: stored("s1"), OTHER: stored("s2", OTHER)})
    reader, writer = make(db), make(db)
    assert len(ids(reader)) == 2
    writer.remove({OTHER: writer.entries()[OTHER]})
    assert ids(reader) == {KEY: "s1"}
    reader.update_session(KEY)
    assert list(rows(db, folder)) == [KEY]


# The explanation and other metadata


@pytest.mark.parametrize("mirrored", [True, False])
def test_the_explanation_comes_first_and_is_no_entry(
    make: Any, db: SessionDB, folder: Path, mirrored: bool
) -> None:
    store = make(db if mirrored else None)
    store.get_or_create_session(chat())
    name, text = next(iter(read_file(folder).items()))
    assert name == "_README"
    assert "state.db" in text
    assert "hermes sessions list" in text
    assert list(ids(make(db if mirrored else None))) == [KEY]


@pytest.mark.parametrize("with_db", [True, False])
def test_metadata_is_skipped_by_readers_and_kept_by_writers(
    make: Any, db: SessionDB, folder: Path, with_db: bool
) -> None:
    metadata = {"_README": "theirs", "_note": stored("no session"), "_x": [1, None]}
    write_file(folder, {**metadata, KEY: stored("s1")})
    store = make(db if with_db else None)
    assert list(ids(store)) == [KEY]
    assert store.get("_note") is None
    assert store.lookup_by_session_id("no session") is None
    store.reset_session(KEY)
    store.close()
    found = read_file(folder)
    assert next(iter(found)) == "_README"
    assert {key: value for key, value in found.items() if key[0] == "_"} == metadata


def test_metadata_in_the_table_is_no_entry_and_is_kept(
    make: Any, db: SessionDB, folder: Path
) -> None:
    put_row(db, folder, stored("no session"), "_note")
    store = make(db)
    store.get_or_create_session(chat())
    assert list(ids(store)) == [KEY]
    assert "_note" in rows(db, folder)
    assert list(file_entries(folder)) == [KEY]


def test_a_session_may_have_an_id_that_begins_with_a_line(
    make: Any, db: SessionDB, folder: Path
) -> None:
    put_row(db, folder, stored("_s1"))
    assert ids(make(db)) == {KEY: "_s1"}


# What cannot be read

BROKEN: dict[str, bytes] = {
    "a list": b"[]",
    "null": b"null",
    "a string": b'"text"',
    "truncated": json.dumps({KEY: stored()}).encode()[:-20],
    "not UTF-8": b'{"agent:main:telegram:dm:42": "\xff"}',
    "empty": b"",
    "too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("with_db", [True, False])
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_set_aside_and_reported_and_never_overwritten(
    make: Any, db: SessionDB, folder: Path, broken: bytes, with_db: bool
) -> None:
    path = write_file(folder, broken)
    store = make(db if with_db else None)
    assert ids(store) == {}
    assert path.read_bytes() == broken
    assert any("sessions.json" in problem for problem in store.problems)
    store.get_or_create_session(chat())
    (aside,) = folder.glob("sessions.json.broken-*")
    assert aside.read_bytes() == broken
    assert list(file_entries(folder)) == [KEY]
    assert any(aside.name in problem for problem in store.problems)


def test_a_byte_order_mark_is_no_fault(make: Any, db: SessionDB, folder: Path) -> None:
    write_file(folder, b"\xef\xbb\xbf" + json.dumps({KEY: stored("s1")}).encode())
    store = make(db)
    assert ids(store) == {KEY: "s1"}
    assert store.problems == []


@pytest.mark.parametrize("with_db", [True, False])
def test_a_file_that_may_not_be_read_is_not_set_aside(
    make: Any, db: SessionDB, folder: Path, with_db: bool
) -> None:
    """That it cannot be read now says nothing of what is in it."""
    folder.mkdir()
    (folder / "sessions.json").mkdir()
    store = make(db if with_db else None)
    if with_db:
        assert store.get_or_create_session(chat()).session_key == KEY
        assert any("mirror" in problem for problem in store.problems)
    else:
        with pytest.raises(Exception, match=r"sessions\.json cannot be read"):
            store.get_or_create_session(chat())
    assert list(folder.glob("*.broken-*")) == []


ODD: dict[str, Any] = {
    "a boolean": True,
    "nothing": None,
    "a list": [1],
    "no session id": {"session_key": KEY},
    "no time": stored() | {"updated_at": "yesterday"},
    "an unsafe id": stored() | {"session_id": "../../etc/passwd"},
    "an origin without a chat": stored(origin={"platform": "telegram"}),
}


@pytest.mark.parametrize("with_db", [True, False])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_entry_that_cannot_be_read_costs_no_other_and_stays(
    make: Any, db: SessionDB, folder: Path, odd: Any, with_db: bool
) -> None:
    write_file(folder, {OTHER: odd, KEY: stored("s1")})
    store = make(db if with_db else None)
    assert ids(store) == {KEY: "s1"}
    assert any(OTHER in problem for problem in store.problems)
    store.reset_session(KEY)
    store.remove(store.entries())
    store.close()
    assert file_entries(folder) == {OTHER: odd}


@pytest.mark.parametrize("with_db", [True, False])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_message_takes_the_place_of_what_is_no_entry_and_that_is_set_aside(
    make: Any, db: SessionDB, folder: Path, odd: Any, with_db: bool
) -> None:
    write_file(folder, {KEY: odd, OTHER: stored("s2", OTHER)})
    store = make(db if with_db else None)
    entry = store.get_or_create_session(chat())
    store.reset_session(OTHER)
    store.close()
    assert ids(make(db if with_db else None)) == {KEY: entry.session_id, **ids(store)}
    (aside,) = folder.glob("sessions.json.broken-*")
    assert json.loads(aside.read_bytes()) == {KEY: odd}
    assert (folder / "sessions.json").read_text().count(f'"{KEY}": ') == 1


def test_a_message_takes_the_place_of_a_row_that_is_no_entry_and_that_is_set_aside(
    make: Any, db: SessionDB, folder: Path
) -> None:
    put_row(db, folder, "{truncated")
    store = make(db)
    entry = store.get_or_create_session(chat())
    assert ids(store) == {KEY: entry.session_id}
    (aside,) = folder.glob("sessions.json.broken-*")
    assert json.loads(aside.read_bytes()) == {KEY: "{truncated"}


def test_a_row_that_is_no_entry_costs_no_other_and_stays(
    make: Any, db: SessionDB, folder: Path
) -> None:
    put_row(db, folder, "{truncated", OTHER)
    put_row(db, folder, stored("s1"))
    store = make(db)
    assert ids(store) == {KEY: "s1"}
    store.reset_session(KEY)
    text = db.get_gateway_routing_entry(OTHER, scope=str(folder.resolve()))
    assert text == "{truncated"
    assert list(file_entries(folder)) == [KEY]


def test_a_key_with_half_a_character_harms_nobody(make: Any, db: SessionDB, folder: Path) -> None:
    strange = "agent:main:telegram:dm:\ud800"
    write_file(folder, {strange: stored("s2"), KEY: stored("s1")})
    store = make(db)
    store.reset_session(KEY)
    assert list(rows(db, folder)) == [KEY]
    assert set(file_entries(folder)) == {KEY, strange}


@pytest.mark.parametrize("with_db", [True, False])
def test_unknown_fields_survive_every_change(
    make: Any, db: SessionDB, folder: Path, with_db: bool
) -> None:
    write_file(folder, {KEY: stored(future={"a": [1]}, origin=chat().to_dict() | {"later": 1})})
    store = make(db if with_db else None)
    store.get_or_create_session(chat())
    store.suspend_session(KEY)
    store.close()
    found = file_entries(folder)[KEY]
    assert (found["future"], found["origin"]["later"]) == ({"a": [1]}, 1)
    store.reset_session(KEY)
    store.close()
    assert file_entries(folder)[KEY]["future"] == {"a": [1]}


@pytest.mark.parametrize("with_db", [True, False])
def test_an_entry_may_stand_under_another_key_than_its_own(
    make: Any, db: SessionDB, folder: Path, with_db: bool
) -> None:
    own = "agent:main:telegram:dm:own"
    write_file(folder, {KEY: stored("s1", own)})
    store = make(db if with_db else None)
    entry = store.get_or_create_session(chat())
    assert (entry.session_id, entry.session_key) == ("s1", own)
    entry.total_tokens = 3
    store.save(entry)
    assert store.set_expiry_finalized(entry)
    assert store.suspend_session(KEY)
    reset = store.reset_session(KEY)
    assert reset is not None
    store.close()
    assert list(file_entries(folder)) == [KEY]
    assert ids(store) == {KEY: reset.session_id}
    store._now.advance(days=10)
    assert store.prune_old_entries(5) == 1
    assert file_entries(folder) == {}


# A home that was moved


@pytest.fixture
def moved(make: Any, db: SessionDB, home_path: Path, tmp_path: Path) -> Path:
    """A home with two chats that was moved to another folder, without its mirror."""
    store = make(db)
    for chat_id in (42, 43):
        store.get_or_create_session(chat(chat_id))
    store.close()
    db.close()
    there = tmp_path / "moved"
    shutil.move(home_path, there)
    (there / "sessions" / "sessions.json").unlink()
    return there


def open_moved(home: Path, clock: Clock, **options: Any) -> tuple[SessionDB, SessionStore]:
    db = SessionDB(home / "state.db")
    return db, SessionStore(home / "sessions", db=db, now=clock, **options)


def test_a_moved_home_is_found_again(moved: Path, clock: Clock) -> None:
    db, store = open_moved(moved, clock)
    with db, store:
        assert set(ids(store)) == {KEY, OTHER}
        store.update_session(KEY)
        assert set(rows(db, moved / "sessions")) == {KEY, OTHER}


def test_what_was_removed_after_a_move_does_not_come_back(moved: Path, clock: Clock) -> None:
    db, store = open_moved(moved, clock)
    with db, store:
        store.remove(store.entries())
    db, store = open_moved(moved, clock)
    with db, store:
        assert ids(store) == {}


def test_a_home_that_was_moved_twice_is_found_again(
    moved: Path, clock: Clock, tmp_path: Path
) -> None:
    db, store = open_moved(moved, clock)
    with db, store:
        new = store.reset_session(KEY)
        assert new is not None
    shutil.move(moved, tmp_path / "again")
    db, store = open_moved(tmp_path / "again", clock)
    with db, store:
        assert store.peek_session_id(KEY) == new.session_id
        assert len(ids(store)) == 2


def test_the_routes_of_a_home_that_is_still_there_are_not_taken(
    make: Any, db: SessionDB, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    put_row(db, elsewhere, stored("theirs"))
    assert ids(make(db)) == {}


def test_the_routes_of_another_kind_of_scope_are_not_taken(make: Any, db: SessionDB) -> None:
    for scope in ("", "a name", "C:\\hermes\\sessions"):
        db.save_gateway_routing_entry(KEY, json.dumps(stored()), scope=scope, expect=None)
    assert ids(make(db)) == {}


# What a change writes


def test_one_changed_entry_is_one_row(make: Any, db: SessionDB, hold_mirror: None) -> None:
    store = make(db)
    for number in range(20):
        store.get_or_create_session(chat(number))
    count_writes(db)
    key = "agent:main:telegram:dm:7"
    store.get_or_create_session(chat(7))
    assert written(db) == []  # nothing about it has changed
    store._now.advance(seconds=1)
    for change in (
        lambda: store.get_or_create_session(chat(7)),
        lambda: store.suspend_session(key),
        lambda: store.reset_session(key),
        lambda: store.update_session(key, 5),
        lambda: store.mark_resume_pending(key),
        lambda: store.clear_resume_pending(key),
        lambda: store.set_expiry_finalized(store.get(key)),
        lambda: store.follow(key, store.peek_session_id(key), "rotated"),
    ):
        change()
        assert written(db) == [("UPDATE", key)]


@pytest.mark.parametrize("with_db", [True, False])
def test_a_text_that_is_the_same_is_not_written_again(
    make: Any, db: SessionDB, folder: Path, with_db: bool
) -> None:
    store = make(db if with_db else None)
    store.get_or_create_session(chat())
    store.suspend_session(KEY)
    store.close()
    count_writes(db)
    before = (folder / "sessions.json").stat()
    store.suspend_session(KEY)
    entry = store.get(KEY)
    assert entry is not None
    store.save(entry, urgent=True)
    store.close()
    after = (folder / "sessions.json").stat()
    assert written(db) == []
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda store: store.get_or_create_session(chat(44)), id="a new chat"),
        pytest.param(lambda store: store.reset_session(KEY), id="a reset"),
        pytest.param(lambda store: store.switch_session(KEY, "target"), id="a switch"),
        pytest.param(
            lambda store: store.follow(KEY, store.peek_session_id(KEY), "x"), id="a rotation"
        ),
        pytest.param(lambda store: store.remove({KEY: store.get(KEY)}), id="a removal"),
        pytest.param(
            lambda store: store._now.advance(days=9) or store.prune_old_entries(3), id="a pruning"
        ),
    ],
)
def test_the_mirror_is_true_when_a_change_of_a_session_returns(
    make: Any,
    db: SessionDB,
    folder: Path,
    hold_mirror: None,
    change: Callable[[SessionStore], object],
) -> None:
    store = make(db)
    for chat_id in (42, 43):
        store.get_or_create_session(chat(chat_id))
    db.create_session("target", "cli")
    store.suspend_session(OTHER)
    assert change(store)
    assert file_entries(folder) == rows(db, folder)
    assert list(file_entries(folder)) == list(rows(db, folder))


def test_the_mirror_follows_an_ordinary_change_soon(
    make: Any, db: SessionDB, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table.MIRROR_DELAY_S < 1
    monkeypatch.setattr(table, "MIRROR_DELAY_S", 0.01)
    store = make(db)
    store.get_or_create_session(chat())
    store.suspend_session(KEY)
    timer = store._copies._timer
    if timer is not None:
        timer.join(10)
    assert file_entries(folder)[KEY]["suspended"]


def test_the_mirror_is_true_after_close(
    make: Any, db: SessionDB, folder: Path, hold_mirror: None
) -> None:
    store = make(db)
    store.get_or_create_session(chat())
    store.suspend_session(KEY)
    assert not file_entries(folder)[KEY]["suspended"]
    store.close()
    assert file_entries(folder)[KEY]["suspended"]
    assert threading.active_count() == 1 or store._copies._timer is None


def test_the_mirror_is_true_after_a_process_that_did_not_close(home_path: Path) -> None:
    code = """
import sys
from session_core import SessionDB, SessionSource, SessionStore
store = SessionStore(sys.argv[1] + "/sessions", db=SessionDB(sys.argv[1] + "/state.db"))
store.get_or_create_session(SessionSource(platform="telegram", chat_id="42"))
store.suspend_session("agent:main:telegram:dm:42")
"""
    subprocess.run([sys.executable, "-c", code, str(home_path)], check=True)
    assert file_entries(home_path / "sessions")[KEY]["suspended"]


def test_the_mirror_is_the_table_to_the_letter(make: Any, db: SessionDB, folder: Path) -> None:
    names = ['"quoted"', "back\\slash", "旅行", "tab\t", "line\n", "\x7f", "\x01", "é", "🚀", "/"]
    store = make(db)
    for name in names:
        store.get_or_create_session(chat(name, chat_name=name))
    assert file_entries(folder) == rows(db, folder)
    kept = store.entries()
    store.remove({key: kept[key] for key in list(kept)[::2]})
    assert list(file_entries(folder)) == list(rows(db, folder)) == list(kept)[1::2]


def test_the_mirror_is_only_for_its_owner(make: Any, db: SessionDB, folder: Path) -> None:
    make(db).get_or_create_session(chat())
    assert (folder / "sessions.json").stat().st_mode & 0o777 == 0o600


def test_a_link_stays_a_link(make: Any, db: SessionDB, folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "real.json"
    target.write_text("{}")
    folder.mkdir()
    (folder / "sessions.json").symlink_to(target)
    make(db).get_or_create_session(chat())
    assert (folder / "sessions.json").is_symlink()
    assert KEY in json.loads(target.read_text())


# Without a mirror


def test_a_mirror_that_is_turned_off_is_not_made(make: Any, db: SessionDB, folder: Path) -> None:
    store = make(db, config=UNMIRRORED)
    store.get_or_create_session(chat())
    store.reset_session(KEY)
    store.close()
    assert not (folder / "sessions.json").exists()


def test_a_stale_file_is_left_and_read_where_the_mirror_is_turned_off(
    make: Any, db: SessionDB, folder: Path
) -> None:
    path = write_file(folder, {KEY: stored("s1")})
    before = path.read_bytes()
    store = make(db, config=UNMIRRORED)
    assert store.get_or_create_session(chat()).session_id == "s1"
    store.close()
    assert path.read_bytes() == before


def test_what_is_removed_does_not_come_back_from_a_stale_file(
    make: Any, db: SessionDB, folder: Path
) -> None:
    odd = {"_note": 1, "bad": True, "worse": {"session_key": "x"}}
    write_file(folder, {KEY: stored("s1"), OTHER: stored("s2", OTHER), **odd})
    store = make(db, config=UNMIRRORED)
    store.remove({KEY: store.entries()[KEY]})
    assert ids(make(db, config=UNMIRRORED)) == {OTHER: "s2"}
    found = read_file(folder)
    assert KEY not in found
    assert {key: found[key] for key in odd} == odd


def test_a_file_without_what_is_removed_is_not_written(
    make: Any, db: SessionDB, folder: Path
) -> None:
    path = write_file(folder, {OTHER: stored("s2", OTHER)})
    before = path.stat().st_mtime_ns, path.stat().st_ino
    store = make(db, config=UNMIRRORED)
    store.get_or_create_session(chat())
    store.remove({KEY: store.entries()[KEY]})
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


# In step


@pytest.mark.parametrize("config", [GatewayConfig(), UNMIRRORED])
def test_what_is_removed_is_gone_from_both_copies(
    make: Any, db: SessionDB, folder: Path, config: GatewayConfig
) -> None:
    put_row(db, folder, stored("s1"))
    write_file(folder, {KEY: stored("s1"), OTHER: stored("s2", OTHER)})
    store = make(db, config=config)
    assert set(store.remove(store.entries())) == {KEY, OTHER}
    assert rows(db, folder) == file_entries(folder) == {}
    assert ids(make(db)) == {}


def test_what_was_changed_since_it_was_read_is_not_removed(
    make: Any, db: SessionDB, folder: Path
) -> None:
    store = make(db)
    for chat_id in (42, 43):
        store.get_or_create_session(chat(chat_id))
    read = store.entries()
    store.suspend_session(KEY)
    assert store.remove(read) == [OTHER]
    assert list(file_entries(folder)) == list(rows(db, folder)) == [KEY]


def test_a_removal_that_the_table_refuses_is_in_neither_copy_after_close(
    make: Any, db: SessionDB, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(db)
    store.get_or_create_session(chat())

    def refuse(*_: Any, **__: Any) -> None:
        raise Conflict("not now")

    with monkeypatch.context() as patch:
        patch.setattr(db, "delete_gateway_routing_entries", refuse)
        with pytest.raises(Conflict):
            store.remove(store.entries())
    store.close()
    assert list(file_entries(folder)) == list(rows(db, folder)) == [KEY]


def test_leftovers_of_killed_writers_are_swept_once_they_are_old(
    make: Any, db: SessionDB, folder: Path
) -> None:
    folder.mkdir()
    for name, age_s in (("old", 7200), ("new", 0)):
        path = folder / f".sessions_{name}.tmp"
        path.touch()
        at = path.stat().st_mtime - age_s
        os.utime(path, (at, at))
    make(db).get_or_create_session(chat())
    assert [path.name for path in folder.glob("*.tmp")] == [".sessions_new.tmp"]


# Homes of others


def test_a_hermes_home_without_the_table_keeps_its_routes_in_the_file(
    make: Any, older: SessionDB, folder: Path
) -> None:
    assert not older.has_routing
    store = make(older)
    entry = store.get_or_create_session(chat())
    older.append_message(entry.session_id, "user", "hello", create=store.session_fields(entry))
    new = store.reset_session(KEY)
    assert new is not None
    assert file_entries(folder)[KEY]["session_id"] == new.session_id
    row = older.get_session(entry.session_id)
    assert row is not None
    assert row["end_reason"] == "session_reset"


def test_the_routes_of_a_hermes_home_without_a_database_are_served_and_not_changed(
    make: Any, home_path: Path, folder: Path
) -> None:
    path = write_file(folder, {KEY: stored("s1")})
    before = path.read_bytes()
    with SessionDB(home_path / "state.db") as db:
        store = make(db)
        assert ids(store) == {KEY: "s1"}
        for change in (
            lambda: store.reset_session(KEY),
            lambda: store.remove(store.entries()),
            lambda: store.get_or_create_session(chat(43)),
        ):
            with pytest.raises(Exception, match="without a state database"):
                change()
        store.close()
    assert path.read_bytes() == before
    assert not (home_path / "state.db").exists()


def test_a_store_without_a_database_is_read_by_the_next(make: Any, clock: Clock) -> None:
    entry = make().get_or_create_session(chat(chat_name="Ann"))
    clock.advance(minutes=1)
    again = make().get_or_create_session(chat())
    assert (again.session_id, again.display_name) == (entry.session_id, "Ann")
    assert again.updated_at == entry.updated_at + timedelta(minutes=1)
