"""Filters of sessions as conditions in SQL: fixed text with bound values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from session_core.errors import InvalidInput
from session_core.state import validation
from session_core.state.sqlite import lineage
from session_core.state.sqlite.connection import Connection
from session_core.types import SessionFilter, SessionStatus

_ACTIVE_AT = (
    "coalesce((SELECT max(timestamp) FROM messages m WHERE m.session_id = s.id), s.started_at)"
)
_MAX_PATTERN_LENGTH = 20_000
_MAX_WORDS = 400
_MAX_INTEGER = 2**63 - 1

_LIVE_COUNT = (
    "(SELECT count(*) FROM (SELECT 1 FROM messages m WHERE m.session_id = s.id AND {live}"
    " LIMIT :%s + 1) AS few)"
)
_TOKENS = "(coalesce(s.input_tokens, 0) + coalesce(s.output_tokens, 0))"
_COST = "coalesce(s.actual_cost_usd, s.estimated_cost_usd, 0)"

_CONDITIONS = {
    "started_after": "s.started_at >= :started_after",
    "started_before": "s.started_at < :started_before",
    "active_after": f"{_ACTIVE_AT} >= :active_after",
    "active_before": f"{_ACTIVE_AT} < :active_before",
    "title_like": "s.title {like} :title_like ESCAPE '\\'",
    "end_reason": "s.end_reason = :end_reason",
    "min_messages": f"{_LIVE_COUNT % 'min_messages'} >= :min_messages",
    "max_messages": f"{_LIVE_COUNT % 'max_messages'} <= :max_messages",
    "model_like": "s.model {like} :model_like ESCAPE '\\'",
    "provider": "lower(s.billing_provider) = lower(:provider)",
    "user_id": "s.user_id = :user_id",
    "chat_id": "s.chat_id = :chat_id",
    "chat_type": "s.chat_type = :chat_type",
    "branch_like": "s.git_branch {like} :branch_like ESCAPE '\\'",
    "min_tokens": f"{_TOKENS} >= :min_tokens",
    "max_tokens": f"{_TOKENS} <= :max_tokens",
    "min_cost": f"{_COST} >= :min_cost",
    "max_cost": f"{_COST} <= :max_cost",
    "min_tool_calls": "coalesce(s.tool_call_count, 0) >= :min_tool_calls",
    "max_tool_calls": "coalesce(s.tool_call_count, 0) <= :max_tool_calls",
}

_SET_CONDITIONS = {
    "ids": "s.id IN (SELECT value FROM json_each(:ids))",
    "source": "s.source IN (SELECT value FROM json_each(:source))",
    "exclude_source": "s.source IN (SELECT value FROM json_each(:exclude_source))",
}

_NUMBER_SUFFIXES = ("_after", "_before", "_messages", "_tokens", "_cost", "_tool_calls")

_REQUIRED_COLUMNS = {"chat_id": "chat_id", "chat_type": "chat_type", "branch_like": "git_branch"}

_OWNER_COLUMNS = ("user_id", "chat_id", "chat_type")

_HAS_SOURCE = "s.source NOT IN ('', 'unknown')"

_IS_ONE_OF = "s.id IN (SELECT value FROM json_each(:{}))"

_STATUS_CONDITIONS: dict[SessionStatus | None, str] = {
    None: "coalesce(s.archived, 0) = 0",
    "open": "coalesce(s.archived, 0) = 0 AND s.ended_at IS NULL",
    "ended": "coalesce(s.archived, 0) = 0 AND s.ended_at IS NOT NULL",
    "archived": "s.archived = 1",
    "all": "1 = 1",
}


def check_filter(where: SessionFilter) -> SessionFilter:
    """Return the filter, or raise if it is not a SessionFilter."""
    if not isinstance(where, SessionFilter):
        raise InvalidInput("the filter must be a SessionFilter")
    return where


def compose_condition(handle: Connection, where: SessionFilter) -> tuple[str, dict[str, Any]]:
    """Build the SQL condition of a filter on `sessions s`, and its values."""
    where = check_filter(where)
    conditions: list[str] = []
    values: dict[str, Any] = {}
    if where.status not in tuple(_STATUS_CONDITIONS):
        valid = "open, ended, archived, all"
        raise InvalidInput(f"unknown status {where.status!r:.40}; valid are {valid}")
    conditions.append(_STATUS_CONDITIONS[where.status])
    for name, condition in _CONDITIONS.items():
        value = getattr(where, name)
        if value is None:
            continue
        check = (
            validation.check_number if name.endswith(_NUMBER_SUFFIXES) else validation.check_text
        )
        check(name, value)
        _check_size(name, value)
        if name in _REQUIRED_COLUMNS and not handle.has_column("sessions", _REQUIRED_COLUMNS[name]):
            # Without the column no session has a value.
            conditions.append("1 = 0")
            continue
        values[name] = f"%{_escape_like(value)}%" if name.endswith("_like") else value
        if name in _OWNER_COLUMNS:
            conditions.append(
                _build_inherited_condition(handle, (name,), condition, {name: value}, values)
            )
        else:
            conditions.append(condition)
    if where.titled is not None:
        validation.check_flag("titled", where.titled)
        conditions.append(f"coalesce(s.title, '') {'<>' if where.titled else '='} ''")
    _add_set_conditions(handle, where, conditions, values)
    _add_folder_conditions(handle, where, conditions, values)
    _add_word_conditions(handle, where, conditions, values)
    return handle.expand_sql(" AND ".join(conditions)), values


def _add_set_conditions(
    handle: Connection, where: SessionFilter, conditions: list[str], values: dict[str, Any]
) -> None:
    for name, condition in _SET_CONDITIONS.items():
        texts = validation.parse_texts(name, getattr(where, name))
        if texts is None:
            continue
        values[name] = json.dumps(texts)
        if name == "ids":
            conditions.append(condition)
            continue
        has_source = _build_source_condition(handle, name, texts, values)
        conditions.append(f"NOT {has_source}" if name == "exclude_source" else has_source)


def _build_source_condition(
    handle: Connection, name: str, sources: Sequence[str], values: dict[str, Any]
) -> str:
    """Build the condition on the source.

    A session with an unknown source inherits the source of an ancestor.
    """
    own = _SET_CONDITIONS[name]
    known_sources = [source for source in sources if source not in lineage.UNKNOWN_SOURCES]
    if len(known_sources) < len(sources):
        heirs = lineage.list_heirs(handle, ("source",), _HAS_SOURCE, {})
        own = f"({own} AND NOT {_IS_ONE_OF.format('of_known_source')})"
        values["of_known_source"] = heirs or "[]"
    if not known_sources:
        return f"({own})"
    bounds = {"known_sources": json.dumps(known_sources)}
    matches = "s.source IN (SELECT value FROM json_each(:known_sources))"
    inherited = _build_inherited_condition(
        handle, ("source",), own, bounds, values, matches=matches
    )
    return f"({inherited})"


def _build_inherited_condition(
    handle: Connection,
    columns: tuple[str, ...],
    condition: str,
    bounds: Mapping[str, Any],
    values: dict[str, Any],
    *,
    matches: str | None = None,
) -> str:
    """Build the condition that a session matches, or the ancestor from which it inherits."""
    heirs = lineage.list_heirs(handle, columns, matches or condition, bounds)
    if heirs is None:
        return condition
    name = f"heirs_{len(values)}"
    values[name] = heirs
    return f"({condition} OR {_IS_ONE_OF.format(name)})"


def _add_folder_conditions(
    handle: Connection, where: SessionFilter, conditions: list[str], values: dict[str, Any]
) -> None:
    """Match folders and their subfolders, never a sibling with the same prefix."""
    validation.check_text("cwd_prefix", where.cwd_prefix)
    present = [name for name in ("cwd", "git_repo_root") if handle.has_column("sessions", name)]
    for name, columns in (("cwd_prefix", ["cwd"]), ("project", present)):
        bounds: dict[str, str] = {}
        matches = []
        for number, folder in enumerate(validation.parse_folders(name, getattr(where, name)) or ()):
            key = f"{name}_{number}"
            bounds |= _make_folder_values(key, folder)
            matches += [_make_folder_prefix(column, key) for column in columns]
        if getattr(where, name) is not None:
            values |= bounds
            folder_condition = f"({' OR '.join(matches) or '1 = 0'})"
            conditions.append(
                _build_inherited_condition(
                    handle, lineage.FOLDER_COLUMNS, folder_condition, bounds, values
                )
            )


def _make_folder_values(name: str, path: str) -> dict[str, str]:
    stem = path.rstrip("/\\")
    # A home may have folders of any system, so both separators count.
    return {name: stem or path, f"{name}_below": f"{stem}/", f"{name}_under": f"{stem}\\"}


def _make_folder_prefix(column: str, name: str) -> str:
    beginning = f"substr(s.{column}, 1, length(:{name}_below))"
    return f"(s.{column} = :{name} OR {beginning} IN (:{name}_below, :{name}_under))"


def _add_word_conditions(
    handle: Connection, where: SessionFilter, conditions: list[str], values: dict[str, Any]
) -> None:
    if where.words is None:
        return
    validation.check_text("words", where.words)
    name = "s.display_name" if handle.has_column("sessions", "display_name") else "''"
    text = f"(coalesce(s.title, '') || ' ' || coalesce({name}, '') || ' ' || s.id)"
    words = where.words.split()
    if len(words) > _MAX_WORDS:
        raise InvalidInput(f"words must have at most {_MAX_WORDS} words, got {len(words):,}")
    for place, word in enumerate(words):
        bounds = {f"word_{place}": f"%{_escape_like(word)}%"}
        values |= bounds
        # An earlier session of the conversation counts too, so no columns limit the heirs.
        matches = handle.expand_sql(f"{text} {{like}} :word_{place} ESCAPE '\\'")
        conditions.append(_build_inherited_condition(handle, (), matches, bounds, values))


def _check_size(name: str, value: Any) -> None:
    """Refuse a value that some engine cannot compare."""
    if isinstance(value, str) and len(value) > _MAX_PATTERN_LENGTH:
        raise InvalidInput(f"{name} must have at most {_MAX_PATTERN_LENGTH:,} characters")
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise InvalidInput(f"{name} must be a number of at most 64 bits, got {value!r:.40}")


def _escape_like(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
