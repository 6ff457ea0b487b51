"""While another process holds the write lock, a change waits, or names the holder."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from session_core.errors import Busy
from session_core.state.sqlite.session_db import SessionDB
from tests.faults import state, template
from tests.faults.process import ChildProcess

pytestmark = pytest.mark.faults

THREADS = 8


@pytest.fixture(params=["own", "hermes"])
def home(request, tmp_path):
    path = tmp_path / "home"
    template.build_home(path, request.param)
    return path


@pytest.fixture
def holder(home):
    with ChildProcess("holder", home / "state.db") as process:
        process.read_line()
        process.request("lock")
        yield process


@pytest.mark.requirement("faults:busy")
def test_write_waits_for_lock_release(home, holder):
    with SessionDB(home / "state.db") as db, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(db.append_message, "chat", "user", "patient")
        _wait_until_refused(db)
        assert not waiting.done()
        holder.request("unlock")

        added = waiting.result(timeout=20)

        assert db.get_messages("chat")[-1]["id"] == added


def test_many_threads_wait_for_lock_release(home, holder):
    with SessionDB(home / "state.db") as db, ThreadPoolExecutor(THREADS) as pool:
        waiting = [pool.submit(db.append_message, "chat", "user", "all") for _ in range(THREADS)]
        _wait_until_refused(db)
        holder.request("unlock")

        added = {future.result(timeout=20) for future in waiting}

        assert len(added) == THREADS
        assert {row["id"] for row in db.get_messages("chat")[-THREADS:]} == added


@pytest.mark.requirement("faults:busy")
def test_timed_out_write_names_lock_holder(home, holder):
    before = state.digest_tables(home)
    with SessionDB(home / "state.db", patience_s=0.1) as db:
        with pytest.raises(Busy, match=f"pid {holder.pid}") as refused:
            db.append_message("chat", "user", "impatient")
        assert any(f"pid {holder.pid}" in who for who in refused.value.holders)
        with pytest.raises(Busy), db.transaction():
            db.set_meta("key", "value")
    assert state.digest_tables(home) == before


def test_timed_out_threads_are_refused_together(home, holder):
    before = state.digest_tables(home)
    asked: list[str] = []
    with SessionDB(home / "state.db", patience_s=1.0) as db, ThreadPoolExecutor(THREADS) as pool:
        with pytest.raises(Busy):
            db.append_message("chat", "user", "opens the connection")
        db._store.pool.writer._handle.connection.set_trace_callback(asked.append)
        waiting = [pool.submit(db.append_message, "chat", "user", "all") for _ in range(THREADS)]
        refused = [type(future.exception(timeout=30)) for future in waiting]
    assert refused == [Busy] * THREADS
    assert 0 < asked.count("BEGIN IMMEDIATE") < THREADS
    assert state.digest_tables(home) == before


def test_read_ignores_write_lock(home, holder):
    with SessionDB(home / "state.db", patience_s=0.0) as db:
        assert db.get_messages("chat")

        with pytest.raises(Busy):
            db.append_message("chat", "user", "the lock is still held")


def test_many_processes_create_home_once(tmp_path):
    home = tmp_path / "new"
    with ExitStack() as running:
        clients = [
            running.enter_context(ChildProcess("client", home, "begins", "close", "standard"))
            for _ in range(THREADS)
        ]
        assert [client.read_line() for client in clients] == ["done"] * THREADS
    with SessionDB(home / "state.db", read_only=True) as db:
        assert (db.kind, db.message_count("shared")) == ("own", THREADS)
    assert state.find_damage(home) == []


def test_many_threads_create_home_once(tmp_path):
    path = tmp_path / "new" / "state.db"
    with ThreadPoolExecutor(THREADS) as pool:
        made = list(pool.map(lambda number: _append_first_message(path, number), range(THREADS)))
    with SessionDB(path, read_only=True) as db:
        assert db.kind == "own"
        assert sorted(row["id"] for row in db.get_messages("shared")) == sorted(made)


def _append_first_message(path: Path, number: int) -> int:
    """Append in a database object of its own, as another process would."""
    with SessionDB(path) as db:
        return int(db.append_message("shared", "user", str(number), create={"source": "cli"}))


def _wait_until_refused(db: SessionDB) -> None:
    """Return when a thread has asked for the lock, and was refused once at least."""
    patient = threading.Event()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        writer = db._store.pool.writer
        if writer is not None and writer._queue.leader and writer._handle is not None:
            return
        patient.wait(0.005)
    raise AssertionError("nobody waits for the lock")
