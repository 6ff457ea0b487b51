"""Access to asyncio and trio from threads: running loops, current tasks, calls into a loop.

Neither library is imported here, so that a process without coroutines does not load them.
"""

from __future__ import annotations

import contextvars
import importlib
import sys
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

T = TypeVar("T")

_waiting_loop: contextvars.ContextVar[EventLoop | None] = contextvars.ContextVar(
    "loop_beside", default=None
)


class EventLoop(Protocol):
    """An event loop, as other threads use it."""

    def is_closed(self) -> bool:
        """Return True if the loop is known to be closed."""

    def is_current(self) -> bool:
        """Return True if the loop runs in this thread."""

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function on the loop soon.

        Raises:
            RuntimeError: the loop is closed.
        """

    def make_waiter(self) -> tuple[Awaitable[object], Callable[[], object]]:
        """Return what the current task awaits, and a function that wakes it, called on the loop."""

    def start_task(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine as a task of the loop.

        Cancelling the returned future cancels the task.

        Raises:
            RuntimeError: the loop is closed.
        """


class AsyncioLoop:
    """An event loop of asyncio."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def is_closed(self) -> bool:
        """Return True if the loop is closed."""
        return self._loop.is_closed()

    def is_current(self) -> bool:
        """Return True if the loop runs in this thread."""
        return _get_asyncio_loop() is self._loop

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function on the loop soon."""
        self._loop.call_soon_threadsafe(function)

    def make_waiter(self) -> tuple[Awaitable[object], Callable[[], object]]:
        """Return a future of the loop, and a function that ends it."""
        future: asyncio.Future[None] = self._loop.create_future()

        def wake() -> None:
            if not future.done():  # the task was cancelled
                future.set_result(None)

        return future, wake

    def start_task(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine as a task of the loop."""
        import asyncio  # noqa: PLC0415 -- it is loaded already

        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


class TrioLoop:
    """A run of trio, identified by its token."""

    def __init__(self, token: Any) -> None:
        self._token = token

    def is_closed(self) -> bool:
        """Return False, since a token has no such state.

        A call on a finished run raises.
        """
        return False

    def is_current(self) -> bool:
        """Return True if the loop runs in this thread."""
        return _get_trio_token() is self._token

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function on the loop soon."""
        self._token.run_sync_soon(function)

    def make_waiter(self) -> tuple[Awaitable[object], Callable[[], object]]:
        """Return the wait for an event of trio, and a function that sets the event."""
        event = importlib.import_module("trio").Event()
        return event.wait(), event.set

    def start_task(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine as a system task whose failure does not end the whole run."""
        from concurrent.futures import Future, InvalidStateError  # noqa: PLC0415 -- the import takes 3 ms

        trio = importlib.import_module("trio")
        future: Future[T] = Future()
        scope = trio.CancelScope()
        context = contextvars.copy_context()

        async def settle() -> None:
            try:
                with scope, suppress(InvalidStateError):  # the waiting thread has given up
                    try:
                        result = await coroutine
                    except Exception as error:  # noqa: BLE001 -- raised in the waiting thread
                        future.set_exception(error)
                    else:
                        future.set_result(result)
            finally:
                # A task that was cancelled before its end must not leave the thread waiting.
                if future.cancel():
                    future.set_running_or_notify_cancel()

        def spawn() -> None:
            trio.lowlevel.spawn_system_task(settle, context=context)

        def cancel(ended: Future[T]) -> None:
            if ended.cancelled():
                # A run that has ended has nothing left to cancel.
                with suppress(RuntimeError):
                    self._token.run_sync_soon(scope.cancel)

        # A system task can be started only in the thread of its run.
        self._token.run_sync_soon(spawn)
        future.add_done_callback(cancel)
        return future


def get_running_loop() -> EventLoop | None:
    """Return the event loop of this thread."""
    token = _get_trio_token()
    if token is not None:
        return TrioLoop(token)
    loop = _get_asyncio_loop()
    return None if loop is None else AsyncioLoop(loop)


def get_current_task() -> weakref.ref[Any] | None:
    """Return the current task of this thread, or None outside of a task."""
    task = None
    if _get_trio_token() is not None:
        task = importlib.import_module("trio").lowlevel.current_task()
    elif (loop := _get_asyncio_loop()) is not None:
        import asyncio  # noqa: PLC0415 -- it is loaded already

        task = asyncio.current_task(loop)
    return None if task is None else weakref.ref(task)


def get_waiting_loop() -> EventLoop | None:
    """Return the loop of the task that waits for this thread, unless the call would block it."""
    loop = _waiting_loop.get()
    if loop is None or loop.is_closed() or loop.is_current():
        return None
    return loop


def set_waiting_loop(loop: EventLoop) -> None:
    """Set the loop that `get_waiting_loop` returns in this context."""
    _waiting_loop.set(loop)


def copy_context_for_thread() -> contextvars.Context:
    """Return a copy of this context for another thread, without the running async library.

    anyio notes the library in the context and would refuse a loop of another library in the thread.
    """
    context = contextvars.copy_context()
    library = getattr(sys.modules.get("sniffio"), "current_async_library_cvar", None)
    if library is not None:
        context.run(library.set, None)
    return context


def _get_asyncio_loop() -> asyncio.AbstractEventLoop | None:
    if "asyncio" not in sys.modules:
        return None
    import asyncio  # noqa: PLC0415 -- it is loaded already, or is being loaded by another thread

    return asyncio._get_running_loop()  # noqa: SLF001 -- documented, and it raises nothing


def _get_trio_token() -> Any:
    if "trio" not in sys.modules:
        return None
    # A finalizer may call this while trio is being imported; no loop runs then.
    lowlevel = getattr(importlib.import_module("trio"), "lowlevel", None)
    if lowlevel is None or not lowlevel.in_trio_task():
        return None
    return lowlevel.current_trio_token()
