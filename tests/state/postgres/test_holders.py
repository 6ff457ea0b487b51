"""Programs that hold a home: noted with their changes, until they close it or an hour passes."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from session_core import Compressor, Ledger, processes
from session_core.compression import NotCompressed
from session_core.state.postgres import holders
from session_core.state.postgres.session_db import PostgresDB
from tests.contract.engines import roll_back_at_end

_ADD = """
INSERT INTO holder_rows (token, host, space, pid, started_at, expires_at)
VALUES (?, ?, ?, ?, ?, now() + ? * interval '1 second')
"""


def add_note(db: PostgresDB, host: str, pid: int, *, expires_s: int = 3600) -> None:
    """Store the note of another program."""
    store: Any = db._store
    space = holders._get_process_space()
    values = (f"{host} {pid}", host, space, pid, None, expires_s)
    store.write(lambda handle: handle.execute_update(_ADD, values))


def count_notes(db: PostgresDB) -> int:
    store: Any = db._store
    count: int = store.read(lambda handle: handle.fetch_value("SELECT count(*) FROM holders"))
    return count


def test_program_of_other_machine_is_listed(db: PostgresDB) -> None:
    add_note(db, "elsewhere", 7)
    add_note(db, "expired", 8, expires_s=-1)
    assert [str(holder) for holder in db.admin.list_holders()] == ["a program on elsewhere (pid 7)"]


def test_note_ends_with_close(db: PostgresDB, address: str) -> None:
    assert count_notes(db) == 0
    db.create_session("s", "cli")
    with PostgresDB(address) as other:
        assert (other.get_session("s") is None, count_notes(db)) == (False, 1)
        other.create_session("t", "cli")
        assert count_notes(db) == 2
        assert db.admin.list_holders() == []  # both are of this process
    assert count_notes(db) == 1


def test_dead_process_is_not_listed(db: PostgresDB) -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        add_note(db, holders._get_host(), process.pid)
        assert [holder.pid for holder in db.admin.list_holders()] == [process.pid]
        process.kill()
    assert not processes.is_alive(process.pid)
    assert db.admin.list_holders() == []


def test_note_is_renewed_after_interval(db: PostgresDB, monkeypatch: pytest.MonkeyPatch) -> None:
    db.create_session("s", "cli")
    store: Any = db._store
    look = "SELECT max(expires_at) FROM holders"
    first = store.read(lambda handle: handle.fetch_value(look))
    db.append_message("s", "user", "one")
    assert store.read(lambda handle: handle.fetch_value(look)) == first
    monkeypatch.setattr(holders, "_NOTE_INTERVAL_S", 0.0)
    db.append_message("s", "user", "two")
    assert store.read(lambda handle: handle.fetch_value(look)) > first


def test_rolled_back_note_is_stored_later(db: PostgresDB) -> None:
    with roll_back_at_end(db):
        db.create_session("s", "cli")
    assert count_notes(db) == 0
    db.create_session("s", "cli")
    assert count_notes(db) == 1


def test_session_used_elsewhere_is_not_continued(db: PostgresDB) -> None:
    for number in range(30):
        role = "assistant" if number % 2 else "user"
        text = f"said {number} " * 40
        db.append_message("s", role, text, timestamp=time.time(), create={"source": "cli"})
    add_note(db, "elsewhere", 7)
    with Ledger.open(db) as ledger:
        compressor = Compressor(db, ledger)
        with pytest.raises(NotCompressed, match="on elsewhere"):
            compressor.compress("s", lambda _: "a summary", shape="continuation", keep_last=4)
