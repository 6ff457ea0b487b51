"""Calls of code that is not ours: it may raise, hang or be async, and breaks nothing.

Each runs on a daemon thread of its own, with the context of its caller. One that does not end in
time is left behind; neither its caller nor the end of the process waits for it.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal

from session_core.event_loops import EventLoop, copy_context_for_thread

Reporter = Callable[[str, BaseException | None], None]
"""Is told what went wrong in code that is not ours; the error is None where time was up."""

CallFailure = Literal["raised", "timed_out"]

_LOG = logging.getLogger("session_core")


def log_fault(what: str, error: BaseException | None) -> None:
    """Report to the log of the library."""
    _LOG.warning("%s", what, exc_info=error)


class IsolatedCall:
    """One call, begun at once or once another one has ended; `wait` says how it went.

    Those that follow each other have one thread, since a process that ends starts none. What it
    returns is awaited where that is needed: on `loop` where one is given, else on one of its own.
    """

    def __init__(
        self,
        function: Callable[[], object],
        bound_s: float,
        loop: EventLoop | None = None,
        on_error: Callable[[BaseException], None] | None = None,
        *,
        after: IsolatedCall | None = None,
    ) -> None:
        self._bound_s = bound_s
        self._deadline = time.monotonic() + bound_s
        self._loop = loop
        self._on_error = on_error
        self._lock = threading.Lock()
        self._next: IsolatedCall | None = None
        self._ended = threading.Event()
        self._timed_out = False
        self.error: BaseException | None = None
        self._context = copy_context_for_thread()
        self._function = function
        if after is None or not after.queue_next(self):
            self.begin()

    @property
    def is_running(self) -> bool:
        """Whether it is still at work, or waits to be."""
        return not self._ended.is_set()

    @property
    def is_late(self) -> bool:
        """Whether its time is up, and it has not ended."""
        return self.is_running and not self._get_remaining_s()

    def wait(self) -> CallFailure | None:
        """Wait until it has ended or its time is up; return what went wrong."""
        if not self._ended.wait(self._get_remaining_s()) or self._timed_out:
            return "timed_out"
        return None if self.error is None else "raised"

    def wait_until_ended(self, within_s: float) -> bool:
        """Wait until it has ended, so long at most; return whether it has."""
        return self._ended.wait(within_s)

    def _get_remaining_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def queue_next(self, call: IsolatedCall) -> bool:
        """Let another one begin when this one has ended; return whether it has not."""
        with self._lock:
            if self.is_running:
                self._next = call
            return self.is_running

    def begin(self) -> None:
        """Begin, and those that wait for it one after another when they may."""
        try:
            threading.Thread(target=self._run_chain, name="isolated call", daemon=True).start()
        except RuntimeError as error:  # there are too many threads, or the process is ending
            self._record_failure(error)

    def _run_chain(self) -> None:
        call: IsolatedCall | None = self
        while call is not None:
            call._context.run(call._run_function)  # noqa: SLF001 -- one of its own kind
            call = call._next  # noqa: SLF001 -- as above

    def _run_function(self) -> None:
        try:
            result = self._function()
            if inspect.isawaitable(result):
                self._await_result(result)
        except BaseException as error:  # noqa: BLE001 -- even an exit of the process ends here
            self._record_failure(error)
        else:
            self._mark_ended()

    def _mark_ended(self) -> None:
        with self._lock:
            self._ended.set()

    def _record_failure(self, error: BaseException) -> None:
        self.error = error
        with suppress(Exception):  # a report that fails has nobody to be reported to
            if self._on_error is not None:
                self._on_error(error)
        self._mark_ended()

    def _await_result(self, result: Awaitable[object]) -> None:
        import asyncio  # noqa: PLC0415 -- only who has async hooks pays for it
        import concurrent.futures  # noqa: PLC0415 -- as asyncio

        if self._loop is None:
            asyncio.run(self._await_within_bound(result))
            return
        waiting = _catch_error(result)
        try:
            future = self._loop.start_task(waiting)
        except RuntimeError:
            waiting.close()
            raise
        done, _ = concurrent.futures.wait({future}, timeout=self._bound_s)
        if not done:
            self._timed_out = True
            future.cancel()
        elif (error := future.result()) is not None:
            raise error

    async def _await_within_bound(self, result: Awaitable[object]) -> None:
        import asyncio  # noqa: PLC0415 -- as above

        task = asyncio.ensure_future(result)
        done, _ = await asyncio.wait({task}, timeout=self._bound_s)
        if done:
            task.result()
        else:
            self._timed_out = True  # the end of its loop cancels it


async def _catch_error(result: Awaitable[object]) -> BaseException | None:
    """Return what it raised: an exit of the process that is raised in a task ends its loop too."""
    import anyio  # noqa: PLC0415 -- as above

    try:
        await result
    except anyio.get_cancelled_exc_class():
        raise
    except BaseException as error:  # noqa: BLE001 -- raised again in the thread that asked
        return error
    return None
