"""Worker threads for coroutines: bounded, shared by event loops, one rule of cancellation."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from session_core.aio import WorkerThreads
from session_core.event_loops import get_waiting_loop
from session_core.hooks.foreign_calls import IsolatedCall
from tests.lifecycle.runtimes import becomes

pytestmark = pytest.mark.anyio
both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


class BlockedCalls:
    """Calls that wait for the test, with counts of those begun and ended."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.begun = 0
        self.ended = 0
        self._lock = threading.Lock()

    def __call__(self) -> str:
        """Wait until the test opens it."""
        with self._lock:
            self.begun += 1
        assert self.opened.wait(30)
        with self._lock:
            self.ended += 1
        return "done"


def list_worker_threads() -> set[threading.Thread]:
    """Return the running worker threads."""
    return {thread for thread in threading.enumerate() if thread.name == "session_core worker"}


@pytest.fixture
def blocked_calls() -> Iterator[BlockedCalls]:
    calls = BlockedCalls()
    yield calls
    calls.opened.set()


@both_loops
async def test_cancelled_caller_regains_control(blocked_calls: BlockedCalls) -> None:
    threads = WorkerThreads(1)
    with anyio.move_on_after(30) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(threads.run, blocked_calls)
            await becomes(lambda: blocked_calls.begun == 1)
            group.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert blocked_calls.ended == 0
    blocked_calls.opened.set()
    await becomes(lambda: blocked_calls.ended == 1)


@both_loops
async def test_cancelled_calls_count_against_thread_limit(blocked_calls: BlockedCalls) -> None:
    threads, before = WorkerThreads(3), list_worker_threads()
    for _ in range(20):
        with anyio.move_on_after(0.001):
            await threads.run(blocked_calls)
    assert blocked_calls.begun <= len(list_worker_threads() - before) <= 3
    blocked_calls.opened.set()
    assert await threads.run(lambda: "next") == "next"
    await becomes(lambda: blocked_calls.ended == blocked_calls.begun)


async def test_asyncio_timeout_counts_against_thread_limit(blocked_calls: BlockedCalls) -> None:
    threads = WorkerThreads(3)
    for _ in range(20):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(threads.run(blocked_calls), 0.001)
    assert blocked_calls.begun <= 3
    blocked_calls.opened.set()
    assert await threads.run(lambda: "next") == "next"


@both_loops
async def test_queued_call_is_withdrawn_on_cancel(blocked_calls: BlockedCalls) -> None:
    threads, ended, late = WorkerThreads(1), [], []
    async with anyio.create_task_group() as group:
        group.start_soon(threads.run, blocked_calls)
        await becomes(lambda: blocked_calls.begun == 1)
        with anyio.move_on_after(0.01):
            await threads.run(partial(late.append, 1), on_end=partial(ended.append, 1))
        blocked_calls.opened.set()
    assert await threads.run(lambda: "next") == "next"
    assert (late, ended) == ([], [1])


def test_event_loops_share_thread_limit(blocked_calls: BlockedCalls) -> None:
    threads, results = WorkerThreads(4), []

    async def many() -> None:
        async def one() -> None:
            results.append(await threads.run(blocked_calls))

        async with anyio.create_task_group() as group:
            for _ in range(40):
                group.start_soon(one)

    loops = [threading.Thread(target=anyio.run, args=(many,)) for _ in range(2)]
    loops.append(threading.Thread(target=partial(anyio.run, many, backend="trio")))
    for loop in loops:
        loop.start()
    while blocked_calls.begun < 4:
        assert not blocked_calls.opened.wait(0.001)
    assert blocked_calls.begun == 4
    blocked_calls.opened.set()
    for loop in loops:
        loop.join(60)
    assert results == ["done"] * 120


@both_loops
async def test_calls_in_turn_share_one_thread() -> None:
    threads = WorkerThreads(4)
    for _ in range(200):
        await threads.run(lambda: None)
        assert threads._threads <= 1


