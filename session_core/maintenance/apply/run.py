"""One call that applies a plan: its pieces, one step each, and what it does where one cannot be.

A member that is not any more what was planned is skipped, and put back where a part of it is gone.
What one maintainer decides about a member no other one decides again; whoever comes second waits
for a step that is under way.

What a plan has come to: what is gone or ended, what was left and why, what remains.

Members that a plan leaves although a part of them is gone: they are put back whole.

What is owed to them is noted in the ledger before, so that whoever takes up what a crash has left
goes on with it.
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
"""So long is believed who is alive; what decides most is looked at again inside each step."""

_SLOW_LOOK_S = 0.05
"""A look that takes longer, as among very many routes, is believed for longer in proportion."""

_MAX_TTL_FACTOR = 6

_MAX_TRIES = 5
_MAX_STEP_MEMBERS = 1000
"""So many members a piece may choose from."""


class PlanRun:
    """One call that applies a plan."""

    def __init__(
        self, means: ApplyContext, returning: PartialMemberRestorer, batch: Batch, plan: StoredPlan
    ) -> None:
        self._means = means
        self._returning = returning
        self._batch = batch
        self._handle = plan.handle
        self._alive: tuple[float, ActivitySnapshot] | None = None
        """Until when is believed who is alive."""
        self._tries = 0
        self._alone = 0
        """So many members to come are tried one by one, since some of them failed together."""
        self._doing: dict[Part, PartExecutor] = {}
        self._aside = StepPrefetch(means.ledger, batch.id)
        self._progress = PlanProgress()
        self._back: Iterator[None] | None = None
        """What puts the first of the halves back."""
        self._load_plan()

    def is_done(self, *, wait: bool) -> bool:
        """Whether nothing is left to be decided, or to be put back.

        What somebody else has taken and not done may be given up, so that is waited for.
        """
        while not (any(self._left.values()) or self._halves):
            self._aside.discard()
            if not list_running_steps(self._means.ledger, self._batch.id, self._means.settle):
                return True
            if not wait:
                return False
            self._wait_for_others()
            self._load_plan()
        return False

    def run_next_step(self) -> None:
        """Do the next piece, or find out that it cannot be done."""
        if self._halves:
            self._restore_next_part(self._halves[0])
            return
        part = next(part for part in PART_ORDER if self._left[part])
        left = self._left[part]
        chosen = _take_first(left, 1 if self._alone else _MAX_STEP_MEMBERS)
        try:
            doing = self._get_executor(part)
            piece = doing.draft_step(chosen)
            self._progress.add_result(self._apply_step(piece, chosen))
        except MemberOutdated as error:
            self._skip_outdated(error)
        except ConcurrentWrite as error:
            self._retry_step(left, piece, error)
        except Conflict:
            if not self._is_decided_elsewhere(piece.members):
                raise
        else:
            self._tries = 0
            self._alone = max(self._alone - len(piece.members), 0)
            for _ in piece.members:
                left.popleft()

    def close(self) -> None:
        """End what is under way beside."""
        self._aside.close()

    def _apply_step(self, piece: StepDraft, chosen: Sequence[Member]) -> dict[str, Any]:
        begun = chosen[len(piece.members) :][:1]

        def change(db: StateDatabase) -> dict[str, Any]:
            self._require_members_open(begun)
            return piece.change(db)

        return run_step(
            self._means.db,
            self._means.ledger,
            self._batch.id,
            before=lambda _: piece.kept,
            change=change,
            members=piece.members,
            within=piece.within,
        )

    def _require_members_open(self, begun: Sequence[Member]) -> None:
        """Make sure that nobody else puts back by now what goes on to be removed."""
        for member in begun:
            if not self._means.ledger.is_member_open(self._handle, member.id):
                raise Conflict(f"somebody else has left {members.get_name(member)} as it is")

    def _skip_outdated(self, error: MemberOutdated) -> None:
        """Skip a member, unless somebody else is about to be done with it."""
        before = deepcopy(self._progress)
        self._wait_for_others()
        self._load_plan()
        member = next((m for q in self._left.values() for m in q if m.id == error.member), None)
        if member is None or _has_other_progress(member, before, self._progress):
            return
        self._skip_member(member, str(error))
        self._left[_find_part(member)].remove(member)

    def _retry_step(self, left: deque[Member], piece: StepDraft, error: ConcurrentWrite) -> None:
        """Look again; after some tries take them one by one, and leave the one that fails alone."""
        self._tries += 1
        self._alive = None
        if self._tries < _MAX_TRIES:
            return
        self._tries = 0
        if not self._alone:
            self._alone = max(len(piece.members), 1)
            return
        self._alone -= 1
        self._skip_member(left.popleft(), str(error))

    def _skip_member(self, member: Member, why: str) -> None:
        """Leave a member as it is; what is gone of it already is put back next."""
        self._aside.discard()  # it may have the rest of the member
        half = self._progress.has_begun(member)
        self._means.ledger.skip_members(self._handle, [member.id], why, half=half)
        if half:
            self._halves.append(PartialMember(self._handle, self._batch.id, member))

    def _restore_next_part(self, half: PartialMember) -> None:
        """Put the next part of a member back, unless somebody else is about to."""
        self._back = self._back or self._returning.restore_member(half)
        try:
            next(self._back)
        except StopIteration:
            self._back = None
            self._halves.popleft()
        except Conflict:
            self._back = None
            time.sleep(POLL_PAUSE_S)
            self._load_plan()

    def _is_decided_elsewhere(self, taken: Collection[str]) -> bool:
        """Whether a conflict is that somebody else applies the same plan."""
        self._wait_for_others()
        before = sum(map(len, self._left.values()))
        self._load_plan()
        still = {member.id for queue in self._left.values() for member in queue}
        return sum(map(len, self._left.values())) < before or not still.issuperset(taken)

    def _wait_for_others(self) -> None:
        self._aside.discard()  # what is prepared ahead here nobody else could wait for
        wait_for_steps(self._means.ledger, self._batch.id, self._means.settle)

    def _load_plan(self) -> None:
        plan = self._means.ledger.get_plan(self._handle)
        self._plan = plan
        self._progress.after, self._progress.gone = {}, set()
        for step in self._means.ledger.list_steps(self._batch.id):
            self._progress.add_result(step.result or {})
        self._halves = deque(
            PartialMember(self._handle, self._batch.id, each) for each in plan.partial_members
        )
        self._left: dict[Part, deque[Member]] = {part: deque() for part in PART_ORDER}
        for member in plan.remaining:
            if members.get_part(member) in self._left:
                self._left[_find_part(member)].append(member)

    def _get_executor(self, part: Part) -> PartExecutor:
        if part not in self._doing:
            self._doing[part] = self._means.create_executor(
                part, self._plan, self._progress, self._get_activity, self._aside
            )
        return self._doing[part]

    def _get_activity(self) -> ActivitySnapshot:
        began = time.monotonic()
        if self._alive is None or began > self._alive[0]:
            found = self._means.gather_activity()
            now = time.monotonic()
            times = min(max((now - began) / _SLOW_LOOK_S, 1), _MAX_TTL_FACTOR)
            self._alive = now + times * _ACTIVITY_TTL_S, found
        return self._alive[1]


def _take_first(left: deque[Member], most: int) -> list[Member]:
    """Return the members that a piece may take."""
    return list(islice(left, most))


def _find_part(member: Member) -> Part:
    return next(part for part in PART_ORDER if part == members.get_part(member))


def _has_other_progress(member: Member, before: PlanProgress, after: PlanProgress) -> bool:
    """Whether somebody else has taken a part of the sessions of a member meanwhile."""
    ids = members.get_session_ids(member)
    one, other = ((x.gone & ids, {i: x.after.get(i) for i in ids}) for x in (before, after))
    return one != other


NOT_RESET_WARNING = "could not begin afresh, and does with its next message"

VACUUM_KEY = "room"
"""In the result of a step: what was won back."""

_NOT_REMOVED_REASON = "it could not be removed, or was used just then"


class PlanOutcomes:
    """Says what the plans of one home have come to."""

    def __init__(self, db: StateDatabase, ledger: Ledger, store: SessionStore | None) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store

    def build_result(self, batch: Batch, plan: StoredPlan) -> ApplyResult:
        """Return what a plan has come to by now."""
        skipped = [
            SkippedItem(members.get_name(member), member.skipped)
            for member in plan.members
            if member.skipped is not None and not member.half
        ]
        begun = self._find_unfinished_steps(batch)
        done = [
            member
            for member in plan.members
            if member.step not in {None, *begun} and members.get_part(member) != "index"
        ]
        left = [each for each in done if self._is_still_present(each)]
        skipped += [SkippedItem(members.get_name(each), _NOT_REMOVED_REASON) for each in left]
        ended = sum(members.get_part(member) == "ended" for member in done)
        warnings = [PLUGINS_WARNING] if self._db.kind == "hermes" and ended else []
        if plan.about["wanted"]["start_new"]:
            warnings += [
                f"{key} {NOT_RESET_WARNING}"
                for each in done
                for key in self._list_chats_not_reset(each)
            ]
        warnings += self._warn_of_remaining_files(batch, plan)
        taken = sum(member.step in begun for member in plan.members)
        remaining = len(plan.remaining) + len(plan.partial_members) + taken
        room = self._get_vacuum_result(plan)
        if room is not None and room["in_the_way"] is not None:
            warnings.append(room["in_the_way"])
        return ApplyResult(
            outcome="partial" if remaining else "applied",
            plan=plan.handle,
            batch=batch.id,
            removed=len(done) - ended - len(left),
            finalized=ended,
            skipped=tuple(skipped),
            remaining=remaining,
            warnings=tuple(warnings),
        )

    def _find_unfinished_steps(self, batch: Batch) -> set[str]:
        """Return the steps that somebody has taken and not done, who may yet give them up."""
        return {
            step.id
            for step in self._ledger.list_unsettled_steps()
            if step.batch == batch.id and step.state in ("writing", "prepared")
        }

    def _warn_of_remaining_files(self, batch: Batch, plan: StoredPlan) -> list[str]:
        """Say which files of sessions that were removed are still there."""
        folder = health.get_session_folder(self._db, self._store)
        if folder is None:
            return []
        left = (member for member in plan.members if member.skipped is not None)
        ids = {each for member in left for each in members.get_session_ids(member)}
        return files.warn_of_remaining_files(self._ledger.list_steps(batch.id), folder, but=ids)

    def sum_deleted_file_bytes(self, batch: Batch, plan: StoredPlan) -> int:
        """Return the size of the files that the plan named and that are gone."""
        begun = self._find_unfinished_steps(batch)
        return sum(
            member.revision["bytes"]
            for member in plan.members
            if members.get_part(member) == "files"
            and member.step not in {None, *begun}
            and not self._is_still_present(member)
        )

    def _get_vacuum_result(self, plan: StoredPlan) -> dict[str, Any] | None:
        """Return what was won back, where the plan has done that."""
        step = next((m.step for m in plan.members if members.get_part(m) == "index"), None)
        result = None if step is None else self._ledger.get_step(step).result
        return None if result is None else dict(result[VACUUM_KEY])

    def _list_chats_not_reset(self, member: Member) -> list[str]:
        """Return the chats that are still in what was ended."""
        if self._store is None or members.get_part(member) != "ended":
            return []
        led: dict[str, str] = member.revision["routes"]
        return [key for key, each in led.items() if self._store.peek_session_id(key) == each]

    def _is_still_present(self, member: Member) -> bool:
        """Whether a route or a file is still there although it was to be removed."""
        part, noted = members.get_part(member), member.revision
        if part == "files":
            folder = health.get_session_folder(self._db, self._store)
            return folder is not None and (folder / members.get_name(member)).exists()
        if part != "routes" or self._store is None or noted["scope"]:
            return False
        there = self._store.peek_session_id(noted["key"])
        return there is not None and there == noted["session"]


RESTORED_SUFFIX = "; what was gone of it is back"


class PartialMemberRestorer:
    """Puts members back of the plans of one home."""

    def __init__(self, ledger: Ledger, undoing: StepUndoer, settle: Callable[[], None]) -> None:
        self._ledger = ledger
        self._undoing = undoing
        self._settle = settle

    def restore_member(self, half: PartialMember) -> Iterator[None]:
        """Put a member back, the newest step of its removal first; each of them is one yield.

        Raises:
            Conflict: somebody else does that just now.
        """
        ids = get_session_ids(half.member)
        wait_for_steps(self._ledger, half.batch, self._settle)
        unfit = 0
        taken = [step for step in self._ledger.list_steps(half.batch) if _has_removed(step, ids)]
        batch = self._ledger.add_batch(BATCH_KIND).id if taken else ""
        for step in reversed(taken):
            try:
                back = self._undoing.undo_part(batch, step, ids)
            except Corrupt:
                unfit += 1
            else:
                unfit += 0 if back is None else len(back["unfit"])
            yield
        more = f" but for what does not fit: restore {half.batch} says what" if unfit else ""
        self._ledger.finish_partial(half.plan, half.member.id, RESTORED_SUFFIX + more)


def _has_removed(step: Step, ids: frozenset[str]) -> bool:
    """Whether a step that was not taken back has taken something of these sessions."""
    result = step.result or {}
    return step.undone_at is None and not ids.isdisjoint(
        {*result.get("after", ()), *result.get("sessions", ())}
    )
