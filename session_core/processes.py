"""Facts about other processes: whether they are alive, start time, name and arguments.

Facts that the system does not provide stay unknown: without a start time the pid alone decides.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

PROC_FOLDER = Path("/proc")

_CHILD_TIMEOUT_S = 10
_CHILD_ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
_START_TOLERANCE_S = 1.5
"""Some systems report whole seconds, and the clock may be adjusted while a process runs."""

_STILL_ACTIVE_CODE = 259


def is_alive(pid: int, started_at: Any = None) -> bool:
    """Return True if a process is alive and is the one that started at `started_at`.

    `started_at` is in epoch seconds, or as Hermes stores it: in ticks since the boot on Linux, in
    hundredths of epoch seconds elsewhere. If the start is unknown, the pid alone decides.
    """
    if pid <= 0 or not _has_process(pid):
        return False
    recorded = parse_number(started_at)
    if recorded is None:
        return True
    starts = _list_start_times(pid)
    return not starts or any(abs(recorded - start) <= within for start, within in starts)


def get_start_time(pid: int) -> float | None:
    """Return the start of a process as `is_alive` accepts it, or None if it is unknown."""
    return next((start for start, _ in _list_start_times(pid)), None)


def get_process_name(pid: int) -> str:
    """Return the name of a process, empty if it is unknown."""
    if pid == 0:
        return "an unknown process"
    name = "".join(read_lines(PROC_FOLDER / str(pid) / "comm")).strip()
    if not name and sys.platform not in ("linux", "win32"):
        name = os.path.basename((run_tool(["ps", "-o", "comm=", "-p", str(pid)]) or "").strip())  # noqa: PTH119
    return name


def get_argv(pid: int) -> tuple[str, ...]:
    """Return the arguments of a process, empty if they cannot be read."""
    with suppress(OSError):
        raw = (PROC_FOLDER / str(pid) / "cmdline").read_bytes()
        return tuple(part.decode("utf-8", "replace") for part in raw.split(b"\0") if part)
    if sys.platform in ("linux", "win32"):
        return ()
    return tuple((run_tool(["ps", "-o", "args=", "-p", str(pid)]) or "").split())


def run_tool(command: list[str]) -> str | None:
    """Run a system tool and return its output, or None if it cannot be run."""
    try:
        process = subprocess.run(  # noqa: S603 -- a fixed command, and a path that is an argument
            command,
            capture_output=True,
            text=True,
            timeout=_CHILD_TIMEOUT_S,
            check=False,
            env=None if sys.platform == "win32" else _CHILD_ENVIRONMENT,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout


def read_lines(path: Path) -> list[str]:
    """Return the lines of a small system file, empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def parse_number(value: Any) -> float | None:
    """Return a number that was stored as a number or as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _has_process(pid: int) -> bool:
    if sys.platform == "win32":
        return _has_windows_process(pid)
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    # A zombie has a pid but holds no files and locks.
    return _read_stat_fields(pid)[:1] not in (["Z"], ["X"])


def _has_windows_process(pid: int) -> bool:
    if sys.platform != "win32":
        return False
    import _winapi  # noqa: PLC0415 -- there on Windows alone

    try:
        process = _winapi.OpenProcess(0x1000, False, pid)  # noqa: FBT003 -- positional only
    except PermissionError:
        return True
    except OSError:
        return False
    try:
        return _winapi.GetExitCodeProcess(process) == _STILL_ACTIVE_CODE
    finally:
        _winapi.CloseHandle(process)


def _list_start_times(pid: int) -> list[tuple[float, float]]:
    """Return the start of a process in each form that may be recorded, with tolerances."""
    fields = _read_stat_fields(pid)
    if fields:
        ticks = int(fields[19])
        epoch = _get_boot_time() + ticks / os.sysconf("SC_CLK_TCK")
        return [(ticks, 0), (epoch, _START_TOLERANCE_S), (epoch * 100, _START_TOLERANCE_S * 100)]
    if sys.platform == "win32":
        return []
    answer = run_tool(["ps", "-o", "lstart=", "-p", str(pid)])
    with suppress(ValueError):
        epoch = time.mktime(time.strptime((answer or "").strip(), "%a %b %d %H:%M:%S %Y"))
        return [(epoch, _START_TOLERANCE_S), (epoch * 100, _START_TOLERANCE_S * 100)]
    return []


def _read_stat_fields(pid: int) -> list[str]:
    """Return the Linux stat fields after the process name: state first, start in ticks at 19."""
    text = "".join(read_lines(PROC_FOLDER / str(pid) / "stat"))
    return text.rpartition(")")[2].split()


def _get_boot_time() -> float:
    for line in read_lines(PROC_FOLDER / "stat"):
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0
