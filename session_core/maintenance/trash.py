"""The trash itself: what can be brought back, and what is emptied for good.

Emptying is the one change without an undo, and its plan says so. It empties exactly the batches
that the plan names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

from session_core.errors import InvalidInput
from session_core.ledger.execute import noting
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Batch, Member, Plan
from session_core.maintenance.apply.begin import begin
from session_core.maintenance.disk import BEFORE
from session_core.maintenance.select import protection
from session_core.maintenance.types import Applied, Bytes, Item, Preview, ProgressFn, StopFn, said

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

    def plan(
        self, older_than_days: float | None = None, batches: Sequence[str] | None = None
    ) -> Preview:
        """Plan to empty what has expired, batches of this age (0 days is all), or named batches.

        Raises:
            NotFound: there is no such batch.
            InvalidInput: both an age and batches are given.
        """
        if batches is not None and older_than_days is not None:
            raise InvalidInput("name batches or an age, not both")
        age = None if older_than_days is None else older_than_days * _DAY_S
        warnings = [] if batches is None else self._unfit(batches)
        ripe = self._ledger.ripe(age, batches=batches)
        if not ripe:
            return Preview("nothing", None, None, 0, (), warnings=tuple(warnings))
        now = self._clock()
        members = [Member(each.id, each.bytes, _why(each, now)) for each in ripe]
        about = said(
            (Item(each.id, None, each.why) for each in members),
            size=Bytes(returned_to_disk=sum(each.bytes for each in ripe)),
            warnings=[NO_UNDO, *warnings],
        )
        return Preview.of(self._ledger.add_plan(KIND, members, about))

    def _unfit(self, names: Sequence[str]) -> list[str]:
        """Return which of the named batches have no trash to empty, and why."""
        ripe = {each.id for each in self._ledger.ripe(batches=names)}
        named = [self._ledger.batch(name) for name in dict.fromkeys(names)]
        return [f"batch {each.id} {_unfit(each)}" for each in named if each.id not in ripe]

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
        plan = begin(self._ledger, handle, KIND, self._measure)
        if isinstance(plan, Applied):
            return plan
        until = self._monotonic() + for_s
        self._ledger.delete_content()  # the rest of what was emptied when a process died
        for batch in self._left(plan):
            if self._monotonic() >= until or (stop is not None and stop()):
                break
            self._ledger.empty(batches=[batch])
            if progress is not None:
                progress(self._answer(plan))
        done = self._answer(plan)
        return done if done.remaining else self._finish(plan, done)

    def _measure(self) -> dict[str, int]:
        return {"trash": self._ledger.bytes_on_disk()}

    def _left(self, plan: Plan) -> list[str]:
        """Return the batches of a plan that were not emptied yet."""
        batches = (self._ledger.batch(member.id) for member in plan.members)
        return [each.id for each in batches if each.emptied_at is None]

    def _answer(self, plan: Plan) -> Applied:
        left = self._left(plan)
        taken = plan.about.get(BEFORE, self._measure())["trash"]
        size = Bytes(returned_to_disk=max(taken - self._measure()["trash"], 0))
        removed = len(plan.members) - len(left)
        outcome: Literal["applied", "partial"] = "partial" if left else "applied"
        return Applied(outcome, plan.handle, None, removed, 0, (), len(left), bytes=size)

    def _finish(self, plan: Plan, done: Applied) -> Applied:
        self._ledger.finish(plan.handle, done.stored())
        with noting(KIND):
            counts = {"removed": done.removed, "bytes": done.bytes.returned_to_disk}
            self._ledger.audit(self._client, KIND, plan.handle, counts)
        return done


def _why(batch: Batch, now: float) -> str:
    expired = "; it has expired" if batch.expires_at <= now else ""
    return f"{batch.what} of {batch.count:,}, {protection.ago(batch.at, now)}{expired}"


def _unfit(batch: Batch) -> str:
    if batch.undone_at is not None:
        return "was restored, and its trash deleted with that"
    if batch.emptied_at is not None:
        return "was emptied already"
    if batch.bytes:
        return "is still being applied; end its plan first"
    return "has no trash"
