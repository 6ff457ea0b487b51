"""Waits for what somebody else is about to do to the same batch."""

from __future__ import annotations

import time
from collections.abc import Callable

from session_core.errors import Busy
from session_core.ledger.ledger import Ledger

PAUSE_S = 0.01
_PATIENCE_S = 30.0
"""So long somebody else's step may take."""


def wait_for(ledger: Ledger, batch: str, settle: Callable[[], None]) -> None:
    """Wait until the steps of a batch are over that somebody runs or takes back just now.

    Those that come later are not waited for: who is at it has the next one ready before.

    Raises:
        Busy: that takes long.
    """
    until = time.monotonic() + _PATIENCE_S
    left = under_way(ledger, batch, settle)
    while left:
        if time.monotonic() >= until:
            raise Busy(f"somebody else is at work on batch {batch} and takes long; try again")
        time.sleep(PAUSE_S)
        left &= under_way(ledger, batch, settle)


def under_way(ledger: Ledger, batch: str, settle: Callable[[], None]) -> set[str]:
    """Return the steps of a batch that somebody else runs, and those that take them back."""
    settle()
    steps = {step.id for step in ledger.steps(batch)}
    return {
        step.id
        for step in ledger.unsettled()
        if (step.batch == batch or step.undoes in steps) and step.state in ("writing", "prepared")
    }
