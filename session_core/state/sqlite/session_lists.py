"""Lists of sessions: orders, list lines, and the newest sessions of a database.

A list has one line for each conversation: its tip, with the start of its root. `RecentSessions` is
the cache of the usual list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, cast

from session_core.errors import InvalidInput
from session_core.state import content, cursors, sql_blocks, validation
from session_core.state.sqlite import fts, lineage, sessions
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.session_filters import check_filter, compose_condition
from session_core.state.sqlite.store import SqliteOperations
from session_core.types import Page, SessionFilter, SessionOrder, SessionSummary

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

MAX_RECENT = 200
"""Number of kept sessions. A later page reads every session."""

_MAX_NEWER = 5000


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

        Args:
            where: a filter. Without a status, archived conversations are left out.
            order: `recent` (the last message) and `started`, newest first; `size` by live messages;
                `cost` and `tokens` by the whole conversation.
            limit: the largest number of lines.
            cursor: the `next_cursor` of the previous page, with the same other arguments.
            below: a position after which the list begins, to merge lists of several homes: the
                value of the order and the id (with `started`, the id of the root).

        Raises:
            InvalidInput: the cursor belongs to another list, or an argument is invalid.

        Example:
            >>> from session_core import SessionDB, SessionFilter
            >>> db = SessionDB(":memory:")
            >>> _ = db.append_message("s1", "user", "hello", create={"source": "cli"})
            >>> page = db.list_sessions(SessionFilter(source=("cli",)))
            >>> [(line.id, line.messages) for line in page.items]
            [('s1', 1)]
        """
        where = SessionFilter() if where is None else check_filter(where)
        if order not in tuple(_BLOCKS_BY_ORDER):
            raise InvalidInput(
                f"unknown order {order!r:.40}; valid are {', '.join(_BLOCKS_BY_ORDER)}"
            )
        validation.check_limit(limit)
        # A cursor continues only a list with the same order and filter.
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
    cost, tokens, active_at, count = handle.fetch_tuples(_compose_figures(handle), (session_id,))[0]
    return SessionSummary(
        id=session_id,
        root_id=root_id,
        title=row["title"],
        preview=preview,
        source=origin.source,
        status="archived" if archived else "open" if ended_at is None else "ended",
        started_at=_to_seconds(root["started_at"]),
        last_active_at=active_at,
        ended_at=None if ended_at is None else _to_seconds(ended_at),
        end_reason=row["end_reason"],
        messages=count,
        project=origin.folder,
        pinned=bool(row.get("pinned")),
        preview_id=preview_id,
        chat=row.get("display_name") or root.get("display_name"),
        branch=row.get("git_branch"),
        model=row.get("model"),
        tokens=int(tokens),
        cost=float(cost),
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
            handle.expand_sql(SQL["get_preview"]),
            _compose_figures(handle),
        ),
        tips,
    )


def _compose_figures(handle: Connection) -> str:
    """Return the statement of the figures of a line, as the lists order them."""
    amounts = {name: _compose_amount(handle, name) for name in _AMOUNTS}
    return handle.expand_sql(
        handle.resolve_block(SQL["get_figures"]).format(**amounts, live="{live}")
    )


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
    # A row that is not the tip of a conversation gives no line, so more rows than lines are read.
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


class RecentSessions:
    """The newest sessions of one database, as `(active_at, id)`, newest first.

    The first call reads every session. Later calls read only newer messages, the listed sessions,
    sessions stored since by their row ids, and sessions that lost their messages by their start.
    After larger changes every session is read again.
    """

    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql
        self._newest: list[tuple[float, str]] = []
        self._last_message = -1
        self._last_session: tuple[int, str] = (0, "")
        self._is_complete = False

    def list_newest(self, handle: Connection) -> list[tuple[float, str]]:
        """Return the newest sessions as of the open snapshot."""
        # Commits of other processes clear `seen`, so the list is updated once for each commit.
        if handle.seen.get("recency") is not True:
            if not self._read_new_sessions(handle):
                self._read_all_sessions(handle)
            handle.seen["recency"] = True
        return self._newest

    @property
    def is_complete(self) -> bool:
        """True if the list contains every session."""
        return self._is_complete

    def _read_all_sessions(self, handle: Connection) -> None:
        """Read every session by its id alone, since rows are long."""
        rows = handle.fetch_tuples(self._sql["list_newest"], {"rows": MAX_RECENT})
        active = [
            (active_at, session_id) for session_id, active_at in rows if active_at is not None
        ]
        oldest = active[-1][0] if len(active) == MAX_RECENT else float("-inf")
        empty = self._list_empty_sessions(handle, oldest)
        active += [(started_at, session_id) for session_id, started_at in empty]
        self._is_complete = len(active) < MAX_RECENT
        self._newest = _sort_newest_first(active)
        self._last_message = fts.find_highest_id(handle)
        self._last_session = self._find_latest_session(handle)

    def _read_new_sessions(self, handle: Connection) -> bool:
        if self._last_message < 0 or not self._newest:
            return False
        since = {"since": self._last_message, "rows": _MAX_NEWER}
        last = fts.find_highest_id(handle)
        if last < self._last_message or last - self._last_message >= _MAX_NEWER:
            return False
        rowid, session_id = self._last_session
        # Row ids are reused after the highest ones are deleted, and a VACUUM changes them.
        if handle.fetch_value(self._sql["get_session_at"], (rowid,)) != session_id:
            return False
        oldest = self._newest[-1]
        members = {session_id for _, session_id in self._newest}
        members |= {row[0] for row in handle.fetch_tuples(self._sql["list_newer"], since)}
        members |= {row[0] for row in handle.fetch_tuples(self._sql["list_stored_since"], (rowid,))}
        if not self._is_complete:
            members |= {row[0] for row in self._list_empty_sessions(handle, oldest[0])}
        members = {member for member in members if isinstance(member, str)}
        entries = [
            (active_at, member)
            for member in members
            if (active_at := handle.fetch_value(self._sql["get_activity"], {"id": member}))
            is not None
        ]
        # Below the oldest kept entry there may be sessions that were never read.
        self._newest = sorted(
            (entry for entry in entries if self._is_complete or entry >= oldest), reverse=True
        )[:MAX_RECENT]
        self._is_complete = self._is_complete and len(entries) <= MAX_RECENT
        self._last_message = last
        self._last_session = self._find_latest_session(handle)
        return self._is_complete or len(self._newest) >= MAX_RECENT // 2

    def _list_empty_sessions(self, handle: Connection, oldest: float) -> list[tuple[str, float]]:
        """Return the newest sessions without messages that began after the oldest entry."""
        bounds = {"oldest": oldest, "rows": MAX_RECENT}
        return handle.fetch_tuples(self._sql["list_newest_empty"], bounds)

    def _find_latest_session(self, handle: Connection) -> tuple[int, str]:
        rows = handle.fetch_tuples(self._sql["get_last_session"])
        return rows[0] if rows else (0, "")


def _sort_newest_first(active: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the entries newest first, without ids that are not text."""
    entries = [entry for entry in active if isinstance(entry[1], str)]
    return sorted(entries, reverse=True)[:MAX_RECENT]
