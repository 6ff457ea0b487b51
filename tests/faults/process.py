"""A process of a test that reads and writes lines, and that never outlives the test."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 30.0


class ChildProcess:
    """A module of this folder, run by itself."""

    def __init__(self, module: str, *args: str | Path, before: Sequence[str] = ()):
        self._process = subprocess.Popen(
            [*before, sys.executable, "-m", f"tests.faults.{module}", *map(str, args)],
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
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def out(self) -> int:
        """The descriptor of its output, to read raw bytes after a line."""
        return _require_stream(self._process.stdout).fileno()

    def write_line(self, line: str = "") -> None:
        """Write a line to its input."""
        stream = _require_stream(self._process.stdin)
        stream.write(line + "\n")
        stream.flush()

    def read_line(self) -> str:
        """Return the next line of the output, or fail after a timeout."""
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self.out], [], [], TIMEOUT_S)[0]:
                raise AssertionError("the process wrote no line in time")
            byte = os.read(self.out, 1)
            if not byte:
                break
            line += byte
        return line.decode().rstrip("\n")

    def request(self, line: str) -> str:
        """Write a line and return the answer."""
        self.write_line(line)
        return self.read_line()

    def end(self, number: signal.Signals | None = None) -> int:
        """Wait until the process ends, or send it a signal, and return its status."""
        if number is not None:
            self._process.send_signal(number)
        self._process.communicate(timeout=TIMEOUT_S)
        return self._process.returncode


def _require_stream(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise AssertionError("the process was started with pipes")
    return stream
