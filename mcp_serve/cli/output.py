"""Output of the command: cleaned text, JSON, log records and the pager.

Text passes `clean_text`, which removes terminal escapes and secrets. JSON is escaped here and
redacted by the tools; an export is written as stored.
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
    """Return a text without terminal escapes and secrets.

    `passed` are the words of the command line.
    """
    from mcp_serve.redaction import redaction  # noqa: PLC0415 -- loaded after the first answer of a server

    return redaction.clean_text(text, passed)


def print_error(text: str, *, end: str = "\n") -> None:
    """Print a line on standard error, and ignore a closed stream."""
    with suppress(OSError, ValueError):  # a pipe without a reader, or a closed stream
        print(clean_text(text, sys.argv[1:]), end=end, file=sys.stderr, flush=True)  # noqa: T201 -- all lines on standard error pass here


class _StderrHandler(logging.Handler):
    """A handler that writes to the current `sys.stderr`."""

    def emit(self, record: logging.LogRecord) -> None:
        print_error(self.format(record))


class _BriefFormatter(logging.Formatter):
    """A formatter for one line per record, without tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        return f"mcp-sessions: {record.getMessage()}" + (f": {error}" if error else "")


def log_to_stderr(*, traces: bool) -> None:
    """Log warnings to standard error.

    With `traces`, log all loggers with tracebacks, else our loggers with one line for each record.
    """
    handler = _StderrHandler(logging.WARNING)
    handler.setFormatter(
        logging.Formatter("%(name)s: %(message)s") if traces else _BriefFormatter()
    )
    for name in (None,) if traces else ("session_core", "mcp_serve"):
        logger = logging.getLogger(name)
        if not logger.hasHandlers():
            logger.addHandler(handler)


_UNSAFE_PATTERN = re.compile(f"[\x7f-\x9f]|{HIDDEN.pattern}")
"""Characters that JSON does not escape and a terminal interprets."""

_UNPRINTED_PATTERN = re.compile(f"[\x00-\x1f\u2028\u2029]|{_UNSAFE_PATTERN.pattern}")
_TEXT_KEYS = ("text", "snippet", "next", "digest", "note", "warnings")
"""Keys of answers whose values may have several lines."""


def escape_line(text: str) -> str:
    """Return a text as one line, with escapes for characters that a terminal does not show."""
    return _UNPRINTED_PATTERN.sub(lambda raw: json.dumps(raw[0])[1:-1], text)


def escape_answer(value: Any) -> Any:
    """Return an answer for a person, without control characters in ids and other single lines.

    An id is chosen by an agent, and a client passes it back as it is, so only screens escape it.
    """
    if isinstance(value, str):
        return value if value.isprintable() else escape_line(value)
    if isinstance(value, Mapping):
        return {
            key: item if key in _TEXT_KEYS else escape_answer(item) for key, item in value.items()
        }
    return [escape_answer(item) for item in value] if isinstance(value, (list, tuple)) else value


def print_json(answer: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Write a JSON document without characters that a terminal interprets."""
    text = json.dumps(answer, ensure_ascii=False, indent=indent)
    sys.stdout.write(_UNSAFE_PATTERN.sub(lambda raw: json.dumps(raw[0])[1:-1], text) + "\n")


_DEFAULT_PAGER = "less"

_LESS_OPTIONS = "FRX"
"""Quit if the text fits, show styles, keep the text on the screen."""


class _OutputBuffer(io.StringIO):
    """A buffer for terminal output until its length is known."""

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
    """Page standard output written in this block if it is longer than the terminal."""
    terminal = sys.stdout
    pager = None if off or not (terminal.isatty() and sys.stdin.isatty()) else _find_pager()
    if pager is None:
        yield
        return
    with redirect_stdout(_OutputBuffer(terminal)) as buffer:
        yield
    text = buffer.getvalue()
    if text.count("\n") < shutil.get_terminal_size().lines:
        terminal.write(text)
    else:
        _run_pager(pager, text, terminal)


def _find_pager() -> list[str] | None:
    """Return the command of the pager, or None for `cat` as in git."""
    try:
        words = shlex.split(os.environ.get("PAGER", _DEFAULT_PAGER))
    except ValueError:  # a quote in it is not closed
        return None
    is_usable = words and words != ["cat"] and shutil.which(words[0])
    return words if is_usable else None


def _run_pager(pager: list[str], text: str, terminal: TextIO) -> None:
    """Write a text to the pager and wait for the pager, which handles Ctrl-C."""
    environment = {"LESS": _LESS_OPTIONS, **os.environ}
    before = signal.getsignal(signal.SIGINT)
    with subprocess.Popen(pager, stdin=subprocess.PIPE, env=environment) as process:  # noqa: S603 -- the pager of the user
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(BrokenPipeError):  # the pager was closed early
                process.communicate(text.encode(terminal.encoding, "replace"))
        finally:
            signal.signal(signal.SIGINT, before)
