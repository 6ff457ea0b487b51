"""Begin plans that are applied without steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from session_core.errors import InvalidInput
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import StoredPlan
from session_core.maintenance.disk import BEFORE_KEY
from session_core.maintenance.types import ApplyResult


def begin_plan(
    ledger: Ledger, handle: str, kind: str, measure: Callable[[], Mapping[str, int]]
) -> StoredPlan | ApplyResult:
    """Begin to apply a plan of a kind; return its result if it was applied before.

    Record the return value of `measure` with the plan when it is begun for the first time.

    Raises:
        NotFound: the plan does not exist.
        InvalidInput: the plan has another kind.
        Conflict: the plan has ended or expired.
    """
    plan = ledger.get_plan(handle)
    if plan.kind != kind:
        raise InvalidInput(f"plan {handle} has the kind {plan.kind!r}, not {kind!r}")
    if plan.state == "finished":
        return ApplyResult.from_json(plan.result)
    # Only the first call measures: a later one would count space that the plan itself has freed.
    if plan.state == "planned":
        ledger.begin_plan(handle, {BEFORE_KEY: measure()})
        return ledger.get_plan(handle)
    ledger.begin_plan(handle)
    return plan
