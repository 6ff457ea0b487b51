"""Empty the trash by a plan.

Emptying is the only change without an undo, and its plan has a warning about that. It empties
exactly the batches of the plan.
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

NO_UNDO_WARNING = "this has no undo: emptied trash can never be restored"

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
        """Plan to empty expired batches, batches of an age (0 days: all), or named batches.

        Raises:
            NotFound: the batch does not exist.
            InvalidInput: both an age and batches are given.
        """
        if batches is not None and older_than_days is not None:
            raise InvalidInput("name batches or an age, not both")
        age = None if older_than_days is None else older_than_days * _DAY_S
        warnings = [] if batches is None else self._list_refused(batches)
        expired = self._ledger.list_expired_batches(age, batches=batches)
        if not expired:
            return PlanPreview("nothing", None, None, 0, (), warnings=tuple(warnings))
        now = self._clock()
        members = [Member(batch.id, batch.bytes, _describe_reason(batch, now)) for batch in expired]
        about = to_recorded(
            (PlanItem(batch.id, None, batch.why) for batch in members),
            size=Bytes(returned_to_disk=sum(batch.bytes for batch in expired)),
            warnings=[NO_UNDO_WARNING, *warnings],
        )
        return PlanPreview.from_plan(self._ledger.add_plan(PLAN_KIND, members, about))

    def _list_refused(self, names: Sequence[str]) -> list[str]:
        """Return a warning for each named batch without trash to empty."""
        expired = {batch.id for batch in self._ledger.list_expired_batches(batches=names)}
        named = [self._ledger.get_batch(name) for name in dict.fromkeys(names)]
        return [
            f"batch {batch.id} {_explain_refusal(batch)}"
            for batch in named
            if batch.id not in expired
        ]

    def apply_plan(
        self,
        handle: str,
        *,
        for_s: float = 20.0,
        progress: ProgressFn | None = None,
        stop: StopFn | None = None,
    ) -> ApplyResult:
        """Empty the batches of a plan, for at most `for_s` seconds.

        Raises:
            NotFound: the plan does not exist.
            Conflict: the plan has ended or expired.
        """
        plan = begin_plan(self._ledger, handle, PLAN_KIND, self._measure_files)
        if isinstance(plan, ApplyResult):
            return plan
        deadline = self._monotonic() + for_s
        self._ledger.delete_content()  # the rest of a batch that a dead process was emptying
        for batch in self._list_remaining(plan):
            if self._monotonic() >= deadline or (stop is not None and stop()):
                break
            # One batch at a time, so that a stopped call has finished the earlier ones.
            self._ledger.empty_trash(batches=[batch])
            if progress is not None:
                progress(self._build_result(plan))
        result = self._build_result(plan)
        return result if result.remaining else self._finish_plan(plan, result)

    def _measure_files(self) -> dict[str, int]:
        return {"trash": self._ledger.count_disk_bytes()}

    def _list_remaining(self, plan: StoredPlan) -> list[str]:
        """Return the batches of a plan that are not emptied yet."""
        batches = (self._ledger.get_batch(member.id) for member in plan.members)
        return [batch.id for batch in batches if batch.emptied_at is None]

    def _build_result(self, plan: StoredPlan) -> ApplyResult:
        remaining = self._list_remaining(plan)
        before = plan.about.get(BEFORE_KEY, self._measure_files())["trash"]
        size = Bytes(returned_to_disk=max(before - self._measure_files()["trash"], 0))
        removed = len(plan.members) - len(remaining)
        outcome: Literal["applied", "partial"] = "partial" if remaining else "applied"
        return ApplyResult(outcome, plan.handle, None, removed, 0, (), len(remaining), bytes=size)

    def _finish_plan(self, plan: StoredPlan, result: ApplyResult) -> ApplyResult:
        self._ledger.finish_plan(plan.handle, result.to_json())
        with suppress_note_errors(PLAN_KIND):
            counts = {"removed": result.removed, "bytes": result.bytes.returned_to_disk}
            self._ledger.add_audit_entry(self._client, PLAN_KIND, plan.handle, counts)
        return result


def _describe_reason(batch: Batch, now: float) -> str:
    expired = "; it has expired" if batch.expires_at <= now else ""
    return f"{batch.what} of {batch.count:,}, {protection.format_age(batch.at, now)}{expired}"


def _explain_refusal(batch: Batch) -> str:
    if batch.undone_at is not None:
        return "was restored, which deleted its trash"
    if batch.emptied_at is not None:
        return "was emptied already"
    if batch.bytes:
        return "is still being applied; end its plan first"
    return "has no trash"
