"""The conditions of a `SessionFilter` in SQL: fixed text, bound values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from session_core.errors import InvalidInput
from session_core.models import SessionFilter, Status
from session_core.state import arguments
from session_core.state.sqlite import inheritance
from session_core.state.sqlite.handle import Handle

_ACTIVE_AT = (
    "coalesce((SELECT max(timestamp) FROM messages m WHERE m.session_id = s.id), s.started_at)"
)
_LIVE_COUNT = (
    "(SELECT count(*) FROM (SELECT 1 FROM messages m WHERE m.session_id = s.id AND {live}"
    " LIMIT :%s + 1))"
)
_TOKENS = "(coalesce(s.input_tokens, 0) + coalesce(s.output_tokens, 0))"
_COST = "coalesce(s.actual_cost_usd, s.estimated_cost_usd, 0)"

_CONDITIONS = {
    "started_after": "s.started_at >= :started_after",
    "started_before": "s.started_at < :started_before",
    "active_after": f"{_ACTIVE_AT} >= :active_after",
    "active_before": f"{_ACTIVE_AT} < :active_before",
    "title_like": "s.title LIKE :title_like ESCAPE '\\'",
    "end_reason": "s.end_reason = :end_reason",
    "min_messages": f"{_LIVE_COUNT % 'min_messages'} >= :min_messages",
    "max_messages": f"{_LIVE_COUNT % 'max_messages'} <= :max_messages",
    "model_like": "s.model LIKE :model_like ESCAPE '\\'",
    "provider": "lower(s.billing_provider) = lower(:provider)",
    "user_id": "s.user_id = :user_id",
    "chat_id": "s.chat_id = :chat_id",
    "chat_type": "s.chat_type = :chat_type",
    "branch_like": "s.git_branch LIKE :branch_like ESCAPE '\\'",
    "min_tokens": f"{_TOKENS} >= :min_tokens",
    "max_tokens": f"{_TOKENS} <= :max_tokens",
    "min_cost": f"{_COST} >= :min_cost",
    "max_cost": f"{_COST} <= :max_cost",
    "min_tool_calls": "coalesce(s.tool_call_count, 0) >= :min_tool_calls",
    "max_tool_calls": "coalesce(s.tool_call_count, 0) <= :max_tool_calls",
}

_SETS = {
    "ids": "s.id IN (SELECT value FROM json_each(:ids))",
    "source": "s.source IN (SELECT value FROM json_each(:source))",
}

_OF_NUMBERS = ("_after", "_before", "_messages", "_tokens", "_cost", "_tool_calls")

_NEEDS_COLUMN = {"chat_id": "chat_id", "chat_type": "chat_type", "branch_like": "git_branch"}

_OWNER = ("user_id", "chat_id", "chat_type")

_HAS_SOURCE = "s.source NOT IN ('', 'unknown')"

_IS_ONE_OF = "s.id IN (SELECT value FROM json_each(:{}))"

_STATUS: dict[Status | None, str] = {
    None: "coalesce(s.archived, 0) = 0",
    "open": "coalesce(s.archived, 0) = 0 AND s.ended_at IS NULL",
    "ended": "coalesce(s.archived, 0) = 0 AND s.ended_at IS NOT NULL",
    "archived": "s.archived = 1",
    "all": "1",
}


def checked(where: SessionFilter) -> SessionFilter:
    """Return a filter, and refuse what is none."""
    if not isinstance(where, SessionFilter):
        raise InvalidInput("sessions are chosen by a SessionFilter")
    return where


def compose(handle: Handle, where: SessionFilter) -> tuple[str, dict[str, Any]]:
    """Return the SQL condition of a filter on `sessions s`, and its values."""
    where = checked(where)
    conditions: list[str] = []
    values: dict[str, Any] = {}
    if where.status not in tuple(_STATUS):
        known = "open, ended, archived, all"
        raise InvalidInput(f"unknown status {where.status!r:.40}; known are {known}")
    conditions.append(_STATUS[where.status])
    for name, condition in _CONDITIONS.items():
        value = getattr(where, name)
        if value is None:
            continue
        check = arguments.check_number if name.endswith(_OF_NUMBERS) else arguments.check_text
        check(name, value)
        if name in _NEEDS_COLUMN and not handle.has("sessions", _NEEDS_COLUMN[name]):
            conditions.append("0")
            continue
        values[name] = f"%{_escape(value)}%" if name.endswith("_like") else value
        if name in _OWNER:
            conditions.append(_or_inherited(handle, (name,), condition, {name: value}, values))
        else:
            conditions.append(condition)
    _add_sets(handle, where, conditions, values)
    _add_folders(handle, where, conditions, values)
    _add_words(handle, where, conditions, values)
    return handle.sql(" AND ".join(conditions)), values


def _add_sets(
    handle: Handle, where: SessionFilter, conditions: list[str], values: dict[str, Any]
) -> None:
    for name, condition in _SETS.items():
        wanted = arguments.texts(name, getattr(where, name))
        if wanted is not None:
            values[name] = json.dumps(wanted)
            is_source = name == "source"
            conditions.append(
                _source(handle, condition, wanted, values) if is_source else condition
            )


def _source(handle: Handle, own: str, wanted: Sequence[str], values: dict[str, Any]) -> str:
    """Return the condition on the source, of which an unknown one is no source if one is above."""
    known = [source for source in wanted if source not in inheritance.NO_SOURCES]
    if len(known) < len(wanted):
        heirs = inheritance.list_heirs(handle, ("source",), _HAS_SOURCE, {})
        own = f"({own} AND NOT {_IS_ONE_OF.format('of_known_source')})"
        values["of_known_source"] = heirs or "[]"
    if not known:
        return own
    asked = {"known_sources": json.dumps(known)}
    matches = "s.source IN (SELECT value FROM json_each(:known_sources))"
    return _or_inherited(handle, ("source",), own, asked, values, matches=matches)


def _or_inherited(
    handle: Handle,
    columns: tuple[str, ...],
    condition: str,
    asked: Mapping[str, Any],
    values: dict[str, Any],
    *,
    matches: str | None = None,
) -> str:
    """Return the condition that a session itself matches, or the one from which it inherits."""
    heirs = inheritance.list_heirs(handle, columns, matches or condition, asked)
    if heirs is None:
        return condition
    name = f"heirs_{columns[-1]}_{len(values)}"
    values[name] = heirs
    return f"({condition} OR {_IS_ONE_OF.format(name)})"


def _add_folders(
    handle: Handle, where: SessionFilter, conditions: list[str], values: dict[str, Any]
) -> None:
    """A folder matches itself and what lies below it, never a sibling that begins like it."""
    if where.cwd_prefix is not None:
        asked = _folder("cwd_prefix", where.cwd_prefix)
        values |= asked
        below = _below("cwd", "cwd_prefix")
        conditions.append(_or_inherited(handle, inheritance.FOLDER, below, asked, values))
    if where.project is not None:
        asked = _folder("project", where.project)
        values |= asked
        columns = [name for name in ("cwd", "git_repo_root") if handle.has("sessions", name)]
        either = " OR ".join(_below(column, "project") for column in columns)
        below = f"({either or '0'})"
        conditions.append(_or_inherited(handle, inheritance.FOLDER, below, asked, values))


def _folder(name: str, path: str) -> dict[str, str]:
    arguments.check_text(name, path)
    stem = path.rstrip("/\\")
    return {name: stem or path, f"{name}_below": f"{stem}/", f"{name}_under": f"{stem}\\"}


def _below(column: str, name: str) -> str:
    beginning = f"substr(s.{column}, 1, length(:{name}_below))"
    return f"(s.{column} = :{name} OR {beginning} IN (:{name}_below, :{name}_under))"


def _add_words(
    handle: Handle, where: SessionFilter, conditions: list[str], values: dict[str, Any]
) -> None:
    if where.words is None:
        return
    arguments.check_text("words", where.words)
    name = "s.display_name" if handle.has("sessions", "display_name") else "''"
    text = f"(coalesce(s.title, '') || ' ' || coalesce({name}, ''))"
    for place, word in enumerate(where.words.split()):
        values[f"word_{place}"] = f"%{_escape(word)}%"
        conditions.append(f"{text} LIKE :word_{place} ESCAPE '\\'")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
