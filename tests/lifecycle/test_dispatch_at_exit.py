"""Hooks with a backlog when a runtime or its process ends: delivered shortly, or reported."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from session_core import Hooks
from session_core.hooks.specs import FINALIZE, RESET
from tests.lifecycle.agents import noting
from tests.lifecycle.runtimes import World, beside, until

ROOT = Path(__file__).parents[2]

BEHIND = """
import os, signal, sys, threading
from session_core import Hooks
from session_core.hooks import dispatch

def say(line, *_):
    os.write(1, f"{line}\\n".encode())  # in one piece, whatever another thread says

dispatch.DRAIN_S = 30.0  # a busy machine takes its time
hooks = Hooks(group=None, timeout_s=0.02, report=say)
opened = threading.Event()

def slow(session_id):
    opened.wait()
    say(f"told {session_id}")

hooks.add("on_session_reset", slow, "slow")
for number in range(4):
    hooks.call("on_session_reset", session_id=str(number), platform="cli")
"""

FAULT = "hook on_session_reset of slow"
LATE = [f"{FAULT} did not end in time and was abandoned"] + [
    f"{FAULT} has a backlog of calls and will be called later"
] * 3
TOLD = [f"told {number}" for number in range(4)]


def run_hook_process(code: str, ended_as: int = 0) -> list[str]:
    """Return the output of a process that ends with a backlog of hook calls."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BEHIND + code],
        cwd=ROOT,
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (ended_as, "")
    return result.stdout.splitlines()


@pytest.mark.requirement("hooks:end")
@pytest.mark.parametrize(
    ("end", "ended_as"),
    [
        pytest.param("", 0, id="by itself"),
        pytest.param("sys.exit(3)", 3, id="by an exit"),
        pytest.param(
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(4)); "
            "signal.raise_signal(signal.SIGTERM)",
            4,
            id="by a signal that it handles",
        ),
        pytest.param("del hooks", 0, id="and nobody has the hooks any more"),
    ],
)
def test_pending_hook_calls_run_at_process_exit(end: str, ended_as: int) -> None:
    assert run_hook_process(f"opened.set(); {end}", ended_as) == LATE + TOLD


@pytest.mark.requirement("hooks:end")
def test_hanging_hook_is_reported_at_process_exit() -> None:
    lost = f"{FAULT} did not end before the process"
    assert run_hook_process("dispatch.DRAIN_S = 0.1") == LATE + [lost] * 4


@pytest.mark.requirement("hooks:end")
def test_pending_hook_calls_are_skipped_on_signal() -> None:
    """No hook runs then. The next process delivers the stored calls."""
    assert run_hook_process("signal.raise_signal(signal.SIGTERM)", -signal.SIGTERM) == LATE


def test_forked_child_ignores_parent_hook_calls() -> None:
    code = """
child = os.fork()
if not child:
    sys.exit(5)
say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
opened.set()
"""
    assert run_hook_process(code) == [*LATE, "5", *TOLD]


@pytest.mark.requirement("hooks:end")
def test_pending_async_hook_calls_run_at_exit() -> None:
    code = """
async def later(session_id):
    opened.wait()
    say(f"later {session_id}")

hooks.add("on_session_finalize", later, "later")
for number in range(2):
    hooks.call("on_session_finalize", session_id=str(number), platform="cli")
opened.set()
"""
    output = run_hook_process(code)
    assert [line for line in output if line.startswith("later")] == ["later 0", "later 1"]


def test_drain_waits_for_hook_calls_in_order(gate: threading.Event) -> None:
    hooks = Hooks(group=None, timeout_s=0.01, report=lambda *_: None)
    seen: list[str] = []
    note = noting(seen)
    hooks.add(RESET, lambda session_id: gate.wait() and note(session_id))
    for number in range(3):
        hooks.call(RESET, session_id=str(number), platform="cli")
    with beside(lambda: hooks.drain(60)) as remaining:
        gate.set()
    assert remaining == [()]
    assert seen == ["0", "1", "2"]


def test_drain_waits_for_calls_queued_meanwhile(gate: threading.Event) -> None:
    """The reset of a boundary is queued when its finalize has ended."""
    hooks = Hooks(group=None, timeout_s=30, report=lambda *_: None)
    order: list[str] = []
    begun = threading.Event()

    def finalize() -> None:
        begun.set()
        gate.wait()
        order.append(FINALIZE)

    hooks.add(FINALIZE, finalize)
    hooks.add(RESET, lambda: order.append(RESET))
    with beside(lambda: hooks.call_boundary("old", "new", "cli")):
        assert begun.wait(30)
        gate.set()
        until(lambda: hooks.drain(60) == () and order == [FINALIZE, RESET])


def test_drain_inside_hook_does_not_deadlock() -> None:
    hooks = Hooks(group=None, timeout_s=30, report=lambda *_: None)
    hooks.add(RESET, lambda: hooks.drain(60) and None)
    assert hooks.call(RESET, session_id="s", platform="cli").failed == ()


@pytest.mark.requirement("hooks:end")
def test_runtime_close_waits_briefly_for_hooks(world: World, gate: threading.Event) -> None:
    seen: list[str] = []
    note = noting(seen)
    world.hooks.timeout_s = 0.01
    world.hooks.add(FINALIZE, lambda session_id: gate.wait() and note(session_id), "slow")
    session_id = world.say().session_id
    world.runtime.reset("agent:main:telegram:dm:42")
    world.runtime.shutdown()
    assert seen == []
    assert any("slow did not end before the process" in what for what in world.reported)
    gate.set()
    until(lambda: seen == [session_id])
