"""The trash itself: what can be brought back, and what is emptied for good.

Emptying is the one change without an undo, and its plan says so. It empties exactly the batches
that the plan names.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Batch, Member, Plan
from session_core.ledger.steps import noting
from session_core.maintenance import wording
from session_core.maintenance.answers import Applied, Bytes, Item, Preview, ProgressFn, StopFn, said
from session_core.maintenance.beginning import begin

KIND = "prune trash"

NO_UNDO = "this has no undo: what is emptied can never be restored"

_DAY_S = 86_400.0


class Trash:
    """The trash of one home."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        client: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._client = client
        self._clock = clock
        self._monotonic = monotonic

    def plan(self, older_than_days: float | None = None) -> Preview:
        """Plan to empty what has expired, or the batches that are so old; 0 days is all of them."""
        age = None if older_than_days is None else older_than_days * _DAY_S
        ripe = self._ledger.ripe(age)
        if not ripe:
            return Preview("nothing", None, None, 0, ())
        now = self._clock()
        members = [Member(each.id, each.bytes, _why(each, now)) for each in ripe]
        about = said(
            (Item(each.id, None, each.why) for each in members),
            size=Bytes(won_now=sum(each.bytes for each in ripe)),
            warnings=[NO_UNDO],
        )
        return Preview.of(self._ledger.add_plan(KIND, members, about))

    def apply(
        self,
        handle: str,
        *,
        for_s: float = 20.0,
        progress: ProgressFn | None = None,
        stop: StopFn | None = None,
    ) -> Applied:
        """Empty the batches of a plan, for so long at most.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has ended, or run out.
        """
        plan = begin(self._ledger, handle, KIND)
        if isinstance(plan, Applied):
            return plan
        until = self._monotonic() + for_s
        self._ledger.empty(batches=[])  # the rest of what was emptied when a process died
        for batch in self._left(plan):
            if self._monotonic() >= until or (stop is not None and stop()):
                break
            self._ledger.empty(batches=[batch])
            if progress is not None:
                progress(self._answer(plan))
        done = self._answer(plan)
        return done if done.remaining else self._finish(plan, done)

    def _left(self, plan: Plan) -> list[str]:
        """Return the batches of a plan that were not emptied yet."""
        batches = (self._ledger.batch(member.id) for member in plan.members)
        return [each.id for each in batches if each.emptied_at is None]

    def _answer(self, plan: Plan) -> Applied:
        left = self._left(plan)
        won = sum(member.revision for member in plan.members if member.id not in left)
        removed = len(plan.members) - len(left)
        outcome: Literal["applied", "partial"] = "partial" if left else "applied"
        return Applied(outcome, plan.handle, None, removed, 0, (), len(left), won=won)

    def _finish(self, plan: Plan, done: Applied) -> Applied:
        self._ledger.finish(plan.handle, done.stored())
        with noting(KIND):
            counts = {"removed": done.removed, "bytes": done.won}
            self._ledger.audit(self._client, KIND, plan.handle, counts)
        return done


def _why(batch: Batch, now: float) -> str:
    expired = "; it has expired" if batch.expires_at <= now else ""
    undone = "; it was undone" if batch.undone_at is not None else ""
    return f"{batch.what} of {batch.count:,}, {wording.ago(batch.at, now)}{expired}{undone}"
