"""The trash is listed, and emptied by a plan that warns that there is no undo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from session_core.errors import Conflict, InvalidInput, NotFound
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.types import TrashItem
from session_core.maintenance import trash_plan as trash_plans
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.trash_plan import NO_UNDO_WARNING
from session_core.maintenance.types import ApplyRequest, ApplyResult, PlanPreview, PlanRequest
from tests.homes import make_own_database
from tests.maintenance.homes import DAY, Clock

COUNT = 3


class Trash:
    """The trash of a home."""

    def __init__(self, home: HomeContext) -> None:
        self._home = home
        self.ledger = home.ledger

    def make_plan(
        self, days: float | None = None, batches: Sequence[str] | None = None
    ) -> PlanPreview:
        """Plan to empty batches of an age, or named ones."""
        ids = None if batches is None else tuple(batches)
        return trash_plans.make_plan(
            self._home, PlanRequest("trash", ids=ids, older_than_days=days)
        )

    def apply_plan(self, handle: str, for_s: float = 20.0, **asked: Any) -> ApplyResult:
        """Apply a plan."""
        plan = self.ledger.get_plan(handle)
        return trash_plans.apply_plan(self._home, plan, ApplyRequest("test", for_s, **asked))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(home_path: Path, clock: Clock) -> Iterator[Ledger]:
    """A ledger with three batches, one day apart."""
    make_own_database(home_path / "state.db")
    with Ledger(StateFolder(home_path / "state.db"), clock=clock) as ledger:
        for number in range(COUNT):
            batch = ledger.add_batch("prune sessions")
            ledger.prepare_step(f"s-{number}", batch.id, [TrashItem("row", [number] * 1000)])
            ledger.finish_step(f"s-{number}", None)
            clock.now += DAY
        yield ledger


@pytest.fixture
def trash(home_path: Path, ledger: Ledger, clock: Clock) -> Iterator[Trash]:
    with SessionDB(home_path / "state.db") as db:
        yield Trash(HomeContext(db, ledger, clock=clock))


def list_ids(trash: Trash) -> list[str]:
    return [batch.id for batch in trash.ledger.list_batches().items]


def list_planned_ids(trash: Trash, days: float | None) -> str:
    handle = trash.make_plan(days).plan
    assert handle is not None
    return handle


@pytest.mark.requirement("maintenance:trash")
def test_batches_are_listed_in_pages(trash: Trash):
    first = trash.ledger.list_batches(2)
    rest = trash.ledger.list_batches(2, first.next_cursor)
    assert [item.id for item in first.items + rest.items] == list_ids(trash)
    assert (len(list_ids(trash)), rest.next_cursor) == (COUNT, None)


@pytest.mark.requirement("maintenance:trash")
def test_trash_plan_warns_of_no_undo(trash: Trash):
    before = list_ids(trash)
    plan = trash.make_plan(1.5)
    assert plan.warnings == (NO_UNDO_WARNING,)
    assert [item.id for item in plan.items] == [before[2], before[1]]
    assert [item.why for item in plan.items] == [
        "prune sessions of 1, 3 days ago",
        "prune sessions of 1, 2 days ago",
    ]
    assert plan.count == 2
    assert plan.bytes.returned_to_disk > 0
    assert list_ids(trash) == before


@pytest.mark.requirement("maintenance:trash")
def test_trash_plan_empties_only_named_batches(trash: Trash, ledger: Ledger, clock: Clock):
    before = list_ids(trash)
    plan = trash.make_plan(1.5)
    clock.now += DAY * 0.9  # by now the third is as old
    result = trash.apply_plan(str(plan.plan))
    assert (result.outcome, result.removed, result.remaining) == ("applied", 2, 0)
    assert result.batch is None
    assert list_ids(trash) == before[:1]
    with pytest.raises(Conflict, match="cannot be undone any more"):
        ledger.get_undoable_batch(before[2])


@pytest.mark.requirement("maintenance:trash")
def test_default_trash_plan_empties_expired(trash: Trash, clock: Clock):
    assert trash.make_plan().outcome == "nothing"
    clock.now += 27.5 * DAY  # the first is 30 days old
    plan = trash.make_plan()
    assert [item.why for item in plan.items] == ["prune sessions of 1, 30 days ago; it has expired"]
    assert trash.apply_plan(str(plan.plan)).removed == 1


def test_zero_age_empties_all_trash(trash: Trash, ledger: Ledger):
    trash.apply_plan(list_planned_ids(trash, 0))
    assert list_ids(trash) == []
    assert ledger.count_trash_bytes() == 0
    assert trash.make_plan(0).outcome == "nothing"


def test_stopped_trash_plan_resumes(trash: Trash):
    handle = list_planned_ids(trash, 0)
    asked = iter([False, True])
    reports: list[tuple[int, int]] = []
    part = trash.apply_plan(
        handle,
        progress=lambda done: reports.append((done.removed, done.remaining)),
        stop=lambda: next(asked),
    )
    assert (part.outcome, part.removed, part.remaining) == ("partial", 1, 2)
    assert reports == [(1, 2)]
    assert trash.apply_plan(handle, for_s=0).outcome == "partial"
    assert trash.apply_plan(handle).removed == COUNT


def test_finished_trash_plan_returns_result(trash: Trash, ledger: Ledger):
    handle = list_planned_ids(trash, 0)
    result = trash.apply_plan(handle)
    batch = ledger.add_batch("prune sessions")
    ledger.prepare_step("s-new", batch.id, [TrashItem("row", 1)])
    ledger.finish_step("s-new", None)
    assert trash.apply_plan(handle) == result
    assert list_ids(trash) == [batch.id]


@pytest.mark.requirement("maintenance:trash")
def test_emptying_is_in_audit_log(trash: Trash, ledger: Ledger):
    handle = list_planned_ids(trash, 0)
    result = trash.apply_plan(handle)
    (line,) = ledger.list_audit_entries().items
    assert (line.client, line.what, line.plan) == ("test", "prune trash", handle)
    assert line.counts == {"removed": COUNT, "bytes": result.bytes.returned_to_disk}


def test_only_named_batches_are_emptied(trash: Trash, ledger: Ledger):
    first, second, third = list_ids(trash)
    plan = trash.make_plan(batches=[second])
    assert plan.warnings == (NO_UNDO_WARNING,)
    assert [item.id for item in plan.items] == [second]
    assert trash.apply_plan(str(plan.plan)).removed == 1
    assert list_ids(trash) == [first, third]
    assert ledger.get_undoable_batch(third).bytes > 0
    again = trash.make_plan(batches=[second])
    assert (again.outcome, again.warnings) == ("nothing", (f"batch {second} was emptied already",))


def test_unknown_batch_is_not_emptied(trash: Trash):
    with pytest.raises(NotFound, match="b-none"):
        trash.make_plan(batches=["b-none"])
    with pytest.raises(InvalidInput, match="not both"):
        trash.make_plan(1, list_ids(trash))


def test_restored_batch_has_nothing_to_empty(trash: Trash, ledger: Ledger):
    newest = list_ids(trash)[0]
    (step,) = ledger.list_steps(newest)
    ledger.prepare_step("s-back", ledger.add_batch("restore").id, [], undoes=step.id)
    ledger.finish_step("s-back", {})
    plan = trash.make_plan(batches=[newest])
    assert (plan.outcome, "was restored" in plan.warnings[0]) == ("nothing", True)
    assert newest not in [item.id for item in trash.make_plan(0).items]


def test_emptied_bytes_are_measured(trash: Trash, ledger: Ledger):
    batch = ledger.add_batch("prune sessions").id
    ledger.prepare_step(
        "s-big", batch, [TrashItem("row", str(number) * 50) for number in range(200_000)]
    )
    ledger.finish_step("s-big", None)
    before = ledger.count_disk_bytes()
    result = trash.apply_plan(str(trash.make_plan(batches=[batch]).plan))
    returned = before - ledger.count_disk_bytes()
    assert result.bytes.returned_to_disk == pytest.approx(returned, abs=200_000)
    assert returned > 500_000
