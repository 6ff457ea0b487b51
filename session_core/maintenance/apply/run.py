"""Run one call that applies a plan: draft steps, apply them, skip or restore outdated members.

A member that has changed since the plan is skipped; if a part of it is gone, that part is restored.
Several maintainers may apply one plan: a decision of one about a member is final, and the others
wait for a step that is in progress. A partly removed member is recorded in the ledger before it is
restored, so that a later call can finish the restore after a crash.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any

from session_core.activity import ActivitySnapshot
from session_core.errors import Conflict, Corrupt
from session_core.ledger.execute import POLL_PAUSE_S, list_running_steps, run_step, wait_for_steps
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Batch, Member, PartialMember, Step, StoredPlan
from session_core.maintenance import health, members
from session_core.maintenance.apply import files
from session_core.maintenance.apply.context import ApplyContext
from session_core.maintenance.apply.step_items import StepPrefetch
from session_core.maintenance.members import (
    PART_ORDER,
    ConcurrentWrite,
    MemberOutdated,
    Part,
    PartExecutor,
    PlanProgress,
    StepDraft,
    get_session_ids,
)
from session_core.maintenance.planner import PLUGINS_WARNING
from session_core.maintenance.restore.restore import BATCH_KIND
from session_core.maintenance.restore.step import StepUndoer
from session_core.maintenance.types import ApplyResult, SkippedItem
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase

_ACTIVITY_TTL_S = 0.5
"""How long an activity snapshot is used. Steps check the most important facts again inside."""

_SLOW_LOOK_S = 0.05
"""A snapshot that takes longer to gather, as with very many routes, is used proportionally
longer."""

_MAX_TTL_FACTOR = 6

_MAX_TRIES = 5
_MAX_STEP_MEMBERS = 1000
"""The most members from which a step may choose."""


class PlanRun:
    """One call that applies a plan."""

    def __init__(
        self, context: ApplyContext, restorer: PartialMemberRestorer, batch: Batch, plan: StoredPlan
    ) -> None:
        self._context = context
        self._restorer = restorer
        self._batch = batch
        self._handle = plan.handle
        # The activity snapshot, and the monotonic time until which it is used.
        self._activity: tuple[float, ActivitySnapshot] | None = None
        self._tries = 0
        # The number of members to try one by one, since a step with several of them failed.
        self._alone = 0
        self._executors: dict[Part, PartExecutor] = {}
        self._prefetch = StepPrefetch(context.ledger, batch.id)
        self._progress = PlanProgress()
        # The restore in progress of the first partial member.
        self._restoring: Iterator[None] | None = None
        self._load_plan()

    def is_done(self, *, wait: bool) -> bool:
        """Return True if no member is left to be decided or restored.

        With `wait`, wait for steps of other processes, which may still abort them.
        """
        while not (any(self._queues.values()) or self._partials):
            self._prefetch.discard()
            if not list_running_steps(self._context.ledger, self._batch.id, self._context.settle):
                return True
            if not wait:
                return False
            self._wait_for_others()
            self._load_plan()
        return False

    def run_next_step(self) -> None:
        """Run the next step, or skip a member that cannot be done."""
        # A partly removed member comes first: its conversation is in use.
        if self._partials:
            self._restore_next_part(self._partials[0])
            return
        # A part begins only when the parts before it are finished.
        part = next(part for part in PART_ORDER if self._queues[part])
        queue = self._queues[part]
        candidates = _take_first(queue, 1 if self._alone else _MAX_STEP_MEMBERS)
        try:
            executor = self._get_executor(part)
            draft = executor.draft_step(candidates)
            self._progress.add_result(self._apply_step(draft, candidates))
        except MemberOutdated as error:
            self._skip_outdated(error)
        except ConcurrentWrite as error:
            self._retry_step(queue, draft, error)
        except Conflict:
            if not self._is_decided_elsewhere(draft.members):
                # The other process may have given up what it had claimed, so this one tries again.
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
        # This step may remove a part of the member after the completed ones.
        continued = candidates[len(draft.members) :][:1]

        def change(db: StateDatabase) -> dict[str, Any]:
            self._require_members_open(continued)
            return draft.change(db)

        return run_step(
            self._context.db,
            self._context.ledger,
            self._batch.id,
            before=lambda _: draft.kept,
            change=change,
            members=draft.members,
            within=draft.within,
        )

    def _require_members_open(self, continued: Sequence[Member]) -> None:
        """Require that no other process is restoring a member whose removal continues."""
        for member in continued:
            if not self._context.ledger.is_member_open(self._handle, member.id):
                raise Conflict(f"another process has skipped {members.get_name(member)}")

    def _skip_outdated(self, error: MemberOutdated) -> None:
        """Skip a member unless another process is about to complete it."""
        # The member may look outdated only because another process is removing it.
        before = deepcopy(self._progress)
        self._wait_for_others()
        self._load_plan()
        member = next((m for q in self._queues.values() for m in q if m.id == error.member), None)
        if member is None or _has_other_progress(member, before, self._progress):
            return
        self._skip_member(member, str(error))
        self._queues[_find_part(member)].remove(member)

    def _retry_step(self, queue: deque[Member], draft: StepDraft, error: ConcurrentWrite) -> None:
        """Look again; after some tries take members singly, and skip the one that fails alone."""
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
        """Skip a member; restore next the part of it that is gone."""
        self._prefetch.discard()  # it may have the rest of the member
        is_partial = self._progress.has_begun(member)
        self._context.ledger.skip_members(self._handle, [member.id], reason, half=is_partial)
        if is_partial:
            self._partials.append(PartialMember(self._handle, self._batch.id, member))

    def _restore_next_part(self, partial: PartialMember) -> None:
        """Restore the next part of a member, unless another process is about to."""
        self._restoring = self._restoring or self._restorer.restore_member(partial)
        try:
            next(self._restoring)
        except StopIteration:
            self._restoring = None
            self._partials.popleft()
        except Conflict:
            self._restoring = None
            time.sleep(POLL_PAUSE_S)
            self._load_plan()

    def _is_decided_elsewhere(self, member_ids: Collection[str]) -> bool:
        """Return True if a conflict arose because another process applies the same plan."""
        self._wait_for_others()
        count = sum(map(len, self._queues.values()))
        self._load_plan()
        remaining_ids = {member.id for queue in self._queues.values() for member in queue}
        return sum(map(len, self._queues.values())) < count or not remaining_ids.issuperset(
            member_ids
        )

    def _wait_for_others(self) -> None:
        self._prefetch.discard()  # other processes would wait in vain for a prepared step
        wait_for_steps(self._context.ledger, self._batch.id, self._context.settle)

    def _load_plan(self) -> None:
        plan = self._context.ledger.get_plan(self._handle)
        self._plan = plan
        self._progress.after, self._progress.gone = {}, set()
        for step in self._context.ledger.list_steps(self._batch.id):
            self._progress.add_result(step.result or {})
        # The ledger has the partial members that a crashed call has left too.
        self._partials = deque(
            PartialMember(self._handle, self._batch.id, member) for member in plan.partial_members
        )
        self._queues: dict[Part, deque[Member]] = {part: deque() for part in PART_ORDER}
        for member in plan.remaining:
            if members.get_part(member) in self._queues:
                self._queues[_find_part(member)].append(member)

    def _get_executor(self, part: Part) -> PartExecutor:
        if part not in self._executors:
            self._executors[part] = self._context.create_executor(
                part, self._plan, self._progress, self._get_activity, self._prefetch
            )
        return self._executors[part]

    def _get_activity(self) -> ActivitySnapshot:
        began_at = time.monotonic()
        if self._activity is None or began_at > self._activity[0]:
            activity = self._context.gather_activity()
            now = time.monotonic()
            factor = min(max((now - began_at) / _SLOW_LOOK_S, 1), _MAX_TTL_FACTOR)
            self._activity = now + factor * _ACTIVITY_TTL_S, activity
        return self._activity[1]


def _take_first(queue: deque[Member], limit: int) -> list[Member]:
    """Return the members from which a step may choose."""
    return list(islice(queue, limit))


def _find_part(member: Member) -> Part:
    return next(part for part in PART_ORDER if part == members.get_part(member))


def _has_other_progress(member: Member, before: PlanProgress, after: PlanProgress) -> bool:
    """Return True if another process has removed sessions of a member meanwhile."""
    ids = members.get_session_ids(member)
    earlier, later = ((x.gone & ids, {i: x.after.get(i) for i in ids}) for x in (before, after))
    return earlier != later


NOT_RESET_WARNING = "could not start a new session; it does with its next message"

VACUUM_KEY = "room"
"""The key in a step's result with the outcome of the vacuum."""

