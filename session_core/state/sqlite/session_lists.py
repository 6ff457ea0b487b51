"""Lists of sessions: filters in SQL, orders, and list lines.

A filter becomes fixed SQL text with bound values. A list has one line for each conversation: its
tip, with the start of its root.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, cast

from session_core.errors import InvalidInput
from session_core.state import content, cursors, sql_blocks, validation
from session_core.state.sqlite import lineage, messages, sessions
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.recent_sessions import RecentSessions
from session_core.state.sqlite.store import SqliteOperations
from session_core.types import Page, SessionFilter, SessionOrder, SessionStatus, SessionSummary

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
            bounds |= _clean_folder(key, folder)
            matches += [_make_folder_prefix(column, key) for column in columns]
        if getattr(where, name) is not None:
            values |= bounds
            folder_condition = f"({' OR '.join(matches) or '1 = 0'})"
            conditions.append(
                _build_inherited_condition(
                    handle, lineage.FOLDER_COLUMNS, folder_condition, bounds, values
                )
            )


def _clean_folder(name: str, path: str) -> dict[str, str]:
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


SQL = sql_blocks.load_blocks("session_lists")

_BLOCKS_BY_ORDER: dict[SessionOrder, str] = {
    "recent": "list_active",
    "started": "list_started",
    "size": "list_sizes",
    "cost": "list_amounts",
    "tokens": "list_amounts",
}
_AMOUNTS = {
    "cost": "(coalesce({0}.actual_cost_usd, {0}.estimated_cost_usd, 0) + 0.0)",
    "tokens": "(coalesce({0}.input_tokens, 0) + coalesce({0}.output_tokens, 0))",
}
_AMOUNT_PLACEHOLDER = "/*amount*/ 0"
_FIRST_POSITION = (float("inf"), "\U0010ffff")
_PREVIEW_CHARACTERS = 60
_FILTER_PLACEHOLDER = "/*filter*/ 1"

ListPosition = tuple[float, str]


def count_sessions(handle: Connection, where: SessionFilter) -> int:
    """Count the sessions of every kind that match a filter."""
    condition, values = compose_condition(handle, where)
    statement = handle.resolve_block(SQL["count_ids"]).replace(_FILTER_PLACEHOLDER, condition)
    return cast("int", handle.fetch_value(statement, values))


class SqliteLists(SqliteOperations):
    """Lists of conversations."""

    def list_sessions(
        self,
        where: SessionFilter | None = None,
        *,
        order: SessionOrder = "recent",
        limit: int = 20,
        cursor: str | None = None,
        below: tuple[float, str] | None = None,
    ) -> Page[SessionSummary]:
        """List the tips of conversations, one line each, without continuations and delegates.

        Archived conversations are left out unless the filter has a status. `recent` orders by the
        last message, newest first, `size` by live messages, `cost` and `tokens` by the whole
        conversation. `below` begins after a position that no cursor of this list has: the value of
        the order and the id (`started`: of the root).

        Raises:
            InvalidInput: the cursor belongs to another list, or an argument is invalid.
        """
        where = SessionFilter() if where is None else check_filter(where)
        if order not in tuple(_BLOCKS_BY_ORDER):
            raise InvalidInput(
                f"unknown order {order!r:.40}; valid are {', '.join(_BLOCKS_BY_ORDER)}"
            )
        validation.check_limit(limit)
        scope = [order, repr(where)]
        edge = _FIRST_POSITION if below is None else _decode_position(list(below))
        if cursor is not None:
            edge = _decode_position(cursors.decode_cursor("list", scope, cursor))

        def read_list_page(handle: Connection) -> Page[SessionSummary]:
            lines: list[SessionSummary] = []
            last = edge
            for position, session_id in _iter_candidates(handle, where, order, edge, limit):
                line = (
                    _summarize_conversation(handle, session_id)
                    if _is_started_within(handle, where, session_id)
                    else None
                )
                if line is None:
                    continue
                # One line more than the page shows that there is a next page.
                if len(lines) == limit:
                    return Page(lines, cursors.encode_cursor("list", scope, last))
                lines.append(line)
                last = position
            return Page(lines)

        return self._read(read_list_page)

    def summarize_session(self, session_id: str) -> SessionSummary:
        """Return the list line of one session."""
        return self._read(lambda handle: summarize_session(handle, session_id))

    def find_sessions(self, where: SessionFilter) -> list[str]:
        """Return the ids of all matching sessions of every kind, oldest start first."""

        def read_session_ids(handle: Connection) -> list[str]:
            condition, values = compose_condition(handle, where)
            statement = handle.resolve_block(SQL["list_ids"]).replace(
                _FILTER_PLACEHOLDER, condition
            )
            return [row[0] for row in handle.fetch_tuples(statement, values)]

        return self._read(read_session_ids)


def _decode_position(position: Any) -> ListPosition:
    match position:
        case [float() | int() as at, str() as session_id]:
            return at, session_id
    raise InvalidInput("malformed cursor; pass next_cursor of the previous page unchanged")


def summarize_session(handle: Connection, session_id: str) -> SessionSummary:
    """Return the list line of one session, cached for the snapshot."""
    summaries: dict[str, SessionSummary] = handle.seen.setdefault("summaries", {})
    if session_id not in summaries:
        summaries[session_id] = _summarize_cached(handle, session_id)
    return summaries[session_id]


def _summarize_cached(handle: Connection, session_id: str) -> SessionSummary:
    row = sessions.require_session(handle, session_id)
    root_id = lineage.find_root_cached(handle, session_id)
    root = row if root_id == session_id else sessions.find_session(handle, root_id) or row
    archived, ended_at = row.get("archived"), row["ended_at"]
    preview, preview_id = _read_preview(handle, session_id)
    origin = lineage.find_origin(handle, row)
    user_id, chat_id = lineage.find_owner(handle, row)
    cost, tokens = _compute_amounts(handle, row)
    return SessionSummary(
        id=session_id,
        root_id=root_id,
        title=row["title"],
        preview=preview,
        source=origin.source,
        status="archived" if archived else "open" if ended_at is None else "ended",
        started_at=_to_seconds(root["started_at"]),
        last_active_at=handle.fetch_value(SQL["get_activity"], {"id": session_id}),
        ended_at=None if ended_at is None else _to_seconds(ended_at),
        end_reason=row["end_reason"],
        messages=_count_live_messages(handle, session_id),
        project=origin.folder,
        pinned=bool(row.get("pinned")),
        preview_id=preview_id,
        chat=row.get("display_name") or root.get("display_name"),
        branch=row.get("git_branch"),
        model=row.get("model"),
        tokens=tokens,
        cost=cost,
        user_id=user_id,
        chat_id=chat_id,
    )


def _prefetch_lines(handle: Connection, session_ids: Sequence[str], count: int) -> None:
    """Prepare to read the list lines of the first `count` tips among some sessions."""
    if not handle.can_prefetch:
        return
    handle.prefetch_rows((sessions.SQL["has_session"],), session_ids)
    lineage.prefetch_chains(handle, session_ids)
    tips = list(islice((one for one in session_ids if _is_listed(handle, one)), count))
    roots = (lineage.find_root_cached(handle, tip) for tip in tips)
    handle.prefetch_rows((sessions.SQL["get_session"],), list(dict.fromkeys((*tips, *roots))))
    handle.prefetch_rows(
        (
            SQL["get_activity"],
            handle.expand_sql(SQL["get_preview"]),
            handle.expand_sql(messages.SQL["count_live"]),
            _compose_amounts(handle),
        ),
        tips,
    )


def _compute_amounts(handle: Connection, row: Mapping[str, Any]) -> tuple[float, int]:
    """Return the cost and the tokens of a conversation, as the lists order them."""
    (values,) = handle.fetch_tuples(_compose_amounts(handle), (row["id"],))
    return float(values[0]), int(values[1])


def _compose_amounts(handle: Connection) -> str:
    amounts = ((name, _compose_amount(handle, name)) for name in _AMOUNTS)
    return handle.resolve_block(SQL["get_amounts"]).format(**dict(amounts))


def _compose_amount(handle: Connection, name: str) -> str:
    return handle.resolve_block(SQL["amount_of_conversation"]).format(
        own=_AMOUNTS[name].format("s"),
        earlier=_AMOUNTS[name].format("earlier"),
        continues=handle.resolve_block(lineage.SQL["continues"]),
    )


def _to_seconds(stored: Any) -> float:
    """Return a stored time, or 0.0 if it is not a number."""
    return stored if isinstance(stored, (int, float)) else 0.0


def _summarize_conversation(handle: Connection, session_id: str) -> SessionSummary | None:
    """Return the list line of a conversation if a session is its tip, else None."""
    lines: dict[str, SessionSummary | None] = handle.seen.setdefault("lines", {})
    if session_id not in lines:
        is_listed = _is_listed(handle, session_id)
        lines[session_id] = summarize_session(handle, session_id) if is_listed else None
    return lines[session_id]


def _is_listed(handle: Connection, session_id: str) -> bool:
    """Return True if a list has a line for a session."""
    return _has_usable_id(handle, session_id) and _is_conversation_tip(handle, session_id)


def _has_usable_id(handle: Connection, session_id: str) -> bool:
    """Return True if an id is text and equal to its stored bytes."""
    return isinstance(session_id, str) and sessions.has_session(handle, session_id)


def _is_conversation_tip(handle: Connection, session_id: str) -> bool:
    kind = lineage.find_link_kind(handle, session_id)
    if kind == "delegate" or (kind == "other" and _is_tool(handle, session_id)):
        return False
    return (
        lineage.find_tip_cached(handle, lineage.find_root_cached(handle, session_id)) == session_id
    )


def _iter_candidates(
    handle: Connection, where: SessionFilter, order: SessionOrder, edge: ListPosition, limit: int
) -> Iterator[tuple[ListPosition, str]]:
    """Yield matching sessions in order, each with its position, from below `edge`."""
    condition, values = _compose_tip_condition(handle, where)
    if order == "started":
        yield from _iter_by_start(handle, (condition, values), edge, limit)
        return
    if order == "recent" and where == SessionFilter() and handle.has_row_ids:
        recency: RecentSessions = handle.kept.setdefault(
            "recency", RecentSessions(_build_unfiltered_blocks())
        )
        for entry in recency.list_newest(handle):
            if edge == _FIRST_POSITION or entry < edge:
                edge = entry
                if not _is_archived(handle, entry[1]):
                    yield entry, entry[1]
        if recency.is_complete:
            return
    statement = _compose_list(handle, order).replace(_FILTER_PLACEHOLDER, condition)
    rows = limit * 2
    while True:
        bounds = {**values, "edge": edge[0], "edge_id": edge[1], "rows": rows}
        page = handle.fetch_tuples(statement, bounds)
        _prefetch_lines(handle, [session_id for session_id, _ in page], limit + 1)
        for session_id, position in page:
            edge = (position, session_id)
            yield edge, session_id
        if len(page) < rows:
            return
        rows *= 4


def _compose_list(handle: Connection, order: SessionOrder) -> str:
    """Return the statement of an order, with the place of the filter."""
    statement = handle.expand_sql(SQL[_BLOCKS_BY_ORDER[order]])
    if order not in _AMOUNTS:
        return statement
    # Only the other engine has the last three.
    parts = {
        _AMOUNT_PLACEHOLDER: _compose_amount(handle, order),
        "/*own*/ 0": _AMOUNTS[order].format("s"),
        "/*own of child*/ 0": _AMOUNTS[order].format("child"),
        "/*continues*/ true": handle.resolve_block(lineage.SQL["continues"]),
    }
    for placeholder, part in parts.items():
        statement = statement.replace(placeholder, part)
    return statement


def _compose_tip_condition(handle: Connection, where: SessionFilter) -> tuple[str, dict[str, Any]]:
    """Build the condition on tips.

    A conversation starts with its root, so the start of a tip with a parent is checked later.
    """
    without_start = replace(where, started_after=None, started_before=None)
    condition, values = compose_condition(handle, without_start)
    if where == without_start:
        return condition, values
    start_filter = SessionFilter(
        status="all", started_after=where.started_after, started_before=where.started_before
    )
    start_condition, bounds = compose_condition(handle, start_filter)
    return (
        f"{condition} AND (s.parent_session_id IS NOT NULL OR {start_condition})",
        values | bounds,
    )


def _is_started_within(handle: Connection, where: SessionFilter, session_id: str) -> bool:
    """Return True if the conversation of a session began in the requested period."""
    bounds = {"after": where.started_after, "before": where.started_before}
    if all(value is None for value in bounds.values()):
        return True
    root = lineage.find_root_cached(handle, session_id)
    return bool(handle.fetch_value(SQL["began_within"], {"id": root, **bounds}))


def _iter_by_start(
    handle: Connection, condition: tuple[str, dict[str, Any]], edge: ListPosition, limit: int
) -> Iterator[tuple[ListPosition, str]]:
    """Yield matching tips, ordered by the start of their roots."""
    statement = handle.resolve_block(SQL["filter_ids"]).replace(_FILTER_PLACEHOLDER, condition[0])
    rows = limit * 2
    while True:
        roots = handle.fetch_tuples(
            SQL["list_started"], {"edge": edge[0], "edge_id": edge[1], "rows": rows}
        )
        lineage.prefetch_chains(handle, [root for root, *_ in roots])
        tips_by_root = [
            ((at, root), _find_tip_of_root(handle, root, *link)) for root, at, *link in roots
        ]
        tips = json.dumps([tip for _, tip in tips_by_root if isinstance(tip, str)])
        matching = {
            row[0] for row in handle.fetch_tuples(statement, {**condition[1], "tips": tips})
        }
        _prefetch_lines(handle, list(matching), limit + 1)
        yield from (
            (place, tip) for place, tip in tips_by_root if tip is not None and tip in matching
        )
        if len(roots) < rows:
            return
        edge = (roots[-1][1], roots[-1][0])
        rows *= 4


def _find_tip_of_root(
    handle: Connection, session_id: str, parent: str | None, end_reason: str | None
) -> str | None:
    """Return the tip of the conversation that began with a session, or None."""
    if parent is not None:
        root = lineage.find_root_cached(handle, session_id)
        # A cycle has no common root, but its conversation must still be listed.
        if root != session_id and lineage.find_root_cached(handle, root) == root:
            return None
    return (
        lineage.find_tip_cached(handle, session_id) if end_reason == "compression" else session_id
    )


def _build_unfiltered_blocks() -> dict[str, str]:
    return {name: block.replace(_FILTER_PLACEHOLDER, "1") for name, block in SQL.items()}


def _is_tool(handle: Connection, session_id: str) -> bool:
    row = sessions.find_session(handle, session_id)
    return row is not None and row["source"] == "tool"


def _is_archived(handle: Connection, session_id: str) -> bool:
    row = sessions.find_session(handle, session_id)
    return row is None or bool(row.get("archived"))


def _count_live_messages(handle: Connection, session_id: str) -> int:
    count: int = handle.fetch_value(handle.expand_sql(messages.SQL["count_live"]), (session_id,))
    return count


def _read_preview(handle: Connection, session_id: str) -> tuple[str, int | None]:
    """Return the beginning of the first user message, and its id."""
    # No index of Hermes is in the order of ids, so the query orders only the oldest thousand
    # messages by time.
    rows = handle.fetch_tuples(handle.expand_sql(SQL["get_preview"]), (session_id,))
    message_id, stored = next(iter(rows), (None, None))
    text = " ".join(content.extract_plain_text(content.decode_content(stored)).split())
    return (
        text if len(text) <= _PREVIEW_CHARACTERS else text[:_PREVIEW_CHARACTERS] + "..."
    ), message_id
