"""Lists that show one line a conversation: its tip, with the start of its root."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from session_core.errors import InvalidInput
from session_core.models import Order, Page, SessionFilter, SessionSummary
from session_core.state import arguments, content, cursors
from session_core.state.sqlite import blocks, filters, inheritance, lineage, messages, sessions
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.recency import Recency
from session_core.state.sqlite.store import Store

SQL = blocks.load("lists")

_BLOCKS: dict[Order, str] = {
    "recent": "list_active",
    "started": "list_started",
    "size": "list_sizes",
}
_START = (float("inf"), "\U0010ffff")
_PREVIEW = 60
_FILTER = "/*filter*/ 1"

Edge = tuple[float, str]


class Lists(Store):
    """Lists of conversations."""

    def list_sessions(
        self,
        where: SessionFilter | None = None,
        *,
        order: Order = "recent",
        limit: int = 20,
        cursor: str | None = None,
    ) -> Page[SessionSummary]:
        """List conversations, one line each: no continuations, no delegates, the tips.

        Without a status archived ones are left out. `recent` is by the last message, newest
        first; `size` by the number of live messages.

        Raises:
            InvalidInput: the cursor is of another list, or an argument makes no sense.
        """
        where = SessionFilter() if where is None else filters.checked(where)
        if order not in tuple(_BLOCKS):
            raise InvalidInput(f"unknown order {order!r:.40}; known are {', '.join(_BLOCKS)}")
        arguments.check_limit(limit)
        scope = [order, repr(where)]
        edge = _START if cursor is None else _edge(cursors.decode("list", scope, cursor))

        def look(handle: Handle) -> Page[SessionSummary]:
            lines: list[SessionSummary] = []
            last = edge
            for position, session_id in _candidates(handle, where, order, edge, limit):
                line = (
                    _line(handle, session_id) if _began_within(handle, where, session_id) else None
                )
                if line is None:
                    continue
                if len(lines) == limit:
                    return Page(lines, cursors.encode("list", scope, last))
                lines.append(line)
                last = position
            return Page(lines)

        return self._read(look)

    def summarize(self, session_id: str) -> SessionSummary:
        """Return the line of one session as it would stand in a list."""
        return self._read(lambda handle: summary(handle, session_id))

    def find_sessions(self, where: SessionFilter) -> list[str]:
        """Return the ids of all rows that match, of every kind, oldest start first."""

        def look(handle: Handle) -> list[str]:
            condition, values = filters.compose(handle, where)
            statement = SQL["list_ids"].replace(_FILTER, condition)
            return [row[0] for row in handle.values(statement, values)]

        return self._read(look)


def _edge(position: Any) -> Edge:
    match position:
        case [float() | int() as at, str() as session_id]:
            return at, session_id
    raise InvalidInput("malformed cursor; take next_cursor of the page before as it is")


def summary(handle: Handle, session_id: str) -> SessionSummary:
    """Return the line of one session; what it takes to count a long one is taken once."""
    known: dict[str, SessionSummary] = handle.seen.setdefault("summaries", {})
    if session_id not in known:
        known[session_id] = _summed_up(handle, session_id)
    return known[session_id]


def _summed_up(handle: Handle, session_id: str) -> SessionSummary:
    row = sessions.require(handle, session_id)
    root_id = lineage.known_root(handle, session_id)
    root = row if root_id == session_id else sessions.get(handle, root_id) or row
    archived, ended_at = row.get("archived"), row["ended_at"]
    preview, preview_id = _preview(handle, session_id)
    origin = inheritance.known_origin(handle, row)
    return SessionSummary(
        id=session_id,
        root_id=root_id,
        title=row["title"],
        preview=preview,
        source=origin.source,
        status="archived" if archived else "open" if ended_at is None else "ended",
        started_at=_seconds(root["started_at"]),
        last_active_at=handle.value(SQL["get_activity"], {"id": session_id}),
        ended_at=None if ended_at is None else _seconds(ended_at),
        end_reason=row["end_reason"],
        messages=_live_messages(handle, session_id),
        project=origin.folder,
        pinned=bool(row.get("pinned")),
        preview_id=preview_id,
    )


def _seconds(stored: Any) -> float:
    """Return a time of a row; a careless writer may have left what is none."""
    return stored if isinstance(stored, (int, float)) else 0.0


def _line(handle: Handle, session_id: str) -> SessionSummary | None:
    """Return the line of a session that stands for a conversation, None for any other."""
    lines: dict[str, SessionSummary | None] = handle.seen.setdefault("lines", {})
    if session_id not in lines:
        shown = _can_be_asked_for(handle, session_id) and _stands_for_conversation(
            handle, session_id
        )
        lines[session_id] = summary(handle, session_id) if shown else None
    return lines[session_id]


def _can_be_asked_for(handle: Handle, session_id: str) -> bool:
    """Whether an id is text, and stored as it reads."""
    return isinstance(session_id, str) and sessions.is_there(handle, session_id)


def _stands_for_conversation(handle: Handle, session_id: str) -> bool:
    kind = lineage.kind_of(handle, session_id)
    if kind == "delegate" or (kind == "other" and _is_tool(handle, session_id)):
        return False
    return lineage.known_tip(handle, lineage.known_root(handle, session_id)) == session_id


def _candidates(
    handle: Handle, where: SessionFilter, order: Order, edge: Edge, limit: int
) -> Iterator[tuple[Edge, str]]:
    """Yield the sessions that match, in order, each with its place, beginning below `edge`."""
    condition, values = _condition(handle, where)
    if order == "started":
        yield from _by_start(handle, (condition, values), edge, limit)
        return
    if order == "recent" and where == SessionFilter():
        recency: Recency = handle.kept.setdefault("recency", Recency(_unfiltered()))
        for entry in recency.newest(handle):
            if edge == _START or entry < edge:
                edge = entry
                if not _is_archived(handle, entry[1]):
                    yield entry, entry[1]
        if recency.whole:
            return
    statement = handle.sql(SQL[_BLOCKS[order]]).replace(_FILTER, condition)
    rows = limit * 2
    while True:
        given = {**values, "edge": edge[0], "edge_id": edge[1], "rows": rows}
        found = handle.values(statement, given)
        for session_id, position in found:
            edge = (position, session_id)
            yield edge, session_id
        if len(found) < rows:
            return
        rows *= 4


def _condition(handle: Handle, where: SessionFilter) -> tuple[str, dict[str, Any]]:
    """Return the condition on the sessions of lines: a tip begins with its root, not here told."""
    anywhen = replace(where, started_after=None, started_before=None)
    condition, values = filters.compose(handle, anywhen)
    if where == anywhen:
        return condition, values
    began = SessionFilter(
        status="all", started_after=where.started_after, started_before=where.started_before
    )
    within, bounds = filters.compose(handle, began)
    return f"{condition} AND (s.parent_session_id IS NOT NULL OR {within})", values | bounds


def _began_within(handle: Handle, where: SessionFilter, session_id: str) -> bool:
    """Whether the conversation of a session began when it was asked for."""
    bounds = {"after": where.started_after, "before": where.started_before}
    if all(value is None for value in bounds.values()):
        return True
    root = lineage.known_root(handle, session_id)
    return bool(handle.value(SQL["began_within"], {"id": root, **bounds}))


def _by_start(
    handle: Handle, condition: tuple[str, dict[str, Any]], edge: Edge, limit: int
) -> Iterator[tuple[Edge, str]]:
    """Yield the tips that match, by the start of their roots, where a conversation began."""
    statement = SQL["filter_ids"].replace(_FILTER, condition[0])
    rows = limit * 2
    while True:
        found = handle.values(
            SQL["list_started"], {"edge": edge[0], "edge_id": edge[1], "rows": rows}
        )
        begun = [((at, root), _tip_from(handle, root, *link)) for root, at, *link in found]
        tips = json.dumps([tip for _, tip in begun if isinstance(tip, str)])
        matching = {row[0] for row in handle.values(statement, {**condition[1], "tips": tips})}
        yield from ((place, tip) for place, tip in begun if tip is not None and tip in matching)
        if len(found) < rows:
            return
        edge = (found[-1][1], found[-1][0])
        rows *= 4


def _tip_from(
    handle: Handle, session_id: str, parent: str | None, end_reason: str | None
) -> str | None:
    """Return the tip of the conversation that began with a session, None where none did."""
    if parent is not None:
        root = lineage.known_root(handle, session_id)
        # In a cycle nobody is the root of all, and still the conversation does not vanish.
        if root != session_id and lineage.known_root(handle, root) == root:
            return None
    return lineage.known_tip(handle, session_id) if end_reason == "compression" else session_id


def _unfiltered() -> dict[str, str]:
    return {name: block.replace(_FILTER, "1") for name, block in SQL.items()}


def _is_tool(handle: Handle, session_id: str) -> bool:
    row = sessions.get(handle, session_id)
    return row is not None and row["source"] == "tool"


def _is_archived(handle: Handle, session_id: str) -> bool:
    row = sessions.get(handle, session_id)
    return row is None or bool(row.get("archived"))


def _live_messages(handle: Handle, session_id: str) -> int:
    count: int = handle.value(handle.sql(messages.SQL["count_live"]), (session_id,))
    return count


def _preview(handle: Handle, session_id: str) -> tuple[str, int | None]:
    """Return the beginning of what the user said first, and in which message.

    No index of Hermes is in the order of ids, so of a session longer than a thousand messages only
    the oldest thousand by their times are put into that order.
    """
    rows = handle.values(handle.sql(SQL["get_preview"]), (session_id,))
    message_id, stored = next(iter(rows), (None, None))
    text = " ".join(content.plain_text(content.decode(stored)).split())
    return (text if len(text) <= _PREVIEW else text[:_PREVIEW] + "..."), message_id