_NOT_REMOVED_REASON = "it could not be removed, or was used just then"


class PlanOutcomes:
    """Computes the results of the plans of one home."""

    def __init__(self, db: StateDatabase, ledger: Ledger, store: SessionStore | None) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store

    def build_result(self, batch: Batch, plan: StoredPlan) -> ApplyResult:
        """Return the result of a plan so far."""
        skipped = [
            SkippedItem(members.get_name(member), member.skipped)
            for member in plan.members
            if member.skipped is not None and not member.half
        ]
        unfinished = self._find_unfinished_steps(batch)
        finished = [
            member
            for member in plan.members
            if member.step not in {None, *unfinished} and members.get_part(member) != "index"
        ]
        still_present = [member for member in finished if self._is_still_present(member)]
        skipped += [
            SkippedItem(members.get_name(member), _NOT_REMOVED_REASON) for member in still_present
        ]
        ended = sum(members.get_part(member) == "ended" for member in finished)
        warnings = [PLUGINS_WARNING] if self._db.kind == "hermes" and ended else []
        if plan.about["wanted"]["start_new"]:
            warnings += [
                f"{key} {NOT_RESET_WARNING}"
                for member in finished
                for key in self._list_chats_not_reset(member)
            ]
        warnings += self._warn_of_remaining_files(batch, plan)
        in_progress = sum(member.step in unfinished for member in plan.members)
        remaining = len(plan.remaining) + len(plan.partial_members) + in_progress
        vacuumed = self._get_vacuum_result(plan)
        if vacuumed is not None and vacuumed["in_the_way"] is not None:
            warnings.append(vacuumed["in_the_way"])
        return ApplyResult(
            outcome="partial" if remaining else "applied",
            plan=plan.handle,
            batch=batch.id,
            removed=len(finished) - ended - len(still_present),
            finalized=ended,
            skipped=tuple(skipped),
            remaining=remaining,
            warnings=tuple(warnings),
        )

    def _find_unfinished_steps(self, batch: Batch) -> set[str]:
        """Return the steps another process has started but not finished; it may abort them."""
        return {
            step.id
            for step in self._ledger.list_unsettled_steps()
            if step.batch == batch.id and step.state in ("writing", "prepared")
        }

    def _warn_of_remaining_files(self, batch: Batch, plan: StoredPlan) -> list[str]:
        """Return warnings about files of removed sessions that still exist."""
        folder = health.get_session_folder(self._db, self._store)
        if folder is None:
            return []
        skipped = (member for member in plan.members if member.skipped is not None)
        ids = {session_id for member in skipped for session_id in members.get_session_ids(member)}
        return files.warn_of_remaining_files(self._ledger.list_steps(batch.id), folder, exempt=ids)

    def sum_deleted_file_bytes(self, batch: Batch, plan: StoredPlan) -> int:
        """Return the size of the deleted files that the plan lists."""
        unfinished = self._find_unfinished_steps(batch)
        return sum(
            member.revision["bytes"]
            for member in plan.members
            if members.get_part(member) == "files"
            and member.step not in {None, *unfinished}
            and not self._is_still_present(member)
        )

    def _get_vacuum_result(self, plan: StoredPlan) -> dict[str, Any] | None:
        """Return the outcome of the vacuum if the plan has run one."""
        step = next((m.step for m in plan.members if members.get_part(m) == "index"), None)
        result = None if step is None else self._ledger.get_step(step).result
        return None if result is None else dict(result[VACUUM_KEY])

    def _list_chats_not_reset(self, member: Member) -> list[str]:
        """Return the chats that are still routed to the finalized sessions."""
        if self._store is None or members.get_part(member) != "ended":
            return []
        session_by_chat: dict[str, str] = member.revision["routes"]
        return [
            key
            for key, session_id in session_by_chat.items()
            if self._store.peek_session_id(key) == session_id
        ]

    def _is_still_present(self, member: Member) -> bool:
        """Return True if a route or a file still exists although it was to be removed."""
        part, record = members.get_part(member), member.revision
        if part == "files":
            folder = health.get_session_folder(self._db, self._store)
            return folder is not None and (folder / members.get_name(member)).exists()
        if part != "routes" or self._store is None or record["scope"]:
            return False
        session_id = self._store.peek_session_id(record["key"])
        return session_id is not None and session_id == record["session"]


