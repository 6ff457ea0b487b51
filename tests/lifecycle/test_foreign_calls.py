"""Hooks that raise, hang, are slow or async: callers and loops are not affected."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from functools import partial
from typing import Any

import anyio
import pytest

from session_core.aio import WorkerThreads
from session_core.context import get_current_session_id, session_context, set_current_session_id
from session_core.hooks import Hooks
from session_core.hooks.dispatch import _MAX_WAITING
from session_core.hooks.specs import FINALIZE, RESET
from tests.lifecycle.agents import noting

SHORT_S = 0.05

in_worker = WorkerThreads(1).run


@pytest.fixture
def impatient_hooks() -> Hooks:
    """Hooks with a short timeout."""
    return Hooks(group=None, timeout_s=SHORT_S, report=lambda *_: None)


# -- isolation ---------------------------------------------------------------------------------


@pytest.mark.requirement("hooks:harm")
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), asyncio.CancelledError()])
def test_raising_hook_does_not_stop_other_hooks(
    hooks: Hooks, told: list[Any], error: BaseException
) -> None:
    seen = []

    def fails(session_id):
        raise error

    hooks.add(RESET, noting(seen))
    name = hooks.add(RESET, fails)
    hooks.add(RESET, noting(seen))
    report = hooks.call(RESET, session_id="s", platform="cli")
    assert seen == ["s", "s"]
    assert len(report.called) == 3
    assert [(fault.plugin, fault.how, fault.error) for fault in report.failed] == [
        (name, "raised", error)
    ]
    assert [error for _, error in told] == [error]


@pytest.mark.requirement("hooks:harm")
def test_hanging_hook_is_abandoned_and_reported(
    impatient_hooks: Hooks, gate: threading.Event
) -> None:
    seen: list[str] = []
    ended: list[str] = []
    note = noting(ended)
    impatient_hooks.add(RESET, noting(seen))
    impatient_hooks.add(RESET, lambda session_id: gate.wait() and note(session_id))
    impatient_hooks.add(RESET, noting(seen))
    report = impatient_hooks.call(RESET, session_id="s", platform="cli")
    assert (seen, ended) == (["s", "s"], [])
    assert [fault.how for fault in report.failed] == ["timed_out"]


def call_single_hook(hooks: Hooks, session_id: str) -> str:
    """Return the result of the only implementation."""
    report = hooks.call(RESET, session_id=session_id, platform="cli")
    return report.failed[0].how if report.failed else "called"


@pytest.mark.requirement("hooks:order")
def test_slow_hook_keeps_order_and_waits_once(
    impatient_hooks: Hooks, gate: threading.Event
) -> None:
    seen: list[str] = []
    done = threading.Event()

    def slow(session_id: str) -> None:
        gate.wait()
        seen.append(session_id)
        if session_id == "7":
            done.set()

    impatient_hooks.add(RESET, slow)
    hows = [call_single_hook(impatient_hooks, str(number)) for number in range(8)]
    assert hows == ["timed_out"] + ["behind"] * 7
    gate.set()
    assert done.wait(5)
    assert seen == [str(number) for number in range(8)]


@pytest.mark.requirement("hooks:order")
def test_hook_is_never_called_concurrently(hooks: Hooks) -> None:
    at_once: list[int] = []
    inside = threading.Semaphore(1)

    def implementation() -> None:
        at_once.append(inside.acquire(blocking=False))
        threading.Event().wait(0.001)
        inside.release()

    hooks.add(RESET, implementation)
    threads = [threading.Thread(target=hooks.call, args=(RESET,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert at_once == [True] * 8


@pytest.mark.requirement("hooks:order")
def test_lagging_hook_is_skipped_until_caught_up(
    impatient_hooks: Hooks, gate: threading.Event
) -> None:
    seen: list[str] = []
    note = noting(seen)
    impatient_hooks.add(RESET, lambda session_id: gate.wait() and note(session_id))
    hows = [call_single_hook(impatient_hooks, str(number)) for number in range(_MAX_WAITING + 1)]
    assert hows == ["timed_out"] + ["behind"] * (_MAX_WAITING - 1) + ["left_out"]
    gate.set()
    deadline = time.monotonic() + 5
    while len(seen) < _MAX_WAITING and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    assert seen == [str(number) for number in range(_MAX_WAITING)]
    assert call_single_hook(impatient_hooks, "s") == "called"


def test_recursive_hook_call_does_not_wait() -> None:
    hooks = Hooks(group=None, timeout_s=60, report=lambda *_: None)
    seen: list[str] = []
    hows: list[str] = []
    done = threading.Event()

    def implementation(session_id: str) -> None:
        seen.append(session_id)
        if session_id == "outer":
            hows.append(call_single_hook(hooks, "inner"))
        else:
            done.set()

    hooks.add(RESET, implementation)
    assert call_single_hook(hooks, "outer") == "called"
    assert done.wait(5)
    assert (seen, hows) == (["outer", "inner"], ["behind"])


def test_hook_context_is_isolated_copy(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_SESSION_ID", "of the process")
    seen = []

    def implementation() -> None:
        seen.append(get_current_session_id())
        set_current_session_id("changed")

    hooks.add(RESET, implementation)
    with session_context(session_id="mine"):
        hooks.call(RESET, session_id="s", platform="cli")
        assert (seen, get_current_session_id()) == (["mine"], "mine")


def test_async_hook_completes_in_sync_call(hooks: Hooks) -> None:
    seen = []

    async def implementation(session_id: str, **_: Any) -> None:
        await asyncio.sleep(0)
        seen.append(session_id)

    hooks.add(RESET, implementation)
    report = hooks.call(RESET, session_id="s", platform="cli")
    assert (seen, report.failed) == (["s"], ())


@pytest.mark.requirement("hooks:harm")
def test_failing_async_hook_is_reported(impatient_hooks: Hooks) -> None:
    ended = []

    async def raises() -> None:
        raise ValueError

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    impatient_hooks.add(RESET, raises)
    impatient_hooks.add(RESET, hangs)
    report = impatient_hooks.call(RESET, session_id="s", platform="cli")
    assert sorted(fault.how for fault in report.failed) == ["raised", "timed_out"]
    deadline = time.monotonic() + 5
    while not ended and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert ended == [True]


@pytest.mark.requirement("hooks:harm")
def test_broken_plugin_manager_is_reported(hooks: Hooks, told: list[Any]) -> None:
    hooks._manager = None  # type: ignore[assignment]
    report = hooks.call_boundary("old", "new", "cli", "new_session")
    assert [fault.how for fault in report.failed] == ["dispatcher", "dispatcher"]
    assert report.called == ()
    assert len(told) == 2


def test_call_of_unknown_hook_is_reported(hooks: Hooks) -> None:
    report = hooks.call("on_session_stop", session_id="s")
    assert [fault.how for fault in report.failed] == ["dispatcher"]


def test_missing_hook_thread_is_reported(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(thread: threading.Thread) -> None:
        raise RuntimeError

    hooks.add(RESET, lambda: None)
    monkeypatch.setattr(threading.Thread, "start", refuses)
    report = hooks.call(RESET, session_id="s", platform="cli")
    assert [fault.how for fault in report.failed] == ["raised"]


def test_failing_hook_report_is_harmless() -> None:
    def report(what: str, error: BaseException | None) -> None:
        raise OSError

    hooks = Hooks(group=None, report=report)
    hooks.add(RESET, lambda: 1 / 0)
    assert [fault.how for fault in hooks.call(RESET, session_id="s").failed] == ["raised"]


def test_hook_fault_is_logged_by_default(caplog: pytest.LogCaptureFixture) -> None:
    hooks = Hooks(group=None)
    name = hooks.add(RESET, lambda: 1 / 0)
    with caplog.at_level(logging.WARNING, "session_core"):
        hooks.call(RESET, session_id="s", platform="cli")
    assert [record.getMessage() for record in caplog.records] == [
        f"hook on_session_reset of {name} raised: ZeroDivisionError"
    ]


# -- while a loop goes on ----------------------------------------------------------------------


@pytest.mark.anyio
async def test_async_hook_runs_on_caller_loop(hooks: Hooks) -> None:
    loops = []
    called = anyio.Event()

    async def implementation() -> None:
        loops.append(asyncio.get_running_loop())
        called.set()

    hooks.add(RESET, implementation)
    report = await in_worker(partial(hooks.call, RESET, session_id="s", platform="cli"))
    assert report.failed == ()
    assert loops == [asyncio.get_running_loop()]
    assert called.is_set()


@pytest.mark.requirement("hooks:harm")
@pytest.mark.anyio
async def test_slow_hook_never_blocks_loop(gate: threading.Event) -> None:
    hooks = Hooks(group=None, report=lambda *_: None)
    hooks.add(RESET, gate.wait)
    reports = []

    async def call() -> None:
        reports.append(await in_worker(partial(hooks.call, RESET, session_id="s", platform="cli")))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await anyio.lowlevel.checkpoint()
            gate.set()
    assert reports[0].failed == ()


@pytest.mark.anyio
async def test_hanging_async_hook_is_cancelled(
    impatient_hooks: Hooks,
) -> None:
    cancelled = asyncio.Event()

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    impatient_hooks.add(RESET, hangs)
    with anyio.fail_after(5):
        report = await in_worker(
            partial(impatient_hooks.call, RESET, session_id="s", platform="cli")
        )
        await cancelled.wait()
    assert [fault.how for fault in report.failed] == ["timed_out"]


@pytest.mark.anyio
async def test_uncancellable_async_hook_is_abandoned(impatient_hooks: Hooks) -> None:
    let_go = asyncio.Event()
    ended = asyncio.Event()

    async def stubborn() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    impatient_hooks.add(RESET, stubborn)
    with anyio.fail_after(5):
        report = await in_worker(
            partial(impatient_hooks.call, RESET, session_id="s", platform="cli")
        )
        assert [fault.how for fault in report.failed] == ["timed_out"]
        let_go.set()
        await ended.wait()


@pytest.mark.requirement("hooks:harm")
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_exiting_async_hook_spares_caller_loop(hooks: Hooks, error: BaseException) -> None:
    async def ends() -> None:
        await asyncio.sleep(0)
        raise error

    async def call() -> list[BaseException | None]:
        hooks.add(RESET, ends)
        report = await in_worker(partial(hooks.call, RESET, session_id="s", platform="cli"))
        return [fault.error for fault in report.failed]

    assert asyncio.run(call()) == [error]


@pytest.mark.anyio
async def test_awaited_hook_call_reports_faults(hooks: Hooks) -> None:
    async def raises() -> None:
        raise ValueError

    hooks.add(RESET, raises)
    hooks.add(RESET, lambda: 1 / 0)
    report = await in_worker(partial(hooks.call, RESET, session_id="s", platform="cli"))
    assert [fault.how for fault in report.failed] == ["raised", "raised"]
    hooks._manager = None  # type: ignore[assignment]
    boundary = await in_worker(partial(hooks.call_boundary, "old", "new", "cli"))
    assert [fault.how for fault in boundary.failed] == ["dispatcher", "dispatcher"]


@pytest.mark.anyio
async def test_cancelled_caller_leaves_boundary_to_finish(
    hooks: Hooks, gate: threading.Event
) -> None:
    order: list[str] = []
    begun, done = threading.Event(), threading.Event()

    def finalize() -> None:
        begun.set()
        gate.wait()
        order.append(FINALIZE)

    def reset() -> None:
        order.append(RESET)
        done.set()

    hooks.add(FINALIZE, finalize)
    hooks.add(RESET, reset)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(in_worker, partial(hooks.call_boundary, "old", "new", "cli"))
            await anyio.to_thread.run_sync(begun.wait)
            group.cancel_scope.cancel()
        gate.set()
        await anyio.to_thread.run_sync(done.wait)
    assert order == [FINALIZE, RESET]
