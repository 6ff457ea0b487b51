"""Worker threads for coroutines, with one rule for cancelled callers.

A cancelled caller gets control back at once. A call that has begun finishes in its thread and
counts against the limit until then; a call that has not begun is dropped.
"""

from __future__ import annotations

import _thread
import contextvars
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial, wraps
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar

from session_core.event_loops import copy_context_for_thread, get_running_loop, set_waiting_loop

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
W = TypeVar("W")

ThreadKind = Literal["changes", "looks", "calls", "agents", "claims", "watch"]

MAX_THREADS: dict[ThreadKind, int] = {
    # Changes that arrive during a commit share the next one: more threads would gain nothing.
    "changes": 16,
    # Readers have their own threads, so that they do not queue after callers of the write lock.
    "looks": 8,
    # Calls that also wait for hooks or for a summary.
    "calls": 32,
    "agents": 256,
    # Calls that wait for an agent to be built, never in the threads that build it.
    "claims": 256,
    "watch": 2,
}
"""The number of worker threads of one object by kind of call, shared by all event loops."""

_DAEMON_KINDS: frozenset[ThreadKind] = frozenset(("agents", "claims", "watch"))
"""Kinds of calls that the process does not wait for at exit: they may never return."""

_IDLE_THREAD_S = 0.1
"""How long an idle thread waits for the next call; a new thread would cost more."""

_LOG = logging.getLogger("session_core")


class _PendingCall:
    """A queued call and the context that it runs in."""

    def __init__(
        self,
        function: Callable[[], Any],
        threads: WorkerThreads,
        on_end: Callable[[], object] | None,
    ) -> None:
        self.function = function
        self.threads = threads
        self.on_end = on_end
        self.future: Future[Any] = Future()
        self.context = copy_context_for_thread()

    def run(self, before_result: Callable[[], object] = lambda: None) -> None:
        """Run the call unless its caller has cancelled it.

        `before_result` is called before the caller gets the result.
        """
        if not self.future.set_running_or_notify_cancel():
            before_result()
            return
        try:
            result = self.context.run(self._run_function)
        except BaseException as error:  # noqa: BLE001 -- raised in the awaiting caller
            before_result()
            self.future.set_exception(error)
        else:
            before_result()
            self.future.set_result(result)

    def refuse(self, error: RuntimeError) -> None:
        """Fail without running the call, unless its caller has cancelled it."""
        if not self.future.set_running_or_notify_cancel():
            return
        if self.on_end is not None:
            self.on_end()
        self.future.set_exception(error)

    def _run_function(self) -> Any:
        # Reset at the end: the call has the context, so a reference back would be a cycle, and
        # cycles of every call add up to a full garbage collection that stops the event loop.
        enclosing = _enclosing_calls.set((*_enclosing_calls.get(), self))
        try:
            return self.function()
        finally:
            _enclosing_calls.reset(enclosing)
            if self.on_end is not None:
                self.on_end()


_enclosing_calls: contextvars.ContextVar[tuple[_PendingCall, ...]] = contextvars.ContextVar(
    "calls_around", default=()
)
"""The calls that wait for this code, for example a store call that waits for a hook."""


