"""`AsyncCompressor`: the compressor for coroutines, with each call in a worker thread.

Each name is the method of the same name of `Compressor`. A cancelled caller gets control back at
once, and a change that has begun finishes. An async summarizer runs on the caller's loop.
"""

from __future__ import annotations

from session_core.aio import AsyncWrapper, make_async
from session_core.compression.compressor import Compressor
from session_core.routing.store import SessionStore


class AsyncCompressor(AsyncWrapper[Compressor]):
    """Wraps a compressor; `Compressor` documents the methods."""

    def __init__(self, compressor: Compressor) -> None:
        super().__init__(compressor)
        self.compressor = compressor

    def with_store(self, store: SessionStore) -> AsyncCompressor:
        """Return a compressor with a store and its hooks, if this one was given neither."""
        return AsyncCompressor(self.compressor.with_store(store))

    is_due = make_async(Compressor.is_due)
    plan = make_async(Compressor.plan)
    check = make_async(Compressor.check)
    apply = make_async(Compressor.apply)
    undo = make_async(Compressor.undo)
    plan_undo = make_async(Compressor.plan_undo)
    compress = make_async(Compressor.compress)
    apply_undo = make_async(Compressor.apply_undo)
