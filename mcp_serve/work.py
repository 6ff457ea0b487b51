"""A call that changes something: whose it is, how far it is, and that it was cancelled.

It works in a thread. What it tells goes to the client as progress; where the call is cancelled it
ends between two of its steps, and the call is over when it has.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

import anyio
from anyio import from_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from mcp_serve.threads import in_thread

T = TypeVar("T")

Report = Callable[[float, float], Awaitable[None]]


class Work:
    """One call; `client` is how the log names who made it."""

    def __init__(self, client: str, report: Report) -> None:
        self.client = client
        self._report = report
        self._send: MemoryObjectSendStream[tuple[int, int]] | None = None
        self._cancelled = threading.Event()
        self._done = -1

    def tell(self, done: int, total: int) -> None:
        """Say from the thread how far it is; going back is not said."""
        if self._send is not None and done > self._done:
            self._done = done
            from_thread.run_sync(self._send.send_nowait, (done, total))

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

        self._send, told = anyio.create_memory_object_stream[tuple[int, int]](math.inf)
        with told:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._tell_on, told)
                with self._send:
                    await in_thread(work)
        return outcome.result()

    async def _tell_on(self, told: MemoryObjectReceiveStream[tuple[int, int]]) -> None:
        try:
            async for done, total in told:
                await self._report(done, total)
        finally:
            self._cancelled.set()
