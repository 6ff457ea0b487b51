"""The columns of a session's row that a caller sets: which there are, and what fits into them."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from session_core.errors import InvalidInput
from session_core.state.arguments import check_line
from session_core.state.content import clean_text, dump

KEPT = ("source", "user_id", "started_at")
"""What a second `create_session` never changes."""

FILLED = (
    "session_key",
    "chat_id",
    "chat_type",
    "thread_id",
    "display_name",
    "origin_json",
    "model",
    "model_config",
    "system_prompt",
    "parent_session_id",
    "cwd",
    "git_branch",
    "git_repo_root",
    "profile_name",
)
"""What it fills where it is empty."""

UPDATED = (
    *FILLED,
    "user_id",
    "pinned",
    "handoff_state",
    "handoff_platform",
    "handoff_error",
    "billing_provider",
    "billing_base_url",
    "billing_mode",
    "compression_failure_cooldown_until",
    "compression_failure_error",
    "compression_fallback_streak",
)

PEER = ("source", "user_id", "session_key", "chat_id", "chat_type", "thread_id")

_NUMBERS = (
    "started_at",
    "pinned",
    "compression_failure_cooldown_until",
    "compression_fallback_streak",
)
_JSON = ("model_config", "origin_json")


def encoded(fields: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Return what is stored for fields, of which only `known` ones are taken.

    Raises:
        InvalidInput: a field is unknown, or its value does not fit.
    """
    for name in fields:
        if name not in known:
            raise InvalidInput(f"unknown field {name!r}; known are {', '.join(sorted(known))}")
    return {name: _encoded(name, value) for name, value in fields.items()}


def of_new_session(session_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is stored for a new session, without what is empty.

    Raises:
        InvalidInput: a field is unknown, its value does not fit, or one is missing.
    """
    if not session_id or not isinstance(session_id, str) or clean_text(session_id) != session_id:
        raise InvalidInput("a session needs an id, which is text")
    check_source(fields.get("source"))
    values = encoded(fields, (*KEPT, *FILLED))
    return {"id": session_id, **{k: v for k, v in values.items() if v is not None}}


def check_source(source: Any) -> None:
    """Refuse what is no source."""
    if not isinstance(source, str) or not source:
        raise InvalidInput("a session needs a source, which is text, such as 'cli'")


def check_reason(end_reason: Any) -> None:
    """Refuse what is no reason; that there is none is one."""
    if end_reason is not None and not isinstance(end_reason, str):
        raise InvalidInput("the reason for which a session ended is text, such as 'cli_close'")
    check_line("end_reason", end_reason)


def _encoded(name: str, value: Any) -> str | float | None:
    if name in _NUMBERS:
        return _number(name, value)
    if name in _JSON and isinstance(value, (Mapping, list)):
        return dump(value) if value else None
    if value is None or isinstance(value, int):  # a number of a chat, say, reads as its digits
        return value
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is text")
    return clean_text(value)


def _number(name: str, value: Any) -> float | None:
    if value is None or isinstance(value, int):
        return value
    if not isinstance(value, float) or not isfinite(value):
        raise InvalidInput(f"{name} is a number")
    return value
