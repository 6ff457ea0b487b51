"""`AsyncCompressor`: the same compressor for coroutines, each call in a thread of its own.

It holds no logic: each name below is the method of that name. What was begun is finished even if
its task is cancelled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from session_core.compression.callables import Summarizer
from session_core.compression.compressor import Compressor
from session_core.compression.records import Compressed
from session_core.isolated import off_loop, running_loop

P = ParamSpec("P")
R = TypeVar("R")


def _in_thread(
    method: Callable[Concatenate[Compressor, P], R],
) -> Callable[Concatenate[AsyncCompressor, P], Awaitable[R]]:
    @wraps(method)
    async def call(self: AsyncCompressor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await off_loop(partial(method, self.compressor, *args, **kwargs), to_its_end=True)

    return call


class AsyncCompressor:
    """Wraps a compressor; what the methods do is said there."""

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor

    is_due = _in_thread(Compressor.is_due)
    plan = _in_thread(Compressor.plan)
    check = _in_thread(Compressor.check)
    apply = _in_thread(Compressor.apply)
    undo = _in_thread(Compressor.undo)
    plan_undo = _in_thread(Compressor.plan_undo)
    apply_undo = _in_thread(Compressor.apply_undo)

    async def compress(
        self, session_id: str, summarizer: Summarizer | None = None, **options: Any
    ) -> Compressed:
        """Compress; a summarizer that is async runs on the loop that awaits this."""
        work = partial(
            self.compressor.compress, session_id, summarizer, loop=running_loop(), **options
        )
        return await off_loop(work, to_its_end=True)
