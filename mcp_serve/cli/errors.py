"""What is said of an error on standard error, and with which code the command ends then."""

from __future__ import annotations

import re

from mcp_serve.cli.codes import BUSY, FAILED, UNKNOWN_ID
from session_core import Busy, Conflict, NotFound, SessionError

_TOOL = re.compile(r"\bsessions_(\w+)")

_WORDS = {
    "routes_list": "`mcp-sessions routes`",
    "keep_last": "--keep-last",
    "older_than_days": "--older-than",
}


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
    return text


def code_of(error: SessionError) -> int:
    """Return the exit code that an error has."""
    if isinstance(error, NotFound):
        return UNKNOWN_ID
    return BUSY if isinstance(error, (Busy, Conflict)) else FAILED
