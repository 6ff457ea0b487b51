"""Pages for a person: what is longer than the terminal is shown by their pager, as git does it."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO

_PAGER = "less"

_LESS = "FRX"
"""It ends by itself where all fits, shows style, and leaves what was read on the screen."""


class _Held(io.StringIO):
    """What is written to a terminal, kept until it is known how much that is."""

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding

    def isatty(self) -> bool:
        return self._terminal.isatty()

    def fileno(self) -> int:
        return self._terminal.fileno()


@contextmanager
def paged(*, off: bool = False) -> Iterator[None]:
    """Show what is written to standard output in pages, where that is a terminal and too small."""
    terminal = sys.stdout
    pager = None if off or not (terminal.isatty() and sys.stdin.isatty()) else _pager()
    if pager is None:
        yield
        return
    with redirect_stdout(_Held(terminal)) as held:
        yield
    text = held.getvalue()
    if text.count("\n") < shutil.get_terminal_size().lines:
        terminal.write(text)
    else:
        _show(pager, text, terminal)


def _pager() -> list[str] | None:
    """Return the pager of this person; `cat` is none, as with git."""
    try:
        words = shlex.split(os.environ.get("PAGER", _PAGER))
    except ValueError:  # a quote in it is not closed
        return None
    there = words and words != ["cat"] and shutil.which(words[0])
    return words if there else None


def _show(pager: list[str], text: str, terminal: TextIO) -> None:
    """Let a pager show a text to its end, or as far as the person reads; Ctrl-C is for it."""
    environment = {"LESS": _LESS, **os.environ}
    before = signal.getsignal(signal.SIGINT)
    with subprocess.Popen(pager, stdin=subprocess.PIPE, env=environment) as process:  # noqa: S603 -- theirs
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(BrokenPipeError):  # they have read enough
                process.communicate(text.encode(terminal.encoding, "replace"))
        finally:
            signal.signal(signal.SIGINT, before)
