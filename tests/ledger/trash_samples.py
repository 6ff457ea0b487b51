"""Trash of steps for tests, and steps without a home."""

from __future__ import annotations

import random
from collections.abc import Iterable

from session_core.ledger.ledger import Ledger
from session_core.ledger.storage import make_step_id
from session_core.ledger.types import TrashItem

ROWS = [
    TrashItem("messages", {"id": n, "content": f"said {n}", "blob": b"\0\xff"}) for n in range(3)
]


def prepare_trash(
    ledger: Ledger, batch: str, kept: Iterable[TrashItem] = ROWS, **more: object
) -> str:
    """Run a step of a batch without a home."""
    step = make_step_id()
    ledger.prepare_step(step, batch, kept, **more)  # type: ignore[arg-type]
    ledger.finish_step(step, {"of": step})
    return step


def make_large_trash(seed: int = 1, count: int = 40) -> Iterable[TrashItem]:
    """Return some megabytes of trash that cannot be compressed."""
    chance = random.Random(seed)
    return (
        TrashItem("file", {"number": n, "bytes": chance.randbytes(100_000)}) for n in range(count)
    )


def undo_step(ledger: Ledger, step: str) -> None:
    """Record a step as undone, as `run_step` does."""
    back = make_step_id()
    ledger.prepare_step(back, ledger.add_batch("restore").id, [], undoes=step)
    ledger.finish_step(back, {})
