"""A snapshot on SQLite: one connection, missing and replaced files, damage, forks, the index."""

from __future__ import annotations

import gc
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from session_core import InvalidInput, SessionDB, StorageError
from session_core._sqlite3 import load_library
from session_core.state.sqlite import fts
from session_core.state.sqlite.transaction import ReadSnapshot
from tests.homes import connect


@pytest.fixture
def path(home_path: Path) -> Path:
    path = home_path / "state.db"
    with SessionDB(path) as db:
        db.append_message("s", "user", "first", create={"source": "cli"})
    return path


def list_texts(db: SessionDB) -> list[Any]:
    return [row["content"] for row in db.get_messages("s")]


@pytest.mark.requirement("transactions:snapshot")
def test_snapshot_uses_one_connection(path: Path) -> None:
    statements: list[str] = []
    with SessionDB(path, read_only=True) as db:
        list_texts(db)
        (reader,) = db._store.pool.readers
        reader.connection.set_trace_callback(statements.append)
        with db.snapshot():
            assert list(db._store.pool.readers) == []
            assert list_texts(db) == list_texts(db) == ["first"]
            assert db.admin.list_inventory()[0].id == "s"
            assert db.rows.read_session_images("s")
            assert db.kind == "own"
        assert list(db._store.pool.readers) == [reader]
        assert not reader.connection.in_transaction
    assert [sql for sql in statements if sql in {"BEGIN", "ROLLBACK"}] == ["BEGIN", "ROLLBACK"]


def test_checkpoint_is_complete_after_snapshot(path: Path) -> None:
    with SessionDB(path, read_only=True) as db, connect(path) as writer:
        writer.execute("PRAGMA busy_timeout = 0")
        with db.snapshot():
            writer.execute("INSERT INTO state_meta VALUES ('k', 'v')")
            assert writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 1
        assert writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


def test_missing_home_stays_empty_in_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as db, SessionDB(path) as other:
        with db.snapshot():
            assert list_texts(db) == []
            other.append_message("s", "user", "first", create={"source": "cli"})
            assert list_texts(db) == []
            with pytest.raises(InvalidInput, match="snapshot"):
                db.append_message("s", "user", "second")
        assert list_texts(db) == ["first"]
        db.append_message("s", "user", "second")


def test_snapshot_in_unbegun_transaction_allows_changes(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "state.db") as db:
        with db.transaction(), db.snapshot():
            db.append_message("s", "user", "first", create={"source": "cli"})
            assert list_texts(db) == ["first"]
        assert list_texts(db) == ["first"]


@pytest.mark.parametrize("gone", [False, True])
def test_swapped_home_is_read_to_end(path: Path, tmp_path: Path, gone: bool) -> None:
    replacement = tmp_path / "new" / "state.db"
    with SessionDB(replacement) as new:
        new.append_message("s", "user", "of the new home", create={"source": "cli"})
    with SessionDB(path, read_only=True) as db:
        with db.snapshot():
            for end in ("", "-wal", "-shm"):
                Path(f"{path}{end}").unlink(missing_ok=True)
            if not gone:
                shutil.move(replacement, path)
            assert list_texts(db) == ["first"]
        if gone:
            with pytest.raises(StorageError, match="is gone"):
                list_texts(db)
        else:
            assert list_texts(db) == ["of the new home"]


def test_lost_read_transaction_is_reported(path: Path) -> None:
    with SessionDB(path) as db:
        with db.snapshot():
            snapshot = db._store.find_snapshot()
            assert snapshot is not None
            snapshot.get_handle().connection.rollback()  # as after an error of the disk
            with pytest.raises(StorageError, match="begin a new one"):
                list_texts(db)
        assert list_texts(db) == ["first"]


def test_close_by_other_thread_ends_snapshot(path: Path) -> None:
    db = SessionDB(path)
    with ThreadPoolExecutor(1) as pool, db.snapshot():
        pool.submit(db.close).result()
        with pytest.raises(InvalidInput, match="closed"):
            list_texts(db)
    assert list(db._store.pool.readers) == []


def test_dropped_snapshot_refuses_nothing(path: Path) -> None:
    with SessionDB(path) as db:
        db.snapshot().__enter__()  # its end never comes, as after an interrupt
        db.append_message("s", "user", "second")
        assert list_texts(db) == ["first", "second"]


def test_dropped_snapshot_closes_connection(path: Path) -> None:
    with SessionDB(path) as db:
        snapshot: ReadSnapshot | None = ReadSnapshot(db._store)
        assert snapshot is not None
        snapshot.__enter__()
        connection = snapshot.get_handle().connection
        snapshot = None  # its end never comes, as after an interrupt
        gc.collect()
        with pytest.raises(load_library().ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_child_leaves_snapshot_to_parent(path: Path) -> None:
    with SessionDB(path) as db:
        with db.snapshot():
            pid = os.fork()
            if pid == 0:
                raise SystemExit(_leave_in_child(db))
            assert os.waitpid(pid, 0)[1] == 0
            assert list_texts(db) == ["first"]
        db.append_message("s", "user", "second")
        assert list_texts(db) == ["first", "second"]


def _leave_in_child(db: SessionDB) -> None:
    """End the snapshot in the child, then the child, and report by its exit code."""
    snapshot = db._store.find_snapshot()
    assert snapshot is not None
    snapshot.__exit__(None, None, None)
    os._exit(0 if snapshot.get_handle().connection.in_transaction else 1)


@pytest.mark.requirement("transactions:snapshot")
def test_search_index_is_updated_after_snapshot(path: Path) -> None:
    with SessionDB(path) as db:
        with connect(path) as connection:
            connection.executemany(
                "INSERT INTO messages (session_id, role, content, timestamp)"
                " VALUES ('s', 'user', 'foreign ' || ?, 9.0)",
                [(number,) for number in range(fts.MAX_LAG)],
            )
        assert db._read(fts.is_index_behind)
        with db.snapshot():
            assert len(db.search("foreign 7", per="message").hits) == 1
            assert db._read(fts.is_index_behind)
        assert not db._read(fts.is_index_behind)


def test_feed_of_old_snapshot_loses_no_end(path: Path) -> None:
    now = [1_000.0]
    with (
        SessionDB(path, clock=lambda: now[0]) as db,
        SessionDB(path, clock=lambda: now[0]) as other,
    ):
        with db.snapshot():
            now[0] += 10
            other.end_session("s", "cli_close")
            now[0] += 300
            cursor = db.read_changes().cursor
        assert [event.type for event in db.read_changes(cursor).events] == ["session_ended"]