RESTORED_SUFFIX = "; its removed part was restored"


class PartialMemberRestorer:
    """Restores partly removed members of the plans of one home."""

    def __init__(self, ledger: Ledger, undoer: StepUndoer, settle: Callable[[], None]) -> None:
        self._ledger = ledger
        self._undoer = undoer
        self._settle = settle

    def restore_member(self, partial: PartialMember) -> Iterator[None]:
        """Restore a member, its newest removal step first; yield after each step.

        Raises:
            Conflict: another process is restoring it.
        """
        ids = get_session_ids(partial.member)
        wait_for_steps(self._ledger, partial.batch, self._settle)
        refused = 0
        removals = [
            step for step in self._ledger.list_steps(partial.batch) if _has_removed(step, ids)
        ]
        batch = self._ledger.add_batch(BATCH_KIND).id if removals else ""
        for step in reversed(removals):
            try:
                result = self._undoer.undo_part(batch, step, ids)
            except Corrupt:
                refused += 1
            else:
                refused += 0 if result is None else len(result["unfit"])
            yield
        note = (
            f" except items that do not fit: restore {partial.batch} lists them" if refused else ""
        )
        self._ledger.finish_partial(partial.plan, partial.member.id, RESTORED_SUFFIX + note)


def _has_removed(step: Step, ids: frozenset[str]) -> bool:
    """Return True if a step that is not undone has removed something of these sessions."""
    result = step.result or {}
    return step.undone_at is None and not ids.isdisjoint(
        {*result.get("after", ()), *result.get("sessions", ())}
    )
