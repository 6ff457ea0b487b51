"""Upkeep on SQLite: rows of a session, short transactions, read-only checks, sizes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from session_core import Corrupt, SessionDB
from session_core.state.batch_size import BatchSize
from session_core.state.sqlite import admin, deletion, sizes_child
from session_core.state.sqlite.connection import Connection
from tests.homes import connect, make_hermes_database, make_own_database
from tests.thorough import take_main_kinds

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(params=take_main_kinds(["own", 16, 22, 30]))
def path(request: pytest.FixtureRequest, home_path: Path) -> Path:
    """A home of our own, or a Hermes home of each schema."""
    path = home_path / "state.db"
    if request.param == "own":
        make_own_database(path)
    else:
        make_hermes_database(path, request.param)
    return path


@pytest.fixture
def db(path: Path) -> Iterator[SessionDB]:
    with SessionDB(path) as db:
        yield db


def append_words(db: SessionDB, session_id: str = "s", messages: int = 20) -> None:
    rows = [{"role": "user", "content": f"words of {session_id} {n}"} for n in range(messages)]
    db.append_messages(session_id, rows, create={"source": "cli"})


def execute_statements(path: Path, *statements: str) -> None:
    with connect(path) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        for statement in statements:
            connection.execute(statement)


def count_rows(path: Path, table: str) -> int:
    with connect(path, mode="ro") as connection:
        count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
        return count


def test_delete_removes_rows_of_unknown_tables(db: SessionDB, path: Path) -> None:
    execute_statements(
        path,
        'CREATE TABLE "odd ""name" (session_id TEXT, note TEXT)',
        "CREATE TABLE linked (origin TEXT REFERENCES sessions(id), note TEXT)",
        "CREATE TABLE implied (origin TEXT REFERENCES sessions, note TEXT)",
    )
    for name in ("s", "kept"):
        append_words(db, name)
        for table in ('"odd ""name"', "linked", "implied"):
            execute_statements(path, f"INSERT INTO {table} VALUES ('{name}', '')")  # noqa: S608
    assert db.delete_session("s")
    assert (
        count_rows(path, '"odd ""name"')
        == count_rows(path, "linked")
        == count_rows(path, "implied")
        == 1
    )


def test_delete_removes_locks_and_leases(db: SessionDB, path: Path) -> None:
    append_words(db)
    tables = {"compression_locks": "session_id"}
    with connect(path) as connection:
        if connection.execute("PRAGMA table_info(session_turn_leases)").fetchone():
            tables["session_turn_leases"] = "conversation_id"
    for table, key in tables.items():
        for name in ("s", "other"):
            execute_statements(
                path,
                f"INSERT INTO {table} ({key}, holder, acquired_at, expires_at)"  # noqa: S608
                f" VALUES ('{name}', 'h', 1, 2)",
            )
    assert db.delete_session("s")
    assert [count_rows(path, table) for table in tables] == [1] * len(tables)


def test_delete_keeps_routes_and_generations(home_path: Path) -> None:
    path = home_path / "state.db"
    make_hermes_database(path, 30)
    with SessionDB(path) as db:
        append_words(db)
        db.update_session("s", session_key="k")
        execute_statements(
            path,
            "INSERT INTO gateway_routing VALUES ('', 'k', '{\"session_id\": \"s\"}', 1)",
            "CREATE TABLE IF NOT EXISTS conversation_generations"
            " (source TEXT, session_key TEXT, generation INTEGER)",
            "INSERT INTO conversation_generations (source, session_key, generation)"
            " VALUES ('cli', 'k', 3)",
        )
        assert db.delete_session("s")
        assert (
            count_rows(path, "gateway_routing") == count_rows(path, "conversation_generations") == 1
        )


def test_delete_removes_session_row_last(db: SessionDB) -> None:
    append_words(db, messages=50)
    remaining = []
    while True:
        done, deleted = db._write(lambda handle: deletion.delete_batch(handle, ["s"], {}, 4_000))
        remaining.append(db.message_count("s"))
        if done:
            break
        assert (deleted, db.get_session("s") is not None) == (set(), True)
    assert remaining == sorted(remaining, reverse=True)
    assert len(remaining) > 2
    assert remaining[-1] == 0
    assert db.get_session("s") is None


def test_delete_includes_message_appended_meanwhile(db: SessionDB) -> None:
    append_words(db, messages=50)
    db._write(lambda handle: deletion.delete_batch(handle, ["s"], {}, 4_000))
    db.append_message("s", "user", "one more")
    assert db.delete_session("s")
    assert (db.message_count(), db.get_session("s")) == (0, None)


def test_delete_step_always_makes_progress(db: SessionDB) -> None:
    append_words(db, messages=3)
    config = json.dumps({"_delegate_from": "s"})
    for number in range(3):
        db.create_session(f"d{number}", "cli", parent_session_id="s", model_config=config)
    for _ in range(10):
        done, _ = db._write(lambda handle: deletion.delete_batch(handle, ["s"], {}, 1))
        if done:
            break
    assert done == 1
    assert (db.message_count(), db.list_children("s") if db.get_session("s") else []) == (0, [])


def test_null_flag_rows_count_as_live(home_path: Path) -> None:
    path = home_path / "state.db"
    make_hermes_database(path, 16, null_flags=True)
    with SessionDB(path) as db:
        append_words(db, messages=2)
        since = db.read_changes().cursor
        execute_statements(
            path,
            "UPDATE messages SET active = NULL",
            "INSERT INTO messages (session_id, role, content, timestamp, active)"
            " VALUES ('s', 'assistant', 'third', 5, NULL)",
            "UPDATE sessions SET message_count = 3",
        )
        assert [event.text for event in db.read_changes(since).events] == ["third"]
        assert db.admin.find_drifted_sessions() == []
        assert db.admin.recount_session("s") is False


def test_pace_slows_down_but_never_stops() -> None:
    now = [0.0]
    pace = BatchSize(lambda: now[0])
    rooms = []
    for took in [0.001] * 8 + [5.0] * 40:
        pace.begin()
        now[0] += took
        pace.end()
        rooms.append(pace.room)
    assert rooms[7] > rooms[0]
    assert 0 < rooms[-1] < rooms[0]


def test_delete_leaves_consistent_index(db: SessionDB) -> None:
    for name in ("a", "b", "c"):
        append_words(db, name, 300)
    db.delete_sessions(["a", "c"])
    assert db.admin.check_integrity(deep=True) == []
    assert len(db.search("words", per="message", limit=100).hits) == 100
    assert db.search("a").hits == []


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
    usage = namedtuple("usage", "total used free")  # noqa: PYI024 -- what the function returns
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


def test_sizes_without_child_stay_estimates(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    append_words(db)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert db.admin.measure_sizes(exact=True) == db.admin.measure_sizes()
    assert not db.admin.measure_sizes(exact=True).exact


def test_sizes_child_counts_every_table(db: SessionDB, path: Path) -> None:
    append_words(db)
    counted = sizes_child.count_table_bytes(path)
    assert counted is not None
    assert {"messages", "sessions", "sqlite_schema"} <= set(counted)
    assert sum(counted.values()) == db.admin.measure_sizes().db - db.admin.measure_sizes().free


def test_sizes_child_ends_with_parent(tmp_path: Path) -> None:
    slow = tmp_path / "slow.db"
    os.mkfifo(slow)  # whoever opens it waits for somebody to write
    parent = (
        "from pathlib import Path; from session_core.state.sqlite import sizes;"
        f"sizes.count_sizes(None, None, Path({str(slow)!r}), lambda: print('counting', flush=True))"
    )
    counting = subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, start_new_session=True
    )
    with counting:
        assert counting.stdout is not None
        assert counting.stdout.readline() == b"counting\n"
        counting.kill()
    until = time.monotonic() + 20
    while _is_running(counting.pid) and time.monotonic() < until:
        time.sleep(0.05)
    is_running = _is_running(counting.pid)
    with suppress(ProcessLookupError):
        os.killpg(counting.pid, signal.SIGKILL)
    assert not is_running


def _is_running(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_size_estimate_follows_row_sizes(db: SessionDB, path: Path) -> None:
    rows = [{"role": "user", "content": f"long {n} {n * 7919} " * 60} for n in range(1500)]
    db.append_messages("s", rows, create={"source": "cli"})
    append_words(db, "t", 1500)
    db.delete_sessions(["t"])
    estimated, exact = db.admin.measure_sizes(), db.admin.measure_sizes(exact=True)
    assert estimated.tables["messages"] == pytest.approx(exact.tables["messages"], rel=0.25)
    assert estimated.free == exact.free


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
    """Yield the locks of this process from `/proc/locks`; other processes may change theirs."""
    for info in Path("/proc/self/fdinfo").iterdir():
        with suppress(FileNotFoundError):
            lines = info.read_text().splitlines()
            yield from (line.split(maxsplit=2)[2] for line in lines if line.startswith("lock:"))


def test_recount_repeats_after_concurrent_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, said = admin.count_session, iter(["y"])
    with SessionDB(tmp_path / "state.db") as db, SessionDB(tmp_path / "state.db") as other:
        db.append_message("s", "user", "x", create={"source": "cli"})

        def count_slowly(handle: Connection, session_id: str) -> tuple[int, int, int]:
            counted = count(handle, session_id)
            for text in said:
                other.append_message("s", "user", text)
                other.rows.put_session_fields("s", {"message_count": 9})
            return counted

        monkeypatch.setattr(admin, "count_session", count_slowly)
        assert db.admin.recount_session("s") is True
        assert (db.get_session("s") or {})["message_count"] == 2
