"""What the command prints: every line passes `clean`, which takes out escapes and secrets.

JSON for scripts is escaped by itself, and redacted by the tools; an export is what is stored.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import suppress


def clean(text: str, passed: Sequence[str] = ()) -> str:
    """Return a text without terminal escapes and secrets, also those that were `passed`."""
    from mcp_serve import outgoing  # noqa: PLC0415 -- behind the first answer of a server

    return outgoing.clean(text, passed)


def print_error(text: str, *, end: str = "\n") -> None:
    """Print a line on standard error, if that is still read."""
    with suppress(OSError, ValueError):  # a pipe without a reader, or a closed stream
        print(clean(text, sys.argv[1:]), end=end, file=sys.stderr, flush=True)  # noqa: T201 -- the one place


class _Printing(logging.Handler):
    """Prints records on standard error, as it is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        print_error(self.format(record))


class _Brief(logging.Formatter):
    """A record in one line: an error without its trace."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        return f"mcp-sessions: {record.getMessage()}" + (f": {error}" if error else "")


def log_to_stderr(*, traces: bool) -> None:
    """Print warnings on standard error: with `traces` of all programs here, else ours in a line."""
    handler = _Printing(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s") if traces else _Brief())
    for name in (None,) if traces else ("session_core", "mcp_serve"):
        logger = logging.getLogger(name)
        if not logger.hasHandlers():
            logger.addHandler(handler)
