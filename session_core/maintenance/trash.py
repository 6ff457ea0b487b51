"""The trash itself: what can be brought back, and what is emptied for good.

Emptying is the one change without an undo, and its plan says so. It empties exactly the batches
that the plan names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

from session_core.errors import InvalidInput
from session_core.ledger.execute import suppress_note_errors
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Batch, Member, StoredPlan
from session_core.maintenance.apply.begin import begin_plan
from session_core.maintenance.disk import BEFORE_KEY
from session_core.maintenance.select import protection
from session_core.maintenance.types import (
    ApplyResult,
    Bytes,
    PlanItem,
    PlanPreview,
    ProgressFn,
    StopFn,
    to_recorded,
)

PLAN_KIND = "prune trash"

NO_UNDO_WARNING = "this has no undo: what is emptied can never be restored"

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

    def plan_emptying(
        self, older_than_days: float | None = None, batches: Sequence[str] | None = None
    ) -> PlanPreview:
        """Plan to empty what has expired, batches of this age (0 days is all), or named batches.

        Raises:
            NotFound: there is no such batch.
            InvalidInput: both an age and batches are given.
        """
        if batches is not None and older_than_days is not None:
            raise InvalidInput("name batches or an age, not both")
        age = None if older_than_days is None else older_than_days * _DAY_S
        warnings = [] if batches is None else self._list_refused(batches)
        ripe = self._ledger.list_expired_batches(age, batches=batches)
        if not ripe:
            return PlanPreview("nothing", None, None, 0, (), warnings=tuple(warnings))
        now = self._clock()
        members = [Member(each.id, each.bytes, _describe_reason(each, now)) for each in ripe]
        about = to_recorded(
            (PlanItem(each.id, None, each.why) for each in members),
            size=Bytes(returned_to_disk=sum(each.bytes for each in ripe)),
            warnings=[NO_UNDO_WARNING, *warnings],
        )
        return PlanPreview.from_plan(self._ledger.add_plan(PLAN_KIND, members, about))

    def _list_refused(self, names: Sequence[str]) -> list[str]:
        """Return which of the named batches have no trash to empty, and why."""
        ripe = {each.id for each in self._ledger.list_expired_batches(batches=names)}
        named = [self._ledger.get_batch(name) for name in dict.fromkeys(names)]
        return [
            f"batch {each.id} {_explain_refusal(each)}" for each in named if each.id not in ripe
        ]

    def apply_plan(
        self,
        handle: str,
        *,
        for_s: float = 20.0,
        progress: ProgressFn | None = None,
        stop: StopFn | None = None,
    ) -> ApplyResult:
        """Empty the batches of a plan, for so long at most.

        Raises:
            NotFound: there is no such plan.
            Conflict: it has ended, or run out.
        """
        plan = begin_plan(self._ledger, handle, PLAN_KIND, self._measure_files)
        if isinstance(plan, ApplyResult):
            return plan
        until = self._monotonic() + for_s
        self._ledger.delete_content()  # the rest of what was emptied when a process died
        for batch in self._list_remaining(plan):
            if self._monotonic() >= until or (stop is not None and stop()):
                break
            self._ledger.empty_trash(batches=[batch])
            if progress is not None:
                progress(self._build_result(plan))
        done = self._build_result(plan)
        return done if done.remaining else self._finish_plan(plan, done)

    def _measure_files(self) -> dict[str, int]:
        return {"trash": self._ledger.count_disk_bytes()}

    def _list_remaining(self, plan: StoredPlan) -> list[str]:
        """Return the batches of a plan that were not emptied yet."""
        batches = (self._ledger.get_batch(member.id) for member in plan.members)
        return [each.id for each in batches if each.emptied_at is None]

    def _build_result(self, plan: StoredPlan) -> ApplyResult:
        left = self._list_remaining(plan)
        taken = plan.about.get(BEFORE_KEY, self._measure_files())["trash"]
        size = Bytes(returned_to_disk=max(taken - self._measure_files()["trash"], 0))
        removed = len(plan.members) - len(left)
        outcome: Literal["applied", "partial"] = "partial" if left else "applied"
        return ApplyResult(outcome, plan.handle, None, removed, 0, (), len(left), bytes=size)

    def _finish_plan(self, plan: StoredPlan, done: ApplyResult) -> ApplyResult:
        self._ledger.finish_plan(plan.handle, done.to_json())
        with suppress_note_errors(PLAN_KIND):
            counts = {"removed": done.removed, "bytes": done.bytes.returned_to_disk}
            self._ledger.add_audit_entry(self._client, PLAN_KIND, plan.handle, counts)
        return done


def _describe_reason(batch: Batch, now: float) -> str:
    expired = "; it has expired" if batch.expires_at <= now else ""
    return f"{batch.what} of {batch.count:,}, {protection.format_age(batch.at, now)}{expired}"


def _explain_refusal(batch: Batch) -> str:
    if batch.undone_at is not None:
        return "was restored, and its trash deleted with that"
    if batch.emptied_at is not None:
        return "was emptied already"
    if batch.bytes:
        return "is still being applied; end its plan first"
    return "has no trash"
