"""What is said of an error on standard error, and with which code the command ends then.

What the exit code of the command says; of a wrong use it is the one that argparse has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from session_core import Busy, Conflict, InvalidInput, NotFound, SessionError, TitleTaken

_TOOL = re.compile(r"\bsessions_(\w+)")

_WORDS = {
    "routes_list": "`mcp-sessions routes`",
    "keep_last": "--keep-last",
    "older_than_days": "--older-than",
    "name the sessions to finalize": "name the sessions to finalize by --session",
    "what='expired', 'orphaned' or 'abandoned'": "expired, orphaned or abandoned",
    "give no sessions and no filter": "give no --session and no filter",
}

_VALUE = re.compile(r"\bwhat='(\w+)'")

_TYPED = {
    "query": "WORD",
    "what": "WHAT",
    "session": "ID",
    "sessions": "--session",
    "roles": "--role",
    "batch": "BATCH",
}
"""What a person types for an argument that has no option of its name."""


def said(error: SessionError) -> str:
    """Return an error with the verbs of the command, where it names tools of the server."""
    text = in_words(str(error))
    nearest = error.nearest if isinstance(error, NotFound) else ()
    if not nearest or "did you mean" in text:
        return text
    return f"{text}; nearest: {', '.join(nearest[:5])}"


def in_words(text: str) -> str:
    """Return what a tool says with the verbs and the options of the command."""
    text = _TOOL.sub(r"`mcp-sessions \1`", text)
    for name, word in _WORDS.items():
        text = text.replace(name, word)
    return _VALUE.sub(r"\1", text)


def in_options(text: str, arguments: Iterable[str]) -> str:
    """Return what is said of the arguments of a tool as it is said of what a person types."""
    names = "|".join(sorted(arguments, key=len, reverse=True))
    at = re.compile(rf"(^|\. |^with plan no )({names})(?:\.\d+)?(?= (?:is|has|may) )")
    return at.sub(lambda found: found[1].replace("plan", "--plan") + _typed(found[2]), text)


def _typed(argument: str) -> str:
    return _TYPED.get(argument, f"--{argument.replace('_', '-')}")


def code_of(error: SessionError) -> int:
    """Return the exit code that an error has."""
    if isinstance(error, NotFound):
        return UNKNOWN_ID
    if isinstance(error, InvalidInput):
        return USAGE
    if isinstance(error, TitleTaken):
        return FAILED  # whoever tries again is told the same
    return BUSY if isinstance(error, (Busy, Conflict)) else FAILED


DONE, FAILED, USAGE, UNKNOWN_ID, BUSY, DECLINED, PARTIAL, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130
