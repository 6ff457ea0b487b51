"""What became of a plan that was being applied, also where the process that did it has died."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from session_core.errors import Conflict, SessionError
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Plan
from session_core.ledger.steps import noting, resume
from session_core.state.contract import StateDatabase

COMPRESS = "compress"

UNDO = "undo a compression"

KINDS = (COMPRESS, UNDO)
"""What plans and batches of compressions are called."""


def taken_up(db: StateDatabase, ledger: Ledger, plan: Plan) -> Plan:
    """Return a plan of one step as it is once that is decided."""
    resume(db, ledger, KINDS)
    plan = ledger.plan(plan.handle)
    step = plan.members[0].step
    if plan.state != "applying" or step is None or ledger.step(step).state != "done":
        return plan
    with suppress(Conflict):  # whoever else applies it has ended it
        ledger.finish(plan.handle, ledger.step(step).result)
    return ledger.plan(plan.handle)


def finish(ledger: Ledger, plan: str, result: Any) -> None:
    """End a plan whose step was done; where that cannot be noted now, `taken_up` does it."""
    with noting(f"what plan {plan} came to"), suppress(Conflict):
        ledger.finish(plan, result)


def close(db: StateDatabase, ledger: Ledger, handle: str) -> None:
    """End a plan that came to nothing; one whose step was done is finished."""
    with suppress(SessionError):  # it runs out by itself
        plan = ledger.plan(handle)
        if plan.state == "applying":
            plan = taken_up(db, ledger, plan)
        if plan.state in ("planned", "applying") and plan.members[0].step is None:
            ledger.close_plan(handle)
