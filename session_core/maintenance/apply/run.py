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

from session_core.activity import Alive
from session_core.errors import Conflict, Corrupt
from session_core.ledger.execute import PAUSE_S, run_step, under_way, wait_for
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Batch, Half, Member, Plan, Step
from session_core.maintenance import health, members
from session_core.maintenance.apply import files
from session_core.maintenance.apply.context import Means
from session_core.maintenance.apply.step_items import Aside
from session_core.maintenance.members import (
    PARTS,
    Again,
    Doing,
    Outdated,
    Part,
    Piece,
    Progress,
    sessions_of,
)
from session_core.maintenance.planner import PLUGINS
from session_core.maintenance.restore.restore import WHAT
from session_core.maintenance.restore.step import Undoing
from session_core.maintenance.types import Applied, Skipped
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase

_LOOK_AGAIN_S = 0.5
"""So long is believed who is alive; what decides most is looked at again inside each step."""

_LONG_LOOK_S = 0.05
"""A look that takes longer, as among very many routes, is believed for longer in proportion."""

_MOST_TIMES = 6

_TRIES = 5
_MOST = 1000
"""So many members a piece may choose from."""


class Run:
    """One call that applies a plan."""

    def __init__(self, means: Means, returning: Returning, batch: Batch, plan: Plan) -> None:
        self._means = means
        self._returning = returning
        self._batch = batch
        self._handle = plan.handle
        self._alive: tuple[float, Alive] | None = None
        """Until when is believed who is alive."""
        self._tries = 0
        self._alone = 0
        """So many members to come are tried one by one, since some of them failed together."""
        self._doing: dict[Part, Doing] = {}
        self._aside = Aside(means.ledger, batch.id)
        self._progress = Progress()
        self._back: Iterator[None] | None = None
        """What puts the first of the halves back."""
        self._load()

    def is_done(self, *, wait: bool) -> bool:
        """Whether nothing is left to be decided, or to be put back.

        What somebody else has taken and not done may be given up, so that is waited for.
        """
        while not (any(self._left.values()) or self._halves):
            self._aside.drop()
            if not under_way(self._means.ledger, self._batch.id, self._means.settle):
                return True
            if not wait:
                return False
            self._wait()
            self._load()
        return False

    def step(self) -> None:
        """Do the next piece, or find out that it cannot be done."""
        if self._halves:
            self._put_back(self._halves[0])
            return
        part = next(part for part in PARTS if self._left[part])
        left = self._left[part]
        chosen = _first(left, 1 if self._alone else _MOST)
        try:
            doing = self._of(part)
            piece = doing.next(chosen)
            self._progress.note(self._run(piece, chosen))
        except Outdated as error:
            self._outdated(error)
        except Again as error:
            self._again(left, piece, error)
        except Conflict:
            if not self._somebody_else_decided(piece.members):
                raise
        else:
            self._tries = 0
            self._alone = max(self._alone - len(piece.members), 0)
            for _ in piece.members:
                left.popleft()

    def close(self) -> None:
        """End what is under way beside."""
        self._aside.close()

    def _run(self, piece: Piece, chosen: Sequence[Member]) -> dict[str, Any]:
        begun = chosen[len(piece.members) :][:1]

        def change(db: StateDatabase) -> dict[str, Any]:
            self._require_open(begun)
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

    def _require_open(self, begun: Sequence[Member]) -> None:
        """Make sure that nobody else puts back by now what goes on to be removed."""
        for member in begun:
            if not self._means.ledger.is_open(self._handle, member.id):
                raise Conflict(f"somebody else has left {members.name_of(member)} as it is")

    def _outdated(self, error: Outdated) -> None:
        """Skip a member, unless somebody else is about to be done with it."""
        before = deepcopy(self._progress)
        self._wait()
        self._load()
        member = next((m for q in self._left.values() for m in q if m.id == error.member), None)
        if member is None or _touched(member, before, self._progress):
            return
        self._skip(member, str(error))
        self._left[_part(member)].remove(member)

    def _again(self, left: deque[Member], piece: Piece, error: Again) -> None:
        """Look again; after some tries take them one by one, and leave the one that fails alone."""
        self._tries += 1
        self._alive = None
        if self._tries < _TRIES:
            return
        self._tries = 0
        if not self._alone:
            self._alone = max(len(piece.members), 1)
            return
        self._alone -= 1
        self._skip(left.popleft(), str(error))

    def _skip(self, member: Member, why: str) -> None:
        """Leave a member as it is; what is gone of it already is put back next."""
        self._aside.drop()  # it may have the rest of the member
        half = self._progress.has_begun(member)
        self._means.ledger.skip(self._handle, [member.id], why, half=half)
        if half:
            self._halves.append(Half(self._handle, self._batch.id, member))

    def _put_back(self, half: Half) -> None:
        """Put the next part of a member back, unless somebody else is about to."""
        self._back = self._back or self._returning.steps(half)
        try:
            next(self._back)
        except StopIteration:
            self._back = None
            self._halves.popleft()
        except Conflict:
            self._back = None
            time.sleep(PAUSE_S)
            self._load()

    def _somebody_else_decided(self, taken: Collection[str]) -> bool:
        """Whether a conflict is that somebody else applies the same plan."""
        self._wait()
        before = sum(map(len, self._left.values()))
        self._load()
        still = {member.id for queue in self._left.values() for member in queue}
        return sum(map(len, self._left.values())) < before or not still.issuperset(taken)

    def _wait(self) -> None:
        self._aside.drop()  # what is prepared ahead here nobody else could wait for
        wait_for(self._means.ledger, self._batch.id, self._means.settle)

    def _load(self) -> None:
        plan = self._means.ledger.plan(self._handle)
        self._plan = plan
        self._progress.after, self._progress.gone = {}, set()
        for step in self._means.ledger.steps(self._batch.id):
            self._progress.note(step.result or {})
        self._halves = deque(Half(self._handle, self._batch.id, each) for each in plan.halves)
        self._left: dict[Part, deque[Member]] = {part: deque() for part in PARTS}
        for member in plan.remaining:
            if members.part_of(member) in self._left:
                self._left[_part(member)].append(member)

    def _of(self, part: Part) -> Doing:
        if part not in self._doing:
            self._doing[part] = self._means.doing(
                part, self._plan, self._progress, self._there, self._aside
            )
        return self._doing[part]

    def _there(self) -> Alive:
        began = time.monotonic()
        if self._alive is None or began > self._alive[0]:
            found = self._means.gather()
            now = time.monotonic()
            times = min(max((now - began) / _LONG_LOOK_S, 1), _MOST_TIMES)
            self._alive = now + times * _LOOK_AGAIN_S, found
        return self._alive[1]


