"""Asking the person at the terminal before something is changed."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

from mcp_serve.cli.output import print_error


def somebody_is_there() -> bool:
    """Whether a question would be seen, and could be answered."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def declined(nothing: str = "nothing was changed") -> str:
    """Return what is said where the answer was no, or nobody could give one."""
    why = "" if somebody_is_there() else "nobody could be asked, and --yes was not given; "
    return f"Declined: {why}{nothing}."


class Stopped(KeyboardInterrupt):
    """Ctrl-C at a question: nothing was changed yet."""


def agreed(question: str, *, yes: bool) -> bool:
    """Ask a question; where nobody can answer it, the answer is no.

    Raises:
        Stopped: the person has pressed Ctrl-C instead.
    """
    if yes:
        return True
    if not somebody_is_there():
        return False
    try:
        print_error(f"{question} [y/N] ", end="")
        answer = _read_line()
    except KeyboardInterrupt as error:
        raise Stopped from error
    return answer.strip().lower() in ("y", "yes")


def _read_line() -> str:
    """Read a line from the terminal.

    A plain read misses a Ctrl-C that arrives just before it blocks, so this waits for the line and
    for the signal at once.
    """
    signalled, wakeup = socket.socketpair()
    with signalled, wakeup:
        os.set_blocking(wakeup.fileno(), False)
        before = signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        try:
            select.select([sys.stdin, signalled], [], [])
        finally:
            signal.set_wakeup_fd(before)
    return sys.stdin.readline()
