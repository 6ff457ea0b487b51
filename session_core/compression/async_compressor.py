"""`AsyncCompressor`: the same compressor for coroutines, each call in a worker thread.

It holds no logic: each name below is the method of that name. A cancelled caller gets control back
at once, and what has begun finishes. An async summarizer runs on the loop of the caller.
"""

from __future__ import annotations

from session_core.aio import AsyncWrapper, make_async
from session_core.compression.compressor import Compressor
from session_core.routing.store import SessionStore


class AsyncCompressor(AsyncWrapper[Compressor]):
    """Wraps a compressor; what the methods do is said there."""

    def __init__(self, compressor: Compressor) -> None:
        super().__init__(compressor)
        self.compressor = compressor

    def with_store(self, store: SessionStore) -> AsyncCompressor:
        """Return it with a store and its hooks, unless it has some already."""
        return AsyncCompressor(self.compressor.with_store(store))

    is_due = make_async(Compressor.is_due)
    plan = make_async(Compressor.plan)
    check = make_async(Compressor.check)
    apply = make_async(Compressor.apply)
    undo = make_async(Compressor.undo)
    plan_undo = make_async(Compressor.plan_undo)
    compress = make_async(Compressor.compress)
    apply_undo = make_async(Compressor.apply_undo)