def _first(left: deque[Member], most: int) -> list[Member]:
    """Return the members that a piece may take."""
    return list(islice(left, most))


def _part(member: Member) -> Part:
    return next(part for part in PARTS if part == members.part_of(member))


def _touched(member: Member, before: Progress, after: Progress) -> bool:
    """Whether somebody else has taken a part of the sessions of a member meanwhile."""
    ids = members.sessions_of(member)
    one, other = ((x.gone & ids, {i: x.after.get(i) for i in ids}) for x in (before, after))
    return one != other


NOT_AFRESH = "could not begin afresh, and does with its next message"

ROOM = "room"
"""In the result of a step: what was won back."""

_LEFT = "it could not be removed, or was used just then"


class Outcome:
    """Says what the plans of one home have come to."""

    def __init__(self, db: StateDatabase, ledger: Ledger, store: SessionStore | None) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store

    def of(self, batch: Batch, plan: Plan) -> Applied:
        """Return what a plan has come to by now."""
        skipped = [
            Skipped(members.name_of(member), member.skipped)
            for member in plan.members
            if member.skipped is not None and not member.half
        ]
        begun = self._begun(batch)
        done = [
            member
            for member in plan.members
            if member.step not in {None, *begun} and members.part_of(member) != "index"
        ]
        left = [each for each in done if self._is_left(each)]
        skipped += [Skipped(members.name_of(each), _LEFT) for each in left]
        ended = sum(members.part_of(member) == "ended" for member in done)
        warnings = [PLUGINS] if self._db.kind == "hermes" and ended else []
        if plan.about["wanted"]["start_new"]:
            warnings += [f"{key} {NOT_AFRESH}" for each in done for key in self._not_afresh(each)]
        warnings += self._staying(batch, plan)
        taken = sum(member.step in begun for member in plan.members)
        remaining = len(plan.remaining) + len(plan.halves) + taken
        room = self._room(plan)
        if room is not None and room["in_the_way"] is not None:
            warnings.append(room["in_the_way"])
        return Applied(
            outcome="partial" if remaining else "applied",
            plan=plan.handle,
            batch=batch.id,
            removed=len(done) - ended - len(left),
            finalized=ended,
            skipped=tuple(skipped),
            remaining=remaining,
            warnings=tuple(warnings),
        )

    def _begun(self, batch: Batch) -> set[str]:
        """Return the steps that somebody has taken and not done, who may yet give them up."""
        return {
            step.id
            for step in self._ledger.unsettled()
            if step.batch == batch.id and step.state in ("writing", "prepared")
        }

    def _staying(self, batch: Batch, plan: Plan) -> list[str]:
        """Say which files of sessions that were removed are still there."""
        folder = health.folder_of(self._db, self._store)
        if folder is None:
            return []
        left = (member for member in plan.members if member.skipped is not None)
        ids = {each for member in left for each in members.sessions_of(member)}
        return files.staying(self._ledger.steps(batch.id), folder, but=ids)

    def bytes_of_files(self, batch: Batch, plan: Plan) -> int:
        """Return the size of the files that the plan named and that are gone."""
        begun = self._begun(batch)
        return sum(
            member.revision["bytes"]
            for member in plan.members
            if members.part_of(member) == "files"
            and member.step not in {None, *begun}
            and not self._is_left(member)
        )

    def _room(self, plan: Plan) -> dict[str, Any] | None:
        """Return what was won back, where the plan has done that."""
        step = next((m.step for m in plan.members if members.part_of(m) == "index"), None)
        result = None if step is None else self._ledger.step(step).result
        return None if result is None else dict(result[ROOM])

    def _not_afresh(self, member: Member) -> list[str]:
        """Return the chats that are still in what was ended."""
        if self._store is None or members.part_of(member) != "ended":
            return []
        led: dict[str, str] = member.revision["routes"]
        return [key for key, each in led.items() if self._store.peek_session_id(key) == each]

    def _is_left(self, member: Member) -> bool:
        """Whether a route or a file is still there although it was to be removed."""
        part, noted = members.part_of(member), member.revision
        if part == "files":
            folder = health.folder_of(self._db, self._store)
            return folder is not None and (folder / members.name_of(member)).exists()
        if part != "routes" or self._store is None or noted["scope"]:
            return False
        there = self._store.peek_session_id(noted["key"])
        return there is not None and there == noted["session"]


