"""The one table from errors to what a model reads: what was wrong, what is valid, the next call."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ValidationError

from mcp_serve.redaction.redaction import redact
from session_core import (
    Busy,
    Changed,
    Corrupt,
    Denied,
    NotFound,
    SessionError,
    StorageFull,
)

_NEXT_STEPS: tuple[tuple[type[SessionError], str], ...] = (
    (Changed, "read again and plan anew"),
    (Busy, "try the same call again in a few seconds"),
    (StorageFull, "free some room on that disk, then try again"),
    (Corrupt, "call sessions_stats for what is wrong with the home"),
    (Denied, ""),
)
"""The next call, where the error itself does not name it."""

_UNANSWERED_MESSAGE = (
    "the client has agreed without an answer to the question, and nothing was changed; call again "
    "with the same plan, or start the server with --confirm=never if it cannot ask"
)

_EXPECTED_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "list_type": "a list of texts",
}

_LIMIT_MESSAGES = {
    "greater_than_equal": ("ge", "is at least {:g}"),
    "less_than_equal": ("le", "is at most {:g}"),
    "string_too_long": ("max_length", "has at most {:,} characters"),
    "string_too_short": ("min_length", "has at least {:,} character"),
    "too_long": ("max_length", "has at most {:,} entries"),
}
"""What of an argument is over or under its limit, and where that is found."""

_MAX_CHARS = 600


def explain_error(error: BaseException, valid: Sequence[str] = ()) -> str | None:
    """Return what a model is told; None where nothing may be, since it is a defect.

    `valid` are the names of the arguments that there are. What is passed stands in it: each way
    out cleans it.
    """
    if isinstance(error, ValidationError):
        return _explain_invalid(error, valid)
    if isinstance(error, NotFound) and error.nearest and "did you mean" not in str(error):
        near = ", ".join(error.nearest[:5])
        return f"{_shorten_text(str(error))}. Nearest: {near}."
    if isinstance(error, SessionError):
        following = next((text for kind, text in _NEXT_STEPS if isinstance(error, kind)), "")
        return f"{_shorten_text(str(error))}{'; ' + following if following else ''}."
    if isinstance(error, ToolError):  # we raise none: what the SDK says of an answer to a question
        return _UNANSWERED_MESSAGE
    return None


def _shorten_text(text: str) -> str:
    shown = redact(text.rstrip("."))  # before the cut, which would leave a part of a secret
    return shown if len(shown) <= _MAX_CHARS else shown[: _MAX_CHARS - 1] + "…"


def _explain_invalid(error: ValidationError, valid: Sequence[str]) -> str:
    found = error.errors(include_url=False, include_input=False)
    return ". ".join(_explain_argument(each, valid) for each in found[:5]) + "."


def _explain_argument(each: Any, valid: Sequence[str]) -> str:
    name = ".".join(str(part) for part in each["loc"][:2]) or "arguments"
    kind, context = each["type"], each.get("ctx", {})
    if kind == "extra_forbidden":
        return f"{name[:60]!r} is no argument here; {_suggest_argument(name, valid)}"
    if kind == "missing":
        return f"{name} is required"
    if kind == "literal_error":
        return f"{name} is one of {context['expected']}"
    if kind == "value_error":
        return str(context["error"])
    if kind in _EXPECTED_TYPES:
        return f"{name} is {_EXPECTED_TYPES[kind]}"
    if kind in _LIMIT_MESSAGES:
        key, words = _LIMIT_MESSAGES[kind]
        return f"{name} {words.format(context[key])}"
    return f"{name}: {each['msg'][:1].lower()}{each['msg'][1:]}"


def _suggest_argument(name: str, valid: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, valid, 1)
    listed = f"valid are {', '.join(valid)}"
    return f"did you mean {near[0]!r}? {listed}" if near else listed
