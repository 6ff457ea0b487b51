"""The change feed on SQLite: other processes, journal modes, VACUUM, backups, slow scans."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from session_core import Busy, InvalidInput, SessionDB
from session_core.state import cursors
from session_core.state.sqlite import feed
from tests.homes import connect, make_hermes_database, make_own_database

_WRITER = """
import sys, time
from session_core import _sqlite3 as driver
connection = driver.connect(sys.argv[1], busy_timeout_s=5)
print("ready", flush=True)
for line in sys.stdin:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', ?, 5)",
        (line.strip(),),
    )
    connection.execute("COMMIT")
    print(time.time(), flush=True)
connection.close()
"""


@pytest.fixture(params=["own", "hermes"])
def path(request: pytest.FixtureRequest, home_path: Path) -> Path:
    path = home_path / "state.db"
    {"own": make_own_database, "hermes": make_hermes_database}[request.param](path)
    return path


@pytest.fixture
def db(path: Path) -> Iterator[SessionDB]:
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        yield db


@pytest.fixture
def commit(path: Path, db: SessionDB) -> Iterator[Callable[[str], float]]:
    """Commit a message in another process, and return when it had committed."""
    child = subprocess.Popen(
        [sys.executable, "-c", _WRITER, f"{path.as_uri()}?mode=rw"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    to, out = child.stdin, child.stdout
    assert out.readline() == "ready\n"

    def write(text: str) -> float:
        to.write(f"{text}\n")
        to.flush()
        return float(out.readline())

    yield write
    to.close()
    child.wait(10)
    out.close()


def list_message_texts(db: SessionDB, cursor: str) -> list[str | None]:
    return [event.text for event in db.read_changes(cursor).events if event.type == "message"]


def execute_statements(path: Path, *statements: str) -> None:
    with connect(path) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_feed_reports_commit_of_another_process(
    db: SessionDB, path: Path, commit: Callable[[str], float], journal: str
) -> None:
    db.close()
    execute_statements(path, f"PRAGMA journal_mode={journal}")
    with SessionDB(path, read_only=True) as reader:
        cursor = reader.read_changes().cursor
        for number in range(5):
            with ThreadPoolExecutor(1) as pool:
                listening = pool.submit(reader.read_changes, cursor, timeout_s=20)
                commit(f"message {number}")
                page = listening.result()
            assert [event.text for event in page.events] == [f"message {number}"]
            cursor = page.cursor


def test_idle_feed_returns_same_cursor(db: SessionDB) -> None:
    for _ in range(2):
        cursors = [db.read_changes(db.read_changes().cursor).cursor for _ in range(400)]
        assert len(set(cursors)) == 400
        assert [db.read_changes(cursor).cursor for cursor in cursors] == cursors
        db.append_message("s", "user", "hello")
        assert len({db.read_changes(cursor).events[0].message_id for cursor in cursors}) == 1


def test_feed_wait_blocks_no_writer(
    db: SessionDB, path: Path, commit: Callable[[str], float]
) -> None:
    db.close()
    execute_statements(path, "PRAGMA journal_mode=DELETE")
    with SessionDB(path, read_only=True) as reader:
        reader.read_changes()
        stop = threading.Event()
        thread = threading.Thread(target=lambda: _wait_until(reader, stop))
        thread.start()
        try:
            assert all(commit(f"m{number}") for number in range(20))
        finally:
            stop.set()
            thread.join(10)


def test_feed_wait_beside_exclusive_writer_ends(db: SessionDB, path: Path) -> None:
    db.close()
    execute_statements(path, "PRAGMA journal_mode=DELETE")
    with SessionDB(path, read_only=True) as reader:
        cursor = reader.read_changes().cursor
        with connect(path) as writer:
            writer.execute("BEGIN EXCLUSIVE")
            with pytest.raises(Busy):
                reader.read_changes(cursor, timeout_s=0.2)
            writer.execute("INSERT INTO sessions (id, source, started_at) VALUES ('t', 'cli', 5)")
            writer.execute("COMMIT")
        assert [event.session_id for event in reader.read_changes(cursor, timeout_s=20).events] == [
            "t"
        ]


def test_feed_survives_renumbering_by_vacuum(db: SessionDB, path: Path) -> None:
    for number in range(20):
        db.create_session(f"s{number}", "cli")
    db.delete_sessions([f"s{number}" for number in range(0, 20, 2)])
    cursor = db.read_changes().cursor
    db.close()
    _renumber_sessions(path)
    with SessionDB(path) as reopened:
        reopened.create_session("new", "cli")
        assert [event.session_id for event in reopened.read_changes(cursor).events] == ["new"]


def test_feed_continues_after_restored_backup(db: SessionDB, path: Path, tmp_path: Path) -> None:
    db.append_message("s", "user", "in the backup")
    db.close()
    execute_statements(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(path, tmp_path / "backup.db")
    with SessionDB(path) as later:
        later.append_message("s", "user", "lost")
        cursor = later.read_changes().cursor
    _restore_backup(tmp_path / "backup.db", path)
    with SessionDB(path) as restored:
        page = restored.read_changes(cursor)
        assert (page.events, page.gap) == ([], True)
        restored.append_message("s", "user", "after")
        assert list_message_texts(restored, page.cursor) == ["after"]


def test_feed_reports_gap_after_written_backup(db: SessionDB, path: Path, tmp_path: Path) -> None:
    db.close()
    execute_statements(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(path, tmp_path / "backup.db")
    with SessionDB(path) as later:
        later.append_message("s", "user", "lost")
        cursor = later.read_changes().cursor
    _restore_backup(tmp_path / "backup.db", path)
    with SessionDB(path) as restored:
        for text in ("one", "two", "three"):
            restored.append_message("s", "user", text)
        assert restored.read_changes(cursor).gap


def test_feed_cursor_of_another_home_is_gap(tmp_path: Path) -> None:
    cursors = []
    for name in ("a", "b"):
        with SessionDB(tmp_path / name / "state.db") as db:
            db.append_message("s", "user", "x", timestamp=5.0, create={"source": "cli"})
            cursors.append(db.read_changes().cursor)
            assert db.read_changes(cursors[0]).gap is (name == "b")


def test_feed_defers_costly_end_scan(
    db: SessionDB, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_CHEAP_SCAN_S", -1.0)
    monkeypatch.setattr(feed, "_SCAN_SHARE", 500.0)
    db.create_session("t", "cli")
    cursor = db.read_changes().cursor
    seen = []
    for name in ("s", "t"):
        db.end_session(name, "done")
        page = db.read_changes(cursor)
        seen += [event.session_id for event in page.events]
        cursor = page.cursor
    if len(seen) < 2:  # with an index on the end times, a scan is never postponed
        page = db.read_changes(cursor, timeout_s=20)
        seen += [event.session_id for event in page.events]
    assert seen == ["s", "t"]
    assert db.read_changes(page.cursor).events == []


def test_feed_keeps_ends_after_clock_change(path: Path) -> None:
    clock = [5000.0]
    with SessionDB(path, clock=lambda: clock[0]) as db:
        for name in ("a", "b", "c"):
            db.create_session(name, "cli")
        cursor = db.read_changes().cursor
        clock[0] -= 50.0
        db.end_session("a", "done")
        page = db.read_changes(cursor)
        assert ([event.session_id for event in page.events], page.gap) == (["a"], False)
        clock[0] -= 3600.0
        db.end_session("b", "done")
        page = db.read_changes(page.cursor)
        assert (page.events, page.gap) == ([], True)
        db.end_session("c", "done")
        page = db.read_changes(page.cursor)
        assert ([event.session_id for event in page.events], page.gap) == (["c"], False)


def test_feed_reports_gap_after_replaced_database(
    db: SessionDB, path: Path, tmp_path: Path
) -> None:
    execute_statements(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(path, tmp_path / "backup.db")
    db.append_message("s", "user", "later than the backup")
    db.close()
    with SessionDB(path, read_only=True) as reader:
        cursor = reader.read_changes().cursor
        assert reader.read_changes(cursor).events == []
        _restore_backup(tmp_path / "backup.db", path)
        assert reader.read_changes(cursor, timeout_s=20).gap


SOUND = {
    "session": None,
    "at": 0,
    "mark": None,
    "after": 0,
    "anchor": None,
    "sessions": [],
    "floor": [0, ""],
    "reported": [],
}


@pytest.mark.parametrize(
    "forged",
    [
        {},
        [],
        5,
        SOUND | {"more": 1},
        SOUND | {"after": -1},
        SOUND | {"after": 10**30},
        SOUND | {"after": True},
        SOUND | {"after": "1"},
        SOUND | {"session": {"a": 1}},
        SOUND | {"session": "\ud800"},
        SOUND | {"at": None},
        SOUND | {"at": float("inf")},
        SOUND | {"mark": 5},
        SOUND | {"anchor": [1]},
        SOUND | {"anchor": [2**70, "x"]},
        SOUND | {"sessions": [["x", 1, "y"]] * 100},
        SOUND | {"sessions": [["x", 1]]},
        SOUND | {"sessions": [["x", "1", "y"]]},
        SOUND | {"sessions": [None]},
        SOUND | {"sessions": 5},
        SOUND | {"floor": [float("nan"), ""]},
        SOUND | {"floor": [10**400, ""]},
        SOUND | {"floor": ["x", ""]},
        SOUND | {"floor": []},
        SOUND | {"reported": 7},
    ],
)
def test_feed_rejects_forged_cursor(tmp_path: Path, forged: Any) -> None:
    with SessionDB(tmp_path / "state.db") as db:
        assert db.read_changes(cursors.encode_cursor("changes", None, SOUND)).events == []
        with pytest.raises(InvalidInput):
            db.read_changes(cursors.encode_cursor("changes", None, forged))


def test_feed_wait_ends_when_database_closes(db: SessionDB) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(db.read_changes, timeout_s=30)
        db.close()
        with pytest.raises(InvalidInput, match="closed"):
            waiting.result()


def _wait_until(db: SessionDB, stop: threading.Event) -> None:
    while not stop.is_set():
        db.read_changes(timeout_s=1, stop=stop)


def _renumber_sessions(path: Path) -> None:
    """Give session rows new row ids, as a VACUUM may do."""
    execute_statements(path, "VACUUM", "UPDATE sessions SET rowid = -rowid")
    with connect(path) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        rows = connection.execute("SELECT id FROM sessions ORDER BY rowid DESC").fetchall()
        for number, (session_id,) in enumerate(rows, 1):
            connection.execute("UPDATE sessions SET rowid = ? WHERE id = ?", (number, session_id))


def _restore_backup(backup: Path, path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    temporary = path.with_name("restored")
    shutil.copyfile(backup, temporary)
    temporary.replace(path)
