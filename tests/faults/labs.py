"""Runs mutations in children under strace: to see their calls, or to make one of them fail."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import IO, TYPE_CHECKING

from session_core import _sqlite3
from tests.faults.mutations import DatabaseMutation
from tests.faults.points import CHANGING_CALLS, TracedCall

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 30.0

_CALL_PATTERN = re.compile(r"^(\d*)\s*(\w+)\((.*)$")
_OPEN_FILE_PATTERN = re.compile(r"^\d+<([^>]*)>")
_NAMED_FILE_PATTERN = re.compile(r'"([^"]*)"')


@dataclass(frozen=True, slots=True)
class ChildRun:
    """What a child said before it ended, and what it printed besides."""

    said: tuple[str, ...]
    failed: bool
    """Whether a call was made to fail at all."""
    hung: bool
    noise: str

    @property
    def is_killed(self) -> bool:
        """Whether it ended before its end."""
        return "end" not in self.said


class FaultLab:
    """A process that runs one mutation after another, each in a child of its own."""

    def __init__(self, library: _sqlite3.SqliteChoice = "standard") -> None:
        self._strace = find_strace()
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.child", library],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.communicate()

    def trace_mutation(
        self, mutation: DatabaseMutation, home: Path, log: Path
    ) -> tuple[ChildRun, list[TracedCall]]:
        """Run a mutation undisturbed; return the calls that change its files, in order."""
        ran = self.run_mutation(mutation, home, log=log)
        return ran, read_log(log, home)

    def run_mutation(
        self, mutation: DatabaseMutation, home: Path, *, inject: tuple[str, ...] = (), log: Path
    ) -> ChildRun:
        """Run a mutation in a child, with calls made to fail as `inject` says."""
        self._send_line(json.dumps([mutation.name, str(home)]))
        pid = int(self._read_line())
        with subprocess.Popen(
            self._build_command(pid, [home / name for name in mutation.files], inject, log),
            text=True,
            stderr=subprocess.PIPE,
        ) as tracer:
            attached = _read_stream_line(tracer.stderr)
            if "attached" not in attached:
                os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"strace cannot be attached here: {attached}")
            self._send_line("go")
            hung = not select.select([_require_stream(self._server.stdout)], [], [], TIMEOUT_S)[0]
            if hung:
                os.kill(pid, signal.SIGKILL)
            lines = json.loads(self._read_line())
            tracer.communicate()
        said = tuple(line[2:] for line in lines if line.startswith("> "))
        noise = "\n".join(line for line in lines if not line.startswith("> "))
        failed = "end" not in said or "(INJECTED)" in log.read_text(errors="replace")
        return ChildRun(said, failed=failed, hung=hung, noise=noise)

    def _build_command(
        self, pid: int, watched: list[Path], inject: tuple[str, ...], log: Path
    ) -> list[str]:
        return [
            *(self._strace, "-p", str(pid), "-f", "-y", "-s", "0", "-o", str(log)),
            *(part for path in watched for part in ("-P", str(path))),
            *("-e", f"trace={','.join(CHANGING_CALLS)}"),
            *(part for one in inject for part in ("-e", f"inject={one}")),
        ]

    def _send_line(self, line: str) -> None:
        _require_stream(self._server.stdin).write(line + "\n")
        _require_stream(self._server.stdin).flush()

    def _read_line(self) -> str:
        return _read_stream_line(self._server.stdout)


@contextmanager
def borrow_lab(free: SimpleQueue[FaultLab]) -> Iterator[FaultLab]:
    """Take a lab that is free, and give it back."""
    lab = free.get()
    try:
        yield lab
    finally:
        free.put(lab)


def find_strace() -> str:
    """Return strace, or fail saying that it is missing."""
    found = shutil.which("strace")
    if found is None:
        raise AssertionError("the fault tests need strace; install it (apt-get install strace)")
    return found


def read_log(log: Path, home: Path) -> list[TracedCall]:
    """Return the calls of a trace that change a file, each with its number among its kind."""
    threads: dict[str, dict[str, int]] = {}
    calls: list[TracedCall] = []
    for line in log.read_text(errors="replace").splitlines():
        match = _CALL_PATTERN.match(line)
        if match is None:
            continue
        thread, syscall, rest = match.groups()
        counts = threads.setdefault(thread, {})  # strace counts each thread by itself
        counts[syscall] = counts.get(syscall, 0) + 1
        if syscall == "openat" and "O_CREAT" not in rest:
            continue
        seen = tuple(counts.items())
        calls.append(
            TracedCall(len(calls), syscall, counts[syscall], _extract_file_name(rest, home), seen)
        )
    return calls


def _extract_file_name(rest: str, home: Path) -> str:
    opened = _OPEN_FILE_PATTERN.match(rest)
    path = opened[1] if opened else _NAMED_FILE_PATTERN.findall(rest)[-1]
    return "folder" if Path(path) == home else Path(path).name


def _read_stream_line(stream: IO[str] | None) -> str:
    return _require_stream(stream).readline()


def _require_stream(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise AssertionError("the process was started with pipes")
    return stream
