"""An interrupt at any point of the ledger: the call has its whole effect or none.

A signal handler runs where a function begins and where a call ends, so the interrupt is raised
there; for a context manager made of a generator, this includes the step before the generator's end.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from session_core import ledger as package
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.types import Member, TrashItem
from tests.interrupts import make_interrupting_profiler, run_beside_thread

PLACES = (str(Path(package.__file__).parent), contextlib.__file__)

CALLS: dict[str, Callable[[Ledger], object]] = {
    "a change": lambda ledger: ledger.add_plan("kind", [Member("a"), Member("b")], {}),
    "a look": lambda ledger: ledger.list_batches(),
    "a step": lambda ledger: ledger.prepare_step(
        "s-1", ledger.add_batch("what").id, [TrashItem("row", 1)]
    ),
}


@pytest.mark.needs_files
@pytest.mark.requirement("ledger:interrupts")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_interrupted_ledger_still_works(
    folder: StateFolder, open_ledger: Callable[..., Ledger], call: Callable[[Ledger], object]
) -> None:
    ledger, other = (open_ledger(patience_s=0.0) for _ in range(2))
    ledger.add_audit_entry("before", "change", None, {})
    place = 0
    while run_interrupted(
        ledger, call, place, lambda: other.add_audit_entry("another", "change", None, {})
    ):
        place += 1
        ledger.add_audit_entry("after", "change", None, {})
        for step in ledger.list_unsettled_steps():
            ledger.abort_step(step.id)
    assert place > 20
    assert len(ledger.list_audit_entries(limit=10_000).items) == 1 + 3 * place


def run_interrupted(
    ledger: Ledger, call: Callable[[Ledger], object], place: int, beside: Callable[[], object]
) -> bool:
    """Make a call with an interrupt at the nth point, and return whether it has that many points.

    The exception keeps the interrupted frames alive while this ledger and another one continue.
    """
    before = sys.getprofile()
    try:
        sys.setprofile(make_interrupting_profiler(place, PLACES))
        call(ledger)
    except KeyboardInterrupt:
        sys.setprofile(before)
        run_beside_thread(lambda: ledger.add_audit_entry("meanwhile", "change", None, {}))
        beside()
        return True
    finally:
        sys.setprofile(before)
    return False
