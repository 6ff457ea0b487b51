"""The mirror: one row written per change, current when it matters, and optional."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB, SessionStore, _atomic
from session_core.routing import mirror, sql_backend
from tests.routing.chats import (
    KEY,
    OTHER,
    UNMIRRORED,
    chat,
    count_writes,
    file_entries,
    make_stored_entry,
    pop_written_rows,
    put_row,
    read_rows,
    wait_until,
    write_file,
)

# Writes of a change


@pytest.mark.requirement("copies:cost")
def test_changed_entry_writes_single_row(make: Any, db: SessionDB, hold_mirror: None) -> None:
    store = make(db)
    for number in range(20):
        store.get_or_create_session(chat(number))
    count_writes(db)
    key = "agent:main:telegram:dm:7"
    store.get_or_create_session(chat(7))
    assert pop_written_rows(db) == []  # nothing about it has changed
    store.settings.now.advance(seconds=1)
    for change in (
        lambda: store.get_or_create_session(chat(7)),
        lambda: store.suspend_session(key),
        lambda: store.reset_session(key),
        lambda: store.update_session(key, 5),
        lambda: store.mark_resume_pending(key),
        lambda: store.clear_resume_pending(key),
        lambda: store.begin_turn(key, store.peek_session_id(key)),
        lambda: store.end_turn(key, store.peek_session_id(key)),
        lambda: store.move_to_continuation(key, store.peek_session_id(key), "rotated"),
    ):
        change()
        assert pop_written_rows(db) == [("UPDATE", key)]


@pytest.mark.requirement("copies:cost")
@pytest.mark.parametrize("with_db", [True, False])
def test_unchanged_entry_is_not_rewritten(
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
    assert pop_written_rows(db) == []
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def save_moved_entry(store: SessionStore) -> bool:
    entry = store.get(KEY)
    assert entry is not None
    entry.session_id = "elsewhere"
    store.save(entry)
    return True


@pytest.mark.requirement("copies:mirror")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda store: store.get_or_create_session(chat(44)), id="a new chat"),
        pytest.param(lambda store: store.reset_session(KEY), id="a reset"),
        pytest.param(lambda store: store.switch_session(KEY, "target"), id="a switch"),
        pytest.param(
            lambda store: store.move_to_continuation(KEY, store.peek_session_id(KEY), "x"),
            id="a rotation",
        ),
        pytest.param(save_moved_entry, id="a saved entry"),
        pytest.param(lambda store: store.remove({KEY: store.get(KEY)}), id="a removal"),
        pytest.param(
            lambda store: store.settings.now.advance(days=9) or store.prune_old_entries(3),
            id="a pruning",
        ),
    ],
)
def test_session_change_updates_mirror_before_return(
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
    assert file_entries(folder) == read_rows(db, folder)
    assert list(file_entries(folder)) == list(read_rows(db, folder))


@pytest.mark.requirement("copies:mirror")
def test_ordinary_change_updates_mirror_soon(
    make: Any, db: SessionDB, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sql_backend.MIRROR_DELAY_S < 1
    monkeypatch.setattr(sql_backend, "MIRROR_DELAY_S", 0.01)
    store = make(db)
    store.get_or_create_session(chat())
    store.suspend_session(KEY)
    timer = store.backend._later._timer
    if timer is not None:
        timer.join(10)
    assert file_entries(folder)[KEY]["suspended"]


@pytest.mark.requirement("copies:mirror")
def test_close_updates_mirror(make: Any, db: SessionDB, folder: Path, hold_mirror: None) -> None:
    store = make(db)
    store.get_or_create_session(chat())
    store.suspend_session(KEY)
    assert not file_entries(folder)[KEY]["suspended"]
    store.close()
    assert file_entries(folder)[KEY]["suspended"]
    assert store.backend._later._timer is None


@pytest.mark.requirement("copies:mirror")
def test_process_exit_without_close_updates_mirror(home_path: Path) -> None:
    code = """
