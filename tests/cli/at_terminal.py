"""A person at a real terminal, and a script at the end of a pipe."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path

COMMAND = [sys.executable, "-m", "mcp_serve.cli.main"]
STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Person:
    """Somebody with a home of their own; `home` is the one of sessions."""

    folder: Path
    home: Path

    @property
    def env(self) -> dict[str, str]:
        """With what the command is started."""
        return {
            "HOME": str(self.folder),
            "PATH": os.environ["PATH"],
            "TERM": "xterm",
            "LANG": "C.UTF-8",
            "PAGER": "cat",
            "MCP_SESSIONS_HOME": str(self.home),
        }

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the command as a script does."""
        return subprocess.run(
            [*COMMAND, *arguments],
            env=self.env | {"PYTHONIOENCODING": "utf-8"} | env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    @contextmanager
    def at(self, columns: int, *arguments: str, **env: str) -> Iterator[Terminal]:
        """Start the command in a terminal of so many columns; it is over at the end."""
        person, terminal = pty.openpty()
        ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            env=self.env | env,
            cwd=self.folder,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 -- no thread runs here
        )
        os.close(terminal)
        try:
            yield Terminal(process, person)
        finally:
            process.kill()
            process.wait(30)
            os.close(person)

    def sees(self, columns: int, *arguments: str, **env: str) -> tuple[int, str]:
        """Return the code with which the command ends, and what is on the screen then."""
        with self.at(columns, *arguments, **env) as terminal:
            return terminal.end()


class Terminal:
    """Where the command runs."""

    def __init__(self, process: subprocess.Popen[bytes], person: int) -> None:
        self.process = process
        self._person = person
        self.seen = ""

    def until(self, words: str) -> str:
        """Read until these words are there."""
        while words not in self.seen:
            more = self._more()
            assert more, f"{words!r} did not come: {self.seen}"
        return self.seen

    def type(self, text: str) -> None:
        """Type it."""
        os.write(self._person, text.encode())

    def end(self) -> tuple[int, str]:
        """Read to the end."""
        while self._more():
            pass
        return self.process.wait(30), self.seen

    def _more(self) -> bool:
        try:
            data = os.read(self._person, 65_536)
        except OSError:  # the other end is closed
            return False
        self.seen += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)


def plain(seen: str) -> str:
    """Return what is seen, without its style."""
    return STYLE.sub("", seen)
