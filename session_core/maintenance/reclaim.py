"""Room that is won back: the search index is merged in steps, and the file written anew.

The file is written anew only where nobody else has it open and the disk has room; otherwise it is
said what to stop. Nothing is lost by either, so there is nothing to undo.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from session_core import alive
from session_core.errors import Busy, Denied, StorageFull
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Member
from session_core.ledger.steps import noting
from session_core.maintenance.answers import Applied, Bytes, Item, Preview, ProgressFn, StopFn, said
from session_core.maintenance.beginning import begin
from session_core.maintenance.steps import Steps, Stopped
from session_core.models import Sizes
from session_core.state.contract import StateDatabase, Step

KIND = "prune index"

INDEX = "index"

WHY = "the search index is merged, and free pages are given back"

NO_UNDO = "this has no undo, and needs none: nothing that is searched or read is changed"

_BLOATED = 0.5
"""Of a search index that takes more than this share of the file, merging wins something."""

_WORTH_FREEING = 0.1


@dataclass(frozen=True, slots=True)
class Won:
    """How many bytes less a database and its log take, and what was in the way of more."""

    bytes: int
    in_the_way: str | None


def large_index(sizes: Sizes) -> bool:
    """Whether the search index takes more of the file than it should."""
    return sizes.index > _BLOATED * sizes.db


def much_is_free(sizes: Sizes) -> bool:
    """Whether so much of the file is free that it is worth to be written anew."""
    return sizes.free > _WORTH_FREEING * sizes.db


def is_worth_it(sizes: Sizes) -> bool:
    """Whether there is something to be won."""
    return large_index(sizes) or much_is_free(sizes)


def win(
    db: StateDatabase,
    now: float,
    until: float,
    stop: StopFn | None = None,
    tell: Callable[[], object] | None = None,
) -> Won | None:
    """Merge until that monotonic time, at least once, and then write the file anew; None: go on.

    Writing it anew takes as long as it takes; stopped, it begins from the start when it goes on.
    """
    step = Steps(tell, stop)
    try:
        while db.optimize_step():
            if time.monotonic() >= until:
                return None
            step()
        step()
        before = _taken(db)
        in_the_way = _write_anew(db, now, step) if db.sizes().free else None
    except Stopped:
        return None
    return Won(max(before - _taken(db), 0), in_the_way)


def in_the_way(db: StateDatabase, now: float) -> str | None:
    """Say what has to be stopped before the file can be written anew."""
    company = alive.company(db, now)
    names = [company.gateway] if company.gateway else list(map(str, company.holders))
    if not names:
        return None
    return (
        f"the file keeps its free pages while {', '.join(names)} has it open; stop that, then "
        "plan this again"
    )


class Reclaim:
    """Wins the room of one home back by a plan of its own."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        *,
        client: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._client = client
        self._clock = clock

    def plan(self) -> Preview:
        """Plan to merge the search index, and to write the file anew where that can be."""
        sizes = self._db.sizes()
        if not sizes.db:
            return Preview("nothing", None, None, 0, ())
        hindrance = in_the_way(self._db, self._clock())
        won = 0 if hindrance else sizes.free
        needed = 0 if hindrance else 2 * (sizes.db - sizes.free)
        why = (
            f"the search index, about {sizes.index:,} bytes, is merged; "
            f"{sizes.free:,} bytes of the file are free"
        )
        about = said(
            [Item(INDEX, None, why)],
            size=Bytes(needed_now=needed, won_now=won),
            warnings=[NO_UNDO, *([hindrance] if hindrance else [])],
        )
        return Preview.of(self._ledger.add_plan(KIND, [Member(INDEX, why=why)], about))

    def apply(
        self,
        handle: str,
        *,
        for_s: float = 20.0,
        progress: ProgressFn | None = None,
        stop: StopFn | None = None,
    ) -> Applied:
        """Do it, or go on with it.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has ended, or run out.
        """
        plan = begin(self._ledger, handle, KIND)
        if isinstance(plan, Applied):
            return plan
        partial = Applied("partial", handle, None, 0, 0, (), 1)

        def tell() -> None:
            if progress is not None:
                progress(partial)

        won = win(self._db, self._clock(), time.monotonic() + for_s, stop, tell)
        return partial if won is None else self._finish(handle, won)

    def _finish(self, handle: str, won: Won) -> Applied:
        warnings = () if won.in_the_way is None else (won.in_the_way,)
        done = Applied("applied", handle, None, 0, 0, (), 0, warnings, won.bytes)
        self._ledger.finish(handle, done.stored())
        with noting(KIND):
            self._ledger.audit(self._client, KIND, handle, {"won": won.bytes})
        return done


def _write_anew(db: StateDatabase, now: float, step: Step) -> str | None:
    """Write the file anew; say what is in the way of that, if anything."""
    hindrance = in_the_way(db, now)
    if hindrance is None:
        try:
            db.vacuum(step=step)
        except (Busy, Denied, StorageFull) as error:
            return str(error)
    return hindrance


def _taken(db: StateDatabase) -> int:
    sizes = db.sizes()
    return sizes.db + sizes.wal
