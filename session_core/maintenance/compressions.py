"""Restore compressions through the same methods as other batches."""

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
    """Undoes compressions of one home."""

    KIND = UNDO
    """The kind of plans that this class applies."""

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
        """Return True if a batch is a compression.

        Raises:
            NotFound: the batch does not exist.
        """
        self._ledger.get_batch(batch)
        steps = self._ledger.list_steps(batch)
        return any(isinstance(step.result, dict) and "compressed" in step.result for step in steps)

    def preview_undo(self, batch: str) -> RestorePreview | UndoPlan:
        """Return a preview of undoing a compression, or a plan if that would drop messages."""
        with self._create_compressor() as compressor:
            plan = compressor.plan_undo(batch)
        if plan is not None:
            return plan
        # A compression is a single step.
        (step,) = self._ledger.list_steps(batch)
        compression = CompressionResult.from_json(step.result["compressed"])
        reason = f"{compression.tokens_after:,} tokens become {compression.tokens_before:,} again"
        return RestorePreview(
            self._ledger.get_batch(batch), 1, (PlanItem(compression.old_session_id, None, reason),)
        )

    def undo_batch(self, batch: str) -> UndoResult | UndoPlan:
        """Undo a compression, or plan it if that would drop messages."""
        with self._create_compressor() as compressor:
            return compressor.undo(batch)

    def apply_plan(self, plan: str) -> UndoResult:
        """Undo a compression by its plan."""
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
