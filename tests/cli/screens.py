"""A real pseudo-terminal for a command: what a person sees, and signs that they type."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import ioctl
from pathlib import Path

from rich.cells import cell_len

COMMAND = [sys.executable, "-m", "mcp_serve.cli.main"]
WIDTHS = (60, 80, 140)
STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Screen:
    """A terminal in which a command runs."""

    def __init__(self, person: int, process: subprocess.Popen[bytes]) -> None:
        self._person = person
        self.process = process
        self._seen = b""

    def until(self, text: str) -> str:
        """Read until something is there; return all so far."""
        while text.encode() not in self._seen:
            read = self._read()
            assert read, f"{text!r} never came:\n{self.text()}"
        return self.text()

    def type(self, signs: bytes) -> None:
        """Type something."""
        os.write(self._person, signs)

    def end(self, code: int = 0) -> str:
        """Read to the end; return all of it."""
        while self._read():
            pass
        assert self.process.wait(30) == code, self.text()
        return self.text()

    def text(self) -> str:
        """Return what is there so far, with its style."""
        return self._seen.decode(errors="replace").replace("\r\n", "\n")

    def _read(self) -> bytes:
        try:
            read = os.read(self._person, 10_000)
        except OSError:  # the other end is closed
            return b""
        self._seen += read
        return read


@contextmanager
def screen(columns: int, env: dict[str, str], *arguments: str) -> Iterator[Screen]:
    """Run the command in a terminal of so many columns, as the one that it is controlled by."""
    person, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _CONTROLLED, *COMMAND, *arguments],
        env={"PAGER": "cat"} | env | {"LANG": "C.UTF-8", "TERM": "xterm"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        yield Screen(person, process)
    finally:
        process.kill()
        process.wait()
        os.close(person)


_CONTROLLED = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def too_wide(text: str, columns: int) -> list[str]:
    """Return the lines that do not fit."""
    lines = STYLE.sub("", text).splitlines()
    return [line for line in lines if cell_len(line.rstrip()) > columns]


def processes_of(mark: str) -> list[str]:
    """Return the command lines of the processes that name something."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (process / "cmdline").read_text(errors="replace").replace("\0", " ")
            found += [line] if mark in line else []
    return found
