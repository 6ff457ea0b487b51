"""VACUUM on SQLite: other users of the file, kept settings, and the room that it needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import Busy, Denied, SessionDB, StorageFull
from session_core.state.sqlite.admin import vacuum
from tests.homes import connect, fill_database, make_hermes_database, make_own_database
from tests.state.vacuum_trace import list_copies
from tests.thorough import take_main_kinds

KEPT = (
    *("page_size", "auto_vacuum", "journal_mode", "user_version", "application_id", "encoding"),
    *("default_cache_size", "freelist_count"),
)

HOLD = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM sessions');"
HOLD += "print('open', flush=True); sys.stdin.read()"


@pytest.fixture(params=take_main_kinds(["own", 16, 22, 30]))
def path(request: pytest.FixtureRequest, home_path: Path) -> Path:
    path = home_path / "state.db"
    if request.param == "own":
        make_own_database(path)
    else:
        make_hermes_database(path, request.param)
    fill_database(path, 40, 20)
    return path


@pytest.fixture
def db(path: Path) -> Iterator[SessionDB]:
    with SessionDB(path) as db:
        db.delete_sessions([f"fill_0_{n:05}" for n in range(38)])
        yield db


def read_pragmas(path: Path) -> dict[str, Any]:
    with connect(path, "ro") as connection:
        return {name: connection.execute(f"PRAGMA {name}").fetchone() for name in KEPT}


def test_vacuum_keeps_file_settings(db: SessionDB, path: Path) -> None:
    before = read_pragmas(path)
    assert before["freelist_count"] > (0,)
    result = db.admin.vacuum()
    assert result.after_bytes < result.before_bytes / 2
    assert read_pragmas(path) == {**before, "freelist_count": (0,)}
    assert path.stat().st_size + Path(f"{path}-wal").stat().st_size == result.after_bytes


def test_vacuum_keeps_journal_mode(home_path: Path) -> None:
    path = home_path / "state.db"
    make_hermes_database(path)
    fill_database(path, 20, 20)
    with connect(path) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("DELETE FROM messages")
    before = read_pragmas(path)
    with SessionDB(path) as db:
        assert db.list_sessions().items
        result = db.admin.vacuum()
    assert result.after_bytes < result.before_bytes
    assert read_pragmas(path) == {**before, "freelist_count": (0,)}


def test_vacuum_is_refused_while_file_is_shared(db: SessionDB, path: Path) -> None:
    size = path.stat().st_size
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(Busy) as refused:
            db.admin.vacuum()
        assert f"pid {holder.pid}" in refused.value.holders[0]
        holder.communicate(b"")
    assert path.stat().st_size == size
    db.admin.vacuum()
    assert path.stat().st_size < size


def test_vacuum_runs_beside_own_readers(db: SessionDB, path: Path) -> None:
    begun, done = threading.Event(), threading.Event()
    seen: list[int] = []

    def look() -> None:
        begun.set()
        while not done.is_set():
            seen.append(len(db.get_messages("fill_0_00039")))

    reader = threading.Thread(target=look)
    reader.start()
    assert begun.wait(20)
    cursor = db.read_changes().cursor
    result = db.admin.vacuum()
    done.set()
    reader.join(20)
    assert set(seen) == {20}
    assert result.after_bytes <= result.before_bytes
    assert db.read_changes(cursor).events == []
    assert db.admin.measure_sizes().free == 0


def test_vacuum_without_disk_space_is_refused(
    db: SessionDB, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")  # noqa: PYI024 -- as shutil has it
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 10_000))
    before = path.stat().st_mtime_ns, db.admin.measure_sizes().db
    with pytest.raises(StorageFull, match=r"needs \d+ bytes"):
        db.admin.vacuum()
    assert (path.stat().st_mtime_ns, db.admin.measure_sizes().db) == before


def test_vacuum_of_read_only_database_is_denied(db: SessionDB, path: Path) -> None:
    with SessionDB(path, read_only=True) as reader:
        for verb in (reader.admin.vacuum, reader.admin.optimize_step):
            with pytest.raises(Denied):
                verb()


def test_optimize_step_merges_segments_of_indexes(db: SessionDB, path: Path) -> None:
    for number in range(12):
        db.append_messages(f"more {number}", [{"role": "user", "content": "words"}], create={})
    db._store.update_search_index()
    while db.admin.optimize_step():
        pass
    with connect(path, "ro") as connection:
        cursor = connection.execute(
            "SELECT name FROM sqlite_master WHERE name LIKE '%\\_idx' ESCAPE '\\'"
        )
        for (name,) in cursor.fetchall():
            parts = connection.execute(f"SELECT count(DISTINCT segid) FROM {name}")  # noqa: S608
            assert parts.fetchone()[0] <= 1
    assert db.admin.check_integrity(deep=True) == []


def is_copy_in_memory(path: Path) -> bool:
    """Whether SQLite in this run makes its copy in memory."""
    with connect(path, "ro") as connection:
        return ("TEMP_STORE=3",) in connection.execute("PRAGMA compile_options").fetchall()


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The memory information of a machine with little memory."""
    memory = tmp_path / "meminfo"
    memory.write_text("MemTotal: 100 kB\nMemAvailable: 10 kB\n")
    monkeypatch.setattr(vacuum, "_MEMINFO_PATH", memory)
    return memory


@pytest.mark.requirement("maintenance:vacuum-memory")
def test_vacuum_of_wal_database_needs_no_memory(db: SessionDB, path: Path, memory: Path) -> None:
    copy_seen: list[bool] = []
    assert (
        db.admin.vacuum(step=lambda: copy_seen.append(bool(list_copies(path.parent)))).after_bytes
        > 0
    )
    assert any(copy_seen) == is_copy_in_memory(path)
    assert db.admin.measure_sizes().free == 0
    assert list_copies(path.parent) == []


@pytest.mark.requirement("maintenance:vacuum-memory")
def test_vacuum_without_free_memory_is_refused(home_path: Path, memory: Path) -> None:
    path = home_path / "state.db"
    make_hermes_database(path)
    fill_database(path, 20, 20)
    with connect(path) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    with SessionDB(path) as db:
        db.delete_sessions([f"fill_0_{n:05}" for n in range(18)])
        if is_copy_in_memory(path):
            with pytest.raises(StorageFull, match="bytes of memory, 10240 are free"):
                db.admin.vacuum()
            memory.write_text("nobody tells")
        db.admin.vacuum()
        assert db.admin.measure_sizes().free == 0
