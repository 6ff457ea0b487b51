"""Threads for what is asked, of each kind only so many, so that none keeps another waiting.

The SDK reads and writes standard input and output in anyio's own threads. Nothing of ours runs
there but what is loaded behind the first answer, or a thousand who wait for events would keep
every request and answer in a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")

CALLS, LOOKS, WORK = "calls", "looks", "work"

_MOST = {CALLS: 8, LOOKS: 4, WORK: 4}

_LIMITERS: RunVar[dict[str, CapacityLimiter]] = RunVar("mcp_serve.threads")


async def in_thread(run: Callable[..., T], *given: Any, of: str = CALLS) -> T:
    """Return what a function returns, in a thread of a kind."""
    limiters = _LIMITERS.get(None)
    if limiters is None:
        limiters = {kind: CapacityLimiter(most) for kind, most in _MOST.items()}
        _LIMITERS.set(limiters)
    return await to_thread.run_sync(partial(run, *given), limiter=limiters[of])