class WorkerThreads:
    """A bounded set of threads for calls of one kind, shared by all event loops."""

    def __init__(self, max_threads: int, *, daemon: bool = False) -> None:
        self._max_threads = max_threads
        self._daemon = daemon
        self._lock = threading.RLock()  # a signal handler may enter while it is held
        # A thread that waits in this queue wakes up without the lock, which the caller may hold.
        self._queue: SimpleQueue[_PendingCall] = SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._is_starting = False

    async def run(
        self, function: Callable[[], T], *, on_end: Callable[[], object] | None = None
    ) -> T:
        """Run a function in a worker thread and return its result.

        `on_end` is called once: after the function has ended, or when it will never begin.
        """
        future = self.submit(function, on_end=on_end)
        try:
            await wait_until_finished(future)
        except BaseException:
            if not future.cancel():
                future.add_done_callback(_log_failure)
            elif on_end is not None:
                on_end()
            raise
        return future.result()

    def submit(
        self, function: Callable[[], T], *, on_end: Callable[[], object] | None = None
    ) -> Future[T]:
        """Run a function when a thread is free, whether or not a caller waits for it."""
        call = _PendingCall(function, self, on_end)
        loop = get_running_loop()
        if loop is not None:
            call.context.run(set_waiting_loop, loop)
        if self._is_nested_call():
            self._start_thread(call.run)
        else:
            self._queue.put(call)
            self._start_next_worker()
        return call.future

    def _is_nested_call(self) -> bool:
        """Return True if a call of these threads waits for this call, which then must not queue."""
        return any(
            call.threads is self and not call.future.done() for call in _enclosing_calls.get()
        )

    def _start_next_worker(self) -> None:
        """Start a thread if calls are waiting and the limit allows it."""
        with self._lock:
            has_idle_thread = self._is_starting or self._queue.qsize() <= self._idle
            if has_idle_thread or self._threads >= self._max_threads:
                return
            is_first = self._threads == 0
            self._threads += 1
            self._is_starting = True
        # Starting a thread waits until it runs, which takes long under load. An event loop does
        # that for the first thread only, which serves all calls even at the end of the process.
        if is_first or get_running_loop() is None:
            self._start_worker()
        else:
            try:
                _thread.start_new_thread(self._start_worker, ())
            except RuntimeError as error:
                self._handle_start_failure(error)

    def _start_worker(self) -> None:
        try:
            self._start_thread(self._run_calls)
        except RuntimeError as error:
            self._handle_start_failure(error)

    def _handle_start_failure(self, error: RuntimeError) -> None:
        """Continue with fewer threads, or fail the waiting calls if there are none."""
        with self._lock:
            self._threads -= 1
            self._is_starting = False
            refused = []
            while not self._threads and (call := self._take_queued_call()) is not None:
                refused.append(call)
        for call in refused:
            call.refuse(error)

    def _start_thread(self, target: Callable[[], None]) -> None:
        threading.Thread(target=target, name="session_core worker", daemon=self._daemon).start()

    def _run_calls(self) -> None:
        with self._lock:
            self._is_starting = False
            self._idle += 1
        while (call := self._take_next_call()) is not None:
            self._start_next_worker()
            # Idle before its caller continues, so that its next call starts no other thread.
            call.run(self._count_as_idle)
            del call  # an idle thread keeps no result alive

    def _count_as_idle(self) -> None:
        with self._lock:
            self._idle += 1

    def _take_next_call(self) -> _PendingCall | None:
        """Wait for a call, or end the thread after some time without one."""
        try:
            call: _PendingCall | None = self._queue.get(timeout=_IDLE_THREAD_S)
        except Empty:
            call = None
        with self._lock:
            self._idle -= 1
            # A call that was queued just now has seen this thread as idle.
            call = call or self._take_queued_call()
            if call is None:
                self._threads -= 1
        return call

    def _take_queued_call(self) -> _PendingCall | None:
        try:
            return self._queue.get_nowait()
        except Empty:
            return None


async def wait_until_finished(future: Future[Any]) -> None:
    """Wait until a call has ended.

    Cancelling the wait does not cancel the call.
    """
    loop = get_running_loop()
    if loop is None:
        raise RuntimeError("no event loop of asyncio or trio runs in this thread")
    waiting, wake = loop.make_waiter()

    def wake_on_loop(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon(wake)

    future.add_done_callback(wake_on_loop)
    await waiting


def get_worker_threads(owner: object, kind: ThreadKind) -> WorkerThreads:
    """Return the worker threads of an object for calls of one kind."""
    with _threads_lock:
        kinds = _threads_by_owner.setdefault(owner, {})
        if kind not in kinds:
            kinds[kind] = WorkerThreads(MAX_THREADS[kind], daemon=kind in _DAEMON_KINDS)
        return kinds[kind]


_threads_lock = threading.RLock()  # a signal handler may enter while it is held
_threads_by_owner: weakref.WeakKeyDictionary[object, dict[ThreadKind, WorkerThreads]] = (
    weakref.WeakKeyDictionary()
)

if hasattr(os, "register_at_fork"):  # a forked child has no such threads
    os.register_at_fork(after_in_child=_threads_by_owner.clear)


class AsyncWrapper(Generic[W]):
    """A wrapper of an object with blocking methods, which run in worker threads of that object.

    With `owner` they run in the threads of another object, which bounds their number together.
    """

    def __init__(self, wrapped: W, owner: object | None = None) -> None:
        self._wrapped = wrapped
        self._owner = wrapped if owner is None else owner

    async def _run_in_thread(self, function: Callable[[], T], kind: ThreadKind) -> T:
        return await get_worker_threads(self._owner, kind).run(function)


def make_async(
    method: Callable[Concatenate[Any, P], R], kind: ThreadKind = "calls"
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return a method of the wrapped object as a coroutine function."""

    @wraps(method)
    async def call(self: AsyncWrapper[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        bound: Callable[P, R] = getattr(self._wrapped, method.__name__)
        return await self._run_in_thread(partial(bound, *args, **kwargs), kind)

    return call


def _log_failure(future: Future[Any]) -> None:
    error = future.exception()
    if error is not None:
        _LOG.warning("a call whose caller was cancelled has failed", exc_info=error)