BACK = "; what was gone of it is back"


class Returning:
    """Puts members back of the plans of one home."""

    def __init__(self, ledger: Ledger, undoing: Undoing, settle: Callable[[], None]) -> None:
        self._ledger = ledger
        self._undoing = undoing
        self._settle = settle

    def steps(self, half: Half) -> Iterator[None]:
        """Put a member back, the newest step of its removal first; each of them is one yield.

        Raises:
            Conflict: somebody else does that just now.
        """
        ids = sessions_of(half.member)
        wait_for(self._ledger, half.batch, self._settle)
        unfit = 0
        taken = [step for step in self._ledger.steps(half.batch) if _has_taken(step, ids)]
        batch = self._ledger.add_batch(WHAT).id if taken else ""
        for step in reversed(taken):
            try:
                back = self._undoing.part(batch, step, ids)
            except Corrupt:
                unfit += 1
            else:
                unfit += 0 if back is None else len(back["unfit"])
            yield
        more = f" but for what does not fit: restore {half.batch} says what" if unfit else ""
        self._ledger.end_half(half.plan, half.member.id, BACK + more)


def _has_taken(step: Step, ids: frozenset[str]) -> bool:
    """Whether a step that was not taken back has taken something of these sessions."""
    result = step.result or {}
    return step.undone_at is None and not ids.isdisjoint(
        {*result.get("after", ()), *result.get("sessions", ())}
    )
