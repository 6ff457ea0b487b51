"""Integrity checks on SQLite: damage is found, and nothing is left or changed."""

from __future__ import annotations

import shutil
import sys
from collections import namedtuple
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from session_core import Corrupt, SessionDB
from tests.homes import connect, make_hermes_database
from tests.state.conftest import append_words
from tests.state.test_admin import execute_statements

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_integrity_check_finds_damaged_page(db: SessionDB, path: Path) -> None:
    append_words(db, messages=400)
    db.close()
    execute_statements(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    root, page = _find_root_page(path, "messages")
    with path.open("r+b") as file:
        file.seek((root - 1) * page + 2)
        file.write(b"\xff" * 200)
    with SessionDB(path, read_only=True) as reopened:
        assert [finding.code for finding in reopened.admin.check_integrity()] == ["damaged"]


def test_integrity_check_of_foreign_file_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"no database at all " * 100)
    with SessionDB(path, read_only=True) as db, pytest.raises(Corrupt):
        db.admin.check_integrity()


def test_integrity_check_finds_damaged_search_index(db: SessionDB, path: Path) -> None:
    append_words(db, messages=2600)
    db.close()
    with connect(path) as connection:
        table = next(
            name
            for name in ("ms_index", "messages_fts")
            if connection.execute(f"PRAGMA table_info({name})").fetchone()
        )
        connection.execute(f"UPDATE {table}_data SET block = zeroblob(50) WHERE id > 1000")  # noqa: S608
    with SessionDB(path, read_only=True) as reopened:
        findings = reopened.admin.check_integrity(deep=True)
    assert [finding.code for finding in findings] == ["search_index_damaged"]
    assert table in findings[0].what


def test_integrity_check_counts_unindexed_messages(home_path: Path) -> None:
    path = home_path / "state.db"
    make_hermes_database(path, 22)
    with SessionDB(path) as db:
        append_words(db, messages=5)
        execute_statements(path, "DROP TRIGGER messages_fts_insert")
        append_words(db, messages=3)
        assert [
            (finding.code, finding.count) for finding in db.admin.check_integrity(deep=True)
        ] == [("search_index_incomplete", 3)]


@LINUX
def test_integrity_check_leaves_file_and_locks(db: SessionDB, path: Path) -> None:
    append_words(db)
    with connect(path) as holder:
        holder.execute("BEGIN IMMEDIATE")
        holder.execute("UPDATE sessions SET title = 'not yet'")
        before = _read_traces(path)
        assert db.admin.check_integrity(deep=True) == []
        db.admin.measure_sizes(exact=True)
        assert _read_traces(path) == before
        holder.execute("COMMIT")
    assert db.get_session_title("s") == "not yet"


def test_integrity_check_removes_copy(
    db: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    append_words(db)
    assert db.admin.check_integrity(deep=True) == []
    assert list(folder.iterdir()) == []


def test_integrity_check_without_room_skips_index(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_words(db)
    usage = namedtuple("usage", "total used free")  # noqa: PYI024 -- the return type of the function
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 1000, 1000))
    assert [finding.code for finding in db.admin.check_integrity(deep=True)] == [
        "no_room_for_check"
    ]


def test_integrity_check_creates_no_database(home_path: Path) -> None:
    with SessionDB(home_path / "state.db") as db:
        assert db.admin.check_integrity(deep=True) == []
        sizes = db.admin.measure_sizes()
        assert (sizes.db, sizes.wal, sizes.index, sizes.tables) == (0, 0, 0, {})
    assert list(home_path.iterdir()) == []


def _find_root_page(path: Path, table: str) -> tuple[int, int]:
    with connect(path, mode="ro") as connection:
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)
        ).fetchone()
        return root, page


def _read_traces(path: Path) -> Any:
    """Return the traces that a check could leave: lost locks, a new log, a changed file."""
    inodes = [Path(f"{path}{suffix}").stat().st_ino for suffix in ("", "-wal", "-shm")]
    ours = {lock for lock in _iter_locks() if any(f":{inode} " in lock for inode in inodes)}
    assert len(ours) > 1
    sizes = [Path(f"{path}{suffix}").stat().st_size for suffix in ("", "-wal")]
    return ours, inodes, sizes, path.stat().st_mtime_ns, sorted(path.parent.iterdir())


def _iter_locks() -> Iterator[str]:
    """Yield the locks of this process from `/proc/locks`. Other processes may change theirs."""
    for info in Path("/proc/self/fdinfo").iterdir():
        with suppress(FileNotFoundError):
            lines = info.read_text().splitlines()
            yield from (line.split(maxsplit=2)[2] for line in lines if line.startswith("lock:"))