import sys
from session_core import SessionDB, SessionSource, SessionStore
store = SessionStore(sys.argv[1] + "/sessions", db=SessionDB(sys.argv[1] + "/state.db"))
store.get_or_create_session(SessionSource(platform="telegram", chat_id="42"))
store.suspend_session("agent:main:telegram:dm:42")
"""
    subprocess.run([sys.executable, "-c", code, str(home_path)], check=True)
    assert file_entries(home_path / "sessions")[KEY]["suspended"]


def test_mirror_text_equals_table(make: Any, db: SessionDB, folder: Path) -> None:
    names = ['"quoted"', "back\\slash", "旅行", "tab\t", "line\n", "\x7f", "\x01", "é", "🚀", "/"]
    store = make(db)
    for name in names:
        store.get_or_create_session(chat(name, chat_name=name))
    assert file_entries(folder) == read_rows(db, folder)
    kept = store.load_entries()
    store.remove({key: kept[key] for key in list(kept)[::2]})
    assert list(file_entries(folder)) == list(read_rows(db, folder)) == list(kept)[1::2]


def test_large_mirror_text_equals_table(make: Any, db: SessionDB, folder: Path) -> None:
    with db.transaction():
        for number in range(2001):
            key = f"agent:main:telegram:dm:{number}"
            put_row(db, folder, make_stored_entry(f"s{number}", key), key)
    store = make(db)
    store.reset_session("agent:main:telegram:dm:1000")
    assert file_entries(folder) == read_rows(db, folder)
    assert list(file_entries(folder)) == list(read_rows(db, folder))


def test_mirror_is_readable_by_owner_only(make: Any, db: SessionDB, folder: Path) -> None:
    make(db).get_or_create_session(chat())
    assert (folder / "sessions.json").stat().st_mode & 0o777 == 0o600


def test_mirror_link_within_home_is_kept(make: Any, db: SessionDB, folder: Path) -> None:
    target = folder.parent / "real.json"
    target.write_text("{}")
    folder.mkdir()
    (folder / "sessions.json").symlink_to(target)
    make(db).get_or_create_session(chat())
    assert (folder / "sessions.json").is_symlink()
    assert KEY in json.loads(target.read_text())


def test_mirror_link_out_of_home_is_refused(
    make: Any, db: SessionDB, folder: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = outside / "real.json"
    target.write_text("{broken")
    target.chmod(0o644)
    folder.mkdir()
    (folder / "sessions.json").symlink_to(target)
    store = make(db)
    store.get_or_create_session(chat())
    store.reset_session(KEY)
    store.close()
    assert target.read_text() == "{broken"
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert [path.name for path in outside.iterdir()] == ["real.json"]
    assert any("is a link to a file outside of" in problem for problem in store.problems)


def test_fifo_as_mirror_is_reported(make: Any, db: SessionDB, folder: Path) -> None:
    folder.mkdir()
    os.mkfifo(folder / "sessions.json")
    store = make(db)
    session = store.get_or_create_session(chat()).session_id
    store.close()
    assert make(db).peek_session_id(KEY) == session
    assert any("not a regular file" in problem for problem in store.problems)
    assert stat.S_ISFIFO((folder / "sessions.json").lstat().st_mode)


# Without a mirror


@pytest.mark.requirement("copies:mirror")
def test_disabled_mirror_is_not_created(make: Any, db: SessionDB, folder: Path) -> None:
    store = make(db, config=UNMIRRORED)
    store.get_or_create_session(chat())
    store.reset_session(KEY)
    store.close()
    assert not (folder / "sessions.json").exists()


def test_disabled_mirror_reads_stale_file(make: Any, db: SessionDB, folder: Path) -> None:
    path = write_file(folder, {KEY: make_stored_entry("s1")})
    before = path.read_bytes()
    store = make(db, config=UNMIRRORED)
    assert store.get_or_create_session(chat()).session_id == "s1"
    store.close()
    assert path.read_bytes() == before


def test_disabled_mirror_without_removed_entry_stays(
    make: Any, db: SessionDB, folder: Path
) -> None:
    path = write_file(folder, {OTHER: make_stored_entry("s2", OTHER)})
    before = path.stat().st_mtime_ns, path.stat().st_ino
    store = make(db, config=UNMIRRORED)
    store.get_or_create_session(chat())
    store.remove({KEY: store.load_entries()[KEY]})
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


@pytest.mark.requirement("copies:mirror")
def test_failed_mirror_write_is_retried(
    make: Any, db: SessionDB, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "RETRY_S", 0.001)
    store, tried = make(db), []
    real = _atomic.write_atomic

    def full(*args: Any, **options: Any) -> None:
        tried.append(args)
        if len(tried) < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*args, **options)

    monkeypatch.setattr(_atomic, "write_atomic", full)
    session_id = store.get_or_create_session(chat()).session_id
    wait_until((folder / "sessions.json").exists)
    assert file_entries(folder)[KEY]["session_id"] == session_id
    assert len(tried) == 4


def test_mirror_retry_does_not_delay_exit(
    make: Any, db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_atomic, "write_atomic", full)
    store = make(db)
    before = set(threading.enumerate())
    store.reset_session(store.get_or_create_session(chat()).session_key)
    waiting = set(threading.enumerate()) - before
    assert waiting
    assert all(thread.daemon for thread in waiting)
    store.close()
    wait_until(lambda: not waiting & set(threading.enumerate()))
