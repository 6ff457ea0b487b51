"""Threads for what is asked, of each kind only so many, so that none keeps another waiting.

The SDK reads and writes standard input and output in anyio's own threads. Nothing of ours runs
there but what is loaded behind the first answer, or a thousand who wait for events would keep
every request and answer in a queue.

A call that changes something, or takes long: whose it is, how far it is, if it was cancelled.

It works in a thread. What it tells goes to the client as progress; where the call is cancelled it
ends between two of its steps, and the call is over when it has.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import anyio
from anyio import CapacityLimiter, from_thread, to_thread
from anyio.lowlevel import RunVar
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

T = TypeVar("T")

CALLS, LOOKS, WORK = "calls", "looks", "work"

_MAX_THREADS = {CALLS: 8, LOOKS: 4, WORK: 4}

_LIMITERS: RunVar[dict[str, CapacityLimiter]] = RunVar("mcp_serve.progress")


async def run_in_thread(run: Callable[..., T], *given: Any, of: str = CALLS) -> T:
    """Return what a function returns, in a thread of a kind."""
    limiters = _LIMITERS.get(None)
    if limiters is None:
        limiters = {kind: CapacityLimiter(most) for kind, most in _MAX_THREADS.items()}
        _LIMITERS.set(limiters)
    return await to_thread.run_sync(partial(run, *given), limiter=limiters[of])


ProgressReport = Callable[[float, float], Awaitable[None]]


class CallContext:
    """One call; `client` is how the log names who made it."""

    def __init__(self, client: str, report: ProgressReport) -> None:
        self.client = client
        self._report = report
        self._send: MemoryObjectSendStream[tuple[float, int]] | None = None
        self._cancelled = threading.Event()
        self._done = -1
        self._again = 0

    def report_progress(self, done: int, total: int) -> None:
        """Say from the thread how far it is; going back is not said.

        Said again of the same, it is a part of the next one: progress has to grow to be any.
        """
        self._again = self._again + 1 if done == self._done else 0
        if self._send is None or done < self._done or (self._again and done >= total):
            return
        self._done = done
        part = 1 - 1 / (1 + self._again)
        from_thread.run_sync(self._send.send_nowait, (done + part, total))

    def is_cancelled(self) -> bool:
        """Whether it is to end."""
        return self._cancelled.is_set()

    async def run(self, change: Callable[[], T]) -> T:
        """Run it in a thread, to its end or to where it ends since the call was cancelled."""
        outcome: Future[T] = Future()

        def work() -> None:
            try:
                outcome.set_result(change())
            except BaseException as error:  # noqa: BLE001 -- raised where it is awaited
                outcome.set_exception(error)

        self._send, told = anyio.create_memory_object_stream[tuple[float, int]](math.inf)
        with told:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_progress, told)
                with self._send:
                    await run_in_thread(work, of=WORK)
        return outcome.result()

    async def _send_progress(self, told: MemoryObjectReceiveStream[tuple[float, int]]) -> None:
        try:
            async for done, total in told:
                await self._report(done, total)
        finally:
            self._cancelled.set()
