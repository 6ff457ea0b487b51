"""Without disk space a change is refused as a whole, data stays, and later changes succeed."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from session_core.errors import StorageFull
from tests.faults import state, template
from tests.faults.mutations import open_home
from tests.faults.process import ChildProcess

pytestmark = pytest.mark.faults

KINDS = ("own", "hermes")


@pytest.mark.parametrize("kind", KINDS)
def test_page_limit_refuses_until_room(tmp_path, kind):
    home = tmp_path / "home"
    template.build_home(home, kind)
    with open_home(home) as db:
        db.set_meta("opened", "yes")
        _limit_growth(db, pages=2)
        before = state.digest_tables(home)
        with pytest.raises(StorageFull, match="free some space"):
            db.append_message("chat", "user", "needle " * 40_000)
        assert state.digest_tables(home) == before

        _limit_growth(db, pages=100_000)

        assert db.append_message("chat", "user", "needle " * 40_000)
    assert state.find_damage(home) == []


def test_oversized_change_spares_fitting_changes(tmp_path):
    home = tmp_path / "home"
    template.build_home(home, "own")
    with open_home(home) as db, ThreadPoolExecutor(5) as pool:
        db.set_meta("opened", "yes")
        _limit_growth(db, pages=20)
        with db.transaction():
            texts = ["small", "also small", "needle " * 40_000, "small too", "the last"]
            waiting = []
            for number, text in enumerate(texts):
                waiting.append(pool.submit(db.append_message, "chat", "user", text))
                _wait_until_queued(db, number + 1)
        outcomes = [type(future.exception(timeout=20)) for future in waiting]
        stored = [row["content"] for row in db.get_messages("chat")][-4:]
    assert outcomes == [type(None), type(None), StorageFull, type(None), type(None)]
    assert sorted(stored) == sorted(text for text in texts if len(text) < 100)


@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_file_size_limit_refuses_until_room(tmp_path, kind):
    home = tmp_path / "home"
    template.build_home(home, kind)
    with ChildProcess("filler", home, "limit") as filler:
        _check_filled_home(home, filler)


@pytest.mark.requirement("faults:full")
@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_full_disk_refuses_until_room(tmp_path, kind):
    built = tmp_path / "built"
    template.build_home(built, kind)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)]
    if subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("a small disk cannot be mounted here; a limit on the file stands for it")
    try:
        home = Path(shutil.copytree(built, disk / "home"))
        with ChildProcess("filler", home, "disk") as filler:
            _check_filled_home(home, filler)
    finally:
        subprocess.run(["umount", str(disk)], check=True)  # noqa: S607 -- the one of the system


def _check_filled_home(home: Path, filler: ChildProcess) -> None:
    data = json.loads(filler.read_line())
    again = int(filler.read_line())
    filler.end()
    assert set(data["failures"]) <= {"StorageFull", "StorageError"}
    assert data["seen"] == data["acknowledged"]
    assert len(data["acknowledged"]) > 3
    with state.open_connection(home / "state.db") as reader:
        rows = reader.execute("SELECT id FROM messages WHERE session_id = 'filled' ORDER BY id")
        assert [number for (number,) in rows] == [*data["acknowledged"], again]
    assert state.find_damage(home) == []


def _limit_growth(db, *, pages: int) -> None:
    """Let the database grow by so many pages. The limit belongs to the connection."""
    handle = db._store.pool.writer._handle
    now = handle.fetch_value("PRAGMA page_count")
    handle.fetch_value(f"PRAGMA max_page_count={now + pages}")


def _wait_until_queued(db, count: int) -> None:
    pause = threading.Event()
    for _ in range(2000):
        if len(db._store.pool.writer._queue.queue) >= count:
            return
        pause.wait(0.005)
    raise AssertionError("the threads do not queue up")
