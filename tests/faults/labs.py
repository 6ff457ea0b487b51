"""Runs mutations in children that see their own system calls, to list them or to make one fail.

The children preload `failing_calls.c`. When a mutation is listed, strace is attached too and must
see the same calls, so that no call bypasses the library.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import IO, TYPE_CHECKING

from session_core import _sqlite3
from session_core.hooks.specs import GROUP
from tests.faults.mutations import DatabaseMutation
from tests.faults.points import Injection, TracedCall
from tests.faults.strace import KernelCalls, attach_strace, read_kernel_calls

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("failing_calls.c")
TIMEOUT_S = 120.0
"""A run below strace takes 15 s where ten programs share a processor."""
LAB_COUNT = 2


@dataclass(frozen=True, slots=True)
class ChildRun:
    """The lines that a child printed before it ended, and its other output."""

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
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.child", library],
            cwd=ROOT,
            env=os.environ | {"LD_PRELOAD": str(compile_library())},
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
        """Run a mutation without a fault, and return the calls that change its files, in order."""
        kernel_log = log.with_suffix(".strace")
        ran = self._run(mutation, home, (), log, kernel_log)
        seen, calls = read_kernel_calls(kernel_log), _group_by_thread(log)
        if seen != calls:
            raise AssertionError(f"the kernel saw other calls than the library: {seen} {calls}")
        return ran, read_log(log, home)

    def run_mutation(
        self, mutation: DatabaseMutation, home: Path, *, inject: tuple[Injection, ...], log: Path
    ) -> ChildRun:
        """Run a mutation in a child, with the failing calls in `inject`."""
        return self._run(mutation, home, inject, log, None)

    def _run(
        self,
        mutation: DatabaseMutation,
        home: Path,
        inject: tuple[Injection, ...],
        log: Path,
        kernel_log: Path | None,
    ) -> ChildRun:
        watched = [home / name for name in mutation.files]
        job = {"name": mutation.name, "home": str(home), "log": str(log), "inject": inject}
        self._send_line(json.dumps(job | {"watched": list(map(str, watched))}))
        pid = int(self._read_line())
        with ExitStack() as stack:
            if kernel_log is not None:
                stack.enter_context(attach_strace(pid, watched, kernel_log))
            self._send_line("go")
            hung = not select.select([_require_stream(self._server.stdout)], [], [], TIMEOUT_S)[0]
            if hung:
                os.kill(pid, signal.SIGKILL)
            lines = json.loads(self._read_line())
        said = tuple(line[2:] for line in lines if line.startswith("> "))
        noise = "\n".join(line for line in lines if not line.startswith("> "))
        failed = any(made == "fails" for _, _, _, made, _ in _split_log(log))
        return ChildRun(said, failed=failed, hung=hung, noise=noise)

    def _send_line(self, line: str) -> None:
        _require_stream(self._server.stdin).write(line + "\n")
        _require_stream(self._server.stdin).flush()

    def _read_line(self) -> str:
        return _require_stream(self._server.stdout).readline()


def keep_entry_points() -> None:
    """Read the plugins that are installed once in this process, since each look takes 10 ms."""
    metadata.entry_points = cache(metadata.entry_points)
    metadata.entry_points(group=GROUP)


class LabPool:
    """Some labs with one SQLite library, and as many threads that use them."""

    def __init__(self, library: _sqlite3.SqliteChoice = "standard") -> None:
        keep_entry_points()
        self._free: SimpleQueue[FaultLab] = SimpleQueue()
        self._stack = ExitStack()
        self.threads = self._stack.enter_context(ThreadPoolExecutor(LAB_COUNT))
        for _ in range(LAB_COUNT):
            self._free.put(self._stack.enter_context(FaultLab(library)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @contextmanager
    def borrow_lab(self) -> Iterator[FaultLab]:
        """Take a lab that is free, and give it back."""
        lab = self._free.get()
        try:
            yield lab
        finally:
            self._free.put(lab)


@cache
def compile_library() -> Path:
    """Compile the library that counts calls and makes them fail. It needs gcc."""
    folder = Path(tempfile.mkdtemp(prefix="faults_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "failing_calls.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)  # noqa: S607 -- whichever gcc there is
    return library


def read_log(log: Path, home: Path) -> list[TracedCall]:
    """Return the calls of a log that change a file, each with its number among its kind."""
    threads: dict[str, dict[str, int]] = {}
    calls: list[TracedCall] = []
    for thread, syscall, mode, _, path in _split_log(log):
        counts = threads.setdefault(thread, {})  # each thread is counted by itself
        counts[syscall] = counts.get(syscall, 0) + 1
        if syscall == "openat" and mode != "creates":
            continue
        name = "folder" if Path(path) == home else Path(path).name
        items = tuple(counts.items())
        calls.append(TracedCall(len(calls), syscall, counts[syscall], name, items))
    return calls


def _group_by_thread(log: Path) -> KernelCalls:
    calls: KernelCalls = {}
    for thread, syscall, _, _, path in _split_log(log):
        calls.setdefault(int(thread), []).append((syscall, path))
    return calls


def _split_log(log: Path) -> Iterator[list[str]]:
    return (line.split(" ", 4) for line in log.read_text().splitlines())


def _require_stream(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise AssertionError("the process was started with pipes")
    return stream
