"""Reclaim disk space: merge the search index in steps, then rewrite the file.

The file is rewritten only if no other process has it open and the disk has room; otherwise the
result names the process to stop. Neither step loses data, so there is no undo.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from session_core import activity
from session_core.activity import HomeActivity
from session_core.errors import Busy, Denied, StorageFull
from session_core.ledger.execute import suppress_note_errors
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Member, StoredPlan
from session_core.maintenance import disk
from session_core.maintenance.apply.begin import begin_plan
from session_core.maintenance.select.snapshot import (
    MEASUREMENT_NAME,
    MaintenanceSnapshot,
    measure_message_bytes,
)
from session_core.maintenance.types import (
    ApplyResult,
    Bytes,
    PlanItem,
    PlanPreview,
    ProgressFn,
    ProgressThrottle,
    StopFn,
    StopRequested,
    to_recorded,
)
from session_core.state.protocol import StateDatabase, StepCallback
from session_core.types import Sizes

PLAN_KIND = "prune index"

INDEX_NAME = "index"

MEMBER_REASON = "the search index is merged, and free pages are given back"

NO_UNDO_WARNING = "this has no undo and needs none: no message and no search result changes"


@dataclass(frozen=True, slots=True)
class ReclaimResult:
    """The obstacle to a shorter file, if any."""

    in_the_way: str | None


def reclaim_space(
    db: StateDatabase,
    now: float,
    deadline: float,
    stop: StopFn | None = None,
    report: Callable[[], object] | None = None,
) -> ReclaimResult | None:
    """Merge the index until the monotonic `deadline`, at least one step, then rewrite the file.

    Return None if work remains. The rewrite has no time limit; if stopped, it starts over later.
    """
    step = ProgressThrottle(report, stop)
    try:
        # Each step is a short transaction, so that writers are not blocked.
        while db.admin.optimize_step():
            if time.monotonic() >= deadline:
                return None
            step()
        step()
        sizes = db.admin.measure_sizes()
        is_worth_it = disk.is_worth_freeing(sizes.free, sizes)
        return ReclaimResult(_rewrite_file(db, now, step) if is_worth_it else None)
    except StopRequested:
        return None


def find_obstacle(company: HomeActivity) -> str | None:
    """Return the advice which process to stop before a rewrite of the file, or None."""
    names = [company.gateway] if company.gateway else list(map(str, company.holders))
    if not names:
        return None
    return (
        f"the file keeps its free pages while {', '.join(names)} has it open; stop that process, "
        "then plan again"
    )


class SpaceReclaimer:
    """Reclaims the disk space of one home by a plan."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        *,
        client: str,
        clock: Callable[[], float] = time.time,
        take_snapshot: Callable[[], MaintenanceSnapshot],
    ) -> None:
        self._take_snapshot = take_snapshot
        self._db = db
        self._ledger = ledger
        self._client = client
        self._clock = clock

    def make_plan(self) -> PlanPreview:
        """Plan to merge the search index and rewrite the file, if that frees enough."""
        sizes = self._db.admin.measure_sizes()
        obstacle = find_obstacle(activity.load_home_activity(self._db, self._clock()))
        size = estimate_rewrite_bytes(sizes, can_shrink=obstacle is None)
        if not disk.is_worth_freeing(size.free_in_file + size.returned_to_disk, sizes):
            return PlanPreview(
                "nothing", None, None, 0, (), warnings=_list_reasons(sizes, obstacle)
            )
        reason = (
            f"about {sizes.index_dead / 1e6:,.1f} MB of the search index belong to deleted "
            f"messages, and {sizes.free / 1e6:,.1f} MB of the file are free"
        )
        about = to_recorded(
            [PlanItem(INDEX_NAME, None, reason)],
            size=size,
            warnings=[NO_UNDO_WARNING, *([obstacle] if obstacle else [])],
        )
        about[MEASUREMENT_NAME] = measure_message_bytes(self._ledger, self._take_snapshot(), sizes)
        return PlanPreview.from_plan(
            self._ledger.add_plan(PLAN_KIND, [Member(INDEX_NAME, why=reason)], about)
        )

    def apply_plan(
        self,
        handle: str,
        *,
        for_s: float = 20.0,
        progress: ProgressFn | None = None,
        stop: StopFn | None = None,
    ) -> ApplyResult:
        """Apply a plan, or continue it.

        Raises:
            NotFound: the plan does not exist.
            Conflict: the plan has ended or expired.
        """
        plan = begin_plan(self._ledger, handle, PLAN_KIND, lambda: disk.measure_files(self._db))
        if isinstance(plan, ApplyResult):
            return plan
        partial = ApplyResult("partial", handle, None, 0, 0, (), 1)

        def report() -> None:
            if progress is not None:
                progress(partial)

        outcome = reclaim_space(self._db, self._clock(), time.monotonic() + for_s, stop, report)
        return partial if outcome is None else self._finish_plan(plan, outcome)

    def _finish_plan(self, plan: StoredPlan, outcome: ReclaimResult) -> ApplyResult:
        warnings = () if outcome.in_the_way is None else (outcome.in_the_way,)
        size = disk.measure_change(
            plan.about.get(disk.BEFORE_KEY, {}), self._db.admin.measure_sizes()
        )
        result = ApplyResult("applied", plan.handle, None, 0, 0, (), 0, warnings, size)
        self._ledger.finish_plan(plan.handle, result.to_json())
        counts = {"free_in_file": size.free_in_file, "returned_to_disk": size.returned_to_disk}
        with suppress_note_errors(PLAN_KIND):
            self._ledger.add_audit_entry(self._client, PLAN_KIND, plan.handle, counts)
        return result


def estimate_rewrite_bytes(sizes: Sizes, deleted: int = 0, *, can_shrink: bool) -> Bytes:
    """Return the bytes that a merge and a rewrite need and free after `deleted` bytes of rows."""
    freed = disk.estimate_freeable(sizes, shrinks=can_shrink) + deleted
    if not can_shrink:
        return Bytes(free_in_file=freed)
    return Bytes(needed_now=2 * max(sizes.db - freed, 0), returned_to_disk=freed)


def _list_reasons(sizes: Sizes, obstacle: str | None) -> tuple[str, ...]:
    """Return the reasons for planning nothing."""
    if not sizes.db:
        return ()
    freed = disk.estimate_freeable(sizes)
    if obstacle is not None and disk.is_worth_freeing(freed, sizes):
        return (obstacle,)
    share = f"about {freed / 1e6:,.1f} of {sizes.db / 1e6:,.1f} MB"
    return (f"a rewrite of the file would free {share}, which is not worth it",)


def _rewrite_file(db: StateDatabase, now: float, step: StepCallback) -> str | None:
    """Rewrite the file; return the obstacle if there is one."""
    obstacle = find_obstacle(activity.load_home_activity(db, now))
    if obstacle is None:
        try:
            db.admin.vacuum(step=step)
        # The merge is done; the result names the obstacle to the rewrite.
        except (Busy, Denied, StorageFull) as error:
            return str(error)
    return obstacle
