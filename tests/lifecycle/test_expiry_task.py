"""The watcher as a task: it ticks, stops at once, and never blocks the loop."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from session_core import ExpiryWatcher
from tests.lifecycle.runtimes import World, becomes, until, watcher


def run_watcher_during(watch: ExpiryWatcher, do: Any) -> None:
    """Run a watcher during a function. The watcher must end by itself."""

    async def both() -> None:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(watch.run)
                await do()

    anyio.run(both)


def test_watcher_ticks_repeatedly(expiring: World, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watcher(expiring, interval_s=0.001, start_delay_s=0)
    ticks: list[str] = []
    monkeypatch.setattr(watch, "tick", lambda: ticks.append(threading.current_thread().name))

    async def do() -> None:
        await becomes(lambda: len(ticks) >= 3)
        watch.stop()

    run_watcher_during(watch, do)
    assert threading.main_thread().name not in ticks


def test_watcher_waits_before_first_tick(expiring: World, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watcher(expiring, start_delay_s=3600)
    ticks: list[int] = []
    monkeypatch.setattr(watch, "tick", lambda: ticks.append(1))

    async def do() -> None:
        await anyio.sleep(0.01)
        watch.stop()

    run_watcher_during(watch, do)
    assert ticks == []


@pytest.mark.requirement("watcher:stop")
def test_watcher_stops_immediately_from_other_thread(expiring: World) -> None:
    watch = watcher(expiring, interval_s=3600, start_delay_s=3600)

    async def do() -> None:
        await anyio.sleep(0.01)
        threading.Thread(target=watch.stop).start()

    run_watcher_during(watch, do)


@pytest.mark.requirement("watcher:stop")
def test_watcher_stops_immediately_during_tick(expiring: World) -> None:
    for name in ("a", "b"):
        expiring.say(chat_id=name)
    expiring.clock.advance(hours=2)
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        opened.wait(30)

    expiring.hooks.timeout_s = 30
    expiring.hooks.add("on_session_finalize", hang)
    watch = watcher(expiring, start_delay_s=0)

    async def do() -> None:
        await becomes(entered.is_set)
        watch.stop()

    async def both() -> None:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(do)
                await watch.run()
            assert not opened.is_set()
            opened.set()

    anyio.run(both)
    until(lambda: not any(thread.name == "session_core worker" for thread in threading.enumerate()))
    assert len(expiring.names("finalize")) == 1


def test_watcher_ends_with_task(expiring: World) -> None:
    watch = watcher(expiring, start_delay_s=3600)

    async def both() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(watch.run)
            await anyio.sleep(0.01)
            group.cancel_scope.cancel()

    anyio.run(both)
    until(lambda: not any(t.name == "off the loop" for t in threading.enumerate()))


@pytest.mark.requirement("watcher:stop")
def test_failing_tick_is_reported_and_retried(
    expiring: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watcher(expiring, interval_s=0.001, start_delay_s=0)
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(1)
        raise RuntimeError("broken")

    monkeypatch.setattr(watch, "tick", tick)

    async def do() -> None:
        await becomes(lambda: len(ticks) >= 2)
        watch.stop()

    run_watcher_during(watch, do)
    assert any("tick" in what for what in expiring.reported)


@pytest.mark.requirement("watcher:stop")
def test_hanging_tick_does_not_block_loop(expiring: World) -> None:
    expiring.say()
    expiring.clock.advance(hours=2)
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        opened.wait(30)

    expiring.hooks.timeout_s = 30
    expiring.hooks.add("on_session_finalize", hang)
    watch = watcher(expiring, start_delay_s=0)
    steps = []

    async def do() -> None:
        await becomes(entered.is_set)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
            steps.append(1)
        opened.set()
        await becomes(lambda: bool(expiring.names("finalize")))
        watch.stop()

    run_watcher_during(watch, do)
    assert len(steps) == 5


@pytest.mark.requirement("watcher:stop")
def test_process_exit_ignores_hanging_tick(home_path: Path) -> None:
    code = """
import sys, threading, time
from pathlib import Path
import anyio
from session_core import ExpiryWatcher
from tests.lifecycle.runtimes import IDLE, World

world = World(Path(sys.argv[1]), config=IDLE)
world.say()
world.clock.advance(hours=2)
world.hooks.timeout_s = 3600
entered = threading.Event()
world.hooks.add("on_session_finalize", lambda: entered.set() or threading.Event().wait())
watch = ExpiryWatcher(world.runtime, start_delay_s=0)
threading.Thread(target=lambda: entered.wait() and watch.stop(), daemon=True).start()
anyio.run(watch.run)
"""
    command = [sys.executable, "-c", code, str(home_path)]
    subprocess.run(command, cwd=Path(__file__).parents[2], timeout=60, check=True)
