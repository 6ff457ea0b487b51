"""Apply a plan step by step within a time limit, and skip or restore outdated members.

A later call continues a plan. A member that has changed since the plan is skipped; if a part of it
is gone, that part is restored. Several maintainers may apply one plan: a decision of one about a
member is final, and the others wait for a step that is in progress. A partly removed member is
recorded in the ledger before it is restored, so that a later call can finish the restore after a
crash.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from copy import deepcopy
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from typing import Any

from session_core.activity import ActivitySnapshot
from session_core.errors import Conflict
from session_core.ledger.execute import (
    POLL_PAUSE_S,
    delete_step_marks,
    list_running_steps,
    run_step,
    suppress_note_errors,
    wait_for_steps,
)
from session_core.ledger.types import Member, PartialMember, StoredPlan
from session_core.maintenance import disk, kinds, members, space_reclaim
from session_core.maintenance.apply import crash_recovery, results, route_removal, session_finalizer
from session_core.maintenance.apply.step_items import PartRun, StepPrefetch
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.members import (
    ConcurrentWrite,
    MemberOutdated,
    PartExecutor,
    PlanProgress,
    StepDraft,
)
from session_core.maintenance.types import ApplyRequest, ApplyResult
from session_core.state.protocol import StateDatabase

_PROGRESS_INTERVAL_S = 0.5
"""The interval of progress reports."""


def apply_plan(home: HomeContext, plan: StoredPlan, request: ApplyRequest) -> ApplyResult:
    """Apply a plan, or continue it.

    The members and the state of `plan` may be old, since the plan is read again when it begins.
    """
    deadline = time.monotonic() + request.for_s
    # The run itself restores the partial members of its own plan.
    crash_recovery.recover_from_crash(home, except_plan=plan.handle)
    if plan.state == "finished":
        return ApplyResult.from_json(plan.result)
    # Before the plan begins, so that a refused call leaves it as it is.
    _require_no_gateway(home, plan)
    was_planned = plan.state == "planned"
    plan = disk.begin_plan(home.ledger, plan, lambda: disk.measure_files(home.db))
    if was_planned:
        with suppress_note_errors(f"the start of plan {plan.handle}"):
            home.ledger.add_audit_entry(request.client, f"{plan.kind}, begun", plan.handle, {})
    try:
        if not was_planned:
            # A killed run may have committed a step and not deleted its files or routes.
            for step in home.ledger.list_steps(plan.batch_id):
                crash_recovery.finish_step(home, step)
        return _run_steps(home, plan, request, deadline)
    except BaseException:
        crash_recovery.log_progress(home, plan.handle, request.client)
        raise


def _run_steps(
    home: HomeContext, plan: StoredPlan, request: ApplyRequest, deadline: float
) -> ApplyResult:
    reported_at = time.monotonic()
    with closing(PlanRun(home, plan)) as run:
        # At least one step runs, however short the time is.
        while not (is_done := run.is_done(wait=True)):
            run.run_next_step()
            if time.monotonic() >= deadline or (request.stop is not None and request.stop()):
                break
            if (
                request.progress is not None
                and time.monotonic() - reported_at > _PROGRESS_INTERVAL_S
            ):
                request.progress(results.build_result(home, _reload_members(home, plan)))
                reported_at = time.monotonic()
        is_done = is_done or run.is_done(wait=False)
    # Last, since the other parts free the pages that it returns.
    if is_done and any(members.get_part(member) == "index" for member in plan.members):
        _reclaim_space(home, plan, request, deadline)
    return _finish_run(home, plan, request)


def _reload_members(home: HomeContext, plan: StoredPlan) -> StoredPlan:
    """Return a plan with the outcome of its members so far."""
    return replace(plan, members=home.ledger.list_members(plan.handle))


def _reclaim_space(
    home: HomeContext, plan: StoredPlan, request: ApplyRequest, deadline: float
) -> None:
    """Merge the search index and rewrite the file, as a step without trash."""
    plan = _reload_members(home, plan)
    index_members = members.list_remaining_members(plan, "index")
    if index_members:
        so_far = results.build_result(home, plan)
        report = None if request.progress is None else partial(request.progress, so_far)
        outcome = space_reclaim.reclaim_space(home.db, home.clock(), deadline, request.stop, report)
        if outcome is not None:
            with suppress(Conflict):  # another process applies the plan and has recorded it
                run_step(
                    home.db,
                    home.ledger,
                    plan.batch_id,
                    before=lambda _: (),
                    change=lambda _: {results.VACUUM_KEY: asdict(outcome)},
                    members=[index_members[0].id],
                )
    # Another process may have claimed the member and not recorded the result yet.
    wait_for_steps(home.ledger, plan.batch_id, partial(crash_recovery.settle_steps, home))


def _require_no_gateway(home: HomeContext, plan: StoredPlan) -> None:
    """Refuse route changes that a running gateway would overwrite.

    Raises:
        Denied: a gateway is running.
    """
    starts_new = plan.about["wanted"]["start_new"]
    names = {members.get_part(member) for member in plan.remaining}
    parts = [part for name, part in kinds.PLAN_PARTS.items() if name in names]
    if any(part.changes_routes or (starts_new and part.ends_sessions) for part in parts):
        route_removal.require_no_gateway(home.gather_activity())


def _finish_run(home: HomeContext, plan: StoredPlan, request: ApplyRequest) -> ApplyResult:
    """Return the result, and end the plan if no member remains."""
    delete_step_marks(home.db, home.ledger)
    plan = _reload_members(home, plan)
    # A killed run may have left chats whose routes are in a file.
    if plan.about["wanted"]["start_new"] and not home.db.routes.is_available:
        for step in home.ledger.list_steps(plan.batch_id):
            for end in (step.result or {}).get("ended", ()):
                session_finalizer.reset_deferred_chats(home.store, end)
    result = results.add_measured_bytes(home, plan, results.build_result(home, plan))
    with suppress_note_errors(f"the result of plan {plan.handle}"):
        if result.outcome == "applied":
            try:
                home.ledger.finish_plan(plan.handle, result.to_json())
            except Conflict:  # another process has ended it
                ended = home.ledger.get_plan(plan.handle)
                if ended.state == "finished":
                    return ApplyResult.from_json(ended.result)
        crash_recovery.add_audit_entry(home, request.client, plan, result)
    return result


_ACTIVITY_TTL_S = 0.5
"""How long an activity snapshot is used. Steps check the most important facts again inside."""

_SLOW_GATHER_S = 0.05
"""A snapshot that takes longer to gather, as with very many routes, is used proportionally
longer."""

_MAX_TTL_FACTOR = 6

_MAX_TRIES = 5
_MAX_STEP_MEMBERS = 1000
"""The most members from which a step may choose."""


class PlanRun:
    """One call that applies a plan."""

    def __init__(self, home: HomeContext, plan: StoredPlan) -> None:
        self._home = home
        self._batch = plan.batch_id
        self._handle = plan.handle
        # The activity snapshot, and the monotonic time until which it is used.
        self._activity: tuple[float, ActivitySnapshot] | None = None
        self._tries = 0
        # The number of members to try one by one, since a step with several of them failed.
        self._alone = 0
        self._executors: dict[str, PartExecutor] = {}
        self._prefetch = StepPrefetch(home.ledger, self._batch)
        self._progress = PlanProgress()
        # The restore in progress of the first partial member.
        self._restoring: Iterator[None] | None = None
        self._set_plan(plan)

    def is_done(self, *, wait: bool) -> bool:
        """Return True if no member remains to be decided or restored.

        With `wait`, wait for steps of other processes, which may still abort them.
        """
        while not (any(self._queues.values()) or self._partials):
            # A step that this run has prepared would count as one in progress.
            self._prefetch.discard_items()
            if not list_running_steps(self._home.ledger, self._batch, self._settle_steps):
                return True
            if not wait:
                return False
            self._wait_for_other_processes()
            self._reload_plan()
        return False

    def run_next_step(self) -> None:
        """Run the next step, or skip a member that cannot be done."""
        # A partly removed member comes first: its conversation is in use.
        if self._partials:
            self._restore_next_part(self._partials[0])
            return
        # A part begins only when the parts before it are finished.
        part = next(part for part in kinds.PART_ORDER if self._queues[part])
        queue = self._queues[part]
        candidates = _take_first(queue, 1 if self._alone else _MAX_STEP_MEMBERS)
        try:
            executor = self._get_executor(part)
            draft = executor.draft_step(candidates)
            self._progress.add_result(self._apply_step(draft, candidates))
        except MemberOutdated as error:
            self._skip_outdated_member(error)
        except ConcurrentWrite as error:
            self._prepare_retry(queue, draft, error)
        except Conflict:
            if not self._is_decided_elsewhere(draft.members):
                # The other process may have released its members, so this process tries again.
                self._tries += 1
                if self._tries >= _MAX_TRIES:
                    raise
        else:
            self._tries = 0
            self._alone = max(self._alone - len(draft.members), 0)
            for _ in draft.members:
                queue.popleft()

    def close(self) -> None:
        """End the prefetch."""
        self._prefetch.close()

    def _apply_step(self, draft: StepDraft, candidates: Sequence[Member]) -> dict[str, Any]:
        # This step may remove a part of the member after the completed members.
        continued = candidates[len(draft.members) :][:1]

        def apply_step_draft(db: StateDatabase) -> dict[str, Any]:
            self._require_members_open(continued)
            return draft.change(db)

        return run_step(
            self._home.db,
            self._home.ledger,
            self._batch,
            before=lambda _: draft.trash_items,
            change=apply_step_draft,
            members=draft.members,
            within=draft.within,
        )

    def _require_members_open(self, continued: Sequence[Member]) -> None:
        """Require that no other process is restoring a member whose removal continues."""
        for member in continued:
            if not self._home.ledger.is_member_open(self._handle, member.id):
                raise Conflict(f"another process has skipped {members.get_name(member)}")

    def _skip_outdated_member(self, error: MemberOutdated) -> None:
        """Skip a member unless another process is about to complete it."""
        # The member may look outdated only because another process is removing it.
        before = deepcopy(self._progress)
        self._wait_for_other_processes()
        self._reload_plan()
        member = next((m for q in self._queues.values() for m in q if m.id == error.member), None)
        if member is None or _has_other_progress(member, before, self._progress):
            return
        self._skip_member(member, str(error))
        self._queues[_require_known_part(member)].remove(member)

    def _prepare_retry(
        self, queue: deque[Member], draft: StepDraft, error: ConcurrentWrite
    ) -> None:
        """Prepare to try a failed step again, and skip a member that fails alone.

        After some tries, the members of the step are tried one by one.
        """
        self._tries += 1
        # Another process is active: do not use the old snapshot for the next try.
        self._activity = None
        if self._tries < _MAX_TRIES:
            return
        self._tries = 0
        # Several members failed together: try as many singly before giving up on one.
        if not self._alone:
            self._alone = max(len(draft.members), 1)
            return
        self._alone -= 1
        self._skip_member(queue.popleft(), str(error))

    def _skip_member(self, member: Member, reason: str) -> None:
        """Skip a member, and queue the restore of its part that is gone."""
        self._prefetch.discard_items()  # it may have the rest of the member
        is_partial = self._progress.has_begun(member)
        self._home.ledger.skip_members(self._handle, [member.id], reason, half=is_partial)
        if is_partial:
            self._partials.append(PartialMember(self._handle, self._batch, member))

    def _restore_next_part(self, partial: PartialMember) -> None:
        """Restore the next part of a member, unless another process is about to restore it."""
        self._restoring = self._restoring or crash_recovery.restore_member(self._home, partial)
        try:
            next(self._restoring)
        except StopIteration:
            self._restoring = None
            self._partials.popleft()
        except Conflict:
            self._restoring = None
            time.sleep(POLL_PAUSE_S)
            self._reload_plan()

    def _is_decided_elsewhere(self, member_ids: Collection[str]) -> bool:
        """Return True if a conflict arose because another process applies the same plan."""
        self._wait_for_other_processes()
        count = sum(map(len, self._queues.values()))
        self._reload_plan()
        remaining_ids = {member.id for queue in self._queues.values() for member in queue}
        return sum(map(len, self._queues.values())) < count or not remaining_ids.issuperset(
            member_ids
        )

    def _wait_for_other_processes(self) -> None:
        self._prefetch.discard_items()  # other processes would wait in vain for a prepared step
        wait_for_steps(self._home.ledger, self._batch, self._settle_steps)

    def _settle_steps(self) -> None:
        crash_recovery.settle_steps(self._home)

    def _reload_plan(self) -> None:
        self._set_plan(self._home.ledger.get_plan(self._handle))

    def _set_plan(self, plan: StoredPlan) -> None:
        """Store the plan, and compute progress and partial members from its finished steps."""
        self._plan = plan
        self._progress.after, self._progress.gone = {}, set()
        for step in self._home.ledger.list_steps(self._batch):
            self._progress.add_result(step.result or {})
        # The ledger has the partial members that a crashed call has left too.
        self._partials = deque(
            PartialMember(self._handle, self._batch, member) for member in plan.partial_members
        )
        self._queues: dict[str, deque[Member]] = {part: deque() for part in kinds.PART_ORDER}
        for member in plan.remaining:
            if members.get_part(member) in self._queues:
                self._queues[_require_known_part(member)].append(member)

    def _get_executor(self, part: str) -> PartExecutor:
        if part not in self._executors:
            run = PartRun(
                self._home, self._plan, self._progress, self._get_activity, self._prefetch
            )
            self._executors[part] = kinds.create_executor(part, run)
        return self._executors[part]

    def _get_activity(self) -> ActivitySnapshot:
        began_at = time.monotonic()
        if self._activity is None or began_at > self._activity[0]:
            activity = self._home.gather_activity()
            now = time.monotonic()
            factor = min(max((now - began_at) / _SLOW_GATHER_S, 1), _MAX_TTL_FACTOR)
            self._activity = now + factor * _ACTIVITY_TTL_S, activity
        return self._activity[1]


def _take_first(queue: deque[Member], limit: int) -> list[Member]:
    """Return the members from which a step may choose."""
    return list(islice(queue, limit))


def _require_known_part(member: Member) -> str:
    """Return the part of a member, which must be a part of this version."""
    return next(part for part in kinds.PART_ORDER if part == members.get_part(member))


def _has_other_progress(member: Member, before: PlanProgress, after: PlanProgress) -> bool:
    """Return True if another process has removed sessions of a member since."""
    ids = members.get_session_ids(member)
    earlier, later = ((x.gone & ids, {i: x.after.get(i) for i in ids}) for x in (before, after))
    return earlier != later
