"""Room that is won back: the search index is merged in steps, and the file written anew.

The file is written anew only where nobody else has it open and the disk has room; otherwise it is
said what to stop. Nothing is lost by either, so there is nothing to undo.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from session_core import activity
from session_core.activity import Company
from session_core.errors import Busy, Denied, StorageFull
from session_core.ledger.execute import noting
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Member, Plan
from session_core.maintenance import disk
from session_core.maintenance.apply.begin import begin
from session_core.maintenance.select import snapshot
from session_core.maintenance.select.snapshot import Scene
from session_core.maintenance.types import (
    Applied,
    Bytes,
    Item,
    Preview,
    ProgressFn,
    Steps,
    StopFn,
    Stopped,
    said,
)
from session_core.state.protocol import StateDatabase, Step
from session_core.types import Sizes

KIND = "prune index"

INDEX = "index"

WHY = "the search index is merged, and free pages are given back"

NO_UNDO = "this has no undo, and needs none: nothing that is searched or read is changed"


@dataclass(frozen=True, slots=True)
class Won:
    """What was in the way of a shorter file, if anything."""

    in_the_way: str | None


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
        sizes = db.sizes()
        is_worth_it = disk.is_worth_freeing(sizes.free, sizes)
        return Won(_write_anew(db, now, step) if is_worth_it else None)
    except Stopped:
        return None


def in_the_way(company: Company) -> str | None:
    """Return what has to be stopped before the file can be written anew."""
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
        scene: Callable[[], Scene],
    ) -> None:
        self._scene = scene
        self._db = db
        self._ledger = ledger
        self._client = client
        self._clock = clock

    def plan(self) -> Preview:
        """Plan to merge the search index and rewrite the file, if that frees enough."""
        sizes = self._db.sizes()
        hindrance = in_the_way(activity.company(self._db, self._clock()))
        size = bytes_of_a_rewrite(sizes, can_shrink=hindrance is None)
        if not disk.is_worth_freeing(size.free_in_file + size.returned_to_disk, sizes):
            return Preview("nothing", None, None, 0, (), warnings=_reasons(sizes, hindrance))
        why = (
            f"about {sizes.index_dead / 1e6:,.1f} MB of the search index belong to deleted "
            f"messages, and {sizes.free / 1e6:,.1f} MB of the file are free"
        )
        about = said(
            [Item(INDEX, None, why)],
            size=size,
            warnings=[NO_UNDO, *([hindrance] if hindrance else [])],
        )
        about[snapshot.NAME] = snapshot.message_bytes(self._ledger, self._scene(), sizes)
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
        plan = begin(self._ledger, handle, KIND, lambda: disk.measure_files(self._db))
        if isinstance(plan, Applied):
            return plan
        partial = Applied("partial", handle, None, 0, 0, (), 1)

        def tell() -> None:
            if progress is not None:
                progress(partial)

        won = win(self._db, self._clock(), time.monotonic() + for_s, stop, tell)
        return partial if won is None else self._finish(plan, won)

    def _finish(self, plan: Plan, won: Won) -> Applied:
        warnings = () if won.in_the_way is None else (won.in_the_way,)
        size = disk.measured_since(plan.about.get(disk.BEFORE, {}), self._db.sizes())
        done = Applied("applied", plan.handle, None, 0, 0, (), 0, warnings, size)
        self._ledger.finish(plan.handle, done.stored())
        counts = {"free_in_file": size.free_in_file, "returned_to_disk": size.returned_to_disk}
        with noting(KIND):
            self._ledger.audit(self._client, KIND, plan.handle, counts)
        return done


def bytes_of_a_rewrite(sizes: Sizes, deleted: int = 0, *, can_shrink: bool) -> Bytes:
    """Return what a merge and a rewrite need and free, with what is `deleted` before."""
    freed = disk.freeable(sizes, shrinks=can_shrink) + deleted
    if not can_shrink:
        return Bytes(free_in_file=freed)
    return Bytes(needed_now=2 * max(sizes.db - freed, 0), returned_to_disk=freed)


def _reasons(sizes: Sizes, hindrance: str | None) -> tuple[str, ...]:
    """Return why nothing is planned."""
    if not sizes.db:
        return ()
    freed = disk.freeable(sizes)
    if hindrance is not None and disk.is_worth_freeing(freed, sizes):
        return (hindrance,)
    said = f"about {freed / 1e6:,.1f} of {sizes.db / 1e6:,.1f} MB"
    return (f"a rewrite of the file would free {said}, which is not worth it",)


def _write_anew(db: StateDatabase, now: float, step: Step) -> str | None:
    """Write the file anew; say what is in the way of that, if anything."""
    hindrance = in_the_way(activity.company(db, now))
    if hindrance is None:
        try:
            db.vacuum(step=step)
        except (Busy, Denied, StorageFull) as error:
            return str(error)
    return hindrance
