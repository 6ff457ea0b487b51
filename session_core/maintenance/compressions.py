"""Restore compressions through the same methods as other batches."""

from __future__ import annotations

from session_core.compression.compressor import Compressor
from session_core.compression.types import CompressionResult, UndoPlan, UndoResult
from session_core.ledger.types import StoredPlan
from session_core.maintenance.context import HomeContext
from session_core.maintenance.types import ApplyRequest, PlanItem, RestorePreview


def is_compression(home: HomeContext, batch: str) -> bool:
    """Return True if a batch is a compression.

    Raises:
        NotFound: the batch does not exist.
    """
    home.ledger.get_batch(batch)
    steps = home.ledger.list_steps(batch)
    return any(isinstance(step.result, dict) and "compressed" in step.result for step in steps)


def preview_undo(home: HomeContext, batch: str) -> RestorePreview | UndoPlan:
    """Return a preview of undoing a compression, or a plan if that would drop messages."""
    with create_compressor(home) as compressor:
        plan = compressor.plan_undo(batch)
    if plan is not None:
        return plan
    # A compression is a single step.
    (step,) = home.ledger.list_steps(batch)
    compression = CompressionResult.from_json(step.result["compressed"])
    reason = f"{compression.tokens_after:,} tokens become {compression.tokens_before:,} again"
    return RestorePreview(
        home.ledger.get_batch(batch), 1, (PlanItem(compression.old_session_id, None, reason),)
    )


def undo_batch(home: HomeContext, batch: str, client: str) -> UndoResult | UndoPlan:
    """Undo a compression, or plan it if that would drop messages."""
    with create_compressor(home) as compressor:
        return compressor.undo(batch, client=client)


def apply_plan(home: HomeContext, plan: StoredPlan, request: ApplyRequest) -> UndoResult:
    """Undo a compression by its plan, in one step."""
    with create_compressor(home) as compressor:
        return compressor.apply_undo(plan.handle, client=request.client)


def create_compressor(home: HomeContext) -> Compressor:
    """Return a compressor of the home."""
    return Compressor(home.db, home.ledger, store=home.store, hooks=home.hooks, clock=home.clock)
