"""Run tool calls in bounded pools of threads, with progress and cancellation for long calls."""

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

CALLS, CHECKS, CHANGES = "calls", "checks", "changes"

# The name of the client in the audit log.
CLIENT_NAME = "mcp-sessions"

# The SDK reads and writes standard input and output in anyio's default pool. Calls get pools of
# their own: a thousand waiting clients would otherwise delay every request and answer.
_MAX_THREADS = {CALLS: 8, CHECKS: 4, CHANGES: 4}

_LIMITERS: RunVar[dict[str, CapacityLimiter]] = RunVar("mcp_serve.progress")


async def run_in_thread(run: Callable[..., T], *args: Any, of: str = CALLS) -> T:
    """Run a function in a thread of the pool `of` and return its result."""
    limiters = _LIMITERS.get(None)
    if limiters is None:
        limiters = {kind: CapacityLimiter(count) for kind, count in _MAX_THREADS.items()}
        _LIMITERS.set(limiters)
    return await to_thread.run_sync(partial(run, *args), limiter=limiters[of])


ProgressReport = Callable[[float, float], Awaitable[None]]


class CallContext:
    """The progress and cancellation of one call.

    `client` names the client in the audit log.
    """

    def __init__(self, client: str, report: ProgressReport) -> None:
        self.client = client
        self._report = report
        self._send: MemoryObjectSendStream[tuple[float, int]] | None = None
        self._cancelled = threading.Event()
        self._done = -1
        self._again = 0

    def report_progress(self, done: int, total: int) -> None:
        """Send progress from the thread of the call, and drop decreasing values.

        A repeated value is sent as a fraction above the last one, since MCP progress must increase.
        """
        self._again = self._again + 1 if done == self._done else 0
        if self._send is None or done < self._done or (self._again and done >= total):
            return
        self._done = done
        fraction = 1 - 1 / (1 + self._again)
        from_thread.run_sync(self._send.send_nowait, (done + fraction, total))

    def is_cancelled(self) -> bool:
        """Return True if the client has cancelled the call."""
        return self._cancelled.is_set()

    async def run_in_worker(self, change: Callable[[], T]) -> T:
        """Run a change in a thread and return its result.

        A cancelled call ends between two steps of the change, and this returns only after that.
        """
        outcome: Future[T] = Future()

        def set_outcome() -> None:
            try:
                outcome.set_result(change())
            except BaseException as error:  # noqa: BLE001 -- raised again by the caller
                outcome.set_exception(error)

        self._send, receiver = anyio.create_memory_object_stream[tuple[float, int]](math.inf)
        with receiver:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_progress, receiver)
                with self._send:
                    await run_in_thread(set_outcome, of=CHANGES)
        return outcome.result()

    async def _send_progress(self, receiver: MemoryObjectReceiveStream[tuple[float, int]]) -> None:
        try:
            async for done, total in receiver:
                await self._report(done, total)
        finally:
            self._cancelled.set()
