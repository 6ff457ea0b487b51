"""Pages of messages around a position, and whole conversations.

Ids are read first, from an index alone, and then only the rows of the page, so a page in the middle
of a long session costs as much as the first page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from session_core.errors import InvalidInput, NotFound
from session_core.state import content, sql_blocks, validation
from session_core.state.sqlite import compaction, fts, lineage, messages, sessions
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.store import SqliteOperations
from session_core.types import MessageView, MessageWindow

SQL = sql_blocks.load_blocks("pages")

_STATES_BY_VIEW: dict[MessageView, tuple[str, ...]] = {
    "live": ("live",),
    "full": ("live", "compacted"),
}
_SPARSE_FIELDS = (
    "api_content",
    "timestamp",
    "tool_call_id",
    "tool_name",
    "effect_disposition",
    "tool_calls",
)
_ASSISTANT_JSON = ("reasoning_details", "codex_reasoning_items", "codex_message_items")


class SqliteWindows(SqliteOperations):
    """Pages of messages and whole conversations."""

    def read_window(
        self,
        session_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        around: int | None = None,
        limit: int = 50,
        roles: Sequence[str] | None = None,
        view: MessageView = "live",
    ) -> MessageWindow:
        """Return the newest messages, or messages before, after or around an id.

        Args:
            session_id: the session.
            before: return messages with smaller ids.
            after: return messages with larger ids.
            around: return messages on both sides of this id, and the message itself.
            limit: the largest number of messages.
            roles: return only messages with these roles.
            view: `live` returns the messages of the agent's context, `full` also compacted ones.

        Raises:
            NotFound: the session does not exist, or `around` is not in it.
            InvalidInput: several of `before`, `after` and `around` were given, or a limit below 1.

        Example:
            >>> from session_core import SessionDB
            >>> db = SessionDB(":memory:")
            >>> rows = [{"role": "user", "content": str(number)} for number in range(9)]
            >>> ids = db.append_messages("s1", rows, create={"source": "cli"}).ids
            >>> window = db.read_window("s1", around=ids[4], limit=3)
            >>> [message["content"] for message in window.messages], window.more_before
            (['3', '4', '5'], True)
        """
        if sum(edge is not None for edge in (before, after, around)) > 1:
            raise InvalidInput("give one of before, after and around")
        for name, edge in (("before", before), ("after", after), ("around", around)):
            validation.check_number(name, edge)
        validation.check_limit(limit)
        if view not in tuple(_STATES_BY_VIEW):
            raise InvalidInput(f"unknown view {view!r:.40}; valid are {', '.join(_STATES_BY_VIEW)}")
        role_names = validation.parse_texts("roles", roles)

        def read_window_rows(handle: Connection) -> MessageWindow:
            sessions.check_session(handle, session_id)
            finder = _WindowFinder(handle, session_id, role_names, view)
            if around is not None:
                return finder.read_around(around, limit)
            if after is not None:
                return finder.read_after(after, limit)
            return finder.read_before(fts.MAX_ID if before is None else before, limit)

        return self._read(read_window_rows)

    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False, include_inactive: bool = False
    ) -> list[dict[str, Any]]:
        """Return the messages for a model: roles, content, tool calls and reasoning, all decoded.

        Memory recalled for one call and reviews of the conversation are left out.

        Args:
            session_id: the session.
            include_ancestors: include the earlier sessions of the same conversation. Hermes also
                includes the ancestors of branches and delegates.
            include_inactive: include compacted and rewound messages.

        Example:
            >>> from session_core import SessionDB
            >>> db = SessionDB(":memory:")
            >>> _ = db.append_message("s1", "user", "hello", timestamp=9, create={"source": "cli"})
            >>> db.get_messages_as_conversation("s1")
            [{'role': 'user', 'content': 'hello', 'timestamp': 9.0}]
        """
        block = SQL["list_whole_conversation" if include_inactive else "list_live_conversation"]

        def read_conversation_rows(handle: Connection) -> list[dict[str, Any]]:
            members = [session_id]
            if include_ancestors:
                members += lineage.list_conversation_ancestors(handle, session_id)
            rows = handle.fetch_rows(handle.expand_sql(block), (json.dumps(members),))
            if include_ancestors:
                # A continuation begins with copies of messages of its parent.
                rows = _remove_copies(handle, rows)
            return list(content.drop_reviews(_to_chat_message(row) for row in rows))

        return self._read(read_conversation_rows)


class _WindowFinder:
    """Finds the ids of a page and reads its rows."""

    def __init__(
        self, handle: Connection, session_id: str, roles: Sequence[str] | None, view: MessageView
    ) -> None:
        self.handle = handle
        self.session_id = session_id
        self.roles = None if roles is None else json.dumps(roles)
        self.states = _STATES_BY_VIEW[view]

    def read_before(self, edge: int, limit: int) -> MessageWindow:
        ids = self._take_ids("before", edge, limit + 1)
        has_later = edge < fts.MAX_ID and self._has_messages("after", edge - 1)
        return self._build_window(ids[:limit], more_before=len(ids) > limit, more_after=has_later)

    def read_after(self, edge: int, limit: int) -> MessageWindow:
        ids = self._take_ids("after", edge, limit + 1)
        has_earlier = self._has_messages("before", edge + 1)
        return self._build_window(ids[:limit], more_before=has_earlier, more_after=len(ids) > limit)

    def read_around(self, center: int, limit: int) -> MessageWindow:
        row = self.handle.fetch_row(messages.SQL["get_message"], (center,))
        if row is None or row["session_id"] != self.session_id:
            raise NotFound(f"session {self.session_id} has no message {center}")
        earlier_ids = self._take_ids("before", center + 1, limit + 1)
        later_ids = self._take_ids("after", center, limit + 1)
        later_count = min(len(later_ids), limit // 2)
        # A side with few messages leaves its room to the other.
        earlier_count = min(len(earlier_ids), limit - later_count)
        later_count = min(len(later_ids), limit - earlier_count)
        return self._build_window(
            earlier_ids[:earlier_count] + later_ids[:later_count],
            more_before=len(earlier_ids) > earlier_count,
            more_after=len(later_ids) > later_count,
        )

    def _build_window(
        self, ids: list[int], *, more_before: bool, more_after: bool
    ) -> MessageWindow:
        rows = self.handle.fetch_rows(SQL["list_rows"], (json.dumps(ids),))
        return MessageWindow([messages.decode_row(row) for row in rows], more_before, more_after)

    def _has_messages(self, side: str, edge: int) -> bool:
        """Return True if there are messages on a side of the edge, without sorting them."""
        if self.roles is not None:
            return bool(self._take_ids(side, edge, 1))
        bounds = {"id": self.session_id, "edge": edge}
        # No index of Hermes has a session in the order of its ids, so a search without a result
        # would read the whole session.
        if self.handle.fetch_value(SQL[f"has_any_{side}"], (edge,)) is None:
            return False
        return any(
            self.handle.fetch_value(self.handle.expand_sql(SQL[f"has_{state}_{side}"]), bounds)
            for state in self.states
        )

    def _take_ids(self, side: str, edge: int, limit: int) -> list[int]:
        return list(islice(self._iter_ids(side, edge, limit), limit))

    def _iter_ids(self, side: str, edge: int, limit: int) -> Iterator[int]:
        """Yield ids away from `edge` with the selected roles, read in growing steps."""
        rows = limit
        while True:
            page = self._read_ids(side, edge, rows)
            yield from self._filter_roles(page)
            if len(page) < rows:
                return
            edge = page[-1]
            # A rare role may need many rows. Growing steps keep the number of statements small.
            rows *= 4

    def _read_ids(self, side: str, edge: int, rows: int) -> list[int]:
        ids: list[int] = []
        for state in self.states:
            statement = self.handle.expand_sql(SQL[f"find_{state}_{side}"])
            bounds = {"id": self.session_id, "edge": edge, "rows": rows}
            ids += [row[0] for row in self.handle.fetch_tuples(statement, bounds)]
        return sorted(ids, reverse=side == "before")[:rows]

    def _filter_roles(self, ids: list[int]) -> list[int]:
        if self.roles is None:
            return ids
        bounds = {"ids": json.dumps(ids), "roles": self.roles}
        matching = {row[0] for row in self.handle.fetch_tuples(SQL["filter_roles"], bounds)}
        return [message_id for message_id in ids if message_id in matching]


def _to_chat_message(row: dict[str, Any]) -> dict[str, Any]:
    """Return a message in the format of a chat completion, without empty fields."""
    body = content.decode_content(row["content"])
    role = row["role"]
    if role in ("user", "assistant") and isinstance(body, str):
        body = content.strip_recalled_memory(body)
    message: dict[str, Any] = {"role": role, "content": body}
    row["tool_calls"] = content.decode_json(row.get("tool_calls"))
    message |= {name: row[name] for name in _SPARSE_FIELDS if row.get(name)}
    if row.get("platform_message_id"):
        message["message_id"] = row["platform_message_id"]
    if row.get("observed"):
        message["observed"] = True
    if role == "assistant":
        message |= {name: row[name] for name in ("finish_reason", "reasoning") if row.get(name)}
        if row.get("reasoning_content") is not None:
            message["reasoning_content"] = row["reasoning_content"]
        message |= {
            name: content.decode_json(row[name]) for name in _ASSISTANT_JSON if row.get(name)
        }
    return message


def _remove_copies(handle: Connection, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove rows that a compaction copied, possibly into a continuation.

    Equal messages of one session, even with the same time, are not copies of a live row.
    """
    copies = compaction.find_copies(handle, _list_positions(rows))
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    kept: list[dict[str, Any]] = []
    for row in rows:
        key = (row["role"], row["timestamp"], row["content"], row.get("tool_call_id"))
        first_row = seen.setdefault(key, row)
        is_other_place = first_row["session_id"] != row["session_id"] or first_row.get("compacted")
        if row["id"] not in copies and (first_row is row or not is_other_place):
            kept.append(row)
    return kept


def _list_positions(rows: list[dict[str, Any]]) -> list[tuple[int, str, Any]]:
    placed = sorted(rows, key=lambda row: (row["session_id"], row["id"]))
    return [(row["id"], row["session_id"], row["timestamp"]) for row in placed]
