"""What compression has done and plans to take back, through the same face as all else."""

from __future__ import annotations

from collections.abc import Callable

from session_core.compression.compressor import Compressor
from session_core.compression.types import UNDO, Compressed, Undone, UndoPlanned
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.maintenance.types import Coming, Item
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase


class Compressions:
    """Takes the compressions of one home back."""

    KIND = UNDO
    """The plans that are applied here."""

    def __init__(
        self,
        db: StateDatabase,
        ledger: Ledger,
        store: SessionStore | None,
        hooks: Hooks,
        *,
        client: str,
        clock: Callable[[], float],
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._store = store
        self._hooks = hooks
        self._client = client
        self._clock = clock

    def have(self, batch: str) -> bool:
        """Whether a batch is of a compression.

        Raises:
            NotFound: there is no such batch.
        """
        self._ledger.batch(batch)
        steps = self._ledger.steps(batch)
        return any(isinstance(s.result, dict) and "compressed" in s.result for s in steps)

    def coming(self, batch: str) -> Coming | UndoPlanned:
        """Return what taking a compression back would do; where that drops something, a plan."""
        with self._compressor() as compressor:
            planned = compressor.plan_undo(batch)
        if planned is not None:
            return planned
        (step,) = self._ledger.steps(batch)
        done = Compressed.of(step.result["compressed"])
        why = f"{done.tokens_after:,} tokens become {done.tokens_before:,} again"
        return Coming(self._ledger.batch(batch), 1, (Item(done.old_session_id, None, why),))

    def undo(self, batch: str) -> Undone | UndoPlanned:
        """Take a compression back; where that drops something, plan it."""
        with self._compressor() as compressor:
            return compressor.undo(batch)

    def apply(self, plan: str) -> Undone:
        """Take a compression back as it was planned."""
        with self._compressor() as compressor:
            return compressor.apply_undo(plan)

    def _compressor(self) -> Compressor:
        return Compressor(
            self._db,
            self._ledger,
            store=self._store,
            hooks=self._hooks,
            client=self._client,
            clock=self._clock,
        )
