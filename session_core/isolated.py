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

from anyio import CancelScope, to_thread

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

_beside: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar(
    "loop_beside", default=None
)

Report = Callable[[str, BaseException | None], None]
"""Is told what went wrong in code that is not ours; the error is None where time was up."""

How = Literal["raised", "timed_out"]

_LOG = logging.getLogger("session_core")


def log_fault(what: str, error: BaseException | None) -> None:
    """Report to the log of the library."""
    _LOG.warning("%s", what, exc_info=error)


class Call:
    """One call, begun at once or once another one has ended; `wait` says how it went.

    Those that follow each other have one thread, since a process that ends starts none. What it
    returns is awaited where that is needed: on `loop` where one is given, else on one of its own.
    """

    def __init__(
        self,
        function: Callable[[], object],
        bound_s: float,
        loop: asyncio.AbstractEventLoop | None = None,
        on_error: Callable[[BaseException], None] | None = None,
        *,
        after: Call | None = None,
    ) -> None:
        self._bound_s = bound_s
        self._deadline = time.monotonic() + bound_s
        self._loop = loop
        self._on_error = on_error
        self._lock = threading.Lock()
        self._next: Call | None = None
        self._ended = threading.Event()
        self._timed_out = False
        self.error: BaseException | None = None
        self._context = contextvars.copy_context()
        self._function = function
        if after is None or not after.goes_before(self):
            self.begin()

    @property
    def running(self) -> bool:
        """Whether it is still at work, or waits to be."""
        return not self._ended.is_set()

    @property
    def late(self) -> bool:
        """Whether its time is up, and it has not ended."""
        return self.running and not self._left()

    def wait(self) -> How | None:
        """Wait until it has ended or its time is up; return what went wrong."""
        if not self._ended.wait(self._left()) or self._timed_out:
            return "timed_out"
        return None if self.error is None else "raised"

    def ended(self, within_s: float) -> bool:
        """Wait until it has ended, so long at most; return whether it has."""
        return self._ended.wait(within_s)

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def goes_before(self, call: Call) -> bool:
        """Let another one begin when this one has ended; return whether it has not."""
        with self._lock:
            if self.running:
                self._next = call
            return self.running

    def begin(self) -> None:
        """Begin, and those that wait for it one after another when they may."""
        try:
            threading.Thread(target=self._run, name="isolated call", daemon=True).start()
        except RuntimeError as error:  # there are too many threads, or the process is ending
            self._fail(error)

    def _run(self) -> None:
        call: Call | None = self
        while call is not None:
            call._context.run(call._work)  # noqa: SLF001 -- one of its own kind
            call = call._next  # noqa: SLF001 -- as above

    def _work(self) -> None:
        try:
            result = self._function()
            if inspect.isawaitable(result):
                self._await(result)
        except BaseException as error:  # noqa: BLE001 -- even an exit of the process ends here
            self._fail(error)
        else:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._ended.set()

    def _fail(self, error: BaseException) -> None:
        self.error = error
        with suppress(Exception):  # a report that fails has nobody to be reported to
            if self._on_error is not None:
                self._on_error(error)
        self._end()

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
        done, _ = concurrent.futures.wait({future}, timeout=self._bound_s)
        if not done:
            self._timed_out = True
            future.cancel()
        elif (error := future.result()) is not None:
            raise error

    async def _within_bound(self, result: Awaitable[object]) -> None:
        import asyncio  # noqa: PLC0415 -- as above

        task = asyncio.ensure_future(result)
        done, _ = await asyncio.wait({task}, timeout=self._bound_s)
        if done:
            task.result()
        else:
            self._timed_out = True  # the end of its loop cancels it


async def off_loop(function: Callable[[], T], *, to_its_end: bool = False) -> T:
    """Run a function on a thread of its own, while the loop goes on.

    A task that is cancelled leaves it behind at once, or waits `to_its_end`; the end of the process
    waits for neither. None of the threads that others share is taken, so that those that wait for
    each other cannot keep each other from beginning. Inside, `loop_beside` is this loop.
    """
    loop = running_loop()
    if loop is None:
        return await to_thread.run_sync(function, abandon_on_cancel=not to_its_end)
    import concurrent.futures  # noqa: PLC0415 -- asyncio has loaded it

    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    ended: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    def work() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:  # noqa: BLE001 -- raised where it is awaited
            outcome.set_exception(error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell)

    context = contextvars.copy_context()
    context.run(_beside.set, loop)
    threading.Thread(target=context.run, args=(work,), name="off the loop", daemon=True).start()
    await (_its_end(ended) if to_its_end else ended)
    return outcome.result()


async def _its_end(ended: asyncio.Future[None]) -> None:
    """Wait for something, however often the task is cancelled, and only then be cancelled."""
    import asyncio  # noqa: PLC0415 -- it is loaded already

    cancelled = None
    with CancelScope(shield=True):
        while not ended.done():
            try:
                await asyncio.wait({ended})
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop of asyncio that runs in this thread."""
    if "asyncio" not in sys.modules:
        return None
    import asyncio  # noqa: PLC0415 -- it is loaded already

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def loop_beside() -> asyncio.AbstractEventLoop | None:
    """Return the loop that goes on while this runs off it; None where it would stand still."""
    loop = _beside.get()
    if loop is None or loop.is_closed() or loop is running_loop():
        return None
    return loop


async def _awaited(result: Awaitable[object]) -> BaseException | None:
    """Return what it raised: an exit of the process that is raised in a task ends its loop too."""
    import asyncio  # noqa: PLC0415 -- as above

    try:
        await result
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 -- raised again in the thread that asked
        return error
    return None
