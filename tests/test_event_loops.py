"""Event loops of asyncio and trio, as other threads use them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread

from session_core import event_loops
from session_core.event_loops import EventLoop

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])
Work = Callable[[EventLoop], Awaitable[Any]]


def run_with_loop(backend: str, work: Work) -> Any:
    """Run a coroutine function on a new loop and return its result."""

    async def main() -> Any:
        loop = event_loops.get_running_loop()
        assert loop is not None
        return await work(loop)

    return anyio.run(main, backend=backend)


def test_thread_without_loop_has_none():
    assert event_loops.get_running_loop() is None
    assert event_loops.get_current_task() is None
    assert event_loops.get_waiting_loop() is None


@BACKENDS
def test_loop_is_current_in_its_thread_only(backend: str):
    async def work(loop: EventLoop) -> list[bool]:
        return [loop.is_current(), await to_thread.run_sync(loop.is_current), loop.is_closed()]

    assert run_with_loop(backend, work) == [True, False, False]


@BACKENDS
def test_thread_calls_into_loop(backend: str):
    async def work(loop: EventLoop) -> int:
        called = anyio.Event()
        threads: list[int] = []

        def note() -> None:
            threads.append(threading.get_ident())
            called.set()

        await to_thread.run_sync(loop.call_soon, note)
        await called.wait()
        return threads[0]

    assert run_with_loop(backend, work) == threading.get_ident()


@BACKENDS
def test_task_returns_result_or_error(backend: str):
    async def double(number: int) -> int:
        await anyio.lowlevel.checkpoint()
        if number < 0:
            raise ValueError("negative")
        return 2 * number

    async def work(loop: EventLoop) -> int:
        failed: Future[int] = await to_thread.run_sync(loop.start_task, double(-1))
        with pytest.raises(ValueError, match="negative"):
            await to_thread.run_sync(failed.result, 10)
        future: Future[int] = await to_thread.run_sync(loop.start_task, double(21))
        return await to_thread.run_sync(future.result, 10)

    assert run_with_loop(backend, work) == 42


@BACKENDS
def test_cancelled_future_cancels_its_task(backend: str):
    async def work(loop: EventLoop) -> bool:
        began, ended = anyio.Event(), anyio.Event()

        async def wait() -> None:
            began.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()

        future = loop.start_task(wait())
        await began.wait()
        future.cancel()
        await ended.wait()
        with pytest.raises(CancelledError):
            await to_thread.run_sync(future.result, 10)
        return future.cancelled()

    assert run_with_loop(backend, work)


@BACKENDS
def test_waiting_loop_is_usable_from_threads_only(backend: str):
    async def work(loop: EventLoop) -> list[bool]:
        event_loops.set_waiting_loop(loop)
        beside = await to_thread.run_sync(event_loops.get_waiting_loop)
        return [beside is loop, event_loops.get_waiting_loop() is None]

    assert run_with_loop(backend, work) == [True, True]


def test_closed_loop_is_not_waited_for():
    loop = asyncio.new_event_loop()
    context = contextvars.copy_context()
    context.run(event_loops.set_waiting_loop, event_loops.AsyncioLoop(loop))
    assert context.run(event_loops.get_waiting_loop) is not None
    loop.close()
    assert context.run(event_loops.get_waiting_loop) is None


def test_copied_context_takes_loop_of_other_library():
    async def work(_: EventLoop) -> Any:
        context = event_loops.copy_context_for_thread()
        return await to_thread.run_sync(lambda: context.run(run_with_loop, "asyncio", answer))

    async def answer(_: EventLoop) -> int:
        return 42

    assert run_with_loop("trio", work) == 42
