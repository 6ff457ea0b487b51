"""Asking the person at the terminal before something is changed."""

from __future__ import annotations

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
        answer = sys.stdin.readline()
    except KeyboardInterrupt as error:
        raise Stopped from error
    return answer.strip().lower() in ("y", "yes")
