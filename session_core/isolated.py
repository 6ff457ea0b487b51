"""Calls of code that is not ours: it may raise, hang or be async, and breaks nothing.

Each runs on a daemon thread of its own, with the context of its caller. One that does not end in
time is left behind; neither its caller nor the end of the process waits for it.
"""

from __future__ import annotations

import contextvars
import inspect
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeVar

from anyio import to_thread

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

Report = Callable[[str, BaseException | None], None]
"""Is told what went wrong in code that is not ours; the error is None where time was up."""

How = Literal["raised", "timed_out"]

_LOG = logging.getLogger("session_core")


def log_fault(what: str, error: BaseException | None) -> None:
    """Report to the log of the library."""
    _LOG.warning("%s", what, exc_info=error)


class Call:
    """One call, begun at once; `wait` says how it went.

    What it returns is awaited where that is needed: on `loop` where one is given, else on a loop
    of its own.
    """

    def __init__(
        self,
        function: Callable[[], object],
        bound_s: float,
        loop: asyncio.AbstractEventLoop | None = None,
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._deadline = time.monotonic() + bound_s
        self._loop = loop
        self._on_error = on_error
        self._ended = threading.Event()
        self._timed_out = False
        self.error: BaseException | None = None
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=context.run, args=(self._work, function), name="isolated call", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # there are too many threads, or the process is ending
            self._fail(error)

    @property
    def running(self) -> bool:
        """Whether its thread is still at work."""
        return not self._ended.is_set()

    def wait(self) -> How | None:
        """Wait until it has ended or its time is up; return what went wrong."""
        if not self._ended.wait(self._left()) or self._timed_out:
            return "timed_out"
        return None if self.error is None else "raised"

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _work(self, function: Callable[[], object]) -> None:
        try:
            result = function()
            if inspect.isawaitable(result):
                self._await(result)
        except BaseException as error:  # noqa: BLE001 -- even an exit of the process ends here
            self._fail(error)
        else:
            self._ended.set()

    def _fail(self, error: BaseException) -> None:
        self.error = error
        try:
            if self._on_error is not None:
                self._on_error(error)
        finally:
            self._ended.set()

    def _await(self, result: Awaitable[object]) -> None:
        import asyncio  # noqa: PLC0415 -- only who has async hooks pays for it
        import concurrent.futures  # noqa: PLC0415 -- as asyncio

        if self._loop is None:
            asyncio.run(self._within_bound(result))
            return
        waiting = _awaited(result)
        try:
            future = asyncio.run_coroutine_threadsafe(waiting, self._loop)
        except RuntimeError:
            waiting.close()
            raise
        done, _ = concurrent.futures.wait({future}, timeout=self._left())
        if done:
            future.result()
        else:
            self._timed_out = True
            future.cancel()

    async def _within_bound(self, result: Awaitable[object]) -> None:
        import asyncio  # noqa: PLC0415 -- as above

        task = asyncio.ensure_future(result)
        done, _ = await asyncio.wait({task}, timeout=self._left())
        if done:
            task.result()
        else:
            self._timed_out = True  # the end of its loop cancels it


async def off_loop(function: Callable[[], T]) -> T:
    """Run a function that never raises on a thread, while the loop goes on.

    A task that is cancelled does not wait for it, nor does the end of the process.
    """
    loop = running_loop()
    if loop is None:
        return await to_thread.run_sync(function, abandon_on_cancel=True)
    future: asyncio.Future[T] = loop.create_future()

    def deliver(result: T) -> None:
        if not future.done():
            future.set_result(result)

    def work() -> None:
        result = function()
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, result)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="off the loop", daemon=True).start()
    return await future


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop of asyncio that runs in this thread."""
    if "asyncio" not in sys.modules:
        return None
    import asyncio  # noqa: PLC0415 -- it is loaded already

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _awaited(result: Awaitable[object]) -> object:
    return await result
