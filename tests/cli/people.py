"""A person at a real terminal: types, presses Ctrl-C, and sees what is on the screen."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import termios
from fcntl import ioctl
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cli.forks import Forks

if TYPE_CHECKING:
    from typing_extensions import Self

CTRL_C = "\x03"

_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Person:
    """Runs one verb on a home, in a terminal of so many columns."""

    def __init__(self, forks: Forks, home: Path, *arguments: str, columns: int = 80) -> None:
        self._forks = forks
        self._end, self._terminal = pty.openpty()
        ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        forks.start(["--home", str(home), *arguments], terminal=os.ttyname(self._terminal))
        self._seen = b""
        self._code: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (self._end, self._terminal):
            os.close(fd)
        if self._code is None:
            self._forks.ended()  # its terminal is gone, and so is it

    @property
    def screen(self) -> str:
        """What was on the screen so far, without style."""
        return _STYLE.sub("", self._seen.decode(errors="replace")).replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        """Press keys, of which CTRL_C is one."""
        os.write(self._end, keys.encode())

    def until(self, text: str) -> None:
        """Wait until something is on the screen."""
        while text not in self.screen:
            self._seen += os.read(self._end, 10_000)

    def ends(self) -> int:
        """Wait for its end; return its exit code."""
        while self._forks.answers not in select.select([self._end, self._forks.answers], [], [])[0]:
            self._seen += os.read(self._end, 10_000)
        self._code = self._forks.ended().code
        os.set_blocking(self._end, False)
        while True:
            try:
                self._seen += os.read(self._end, 10_000)
            except BlockingIOError:
                return self._code
