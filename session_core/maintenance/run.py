"""One call that applies a plan: its pieces, one step each, and what it does where one cannot be.

A member that is not any more what was planned is skipped. What one maintainer decides about a
member no other one decides again; whoever comes second waits for a step that is under way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import Any

from session_core import alive
from session_core.alive import Alive
from session_core.errors import Busy, Conflict
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Batch, Member, Plan
from session_core.ledger.steps import run_step
from session_core.maintenance import finalize, findings, members, rerouting, sweeping
from session_core.maintenance.aside import Aside
from session_core.maintenance.members import PARTS, Again, Doing, Outdated, Part, Piece, Progress
from session_core.maintenance.planner import Planner
from session_core.maintenance.removal import Removal
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

_LOOK_AGAIN_S = 0.5
"""So long is believed who is alive; what decides most is looked at again inside each step."""

_TRIES = 5
_MOST = 1000
"""So many members a piece may choose from."""

_PAUSE_S = 0.01
_PATIENCE_S = 30.0
"""So long somebody else's step may take."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a plan is applied with."""

    db: StateDatabase
    ledger: Ledger
    store: SessionStore | None
    hooks: Hooks
    planner: Planner
    clock: Callable[[], float]
    pinned: Callable[[], Collection[str]]
    take_up: Callable[[], None]
    """Decides what a crash has left."""

    def gather(self) -> Alive:
        """Return who is alive now."""
        return alive.gather(self.db, self.store, self.clock(), self.pinned())

    def doing(
        self,
        part: Part,
        plan: Plan,
        progress: Progress,
        there: Callable[[], Alive],
        aside: Aside,
    ) -> Doing:
        """Return what does a part of a plan."""
        wanted, folder = plan.about["wanted"], findings.folder_of(self.db, self.store)
        if part in ("sessions", "ghosts"):
            return Removal(self.db, there, progress, folder, aside, pinned=self.pinned)
        if part == "ended":
            return finalize.Finalize(
                self.db,
                there,
                progress,
                self.store,
                self.hooks,
                what=wanted["what"],
                start_new=wanted["start_new"],
                clock=self.clock,
                pinned=self.pinned,
            )
        if part == "routes" and self.store is not None:
            return rerouting.Rerouting(self.db, self.store, there, self.planner.scene)
        if part == "links":
            return sweeping.Links(self.db)
        if part == "files" and folder is not None:
            return sweeping.Files(self.db, there, folder)
        rows = sweeping.Rows if part == "rows" else sweeping.Locks
        return rows(self.db, there)


class Run:
    """One call that applies a plan."""

    def __init__(self, means: Means, batch: Batch, plan: Plan) -> None:
        self._means = means
        self._batch = batch
        self._handle = plan.handle
        self._alive: tuple[float, Alive] | None = None
        self._tries = 0
        self._alone = 0
        """So many members to come are tried one by one, since some of them failed together."""
        self._doing: dict[Part, Doing] = {}
        self._aside = Aside()
        self._progress = Progress()
        self._load()

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to be decided."""
        return not any(self._left.values())

    def step(self) -> None:
        """Do the next piece, or find out that it cannot be done."""
        part = next(part for part in PARTS if self._left[part])
        left = self._left[part]
        chosen = _first(left, 1 if self._alone else _MOST)
        try:
            doing = self._of(part)
            piece = doing.next(chosen)
            self._progress.note(self._run(piece))
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

    def _run(self, piece: Piece) -> dict[str, Any]:
        return run_step(
            self._means.db,
            self._means.ledger,
            self._batch.id,
            before=lambda _: piece.kept,
            change=piece.change,
            members=piece.members,
            within=piece.within,
        )

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
        """Leave a member as it is; say where the rest is if a part of it is gone already."""
        half = self._progress.has_begun(member)
        more = f"; a part of it is in the trash: restore {self._batch.id}" if half else ""
        self._means.ledger.skip(self._handle, [member.id], why + more)

    def _somebody_else_decided(self, taken: Collection[str]) -> bool:
        """Whether a conflict is that somebody else applies the same plan."""
        self._wait()
        before = sum(map(len, self._left.values()))
        self._load()
        still = {member.id for queue in self._left.values() for member in queue}
        return sum(map(len, self._left.values())) < before or not still.issuperset(taken)

    def _wait(self) -> None:
        wait_for(self._means.ledger, self._batch.id, self._means.take_up)

    def _load(self) -> None:
        plan = self._means.ledger.plan(self._handle)
        self._plan = plan
        self._progress.after, self._progress.gone = {}, set()
        for step in self._means.ledger.steps(self._batch.id):
            self._progress.note(step.result or {})
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
        now = time.monotonic()
        if self._alive is None or now - self._alive[0] > _LOOK_AGAIN_S:
            self._alive = now, self._means.gather()
        return self._alive[1]


def wait_for(ledger: Ledger, batch: str, take_up: Callable[[], None]) -> None:
    """Wait until nobody runs a step of a batch.

    Raises:
        Busy: that takes long.
    """
    until = time.monotonic() + _PATIENCE_S
    while _is_under_way(ledger, batch, take_up):
        if time.monotonic() >= until:
            raise Busy(f"somebody else is at work on batch {batch} and takes long; try again")
        time.sleep(_PAUSE_S)


def _is_under_way(ledger: Ledger, batch: str, take_up: Callable[[], None]) -> bool:
    """Whether somebody else runs a step of a batch."""
    take_up()
    return any(
        step.batch == batch and step.state in ("writing", "prepared") for step in ledger.unsettled()
    )


def _first(left: deque[Member], most: int) -> list[Member]:
    """Return the members that a piece may take."""
    return list(islice(left, most))


def _part(member: Member) -> Part:
    return next(part for part in PARTS if part == members.part_of(member))


def _touched(member: Member, before: Progress, after: Progress) -> bool:
    """Whether somebody else has taken a part of the sessions of a member meanwhile."""
    noted = member.revision
    ids = set(noted["sessions"]) if isinstance(noted, dict) and "sessions" in noted else set()
    one, other = ((x.gone & ids, {i: x.after.get(i) for i in ids}) for x in (before, after))
    return one != other
