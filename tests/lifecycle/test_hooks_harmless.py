"""Hooks that raise, hang, are slow or async: nobody is harmed, and no loop stands still."""

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
def impatient() -> Hooks:
    """Hooks that wait for a moment only."""
    return Hooks(group=None, timeout_s=SHORT_S, report=lambda *_: None)


# -- nobody is harmed --------------------------------------------------------------------------


@pytest.mark.requirement("hooks:harm")
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), asyncio.CancelledError()])
def test_one_that_raises_keeps_no_other_from_being_called(
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
def test_one_that_hangs_is_left_behind_and_reported(
    impatient: Hooks, gate: threading.Event
) -> None:
    seen: list[str] = []
    ended: list[str] = []
    note = noting(ended)
    impatient.add(RESET, noting(seen))
    impatient.add(RESET, lambda session_id: gate.wait() and note(session_id))
    impatient.add(RESET, noting(seen))
    report = impatient.call(RESET, session_id="s", platform="cli")
    assert (seen, ended) == (["s", "s"], [])
    assert [fault.how for fault in report.failed] == ["timed_out"]


def tried(hooks: Hooks, session_id: str) -> str:
    """Return how a call of the one implementation went."""
    report = hooks.call(RESET, session_id=session_id, platform="cli")
    return report.failed[0].how if report.failed else "called"


@pytest.mark.requirement("hooks:order")
def test_a_slow_one_is_told_all_in_order_and_waited_for_once(
    impatient: Hooks, gate: threading.Event
) -> None:
    seen: list[str] = []
    done = threading.Event()

    def slow(session_id: str) -> None:
        gate.wait()
        seen.append(session_id)
        if session_id == "7":
            done.set()

    impatient.add(RESET, slow)
    hows = [tried(impatient, str(number)) for number in range(8)]
    assert hows == ["timed_out"] + ["behind"] * 7
    gate.set()
    assert done.wait(5)
    assert seen == [str(number) for number in range(8)]


@pytest.mark.requirement("hooks:order")
def test_one_is_never_called_twice_at_once(hooks: Hooks) -> None:
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
def test_one_that_is_too_far_behind_is_left_out_until_it_has_caught_up(
    impatient: Hooks, gate: threading.Event
) -> None:
    seen: list[str] = []
    note = noting(seen)
    impatient.add(RESET, lambda session_id: gate.wait() and note(session_id))
    hows = [tried(impatient, str(number)) for number in range(_MAX_WAITING + 1)]
    assert hows == ["timed_out"] + ["behind"] * (_MAX_WAITING - 1) + ["left_out"]
    gate.set()
    deadline = time.monotonic() + 5
    while len(seen) < _MAX_WAITING and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    assert seen == [str(number) for number in range(_MAX_WAITING)]
    assert tried(impatient, "s") == "called"


def test_one_that_calls_its_own_hook_is_not_waited_for_by_itself() -> None:
    hooks = Hooks(group=None, timeout_s=60, report=lambda *_: None)
    seen: list[str] = []
    hows: list[str] = []
    done = threading.Event()

    def implementation(session_id: str) -> None:
        seen.append(session_id)
        if session_id == "outer":
            hows.append(tried(hooks, "inner"))
        else:
            done.set()

    hooks.add(RESET, implementation)
    assert tried(hooks, "outer") == "called"
    assert done.wait(5)
    assert (seen, hows) == (["outer", "inner"], ["behind"])


def test_a_hook_is_called_with_the_context_of_its_caller_and_cannot_change_it(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_SESSION_ID", "of the process")
    seen = []

    def implementation() -> None:
        seen.append(get_current_session_id())
        set_current_session_id("changed")

    hooks.add(RESET, implementation)
    with session_context(session_id="mine"):
        hooks.call(RESET, session_id="s", platform="cli")
        assert (seen, get_current_session_id()) == (["mine"], "mine")


def test_an_async_one_is_run_to_its_end_by_a_sync_call(hooks: Hooks) -> None:
    seen = []

    async def implementation(session_id: str, **_: Any) -> None:
        await asyncio.sleep(0)
        seen.append(session_id)

    hooks.add(RESET, implementation)
    report = hooks.call(RESET, session_id="s", platform="cli")
    assert (seen, report.failed) == (["s"], ())


@pytest.mark.requirement("hooks:harm")
def test_an_async_one_that_raises_or_hangs_is_reported(impatient: Hooks) -> None:
    ended = []

    async def raises() -> None:
        raise ValueError

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    impatient.add(RESET, raises)
    impatient.add(RESET, hangs)
    report = impatient.call(RESET, session_id="s", platform="cli")
    assert sorted(fault.how for fault in report.failed) == ["raised", "timed_out"]
    deadline = time.monotonic() + 5
    while not ended and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert ended == [True]


@pytest.mark.requirement("hooks:harm")
def test_a_broken_plugin_manager_is_reported_and_harms_nothing(
    hooks: Hooks, told: list[Any]
) -> None:
    hooks._manager = None  # type: ignore[assignment]
    report = hooks.call_boundary("old", "new", "cli", "new_session")
    assert [fault.how for fault in report.failed] == ["dispatcher", "dispatcher"]
    assert report.called == ()
    assert len(told) == 2


def test_an_unknown_hook_is_reported_and_not_raised(hooks: Hooks) -> None:
    report = hooks.call("on_session_stop", session_id="s")
    assert [fault.how for fault in report.failed] == ["dispatcher"]


def test_a_thread_that_is_not_to_be_had_is_reported(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(thread: threading.Thread) -> None:
        raise RuntimeError

    hooks.add(RESET, lambda: None)
    monkeypatch.setattr(threading.Thread, "start", refuses)
    report = hooks.call(RESET, session_id="s", platform="cli")
    assert [fault.how for fault in report.failed] == ["raised"]


def test_a_report_that_fails_harms_nothing() -> None:
    def report(what: str, error: BaseException | None) -> None:
        raise OSError

    hooks = Hooks(group=None, report=report)
    hooks.add(RESET, lambda: 1 / 0)
    assert [fault.how for fault in hooks.call(RESET, session_id="s").failed] == ["raised"]


def test_a_fault_goes_to_the_log_by_default(caplog: pytest.LogCaptureFixture) -> None:
    hooks = Hooks(group=None)
    name = hooks.add(RESET, lambda: 1 / 0)
    with caplog.at_level(logging.WARNING, "session_core"):
        hooks.call(RESET, session_id="s", platform="cli")
    assert [record.getMessage() for record in caplog.records] == [
        f"hook on_session_reset of {name} raised: ZeroDivisionError"
    ]


# -- while a loop goes on ----------------------------------------------------------------------


@pytest.mark.anyio
async def test_an_async_one_runs_on_the_loop_of_its_caller(hooks: Hooks) -> None:
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
async def test_a_slow_one_never_blocks_the_loop(gate: threading.Event) -> None:
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
async def test_an_async_one_that_hangs_on_the_loop_of_its_caller_is_cancelled(
    impatient: Hooks,
) -> None:
    cancelled = asyncio.Event()

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    impatient.add(RESET, hangs)
    with anyio.fail_after(5):
        report = await in_worker(partial(impatient.call, RESET, session_id="s", platform="cli"))
        await cancelled.wait()
    assert [fault.how for fault in report.failed] == ["timed_out"]


@pytest.mark.anyio
async def test_an_async_one_that_will_not_be_cancelled_is_left_behind(impatient: Hooks) -> None:
    let_go = asyncio.Event()
    ended = asyncio.Event()

    async def stubborn() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    impatient.add(RESET, stubborn)
    with anyio.fail_after(5):
        report = await in_worker(partial(impatient.call, RESET, session_id="s", platform="cli"))
        assert [fault.how for fault in report.failed] == ["timed_out"]
        let_go.set()
        await ended.wait()


@pytest.mark.requirement("hooks:harm")
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_async_one_that_ends_the_process_does_not_end_the_loop_of_its_caller(
    hooks: Hooks, error: BaseException
) -> None:
    async def ends() -> None:
        await asyncio.sleep(0)
        raise error

    async def call() -> list[BaseException | None]:
        hooks.add(RESET, ends)
        report = await in_worker(partial(hooks.call, RESET, session_id="s", platform="cli"))
        return [fault.error for fault in report.failed]

    assert asyncio.run(call()) == [error]


@pytest.mark.anyio
async def test_faults_of_an_awaited_call_are_reported_too(hooks: Hooks) -> None:
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
async def test_a_cancelled_caller_leaves_at_once_and_the_boundary_is_finished(
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
