"""Members that a plan leaves although a part of them is gone: they are put back whole.

What is owed to them is noted in the ledger before, so that whoever takes up what a crash has left
goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from session_core.errors import Corrupt
from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Half, Step
from session_core.maintenance.members import sessions_of
from session_core.maintenance.restoring import WHAT
from session_core.maintenance.undoing import Undoing
from session_core.maintenance.waiting import wait_for

BACK = "; what was gone of it is back"


class Returning:
    """Puts members back of the plans of one home."""

    def __init__(self, ledger: Ledger, undoing: Undoing, settle: Callable[[], None]) -> None:
        self._ledger = ledger
        self._undoing = undoing
        self._settle = settle

    def steps(self, half: Half) -> Iterator[None]:
        """Put a member back, the newest step of its removal first; each of them is one yield.

        Raises:
            Conflict: somebody else does that just now.
        """
        ids = sessions_of(half.member)
        wait_for(self._ledger, half.batch, self._settle)
        unfit = 0
        taken = [step for step in self._ledger.steps(half.batch) if _has_taken(step, ids)]
        batch = self._ledger.add_batch(WHAT).id if taken else ""
        for step in reversed(taken):
            try:
                back = self._undoing.part(batch, step, ids)
            except Corrupt:
                unfit += 1
            else:
                unfit += 0 if back is None else len(back["unfit"])
            yield
        more = f" but for what does not fit: restore {half.batch} says what" if unfit else ""
        self._ledger.end_half(half.plan, half.member.id, BACK + more)


def _has_taken(step: Step, ids: frozenset[str]) -> bool:
    """Whether a step that was not taken back has taken something of these sessions."""
    result = step.result or {}
    return step.undone_at is None and not ids.isdisjoint(
        {*result.get("after", ()), *result.get("sessions", ())}
    )
