"""Asking the person at the terminal before something is changed."""

from __future__ import annotations

import sys


def agreed(question: str, *, yes: bool) -> bool:
    """Ask a question; where nobody can answer it, the answer is no."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201 -- to a person
    answer = sys.stdin.readline()
    return answer.strip().lower() in ("y", "yes")
