"""Traces a process by strace: the calls that the kernel sees of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.points import CHANGING_CALLS

_CALL_PATTERN = re.compile(r"^(\d+)\s+(\w+)\((.*)$")
_OPEN_FILE_PATTERN = re.compile(r"^\d+<([^>]*)>")
_NAMED_FILE_PATTERN = re.compile(r'"([^"]*)"')

KernelCalls = dict[int, list[tuple[str, str]]]
"""The calls of each thread, in order: the kind and the path."""


def find_strace() -> str:
    """Return strace, or fail saying that it is missing."""
    found = shutil.which("strace")
    if found is None:
        raise AssertionError("the fault tests need strace; install it (apt-get install strace)")
    return found


@contextmanager
def attach_strace(pid: int, watched: Iterable[Path], log: Path) -> Iterator[None]:
    """Trace a process until it ends, which it has to before the block ends."""
    command = [
        *(find_strace(), "-p", str(pid), "-f", "-y", "-s", "0", "-o", str(log)),
        *(part for path in watched for part in ("-P", str(path))),
        *("-e", f"trace={','.join(CHANGING_CALLS)}"),
    ]
    with subprocess.Popen(command, text=True, stderr=subprocess.PIPE) as tracer:
        assert tracer.stderr is not None
        attached = tracer.stderr.readline()
        if "attached" not in attached:
            tracer.kill()
            raise AssertionError(f"strace cannot be attached here: {attached}")
        yield
        tracer.communicate()


def read_kernel_calls(log: Path) -> KernelCalls:
    """Return the calls of a trace by thread."""
    calls: KernelCalls = {}
    for match in map(_CALL_PATTERN.match, log.read_text(errors="replace").splitlines()):
        if match is not None:
            thread, syscall, rest = match.groups()
            calls.setdefault(int(thread), []).append((syscall, _extract_path(rest)))
    return calls


def _extract_path(rest: str) -> str:
    opened = _OPEN_FILE_PATTERN.match(rest)
    path = opened[1] if opened else _NAMED_FILE_PATTERN.findall(rest)[-1]
    return str(path)