@both_loops
async def test_nested_call_skips_queue(anyio_backend: str) -> None:
    threads, backends = WorkerThreads(1), []

    async def hook() -> None:
        backends.append(await threads.run(lambda: anyio_backend))

    def outer() -> str | None:
        return IsolatedCall(hook, 20.0, get_waiting_loop()).wait()

    with anyio.fail_after(30):
        assert await threads.run(outer) is None
    assert backends == [anyio_backend]


@both_loops
async def test_failure_after_cancel_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    threads, begun, release = WorkerThreads(1), threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        assert release.wait(30)
        raise LookupError("too late")

    with caplog.at_level(logging.WARNING, "session_core"):
        async with anyio.create_task_group() as group:
            group.start_soon(threads.run, fail)
            await becomes(begun.is_set)
            group.cancel_scope.cancel()
        release.set()
        await becomes(lambda: bool(caplog.records))
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "too late" in str(record.exc_info[1])


@both_loops
async def test_worker_error_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise LookupError("now")

    with pytest.raises(LookupError, match="now"):
        await WorkerThreads(1).run(fail)
    assert caplog.records == []


@both_loops
@pytest.mark.parametrize("inner", ["asyncio", "trio"])
async def test_worker_thread_can_run_event_loop(inner: str) -> None:
    async def name() -> str:
        await anyio.lowlevel.checkpoint()
        return anyio.get_current_task().name or "unnamed"

    with anyio.fail_after(30):
        assert await WorkerThreads(1).run(lambda: anyio.run(name, backend=inner))


@both_loops
async def test_worker_recognizes_calling_event_loop() -> None:
    """A call has its own event loop, also if its caller runs on trio."""
    ended = []

    async def hook() -> None:
        await anyio.lowlevel.checkpoint()
        ended.append(True)

    call = IsolatedCall(hook, 20.0)
    assert call.wait() is None
    assert ended == [True]


@both_loops
async def test_event_loop_waits_for_no_second_thread(
    blocked_calls: BlockedCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, may_start, start = WorkerThreads(2), threading.Event(), threading.Thread.start

    def start_late(thread: threading.Thread) -> None:
        assert may_start.wait(10)
        start(thread)

    async with anyio.create_task_group() as group:
        group.start_soon(threads.run, blocked_calls)
        await becomes(lambda: blocked_calls.begun == 1)
        monkeypatch.setattr(threading.Thread, "start", start_late)
        group.start_soon(threads.run, blocked_calls)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        may_start.set()
        await becomes(lambda: blocked_calls.begun == 2)
        blocked_calls.opened.set()


@both_loops
@pytest.mark.parametrize("is_first", [True, False])
async def test_call_fails_if_no_thread_starts(
    monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    threads, ended = WorkerThreads(2), []
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "session_core worker":  # an event loop of a test needs threads too
            raise RuntimeError("can't start new thread")
        start(thread)

    if not is_first:
        await threads.run(int)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with anyio.fail_after(30):
        if not is_first:  # the thread that idles takes it
            assert await threads.run(int) == 0
            await becomes(lambda: threads._threads == 0)
        with pytest.raises(RuntimeError, match="can't start"):
            await threads.run(int, on_end=partial(ended.append, 1))
    assert ended == [1]


async def test_sequential_calls_share_thread() -> None:
    threads = WorkerThreads(8)
    names = {await threads.run(threading.get_ident) for _ in range(50)}
    assert len(names) < 10


@both_loops
async def test_ended_call_is_freed_without_collector() -> None:
    """A cycle in every call would make full garbage collections, which stop the event loop."""
    argument = threading.Event()
    freed = weakref.ref(argument)
    gc.disable()
    try:
        await WorkerThreads(1).run(partial(bool, argument))
        del argument
        await becomes(lambda: freed() is None)
    finally:
        gc.enable()


def test_database_closes_while_trio_is_imported(tmp_path: Path) -> None:
    """A finalizer runs wherever memory is freed, also within an import."""
    script = """
import importlib.abc, sys
from session_core import SessionDB

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("trio.") and "db" in globals():
            del globals()["db"]

db = SessionDB(sys.argv[1])
db.set_meta("a", "b")
sys.meta_path.insert(0, Finder())
import trio
assert "db" not in globals()
"""
    process = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "state.db")],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
