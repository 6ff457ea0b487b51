"""The ledger file: created by the first write, complete, refused if it is foreign, and shared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from session_core import _sqlite3
from session_core.errors import Corrupt, InvalidInput, SessionError, Unsupported
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.storage import make_step_id
from session_core.ledger.types import AuditEntry, Member, TrashItem
from tests.homes import connect
from tests.ledger.conftest import Clock

ROOT = Path(__file__).parents[2]

WRITER = """
import json, sys
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import TrashItem, Member
from session_core.ledger.storage import make_step_id

with Ledger(StateFolder(sys.argv[1])) as ledger:
    sys.stdin.readline()
    batch = ledger.add_batch("theirs").id
    for number in range(20):
        items = [TrashItem("row", number)]
        ledger.prepare_step(step := make_step_id(), batch, items, members=[str(number)])
        ledger.finish_step(step, number)
        ledger.add_audit_entry("theirs", "sessions_prune", None, {"number": number})
    print(json.dumps([batch, ledger.get_batch(batch).count]))
"""


def get_ledger_path(folder: StateFolder) -> Path:
    return folder.make() / "ledger.db"


@pytest.mark.needs_files
def test_first_write_creates_private_ledger(ledger: Ledger, folder: StateFolder) -> None:
    ledger.list_audit_entries()
    assert folder.find() is None
    ledger.add_audit_entry("a client", "sessions_edit", None, {})
    files = list(get_ledger_path(folder).parent.glob("ledger.db*"))
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    with connect(get_ledger_path(folder)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (1,)


def test_audit_has_single_line_per_client(ledger: Ledger) -> None:
    plan = ledger.add_plan("prune", [Member("a")], None).handle
    ledger.add_audit_entry("cli", "prune, begun", plan, {})
    ledger.add_audit_entry("server", "prune, in part", plan, {"removed": 1})
    ledger.add_audit_entry(None, "prune, in part", plan, {"removed": 2})
    ledger.add_audit_entry("cli", "prune", plan, {"removed": 3})
    ledger.add_audit_entry("cli", "prune, in part", plan, {"removed": 2})
    ledger.add_audit_entry(None, "nobody came to it", "p-other", {})
    assert [
        (line.client, line.what, line.counts) for line in ledger.list_audit_entries().items
    ] == [
        ("server", "prune, in part", {"removed": 2}),
        ("cli", "prune", {"removed": 3}),
    ]


def test_reopened_ledger_keeps_records(
    ledger: Ledger, open_ledger: Callable[..., Ledger], clock: Clock
) -> None:
    ledger.add_audit_entry("claude-code", "sessions_prune", "p-abc", {"removed": 3})
    clock.now += 1
    ledger.add_audit_entry("cli", "sessions_edit", None, {})
    ledger.close()
    lines = open_ledger().list_audit_entries().items
    assert lines == [
        AuditEntry(clock.now, "cli", "sessions_edit", None, {}),
        AuditEntry(clock.now - 1, "claude-code", "sessions_prune", "p-abc", {"removed": 3}),
    ]


def test_resumed_plan_is_audited_once(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.add_audit_entry("cli", "compress a", "p-abc", {"rows": 3})
    ledger.add_audit_entry("cli", "compress b", "p-abc", {"rows": 4})
    assert [line.what for line in ledger.list_audit_entries().items] == ["compress b", "compress a"]


@pytest.mark.requirement("ledger:file")
def test_audit_log_is_paged(ledger: Ledger) -> None:
    for number in range(5):
        ledger.add_audit_entry("cli", "sessions_edit", None, {"number": number})
    page = ledger.list_audit_entries(3)
    rest = ledger.list_audit_entries(3, page.next_cursor)
    assert [line.counts["number"] for line in [*page.items, *rest.items]] == [4, 3, 2, 1, 0]
    assert rest.next_cursor is None


def test_closed_ledger_refuses_use(ledger: Ledger) -> None:
    ledger.close()
    for ask in (ledger.list_batches, lambda: ledger.add_batch("x")):
        with pytest.raises(InvalidInput, match="closed"):
            ask()


@pytest.mark.needs_files
@pytest.mark.requirement("ledger:file")
@pytest.mark.parametrize("harm", ["noise", "header", "middle"])
def test_damaged_file_raises_corrupt(
    open_ledger: Callable[..., Ledger], folder: StateFolder, harm: str
) -> None:
    with open_ledger() as ledger:
        handle = ledger.add_plan("sessions", [Member(str(n)) for n in range(2000)], None).handle
    path = get_ledger_path(folder)
    size = path.stat().st_size
    with path.open("r+b") as file:
        if harm == "noise":
            file.write(b"no database " * (size // 12))
        else:
            file.seek(24 if harm == "header" else 4096)
            file.write(b"\xa5" * (64 if harm == "header" else size - 8192))
    for ask in (lambda: open_ledger().get_plan(handle), lambda: open_ledger().begin_plan(handle)):
        with pytest.raises(Corrupt, match="move it away, and a new one is created") as caught:
            ask()
        assert str(path) in str(caught.value)
    path.rename(path.with_name("put away"))
    assert open_ledger().add_batch("works again")


@pytest.mark.needs_files
def test_foreign_database_is_refused(
    open_ledger: Callable[..., Ledger], folder: StateFolder
) -> None:
    with connect(get_ledger_path(folder), mode="rwc") as connection:
        connection.execute("CREATE TABLE plans (mine)")
    for ask in (lambda: open_ledger().list_batches(), lambda: open_ledger().add_batch("x")):
        with pytest.raises(Corrupt, match="not a ledger"):
            ask()


@pytest.mark.needs_files
@pytest.mark.requirement("ledger:file")
def test_newer_schema_is_unsupported(
    open_ledger: Callable[..., Ledger], folder: StateFolder
) -> None:
    ledger = open_ledger()
    ledger.add_batch("before")
    with connect(get_ledger_path(folder)) as connection:
        connection.execute("PRAGMA user_version = 99")
        before = _read_content(connection)
        asks: list[Callable[[], object]] = [
            open_ledger().list_batches,
            ledger.list_batches,
            lambda: open_ledger().add_batch("x"),
            lambda: ledger.add_batch("x"),
        ]
        for ask in asks:
            with pytest.raises(Unsupported, match="update it"):
                ask()
        assert _read_content(connection) == before


@pytest.mark.needs_files
def test_prerelease_ledger_is_refused(
    open_ledger: Callable[..., Ledger], folder: StateFolder
) -> None:
    open_ledger().add_batch("before")
    with connect(get_ledger_path(folder)) as connection:
        connection.execute("ALTER TABLE steps DROP COLUMN digests")
        connection.execute("PRAGMA user_version = 1")
    for ask in (open_ledger().list_batches, lambda: open_ledger().add_batch("x")):
        with pytest.raises(Unsupported, match="move it away, and a new one is created"):
            ask()


def _read_content(connection: _sqlite3.Connection) -> list[object]:
    asks = ("SELECT * FROM sqlite_master", "SELECT * FROM batches", "PRAGMA user_version")
    return [connection.execute(ask).fetchall() for ask in asks]


def test_interrupted_creation_is_finished_by_write(
    open_ledger: Callable[..., Ledger], folder: StateFolder
) -> None:
    for sql in (None, "PRAGMA user_version = 0"):
        path = get_ledger_path(folder)
        path.unlink(missing_ok=True)
        path.touch()
        if sql:
            with connect(path) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
        assert open_ledger().list_batches().items == []
        ledger = open_ledger()
        assert ledger.get_batch(ledger.add_batch("x").id).what == "x"
        ledger.close()


@pytest.mark.needs_files
def test_removed_folder_is_recreated(ledger: Ledger, folder: StateFolder) -> None:
    ledger.add_batch("lost with its folder")
    state_path = get_ledger_path(folder).parent
    for file in state_path.iterdir():
        file.unlink()
    state_path.rmdir()
    assert ledger.list_batches().items == []
    batch = ledger.add_batch("kept").id
    assert ledger.get_batch(batch).what == "kept"
    with connect(get_ledger_path(folder)) as connection:
        assert connection.execute("SELECT what FROM batches").fetchall() == [("kept",)]


def test_threads_share_ledger(ledger: Ledger) -> None:
    plan = ledger.add_plan("sessions", [Member(str(number)) for number in range(40)], None)
    batch = ledger.begin_plan(plan.handle).batch_id
    barrier = threading.Barrier(4)

    def work(first: int) -> None:
        barrier.wait(20)
        for number in range(first, 40, 4):
            step = make_step_id()
            ledger.prepare_step(step, batch, [TrashItem("row", number)], members=[str(number)])
            assert [kept.value for kept in ledger.read_trash(step)] == [number]
            ledger.finish_step(step, number)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, first) for first in range(4)]:
            future.result()
    assert ledger.get_plan(plan.handle).remaining == ()
    assert sorted(step.result for step in ledger.list_steps(batch)) == list(range(40))


def test_concurrent_claims_have_single_winner(
    open_ledger: Callable[..., Ledger], ledger: Ledger
) -> None:
    batch = ledger.begin_plan(ledger.add_plan("sessions", [Member("a")], None).handle).batch_id
    ledgers = [open_ledger() for _ in range(6)]
    barrier = threading.Barrier(6)

    def claim(one: Ledger) -> bool:
        barrier.wait(20)
        try:
            one.prepare_step(make_step_id(), batch, [], members=["a"])
        except SessionError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(claim, ledgers)) == 1


@pytest.mark.requirement("ledger:file")
def test_processes_share_ledger(folder: StateFolder) -> None:
    command = [sys.executable, "-c", WRITER, str(folder.db_path)]
    running = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    status = [json.loads(process.communicate(timeout=60)[0]) for process in running]
    assert [count for _, count in status] == [20, 20]
    with Ledger(StateFolder(folder.db_path)) as ledger:
        assert {batch.id for batch in ledger.list_batches().items} == {batch for batch, _ in status}
        assert len(ledger.list_audit_entries(100).items) == 40
        assert ledger.list_unsettled_steps() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_ledger_is_refused_after_fork(ledger: Ledger) -> None:
    batch = ledger.add_batch("x").id
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ledger.get_batch(batch)
        except Unsupported:
            os.write(write, b"refused")
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as said:
        assert said.read() == b"refused"
    os.waitpid(child, 0)
    assert ledger.get_batch(batch).what == "x"


@pytest.mark.needs_files
def test_ledger_uses_chosen_driver_and_sync(
    ledger: Ledger,
) -> None:
    ledger.add_batch("x")
    handle = ledger._file._handle
    assert handle is not None
    assert isinstance(handle.connection, _sqlite3.load_library().Connection)
    assert handle.fetch_value("PRAGMA synchronous") == 2
    assert handle.fetch_value("PRAGMA wal_autocheckpoint") == 0
