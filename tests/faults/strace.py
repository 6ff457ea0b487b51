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
from tests.faults.mutations import Mutation
from tests.faults.points import CHANGING, Call

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 30.0

_CALL = re.compile(r"^(\d*)\s*(\w+)\((.*)$")
_OPEN_FILE = re.compile(r"^\d+<([^>]*)>")
_NAMED_FILE = re.compile(r'"([^"]*)"')


@dataclass(frozen=True, slots=True)
class Run:
    """What a child said before it ended, and what it printed besides."""

    said: tuple[str, ...]
    failed: bool
    """Whether a call was made to fail at all."""
    hung: bool
    noise: str

    @property
    def killed(self) -> bool:
        """Whether it ended before its end."""
        return "end" not in self.said


class Lab:
    """A process that runs one mutation after another, each in a child of its own."""

    def __init__(self, library: _sqlite3.Choice = "standard") -> None:
        self._strace = program()
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

    def trace(self, mutation: Mutation, home: Path, log: Path) -> tuple[Run, list[Call]]:
        """Run a mutation undisturbed; return the calls that change its files, in order."""
        ran = self.run(mutation, home, log=log)
        return ran, read_log(log, home)

    def run(
        self, mutation: Mutation, home: Path, *, inject: tuple[str, ...] = (), log: Path
    ) -> Run:
        """Run a mutation in a child, with calls made to fail as `inject` says."""
        self._tell(json.dumps([mutation.name, str(home)]))
        pid = int(self._hear())
        with subprocess.Popen(
            self._command(pid, [home / name for name in mutation.files], inject, log),
            text=True,
            stderr=subprocess.PIPE,
        ) as tracer:
            attached = _said_by(tracer.stderr)
            if "attached" not in attached:
                os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"strace cannot be attached here: {attached}")
            self._tell("go")
            hung = not select.select([_pipe(self._server.stdout)], [], [], TIMEOUT_S)[0]
            if hung:
                os.kill(pid, signal.SIGKILL)
            lines = json.loads(self._hear())
            tracer.communicate()
        said = tuple(line[2:] for line in lines if line.startswith("> "))
        noise = "\n".join(line for line in lines if not line.startswith("> "))
        failed = "end" not in said or "(INJECTED)" in log.read_text(errors="replace")
        return Run(said, failed=failed, hung=hung, noise=noise)

    def _command(
        self, pid: int, watched: list[Path], inject: tuple[str, ...], log: Path
    ) -> list[str]:
        return [
            *(self._strace, "-p", str(pid), "-f", "-y", "-s", "0", "-o", str(log)),
            *(part for path in watched for part in ("-P", str(path))),
            *("-e", f"trace={','.join(CHANGING)}"),
            *(part for one in inject for part in ("-e", f"inject={one}")),
        ]

    def _tell(self, line: str) -> None:
        _pipe(self._server.stdin).write(line + "\n")
        _pipe(self._server.stdin).flush()

    def _hear(self) -> str:
        return _said_by(self._server.stdout)


@contextmanager
def lent(free: SimpleQueue[Lab]) -> Iterator[Lab]:
    """Take a lab that is free, and give it back."""
    lab = free.get()
    try:
        yield lab
    finally:
        free.put(lab)


def program() -> str:
    """Return strace, or fail saying that it is missing."""
    found = shutil.which("strace")
    if found is None:
        raise AssertionError("the fault tests need strace; install it (apt-get install strace)")
    return found


def read_log(log: Path, home: Path) -> list[Call]:
    """Return the calls of a trace that change a file, each with its number among its kind."""
    threads: dict[str, dict[str, int]] = {}
    calls: list[Call] = []
    for line in log.read_text(errors="replace").splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        thread, syscall, rest = match.groups()
        counts = threads.setdefault(thread, {})  # strace counts each thread by itself
        counts[syscall] = counts.get(syscall, 0) + 1
        if syscall == "openat" and "O_CREAT" not in rest:
            continue
        seen = tuple(counts.items())
        calls.append(Call(len(calls), syscall, counts[syscall], _file(rest, home), seen))
    return calls


def _file(rest: str, home: Path) -> str:
    opened = _OPEN_FILE.match(rest)
    path = opened[1] if opened else _NAMED_FILE.findall(rest)[-1]
    return "folder" if Path(path) == home else Path(path).name


def _said_by(stream: IO[str] | None) -> str:
    return _pipe(stream).readline()


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise AssertionError("the process was started with pipes")
    return stream
