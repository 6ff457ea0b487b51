"""Room that is won back: the search index is merged in steps, and the file written anew.

The file is written anew only where nobody else has it open and the disk has room; otherwise it is
said what to stop. Nothing is lost by either, so there is nothing to undo.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from session_core import alive
from session_core.errors import Busy, InvalidInput, StorageFull
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Member, Plan
from session_core.ledger.steps import noting
from session_core.maintenance.answers import Bytes, Item, Planned
from session_core.models import Sizes
from session_core.state.contract import StateDatabase

KIND = "prune index"

NO_UNDO = "this has no undo, and needs none: nothing that is searched or read is changed"

Progress = Callable[[str, float], None]
"""Told what is done just now, and the share of the time of this call that has gone by."""

Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What a database and its log take on the disk before and after; `partial` is gone on with."""

    outcome: Literal["applied", "partial"]
    plan: str
    before_bytes: int
    after_bytes: int
    vacuumed: bool
    warnings: tuple[str, ...] = ()
    """Why the file was not written anew, and what to stop."""


class Reclaim:
    """Wins the room of one home back."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        *,
        client: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._client = client
        self._clock = clock
        self._monotonic = monotonic

    def plan(self) -> Planned:
        """Plan to merge the search index, and to write the file anew where that can be."""
        sizes = self._db.sizes()
        if not sizes.db:
            return Planned("nothing", None, None, 0, ())
        in_the_way = self._in_the_way()
        won = 0 if in_the_way else sizes.free
        needed = 0 if in_the_way else 2 * (sizes.db - sizes.free)
        why = (
            f"the search index, about {sizes.index:,} bytes, is merged; "
            f"{sizes.free:,} bytes of the file are free"
        )
        plan = self._ledger.add_plan(
            KIND, [Member("index", why=why)], {"before_bytes": _taken(sizes)}
        )
        return Planned(
            "planned",
            plan.handle,
            plan.expires_at,
            1,
            (Item("index", None, why),),
            bytes=Bytes(needed_now=needed, won_now=won),
            warnings=(NO_UNDO, *([in_the_way] if in_the_way else [])),
        )

    def apply(
        self,
        handle: str,
        *,
        for_s: float = 20.0,
        progress: Progress | None = None,
        stop: Stop | None = None,
    ) -> Reclaimed:
        """Merge for so long at most, and write the file anew when that is done.

        Writing it anew takes as long as it takes; it is begun only while there is time.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has ended, or run out.
        """
        plan = self._ledger.plan(handle)
        if plan.kind != KIND:
            raise InvalidInput(f"plan {handle} is one to {plan.kind}; it is not applied here")
        if plan.state == "finished":
            return _of(plan.result)
        self._ledger.begin(handle)
        if self._is_cut_short(for_s, progress, stop):
            return self._reclaimed(plan, "partial", None, vacuumed=False)
        vacuumed, why_not = self._vacuum(progress)
        done = self._reclaimed(plan, "applied", why_not, vacuumed=vacuumed)
        self._ledger.finish(handle, asdict(done))
        with noting(KIND):
            counts = {"before": done.before_bytes, "after": done.after_bytes, "vacuum": vacuumed}
            self._ledger.audit(self._client, KIND, handle, counts)
        return done

    def _is_cut_short(self, for_s: float, progress: Progress | None, stop: Stop | None) -> bool:
        """Merge until there is nothing more to merge; say whether the time was over before."""
        began_at = self._monotonic()
        more = True
        while more:
            gone = (self._monotonic() - began_at) / for_s if for_s > 0 else 1.0
            if gone >= 1 or (stop is not None and stop()):
                return True
            if progress is not None:
                progress("merging the search index", gone)
            more = self._db.optimize_step()
        return stop is not None and stop()

    def _vacuum(self, progress: Progress | None) -> tuple[bool, str | None]:
        """Write the file anew; say whether that was done, or else why not."""
        if not self._db.sizes().free:
            return False, None
        in_the_way = self._in_the_way()
        if in_the_way is not None:
            return False, in_the_way
        if progress is not None:
            progress("writing the database anew", 1.0)
        try:
            self._db.vacuum()
        except (Busy, StorageFull) as error:
            return False, str(error)
        return True, None

    def _in_the_way(self) -> str | None:
        """Say what has to be stopped before the file can be written anew."""
        company = alive.company(self._db, self._clock())
        names = [company.gateway] if company.gateway else list(map(str, company.holders))
        if not names:
            return None
        return (
            f"the file keeps its free pages while {', '.join(names)} has it open; stop that, then "
            "plan this again"
        )

    def _reclaimed(
        self,
        plan: Plan,
        outcome: Literal["applied", "partial"],
        why_not: str | None,
        *,
        vacuumed: bool,
    ) -> Reclaimed:
        return Reclaimed(
            outcome,
            plan.handle,
            plan.about["before_bytes"],
            _taken(self._db.sizes()),
            vacuumed,
            () if why_not is None else (why_not,),
        )


def _taken(sizes: Sizes) -> int:
    return sizes.db + sizes.wal


def _of(stored: dict[str, Any]) -> Reclaimed:
    return Reclaimed(**{**stored, "warnings": tuple(stored["warnings"])})
