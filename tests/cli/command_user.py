"""Running the command in a pseudo-terminal or with pipes."""

from __future__ import annotations

import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len

from tests.cli.fork_server import CommandResult, ForkServer, build_environment

if TYPE_CHECKING:
    from typing_extensions import Self

COMMAND = [sys.executable, "-m", "mcp_serve.cli.main"]
CTRL_C = "\x03"
STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
WIDTHS = (60, 80, 140)


class PseudoTerminal:
    """A pseudo-terminal in which a verb runs. The process is ended at exit."""

    def __init__(
        self,
        forks: ForkServer,
        *arguments: str,
        env: Mapping[str, str],
        folder: Path | str,
        columns: int = 80,
    ) -> None:
        self._person, terminal = pty.openpty()
        ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        try:
            self._verb = forks.start(arguments, env, folder, [terminal] * 3, terminal=True)
        finally:
            os.close(terminal)
        self._seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._verb.end()
        os.close(self._person)

    @property
    def seen(self) -> str:
        """The output so far, with styles."""
        return self._seen.decode(errors="replace").replace("\r\n", "\n")

    @property
    def screen(self) -> str:
        """The output so far, without styles."""
        return strip_style(self.seen)

    def until(self, words: str) -> str:
        """Read until these words appear, and return the output so far."""
        while words not in self.screen:
            more = self._read_more()
            assert more, f"{words!r} did not come: {self.seen}"
        return self.seen

    def type(self, keys: str) -> None:
        """Send keys, such as CTRL_C."""
        os.write(self._person, keys.encode())

    def tell(self, told: signal.Signals) -> None:
        """Send a signal to the process."""
        self._verb.tell(told)

    def end(self) -> int:
        """Read to the end, and return the exit code."""
        while self._read_more():
            pass
        return self._verb.wait()

    def _read_more(self) -> bool:
        data = b""
        with suppress(OSError):  # the other end is closed
            data = os.read(self._person, 65_536)
        self._seen += data
        return bool(data)


@dataclass(frozen=True)
class CommandUser:
    """A user with a home directory. `home` is the sessions home."""

    forks: ForkServer
    folder: Path
    home: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment of the command."""
        return build_environment(self.folder) | {"MCP_SESSIONS_HOME": str(self.home)}

    def run(self, *arguments: str, **env: str) -> CommandResult:
        """Run the command with pipes."""
        return self.forks.run(arguments, self.env | env, self.folder)

    def at(self, columns: int, *arguments: str, **env: str) -> PseudoTerminal:
        """Start the command in a pseudo-terminal."""
        return PseudoTerminal(
            self.forks, *arguments, env=self.env | env, folder=self.folder, columns=columns
        )

    def sees(self, columns: int, *arguments: str, **env: str) -> tuple[int, str]:
        """Return the exit code and the screen of the command."""
        with self.at(columns, *arguments, **env) as terminal:
            return terminal.end(), terminal.seen


def strip_style(seen: str) -> str:
    """Return terminal output without styles."""
    return STYLE.sub("", seen)


def find_wide_lines(text: str, columns: int) -> list[str]:
    """Return the lines that are wider than the terminal."""
    return [line for line in strip_style(text).splitlines() if cell_len(line.rstrip()) > columns]


def find_processes(mark: str) -> list[str]:
    """Return the command lines of processes that contain a text."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (process / "cmdline").read_text(errors="replace").replace("\0", " ")
            found += [line] if mark in line else []
    return found
