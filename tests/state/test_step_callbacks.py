"""Callbacks during long operations may end them without a trace."""

from __future__ import annotations

import os
import subprocess
import sys
from _thread import interrupt_main
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from session_core import SessionDB
from session_core.state.sqlite.admin import sizes, vacuum_file
from tests.homes import connect, fill_database, make_hermes_database, make_own_database


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


OLD = 1_600_000_000


class StopWork(Exception):
    """Raised by a callback to end the operation."""


@pytest.fixture(params=["own", "hermes"])
def path(request: pytest.FixtureRequest, home_path: Path) -> Path:
    path = home_path / "state.db"
    make_own_database(path) if request.param == "own" else make_hermes_database(path, 22)
    fill_database(path, 40, 20)
    return path


@pytest.fixture
def db(path: Path) -> Iterator[SessionDB]:
    with SessionDB(path) as db:
        db.delete_sessions([f"fill_0_{n:05}" for n in range(20)])
        yield db


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum_file, "_INSTRUCTIONS_PER_STEP", 50)
    monkeypatch.setattr(sizes, "_CHILD_WAIT_S", 0.001)


LONG: dict[str, Callable[[SessionDB, Callable[[], object]], object]] = {
    "vacuum": lambda db, step: db.admin.vacuum(step=step),
    "check": lambda db, step: db.admin.check_integrity(deep=True, step=step),
    "sizes": lambda db, step: db.admin.measure_sizes(exact=True, step=step),
}


@pytest.mark.requirement("maintenance:ended-looks")
@pytest.mark.parametrize("work", LONG.values(), ids=LONG)
def test_long_work_calls_step_regularly(
    db: SessionDB, work: Callable[[SessionDB, Callable[[], object]], object]
) -> None:
    looked: list[None] = []
    work(db, lambda: looked.append(None))
    assert len(looked) > 3
    assert db.admin.check_integrity(deep=True) == []


@pytest.mark.requirement("maintenance:ended-looks")
@pytest.mark.parametrize("at", [1, 2, 5])
@pytest.mark.parametrize("work", LONG.values(), ids=LONG)
def test_step_error_ends_work_without_trace(
    db: SessionDB,
    path: Path,
    temporary: Path,
    work: Callable[[SessionDB, Callable[[], object]], object],
    at: int,
) -> None:
    free, looked = db.admin.measure_sizes().free, iter(range(1, 1000))

    def step() -> None:
        if next(looked) >= at:
            raise StopWork

    with pytest.raises(StopWork):
        work(db, step)
    assert next(looked) == at + 1  # the callback is not called again after it ended the work
    assert list(temporary.iterdir()) == []
    assert db.admin.measure_sizes().free == free > 0
    assert db.admin.check_integrity(deep=True) == []
    db.append_messages("after", [{"role": "user", "content": "x"}], create={"source": "cli"})
    with connect(path) as other:
        other.execute("BEGIN IMMEDIATE")
    db.admin.vacuum()
    assert db.admin.measure_sizes().free == 0


@pytest.mark.requirement("maintenance:ended-looks")
def test_check_deletes_copy_of_killed_check(db: SessionDB, path: Path, temporary: Path) -> None:
    script = (
        "import glob, os, sys\n"
        "from session_core import SessionDB\n"
        "from session_core.state.sqlite.admin import vacuum_file as stepping\n"
        "stepping._INSTRUCTIONS_PER_STEP = 50\n"
        "def step():\n"
        "    if glob.glob(os.environ['TMPDIR'] + '/*/copy.db'):\n"
        "        os.kill(os.getpid(), 9)\n"
        "SessionDB(sys.argv[1], read_only=True).admin.check_integrity(deep=True, step=step)\n"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env={**os.environ, "TMPDIR": str(temporary)},
        check=False,
    )
    (leftover,) = temporary.iterdir()
    db.admin.check_integrity(deep=True)
    assert list(temporary.iterdir()) == [leftover]  # its process may still be running
    os.utime(leftover, (OLD, OLD))
    assert db.admin.check_integrity(deep=True) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.requirement("maintenance:ended-looks")
@pytest.mark.parametrize("kind", [OSError, ValueError])
@pytest.mark.parametrize("work", LONG.values(), ids=LONG)
def test_step_error_keeps_type(
    db: SessionDB,
    work: Callable[[SessionDB, Callable[[], object]], object],
    kind: type[Exception],
) -> None:
    def step() -> None:
        raise kind("of who looks in")

    with pytest.raises(kind, match="of who looks in"):
        work(db, step)


@pytest.mark.requirement("maintenance:ended-looks")
def test_interrupt_between_steps_is_raised_unchanged(path: Path) -> None:
    long = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
        "SELECT max(CASE i WHEN 9999 THEN interrupt() ELSE i END) FROM n"
    )
    with connect(path) as connection:
        # The interrupt comes during a statement, so Python handles it at the next callback.
        connection.create_function("interrupt", 0, interrupt_main)
        with (
            pytest.raises(KeyboardInterrupt),
            vacuum_file.call_step_regularly(connection, lambda: None),
        ):
            connection.execute(long).fetchall()
        assert connection.execute(long.replace("interrupt()", "1")).fetchone() == (20000,)
