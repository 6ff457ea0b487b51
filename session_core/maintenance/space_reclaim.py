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
from session_core.ledger.types import Member, StoredPlan
from session_core.maintenance import disk
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.members import PlanDraft
from session_core.maintenance.select.snapshot import (
    MEASUREMENT_NAME,
    measure_message_bytes,
    take_snapshot,
)
from session_core.maintenance.types import (
    ApplyRequest,
    ApplyResult,
    Bytes,
    PlanItem,
    PlanPreview,
    PlanRequest,
    ProgressThrottle,
    StopFn,
    StopRequested,
    to_recorded,
)
from session_core.state.protocol import StateDatabase, StepCallback
from session_core.types import Sizes

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
        # Measured after the merge, which has freed pages in the file.
        sizes = db.admin.measure_sizes()
        is_worth_it = disk.is_worth_freeing(sizes.free, sizes)
        return ReclaimResult(_rewrite_file(db, now, step) if is_worth_it else None)
    except StopRequested:
        return None


def find_rewrite_obstacle(company: HomeActivity) -> str | None:
    """Return advice to stop the processes that prevent a rewrite of the file, or None."""
    names = [company.gateway] if company.gateway else list(map(str, company.holders))
    if not names:
        return None
    return (
        f"the file keeps its free pages while {', '.join(names)} has it open; stop that process, "
        "then plan again"
    )


def add_index(draft: PlanDraft, request: PlanRequest) -> None:
    """Add the index to a plan if a merge and a rewrite free enough after its other members."""
    del request
    can_shrink = find_rewrite_obstacle(draft.snapshot.activity.company) is None
    freed = disk.estimate_freeable_bytes(draft.sizes, shrinks=can_shrink)
    freed += draft.snapshot.estimate_bytes(draft.rows, draft.sizes)
    if disk.is_worth_freeing(freed, draft.sizes):
        draft.add_member(INDEX_NAME, INDEX_NAME, None, MEMBER_REASON)


def make_plan(home: HomeContext, request: PlanRequest) -> PlanPreview:
    """Plan to merge the search index and rewrite the file, if that frees enough."""
    sizes = home.db.admin.measure_sizes()
    obstacle = find_rewrite_obstacle(activity.load_home_activity(home.db, home.clock()))
    size = estimate_rewrite_bytes(sizes, can_shrink=obstacle is None)
    if not disk.is_worth_freeing(size.free_in_file + size.returned_to_disk, sizes):
        return PlanPreview("nothing", None, None, 0, (), warnings=_list_reasons(sizes, obstacle))
    reason = (
        f"about {sizes.index_dead / 1e6:,.1f} MB of the search index belong to deleted "
        f"messages, and {sizes.free / 1e6:,.1f} MB of the file are free"
    )
    about = to_recorded(
        [PlanItem(INDEX_NAME, None, reason)],
        size=size,
        warnings=[NO_UNDO_WARNING, *([obstacle] if obstacle else [])],
    )
    about[MEASUREMENT_NAME] = measure_message_bytes(home.ledger, take_snapshot(home), lambda: sizes)
    members = [Member(INDEX_NAME, why=reason)]
    return PlanPreview.from_plan(home.ledger.add_plan(request.kind, members, about))


def apply_plan(home: HomeContext, plan: StoredPlan, request: ApplyRequest) -> ApplyResult:
    """Apply a plan, or continue it.

    Raises:
        Conflict: the plan has ended or expired.
    """
    if plan.state == "finished":
        return ApplyResult.from_json(plan.result)
    plan = disk.begin_plan(home.ledger, plan, lambda: disk.measure_files(home.db))
    partial = ApplyResult("partial", plan.handle, None, 0, 0, (), 1)

    def report() -> None:
        if request.progress is not None:
            request.progress(partial)

    deadline = time.monotonic() + request.for_s
    outcome = reclaim_space(home.db, home.clock(), deadline, request.stop, report)
    return partial if outcome is None else _finish_plan(home, plan, outcome, request.client)


def _finish_plan(
    home: HomeContext, plan: StoredPlan, outcome: ReclaimResult, client: str
) -> ApplyResult:
    warnings = () if outcome.in_the_way is None else (outcome.in_the_way,)
    sizes = home.db.admin.measure_sizes(tables=False)
    size = disk.measure_size_change(plan.about.get(disk.BEFORE_KEY, {}), sizes)
    result = ApplyResult("applied", plan.handle, None, 0, 0, (), 0, warnings, size)
    home.ledger.finish_plan(plan.handle, result.to_json())
    counts = {"free_in_file": size.free_in_file, "returned_to_disk": size.returned_to_disk}
    with suppress_note_errors(plan.kind):
        home.ledger.add_audit_entry(client, plan.kind, plan.handle, counts)
    return result


def estimate_rewrite_bytes(sizes: Sizes, deleted: int = 0, *, can_shrink: bool) -> Bytes:
    """Return the bytes that a merge and a rewrite need and free after `deleted` bytes of rows."""
    freed = disk.estimate_freeable_bytes(sizes, shrinks=can_shrink) + deleted
    if not can_shrink:
        return Bytes(free_in_file=freed)
    return Bytes(needed_now=2 * max(sizes.db - freed, 0), returned_to_disk=freed)


def _list_reasons(sizes: Sizes, obstacle: str | None) -> tuple[str, ...]:
    """Return the reasons for planning nothing."""
    if not sizes.db:
        return ()
    freed = disk.estimate_freeable_bytes(sizes)
    if obstacle is not None and disk.is_worth_freeing(freed, sizes):
        return (obstacle,)
    share = f"about {freed / 1e6:,.1f} of {sizes.db / 1e6:,.1f} MB"
    return (f"a rewrite of the file would free {share}, which is not worth it",)


def _rewrite_file(db: StateDatabase, now: float, step: StepCallback) -> str | None:
    """Rewrite the file, or return the obstacle."""
    # Checked again, since another process may have opened the file since the plan.
    obstacle = find_rewrite_obstacle(activity.load_home_activity(db, now))
    if obstacle is None:
        try:
            db.admin.vacuum(step=step)
        # The merge is done; the result names the obstacle to the rewrite.
        except (Busy, Denied, StorageFull) as error:
            return str(error)
    return obstacle
