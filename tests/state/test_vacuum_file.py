"""VACUUM through a copy keeps concurrent commits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core import Busy, SessionDB
from session_core.state.sqlite.admin import vacuum_file
from tests.homes import connect, fill_database, make_hermes_database, make_own_database
from tests.state.vacuum_trace import dump_tables, list_copies, trace_vacuum, vacuum_through_copy
from tests.thorough import take_main_kinds

OTHER = (
    "import sqlite3, sys\n"
    "connection = sqlite3.connect(sys.argv[1], timeout=0)\n"
    "with connection:\n"
    "    connection.execute('INSERT INTO state_meta VALUES (?, 1)', (sys.argv[2],))\n"
)

STAYING = (
    "import sqlite3, sys\n"
    "connection = sqlite3.connect(sys.argv[1], timeout=5)\n"
    "count = 'SELECT count(*), sum(length(content)) FROM messages'\n"
    'say = "INSERT INTO messages (session_id, role, content, timestamp) VALUES "\n'
    "say += \"('fill_0_00039', 'user', 'said beside', 1)\"\n"
    "for _ in sys.stdin:\n"
    "    print(connection.execute(count).fetchone(), flush=True)\n"
    "with connection:\n"
    "    connection.execute(say)\n"
)

EARLY = ("copy begins", "copying", "between")
"""Points at which other processes may commit, so that the vacuum starts again."""

LATE = ("look under the lock", "writing back")


@pytest.fixture(params=take_main_kinds(["own", 16, 22, 30]))
def path(request: pytest.FixtureRequest, home_path: Path) -> Path:
    path = home_path / "state.db"
    make_own_database(path) if request.param == "own" else make_hermes_database(path, request.param)
    fill_database(path, 40, 20)
    return path


@pytest.fixture
def db(path: Path) -> Iterator[SessionDB]:
    with SessionDB(path) as db:
        db.delete_sessions([f"fill_0_{n:05}" for n in range(20)])
        yield db


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum_file, "_INSTRUCTIONS_PER_STEP", 2000)
    monkeypatch.setattr(vacuum_file, "_PAGES_PER_STEP", 16)


def commit_in_process(path: Path, key: str) -> str:
    """Commit in another process, and return the error that prevented it."""
    result = subprocess.run(
        [sys.executable, "-c", OTHER, str(path), key], capture_output=True, text=True, check=False
    )
    return result.stderr.strip().rpartition("\n")[2]


def test_vacuum_frees_pages_and_leaves_no_copies(db: SessionDB, path: Path) -> None:
    before = db.list_sessions().items, db.get_messages("fill_0_00039")
    assert db.admin.measure_sizes().free > 0
    vacuum_through_copy(db)
    assert db.admin.measure_sizes().free == 0
    assert (db.list_sessions().items, db.get_messages("fill_0_00039")) == before
    assert db.admin.check_integrity(deep=True) == []
    assert list_copies(path.parent) == []


@pytest.mark.requirement("maintenance:vacuum-commits")
@pytest.mark.parametrize("point", EARLY)
def test_commit_before_lock_restarts_vacuum(db: SessionDB, path: Path, point: str) -> None:
    errors: list[str] = []

    def act(now: str) -> None:
        if now == point and not errors:
            errors.append(commit_in_process(path, point))

    points = trace_vacuum(db, act)
    assert errors == [""]
    assert points.count("copy begins") == 2
    assert db.get_meta(point) == "1"
    assert db.admin.measure_sizes().free == 0
    assert db.admin.check_integrity(deep=True) == []


@pytest.mark.requirement("maintenance:vacuum-commits")
def test_commit_before_copy_is_included(db: SessionDB, path: Path) -> None:
    points = trace_vacuum(
        db, lambda now: commit_in_process(path, now) if now == "first look" else None
    )
    assert points.count("copy begins") == 1
    assert db.get_meta("first look") == "1"


@pytest.mark.requirement("maintenance:vacuum-commits")
def test_vacuum_lock_blocks_other_commits(db: SessionDB, path: Path) -> None:
    errors: list[str] = []
    points = trace_vacuum(
        db, lambda now: errors.append(commit_in_process(path, now)) if now in LATE else None
    )
    assert len(errors) > 3
    assert set(errors) == {"sqlite3.OperationalError: database is locked"}
    assert points.count("copy begins") == 1
    assert commit_in_process(path, "later") == ""
    assert db.get_meta("later") == "1"


@pytest.mark.requirement("maintenance:vacuum-commits")
def test_vacuum_gives_up_under_steady_writes(db: SessionDB, path: Path) -> None:
    errors: list[str] = []
    free = db.admin.measure_sizes().free

    def act(now: str) -> None:
        if now == "between":
            errors.append(commit_in_process(path, f"said {len(errors)}"))

    with pytest.raises(Busy):
        trace_vacuum(db, act)
    assert errors == [""] * 3
    assert [db.get_meta(f"said {number}") for number in range(3)] == ["1"] * 3
    assert db.admin.measure_sizes().free == free
    assert list_copies(path.parent) == []


@pytest.mark.requirement("maintenance:vacuum-commits")
def test_vacuum_yields_to_open_write_transaction(db: SessionDB, path: Path) -> None:
    begun = iter(["BEGIN IMMEDIATE", "INSERT INTO state_meta VALUES ('other', 1)"])
    with connect(path) as other, SessionDB(path, patience_s=0) as hasty:
        hasty.set_meta("opened", "1")

        def act(now: str) -> None:
            if now == "between":
                for sql in begun:
                    other.execute(sql)

        with pytest.raises(Busy):
            trace_vacuum(hasty, act)
        other.execute("COMMIT")
        vacuum_through_copy(hasty)
    assert db.get_meta("other") == "1"
    assert db.admin.measure_sizes().free == 0


@pytest.mark.requirement("maintenance:vacuum-commits")
def test_vacuum_lets_other_process_continue(db: SessionDB, path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STAYING, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        seen: list[str] = []

        def ask() -> None:
            other.stdin.write("\n")
            other.stdin.flush()
            seen.append(other.stdout.readline())

        points = trace_vacuum(db, lambda _: ask())
        ask()
        other.stdin.close()
        assert other.wait(20) == 0
    assert points.count("copy begins") == 1
    assert len(set(seen)) == 1
    assert db.get_messages("fill_0_00039")[-1]["content"] == "said beside"
    assert "said beside" in str(db.search("beside", per="message", status="all").hits)
    assert db.admin.check_integrity(deep=True) == []


@pytest.mark.requirement("maintenance:vacuum-commits")
def test_open_readers_keep_snapshot_during_vacuum(db: SessionDB, path: Path) -> None:
    count = "SELECT count(*), max(rowid) FROM messages"
    with connect(path) as other:
        other.execute("BEGIN")
        before = other.execute(count).fetchone()
        pages = other.execute("PRAGMA page_count").fetchone()
        vacuum_through_copy(db)
        assert other.execute(count).fetchone() == before
        assert other.execute("PRAGMA page_count").fetchone() == pages
        other.execute("COMMIT")
        assert other.execute(count).fetchone() == before
        assert other.execute("PRAGMA page_count").fetchone() < pages
        other.execute("INSERT INTO state_meta VALUES ('other', 1)")
    assert db.get_meta("other") == "1"
    db.append_message("fill_0_00039", "user", "after it")
    assert db.admin.check_integrity(deep=True) == []


@pytest.mark.requirement("maintenance:vacuum-commits")
@pytest.mark.parametrize("point", ["copying", "between", "writing back"])
def test_vacuum_stopped_anywhere_changes_nothing(db: SessionDB, path: Path, point: str) -> None:
    class Enough(Exception):
        pass

    def act(now: str) -> None:
        if now == point:
            raise Enough

    free, before = db.admin.measure_sizes().free, dump_tables(path)
    with pytest.raises(Enough):
        trace_vacuum(db, act)
    assert list_copies(path.parent) == []
    assert commit_in_process(path, "at once") == ""
    assert db.admin.measure_sizes().free == free
    assert dump_tables(path) == {**before, "state_meta": dump_tables(path)["state_meta"]}
