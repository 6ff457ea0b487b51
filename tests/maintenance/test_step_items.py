"""The undo of the next step is prepared during the current one, and discarded if unused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from session_core import _sqlite3
from session_core.ledger import execute
from session_core.ledger.execute import wait_for_steps
from session_core.ledger.types import Step, TrashItem
from session_core.ledger.undo_log import UndoLog
from session_core.maintenance.types import ApplyResult
from tests.homes import add_message, connect
from tests.maintenance.changed_homes import Changing
from tests.maintenance.homes import DAY, NOW

OLD = {f"old_{number}" for number in range(4)}


@pytest.fixture
def filled(changed: Changing) -> Changing:
    """Old sessions that fill a step each."""
    home = changed.home
    for session_id in sorted(OLD):
        home.session(session_id, 150, reason="idle", messages=0)
        home.clock.now = NOW - 150 * DAY
        home.db.append_message(session_id, "user", "says " + "x" * 40_000)
    home.clock.now = NOW
    return changed


@contextmanager
def apply_in_background(
    filled: Changing,
) -> Iterator[tuple[_sqlite3.Connection, Future[ApplyResult]]]:
    """Apply a plan while its first step waits for the home and its second is prepared."""
    planned = filled.plan()
    with connect(filled.home.db.path) as connection, ThreadPoolExecutor(1) as pool:
        connection.execute("BEGIN IMMEDIATE")
        try:
            running = pool.submit(filled.apply, planned)
            wait_until(lambda: len(filled.ledger.list_unsettled_steps()) == 2)
            yield connection, running
        finally:
            connection.rollback()


def wait_until(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 15
    while not what():
        assert time.monotonic() < until
        time.sleep(0.005)


def list_done_steps(filled: Changing, done: ApplyResult) -> list[Step]:
    """Return the finished steps of a plan."""
    assert done.batch is not None
    return filled.ledger.list_steps(done.batch)


def is_ledger_tidy(filled: Changing, done: ApplyResult) -> bool:
    """Return True if the ledger has only the trash of finished steps."""
    sizes = [step.bytes for step in list_done_steps(filled, done)]
    return (filled.ledger.list_unsettled_steps(), filled.ledger.count_trash_bytes()) == (
        [],
        sum(sizes),
    )


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:ahead")
def test_next_step_is_prepared_during_current(filled: Changing) -> None:
    before = filled.read_everything()
    with apply_in_background(filled) as (connection, running):
        prepared = filled.ledger.list_unsettled_steps()
        assert [step.state for step in prepared] == ["prepared", "prepared"]
        assert all(list(filled.ledger.read_trash(step.id)) for step in prepared)
        assert filled.sessions() == OLD
        connection.rollback()
        result = running.result(30)
    assert (result.outcome, result.removed, filled.sessions()) == ("applied", 4, set())
    assert [step.id for step in list_done_steps(filled, result)][:2] == [s.id for s in prepared]
    assert is_ledger_tidy(filled, result)
    filled.restore(result)
    assert filled.read_everything() == before


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:ahead")
def test_failed_step_discards_prefetched_next_step(filled: Changing) -> None:
    with apply_in_background(filled) as (connection, running):
        first, second = filled.ledger.list_unsettled_steps()
        (alive,) = first.members
        add_message(connection, alive.partition("/")[2], content="and on")
        connection.execute("COMMIT")
        result = running.result(30)
    assert (result.outcome, result.removed, len(result.skipped)) == ("applied", 3, 1)
    assert filled.sessions() == {result.skipped[0].id} == {alive.partition("/")[2]}
    assert second.id not in {step.id for step in list_done_steps(filled, result)}
    assert is_ledger_tidy(filled, result)


@pytest.mark.requirement("maintenance:ahead")
def test_prefetched_step_is_discarded_at_timeout(filled: Changing) -> None:
    planned = filled.plan()
    result = filled.apply(planned, 0)
    assert (result.outcome, result.removed, result.remaining) == ("partial", 1, 3)
    assert is_ledger_tidy(filled, result)
    assert filled.apply(planned).removed == 4


class _Killed(BaseException):
    """The process ends here."""


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:ahead")
def test_two_crashed_steps_are_both_settled(
    filled: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = filled.read_everything()
    planned = filled.plan()

    def die(*_: Any, **__: Any) -> None:
        wait_until(lambda: len(filled.ledger.list_unsettled_steps()) == 2)
        raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(execute, "_require_not_aborted", die)
        patch.setattr(UndoLog, "abort_step", die)
        with pytest.raises(_Killed):
            filled.apply(planned)
    assert [step.state for step in filled.ledger.list_unsettled_steps()] == ["prepared", "prepared"]
    filled.ledger._file.write(lambda rows: rows.execute_update("UPDATE steps SET pid = 0"))
    result = filled.apply(planned)
    assert (result.outcome, result.removed, filled.sessions()) == ("applied", 4, set())
    assert is_ledger_tidy(filled, result)
    filled.restore(result)
    after = filled.read_everything()
    for found in (before, after):
        del found["rows"]["state_meta"]  # both steps are forbidden there for a day
    assert after == before


def test_prefetched_steps_are_not_awaited(changed: Changing) -> None:
    ledger = changed.ledger
    batch = ledger.add_batch("sessions_edit").id
    ledger.prepare_step("s-1", batch, [TrashItem("row", 1)])
    looks: list[int] = []

    def settle() -> None:
        looks.append(1)
        if len(looks) == 2:
            ledger.finish_step("s-1", None)
            ledger.prepare_step("s-2", batch, [TrashItem("row", 2)])

    wait_for_steps(ledger, batch, settle)
    assert [step.id for step in ledger.list_unsettled_steps()] == ["s-2"]
