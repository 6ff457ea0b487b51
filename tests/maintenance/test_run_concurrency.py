"""Several maintainers of one plan, and one that crashes: each item is removed and restored once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from session_core.errors import Conflict
from session_core.ledger import execute, undo_log
from session_core.maintenance.apply import crash_recovery
from session_core.maintenance.apply.session_remover import SessionRemover
from session_core.maintenance.maintenance import AsyncMaintenance, Maintenance
from session_core.maintenance.types import PlanRequest
from tests.maintenance.changed_homes import Changing, open_ledger
from tests.maintenance.homes import DAY, NOW


class _Killed(BaseException):
    """The process ends here."""


def raise_killed(*_: object, **__: object) -> None:
    raise _Killed


def fill(changed: Changing) -> None:
    """Add old sessions, one of them larger than a step, with a file and a lost route."""
    for number in range(4):
        changed.home.session(f"old_{number}", 140, reason="idle")
    changed.home.session("large", 150, reason="idle", messages=0)
    changed.home.clock.now = NOW - 150 * DAY
    for number in range(6):
        changed.home.db.append_message("large", "user", f"says {number} " + "x" * 40_000)
    changed.home.clock.now = NOW
    changed.home.file("session_old_1.json", 140, "one")
    changed.home.route("1", "nobody", 40)


@contextmanager
def open_other_maintainer(changed: Changing) -> Iterator[Maintenance]:
    """Open another maintenance with a database and a ledger of its own."""
    clock = changed.home.clock
    with ExitStack() as stack:
        db = changed.home.open_again()
        stack.callback(db.close)
        ledger = stack.enter_context(open_ledger(db, changed.root, clock))
        yield stack.enter_context(Maintenance(db, ledger, clock=clock))


@pytest.mark.requirement("maintenance:together")
def test_two_maintainers_apply_each_member_once(changed: Changing) -> None:
    fill(changed)
    before = changed.read_everything()
    planned = changed.plan("all")
    together = threading.Barrier(2)
    result: list[Any] = []

    def run(maintenance: Maintenance) -> None:
        together.wait(10)
        result.append(maintenance.apply(planned.plan))

    with open_other_maintainer(changed) as another:
        threads = [
            threading.Thread(target=run, args=(item,)) for item in (changed.maintenance, another)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(result) == 2
    assert {(item.outcome, item.removed, item.skipped) for item in result} == {("applied", 6, ())}
    assert changed.sessions() == set()
    changed.restore(result[0])
    assert changed.read_everything() == before


@pytest.mark.requirement("maintenance:together")
def test_second_maintainer_continues_partial_session(
    changed: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(changed)
    planned = changed.plan()
    usual, looked = SessionRemover.draft_step, []

    with open_other_maintainer(changed) as another:

        def look(self: SessionRemover, members):
            piece = usual(self, members)
            if not looked:
                looked.append("here")
                looked.append(another.apply(planned.plan, 0))
            return piece

        monkeypatch.setattr(SessionRemover, "draft_step", look)
        result = changed.apply(planned)
    assert (looked[1].outcome, result.removed, result.skipped) == ("partial", 5, ())
    assert changed.sessions() == set()


CRASHES: dict[str, tuple[Any, str]] = {
    "before the trash is durable": (undo_log.UndoLog, "prepare_step"),
    "before the step": (execute, "_require_not_aborted"),
    "behind the step": (undo_log.UndoLog, "finish_step"),
}


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:together")
@pytest.mark.parametrize("when", CRASHES)
@pytest.mark.parametrize(("what", "nth"), [("sessions", 1), ("sessions", 2), ("all", 3)])
def test_crashed_plan_resumes_and_is_restored(
    changed: Changing, monkeypatch: pytest.MonkeyPatch, what: str, when: str, nth: int
) -> None:
    fill(changed)
    before = changed.read_everything()
    planned = changed.plan(what)
    place, name = CRASHES[when]
    with monkeypatch.context() as patch:
        patch.setattr(place, name, raise_at_call(getattr(place, name), nth))
        with pytest.raises(_Killed):
            changed.apply(planned)
    changed.ledger._file.write(lambda rows: rows.execute_update("UPDATE steps SET pid = 0"))
    result = changed.apply(planned)
    things = planned.count - (what == "all")  # one member is the merge of the index
    assert (result.outcome, result.removed, result.skipped) == ("applied", things, ())
    assert changed.sessions() == set()
    assert changed.read_everything()["files"] == {}
    changed.restore(result)
    assert changed.read_everything() == before


def raise_at_call(usual: Callable[..., object], nth: int) -> Callable[..., object]:
    left = [nth]

    def call(*args: object, **kwargs: object) -> object:
        left[0] -= 1
        return usual(*args, **kwargs) if left[0] else raise_killed()

    return call


@pytest.mark.needs_files
@pytest.mark.parametrize(
    "removal",
    [
        "session_core.maintenance.apply.home_files.delete_file",
        "session_core.routing.session_store.SessionStore.remove",
    ],
)
def test_resumed_plan_removes_leftover_files_and_routes(
    changed: Changing, monkeypatch: pytest.MonkeyPatch, removal: str
) -> None:
    fill(changed)
    before = changed.read_everything()
    planned = changed.plan("all")
    with monkeypatch.context() as patch:
        patch.setattr(removal, raise_killed)
        with pytest.raises(_Killed):
            changed.apply(planned)
    changed.ledger._file.write(lambda rows: rows.execute_update("UPDATE steps SET pid = 0"))
    result = changed.apply(planned)
    assert (result.outcome, result.skipped) == ("applied", ())
    assert changed.read_everything()["files"] == {}
    assert changed.home.store.load_entries() == {}
    changed.restore(result)
    assert changed.read_everything() == before


@pytest.mark.needs_files
def test_restore_waits_for_current_step(changed: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(changed)
    before = changed.read_everything()
    planned = changed.plan()
    part = changed.maintenance.apply(planned.plan, 0)
    usual, begun, looked = crash_recovery.wait_for_steps, threading.Event(), threading.Event()

    def wait(*args: Any) -> None:
        looked.set()
        usual(*args)

    def prepare(*args: Any, **kwargs: Any) -> list[str]:
        marked = prepared(*args, **kwargs)
        begun.set()
        assert looked.wait(10)
        return marked

    prepared = changed.ledger.prepare_step
    ended: list[BaseException] = []

    def apply() -> None:
        try:
            changed.maintenance.apply(planned.plan)
        except Conflict as error:
            ended.append(error)

    monkeypatch.setattr(crash_recovery, "wait_for_steps", wait)
    with open_other_maintainer(changed) as another:
        monkeypatch.setattr(changed.ledger, "prepare_step", prepare)
        thread = threading.Thread(target=apply)
        thread.start()
        assert begun.wait(10)
        restored = another.restore(part.batch)
        thread.join(30)
    assert (restored.outcome, len(ended)) == ("applied", 1)
    now = changed.read_everything()
    assert now["hits"] == before["hits"]
    for table in ("sessions", "messages"):
        assert now["rows"][table] == before["rows"][table]


@pytest.mark.requirement("maintenance:together")
def test_crashed_restore_resumes(changed: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(changed)
    before = changed.read_everything()
    result = changed.plan_and_apply("all")
    with monkeypatch.context() as patch:
        patch.setattr(
            undo_log.UndoLog, "finish_step", raise_at_call(undo_log.UndoLog.finish_step, 2)
        )
        with pytest.raises(_Killed):
            changed.restore(result)
    changed.ledger._file.write(lambda rows: rows.execute_update("UPDATE steps SET pid = 0"))
    changed.restore(result)
    assert changed.read_everything() == before


@pytest.mark.anyio
async def test_async_maintenance_behaves_alike(changed: Changing) -> None:
    fill(changed)
    maintenance = AsyncMaintenance(changed.maintenance)
    planned = await maintenance.plan(PlanRequest("sessions"))
    result = await maintenance.apply(planned.plan)
    assert (result.removed, changed.sessions()) == (5, set())
    await maintenance.restore(result.batch)
    assert len(changed.sessions()) == 5
    assert (await maintenance.health()).sessions.total == 5
