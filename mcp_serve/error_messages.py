"""Turn errors into the messages that a model reads: the problem, valid values, the next call."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

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

# The next step for errors that do not name it themselves.
_NEXT_STEPS: tuple[tuple[type[SessionError], str], ...] = (
    (Changed, "read again and make a new plan"),
    (Busy, "try the same call again in a few seconds"),
    (StorageFull, "free space on that disk, then try again"),
    (Corrupt, "call sessions_stats to see the damage"),
    (Denied, ""),
)

_EXPECTED_TYPES = {
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a string",
    "list_type": "a list of strings",
}

# By pydantic error type: the key of the limit in the error context, and the message.
_LIMIT_MESSAGES = {
    "greater_than_equal": ("ge", "must be >= {:g}"),
    "less_than_equal": ("le", "must be <= {:g}"),
    "string_too_long": ("max_length", "must have at most {:,} characters"),
    "string_too_short": ("min_length", "must have at least {:,} character"),
    "too_long": ("max_length", "must have at most {:,} entries"),
}

_MAX_CHARS = 600


def explain_error(error: BaseException, valid: Sequence[str] = ()) -> str | None:
    """Return the message of an error for a model, or None for a defect of this server.

    `valid` holds the names of the arguments of the tool. The message may repeat argument values:
    each transport removes secrets from it before sending.
    """
    if isinstance(error, ValidationError):
        return _explain_invalid(error, valid)
    if isinstance(error, NotFound) and error.nearest and "did you mean" not in str(error):
        nearest = ", ".join(error.nearest[:5])
        return f"{_shorten_text(str(error))}. Nearest: {nearest}."
    if isinstance(error, SessionError):
        next_step = next((text for kind, text in _NEXT_STEPS if isinstance(error, kind)), "")
        return f"{_shorten_text(str(error))}{'; ' + next_step if next_step else ''}."
    return None


def _shorten_text(text: str) -> str:
    redacted = redact(text.rstrip("."))  # before the cut, which could leave part of a secret
    return redacted if len(redacted) <= _MAX_CHARS else redacted[: _MAX_CHARS - 1] + "…"


def _explain_invalid(error: ValidationError, valid: Sequence[str]) -> str:
    details = error.errors(include_url=False, include_input=False)
    return ". ".join(_explain_argument(detail, valid) for detail in details[:5]) + "."


def _explain_argument(detail: Any, valid: Sequence[str]) -> str:
    name = ".".join(str(part) for part in detail["loc"][:2]) or "arguments"
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown argument {name[:60]!r}; {_suggest_argument(name, valid)}"
    if kind == "missing":
        return f"{name} is required"
    if kind == "literal_error":
        return f"{name} must be one of {context['expected']}"
    if kind == "value_error":
        return str(context["error"])
    if kind in _EXPECTED_TYPES:
        return f"{name} must be {_EXPECTED_TYPES[kind]}"
    if kind in _LIMIT_MESSAGES:
        key, template = _LIMIT_MESSAGES[kind]
        return f"{name} {template.format(context[key])}"
    return f"{name}: {detail['msg'][:1].lower()}{detail['msg'][1:]}"


def _suggest_argument(name: str, valid: Sequence[str]) -> str:
    matches = difflib.get_close_matches(name, valid, 1)
    listed = f"valid arguments: {', '.join(valid)}"
    return f"did you mean {matches[0]!r}? {listed}" if matches else listed
