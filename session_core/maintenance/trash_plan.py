"""Empty the trash by a plan.

Emptying is the only change without an undo, and its plan has a warning about that. It empties
exactly the batches of the plan. `session_core.ledger.trash` decides how long trash is kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

from session_core.errors import InvalidInput
from session_core.ledger.execute import suppress_note_errors
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Batch, Member, StoredPlan
from session_core.maintenance import disk
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.select import protection
from session_core.maintenance.types import (
    ApplyRequest,
    ApplyResult,
    Bytes,
    PlanItem,
    PlanPreview,
    PlanRequest,
    to_recorded,
)

NO_UNDO_WARNING = "this has no undo: emptied trash can never be restored"

_DAY_S = 86_400.0


def make_plan(home: HomeContext, request: PlanRequest) -> PlanPreview:
    """Plan to empty expired batches, batches of a minimum age, or named batches.

    An age of 0 days selects all batches.

    Raises:
        NotFound: the batch does not exist.
        InvalidInput: both an age and batches are given.
    """
    batches, older_than_days = request.ids, request.older_than_days
    if batches is not None and older_than_days is not None:
        raise InvalidInput("name batches or an age, not both")
    age = None if older_than_days is None else older_than_days * _DAY_S
    warnings = [] if batches is None else _list_refusal_warnings(home.ledger, batches)
    expired = home.ledger.list_expired_batches(age, batches=batches)
    if not expired:
        return PlanPreview("nothing", None, None, 0, (), warnings=tuple(warnings))
    now = home.clock()
    members = [Member(batch.id, batch.bytes, _describe_reason(batch, now)) for batch in expired]
    about = to_recorded(
        (PlanItem(batch.id, None, batch.why) for batch in members),
        size=Bytes(returned_to_disk=sum(batch.bytes for batch in expired)),
        warnings=[NO_UNDO_WARNING, *warnings],
    )
    return PlanPreview.from_plan(home.ledger.add_plan(request.kind, members, about))


def apply_plan(home: HomeContext, plan: StoredPlan, request: ApplyRequest) -> ApplyResult:
    """Empty the batches of a plan within the time limit.

    Raises:
        Conflict: the plan has ended or expired.
    """
    if plan.state == "finished":
        return ApplyResult.from_json(plan.result)
    ledger = home.ledger
    plan = disk.begin_plan(ledger, plan, lambda: _measure_files(ledger))
    deadline = time.monotonic() + request.for_s
    ledger.delete_content()  # the rest of a batch that a dead process was emptying
    for batch in _list_remaining(ledger, plan):
        if time.monotonic() >= deadline or (request.stop is not None and request.stop()):
            break
        # One batch at a time, so that a stopped call has finished the earlier batches.
        ledger.empty_trash(batches=[batch])
        if request.progress is not None:
            request.progress(_build_result(ledger, plan))
    result = _build_result(ledger, plan)
    if not result.remaining:
        ledger.finish_plan(plan.handle, result.to_json())
        with suppress_note_errors(plan.kind):
            counts = {"removed": result.removed, "bytes": result.bytes.returned_to_disk}
            ledger.add_audit_entry(request.client, plan.kind, plan.handle, counts)
    return result


def _list_refusal_warnings(ledger: Ledger, names: Sequence[str]) -> list[str]:
    """Return a warning for each named batch without trash to empty."""
    expired = {batch.id for batch in ledger.list_expired_batches(batches=names)}
    named = [ledger.get_batch(name) for name in dict.fromkeys(names)]
    return [
        f"batch {batch.id} {_explain_refusal(batch)}" for batch in named if batch.id not in expired
    ]


def _measure_files(ledger: Ledger) -> dict[str, int]:
    return {"trash": ledger.count_disk_bytes()}


def _list_remaining(ledger: Ledger, plan: StoredPlan) -> list[str]:
    """Return the batches of a plan that are not emptied yet."""
    batches = (ledger.get_batch(member.id) for member in plan.members)
    return [batch.id for batch in batches if batch.emptied_at is None]


def _build_result(ledger: Ledger, plan: StoredPlan) -> ApplyResult:
    remaining = _list_remaining(ledger, plan)
    before = plan.about.get(disk.BEFORE_KEY, _measure_files(ledger))["trash"]
    size = Bytes(returned_to_disk=max(before - _measure_files(ledger)["trash"], 0))
    removed = len(plan.members) - len(remaining)
    outcome: Literal["applied", "partial"] = "partial" if remaining else "applied"
    return ApplyResult(outcome, plan.handle, None, removed, 0, (), len(remaining), bytes=size)


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
