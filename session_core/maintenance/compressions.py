"""What compression has done and plans to take back, through the same face as all else."""

from __future__ import annotations

from collections.abc import Callable

from session_core.compression.compressor import Compressor
from session_core.compression.types import UNDO, CompressionResult, UndoPlan, UndoResult
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.maintenance.types import PlanItem, RestorePreview
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase


class CompressionRestorer:
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

    def is_compression(self, batch: str) -> bool:
        """Whether a batch is of a compression.

        Raises:
            NotFound: there is no such batch.
        """
        self._ledger.get_batch(batch)
        steps = self._ledger.list_steps(batch)
        return any(isinstance(s.result, dict) and "compressed" in s.result for s in steps)

    def preview_undo(self, batch: str) -> RestorePreview | UndoPlan:
        """Return what taking a compression back would do; where that drops something, a plan."""
        with self._create_compressor() as compressor:
            planned = compressor.plan_undo(batch)
        if planned is not None:
            return planned
        (step,) = self._ledger.list_steps(batch)
        done = CompressionResult.from_json(step.result["compressed"])
        why = f"{done.tokens_after:,} tokens become {done.tokens_before:,} again"
        return RestorePreview(
            self._ledger.get_batch(batch), 1, (PlanItem(done.old_session_id, None, why),)
        )

    def undo_batch(self, batch: str) -> UndoResult | UndoPlan:
        """Take a compression back; where that drops something, plan it."""
        with self._create_compressor() as compressor:
            return compressor.undo(batch)

    def apply_plan(self, plan: str) -> UndoResult:
        """Take a compression back as it was planned."""
        with self._create_compressor() as compressor:
            return compressor.apply_undo(plan)

    def _create_compressor(self) -> Compressor:
        return Compressor(
            self._db,
            self._ledger,
            store=self._store,
            hooks=self._hooks,
            client=self._client,
            clock=self._clock,
        )
