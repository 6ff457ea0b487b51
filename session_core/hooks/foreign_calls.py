"""Isolated calls of foreign code, which may raise, hang or be async.

Each call runs on a daemon thread with the context of its caller. Neither the caller nor the end of
the process waits for a call that exceeds its time.
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
"""Receives a fault of foreign code; the error is None after a timeout."""

CallFailure = Literal["raised", "timed_out"]

_LOG = logging.getLogger("session_core")


def log_fault(message: str, error: BaseException | None) -> None:
    """Log a fault to the logger of the library."""
    _LOG.warning("%s", message, exc_info=error)


class IsolatedCall:
    """A call in a thread, begun at once or after another call has ended.

    `wait` returns the failure, if any. Consecutive calls share one thread, because a process that
    ends cannot start threads. An awaitable result is awaited on `loop`, or on a loop of its own if
    `loop` is None.
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
        """True until the call has ended, also before it begins."""
        return not self._ended.is_set()

    @property
    def is_late(self) -> bool:
        """True if the call has exceeded its time limit and has not ended."""
        return self.is_running and not self._get_remaining_s()

    def wait(self) -> CallFailure | None:
        """Wait until the call ends or its time limit has passed.

        Return the failure.
        """
        if not self._ended.wait(self._get_remaining_s()) or self._timed_out:
            return "timed_out"
        return None if self.error is None else "raised"

    def wait_until_ended(self, within_s: float) -> bool:
        """Wait up to `within_s` until the call ends.

        Return whether it has ended.
        """
        return self._ended.wait(within_s)

    def _get_remaining_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def queue_next(self, call: IsolatedCall) -> bool:
        """Queue a call to begin after this call.

        Return False if this call has ended.
        """
        # A call that is queued while this one ends would otherwise never begin.
        with self._lock:
            if self.is_running:
                self._next = call
            return self.is_running

    def begin(self) -> None:
        """Run this call and the calls queued after it on a new thread."""
        try:
            threading.Thread(target=self._run_chain, name="isolated call", daemon=True).start()
        except RuntimeError as error:  # too many threads, or the process is ending
            self._record_failure(error)

    def _run_chain(self) -> None:
        call: IsolatedCall | None = self
        while call is not None:
            call._context.run(call._run_function)  # noqa: SLF001 -- the same class
            call = call._next  # noqa: SLF001 -- the same class

    def _run_function(self) -> None:
        try:
            result = self._function()
            if inspect.isawaitable(result):
                self._await_result(result)
        except BaseException as error:  # noqa: BLE001 -- includes SystemExit
            self._record_failure(error)
        else:
            self._mark_ended()

    def _mark_ended(self) -> None:
        with self._lock:
            self._ended.set()

    def _record_failure(self, error: BaseException) -> None:
        # Set before the end, which wakes the waiting caller.
        self.error = error
        with suppress(Exception):  # a failed report cannot be reported
            if self._on_error is not None:
                self._on_error(error)
        self._mark_ended()

    def _await_result(self, result: Awaitable[object]) -> None:
        import asyncio  # noqa: PLC0415 -- slow to import
        import concurrent.futures  # noqa: PLC0415 -- slow to import

        if self._loop is None:
            asyncio.run(self._await_within_bound(result))
            return
        guarded = _catch_error(result)
        try:
            future = self._loop.start_task(guarded)
        except RuntimeError:
            # A coroutine that is dropped without being awaited leaves a warning.
            guarded.close()
            raise
        done, _ = concurrent.futures.wait({future}, timeout=self._bound_s)
        if not done:
            self._timed_out = True
            future.cancel()
        elif (error := future.result()) is not None:
            raise error

    async def _await_within_bound(self, result: Awaitable[object]) -> None:
        import asyncio  # noqa: PLC0415 -- slow to import

        task = asyncio.ensure_future(result)
        done, _ = await asyncio.wait({task}, timeout=self._bound_s)
        if done:
            task.result()
        else:
            self._timed_out = True  # asyncio.run cancels the task


async def _catch_error(result: Awaitable[object]) -> BaseException | None:
    """Await a result and return its exception, or None."""
    import anyio  # noqa: PLC0415 -- slow to import

    # A SystemExit that a task raises ends its event loop too.
    try:
        await result
    except anyio.get_cancelled_exc_class():
        raise
    except BaseException as error:  # noqa: BLE001 -- raised again in the calling thread
        return error
    return None
