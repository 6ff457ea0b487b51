"""What the command prints: every line passes `clean`, which takes out escapes and secrets.

JSON for scripts is escaped by itself, and redacted by the tools; an export is what is stored.

What a script is answered: one JSON document, which is all of standard output.

Pages for a person: what is longer than the terminal is shown by their pager, as git does it.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO

from mcp_serve.plain_text import HIDDEN


def clean_text(text: str, passed: Sequence[str] = ()) -> str:
    """Return a text without terminal escapes and secrets, also those that were `passed`."""
    from mcp_serve.redaction import outgoing  # noqa: PLC0415 -- behind the first answer of a server

    return outgoing.clean_text(text, passed)


def print_error(text: str, *, end: str = "\n") -> None:
    """Print a line on standard error, if that is still read."""
    with suppress(OSError, ValueError):  # a pipe without a reader, or a closed stream
        print(clean_text(text, sys.argv[1:]), end=end, file=sys.stderr, flush=True)  # noqa: T201 -- the one place


class _StderrHandler(logging.Handler):
    """Prints records on standard error, as it is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        print_error(self.format(record))


class _BriefFormatter(logging.Formatter):
    """A record in one line: an error without its trace."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        return f"mcp-sessions: {record.getMessage()}" + (f": {error}" if error else "")


def log_to_stderr(*, traces: bool) -> None:
    """Print warnings on standard error: with `traces` of all programs here, else ours in a line."""
    handler = _StderrHandler(logging.WARNING)
    handler.setFormatter(
        logging.Formatter("%(name)s: %(message)s") if traces else _BriefFormatter()
    )
    for name in (None,) if traces else ("session_core", "mcp_serve"):
        logger = logging.getLogger(name)
        if not logger.hasHandlers():
            logger.addHandler(handler)


_UNSAFE_PATTERN = re.compile(f"[\x7f-\x9f]|{HIDDEN.pattern}")
"""What JSON leaves as it is, and a terminal obeys."""


def print_json(found: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Write an answer for a script, in a way that harms no terminal either."""
    text = json.dumps(found, ensure_ascii=False, indent=indent)
    sys.stdout.write(_UNSAFE_PATTERN.sub(lambda raw: json.dumps(raw[0])[1:-1], text) + "\n")


_DEFAULT_PAGER = "less"

_LESS_OPTIONS = "FRX"
"""It ends by itself where all fits, shows style, and leaves what was read on the screen."""


class _OutputBuffer(io.StringIO):
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
def page_output(*, off: bool = False) -> Iterator[None]:
    """Show what is written to standard output in pages, where that is a terminal and too small."""
    terminal = sys.stdout
    pager = None if off or not (terminal.isatty() and sys.stdin.isatty()) else _find_pager()
    if pager is None:
        yield
        return
    with redirect_stdout(_OutputBuffer(terminal)) as held:
        yield
    text = held.getvalue()
    if text.count("\n") < shutil.get_terminal_size().lines:
        terminal.write(text)
    else:
        _run_pager(pager, text, terminal)


def _find_pager() -> list[str] | None:
    """Return the pager of this person; `cat` is none, as with git."""
    try:
        words = shlex.split(os.environ.get("PAGER", _DEFAULT_PAGER))
    except ValueError:  # a quote in it is not closed
        return None
    there = words and words != ["cat"] and shutil.which(words[0])
    return words if there else None


def _run_pager(pager: list[str], text: str, terminal: TextIO) -> None:
    """Let a pager show a text to its end, or as far as the person reads; Ctrl-C is for it."""
    environment = {"LESS": _LESS_OPTIONS, **os.environ}
    before = signal.getsignal(signal.SIGINT)
    with subprocess.Popen(pager, stdin=subprocess.PIPE, env=environment) as process:  # noqa: S603 -- theirs
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(BrokenPipeError):  # they have read enough
                process.communicate(text.encode(terminal.encoding, "replace"))
        finally:
            signal.signal(signal.SIGINT, before)
