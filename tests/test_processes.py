"""Facts about processes: dead, reused and unknown ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import processes


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits, with an argument of its own."""
    code = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, "an argument", ""]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"  # its arguments can be read only now
        yield process


def test_process_is_alive_until_it_ends(child: subprocess.Popen[bytes]):
    start = processes.get_start_time(child.pid)
    assert processes.is_alive(child.pid, start)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert not processes.is_alive(child.pid, start)
    child.wait()
    assert not processes.is_alive(child.pid)


def test_reused_pid_is_other_process(child: subprocess.Popen[bytes]):
    start = processes.get_start_time(child.pid)
    assert start is not None
    assert processes.is_alive(child.pid, str(start))
    assert not processes.is_alive(child.pid, start - 1000)
    assert not processes.is_alive(child.pid, 5)


@pytest.mark.parametrize("started_at", [None, "unknown", True, [5]])
def test_pid_decides_without_known_start(started_at: Any):
    assert processes.is_alive(os.getpid(), started_at)


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 2**70])
def test_impossible_pid_is_dead(pid: int):
    assert not processes.is_alive(pid)
    assert processes.get_argv(pid) == ()


def test_name_and_arguments_are_those_of_process(child: subprocess.Popen[bytes]):
    assert processes.get_argv(child.pid)[-1:] == ("an argument",)
    assert processes.get_process_name(child.pid) == Path(sys.executable).name[:15]
    assert processes.get_process_name(0) == "an unknown process"


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (5, 5.0),
        ("5.5", 5.5),
        (True, None),
        ("five", None),
        (None, None),
        (10**400, None),
        ([], None),
    ],
)
def test_number_is_read_from_text(value: Any, number: float | None):
    assert processes.parse_number(value) == number


def test_missing_tool_has_no_output(tmp_path: Path):
    assert processes.run_tool([str(tmp_path / "nowhere")]) is None
    assert processes.read_lines(tmp_path / "nowhere") == []
