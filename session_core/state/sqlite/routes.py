"""Routing rows, which map chats to sessions.

The session store interprets the text of a row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, cast

from session_core.errors import Conflict, Unsupported
from session_core.state import cursors, sql_blocks, validation
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.store import SqliteOperations
from session_core.types import Page, SessionRow

SQL = sql_blocks.load_blocks("routes")
# The lists use `+scope` to read the table once in its own order. Its index would need a sort.

ROUTING_TABLE = "gateway_routing"
_CURSOR_KIND = "routes"
_CACHE_KEY = "led"


class SqliteRoutes(SqliteOperations):
    """Routing entries, and the sessions of chats."""

    @property
    def is_available(self) -> bool:
        """True if this database stores routes.

        Older Hermes homes have their routes only in a file.
        """
        return self._read(lambda handle: handle.has_column(ROUTING_TABLE))

    def get_entry(self, session_key: str, *, scope: str = "") -> str | None:
        """Return the entry of a key, or None."""

        def read_entry(handle: Connection) -> str | None:
            return (
                _read_entry(handle, scope, session_key)
                if handle.has_column(ROUTING_TABLE)
                else None
            )

        return self._read(read_entry)

    def load_entries(self, *, scope: str = "") -> dict[str, str]:
        """Return all entries of a scope by their keys."""

        def read_entries(handle: Connection) -> dict[str, str]:
            rows = (
                handle.fetch_tuples(SQL["list_routes"], (scope,))
                if handle.has_column(ROUTING_TABLE)
                else []
            )
            return {key: _decode_text(stored) for key, stored in rows}

        return self._read(read_entries)

    def list_scopes(self) -> dict[str, int]:
        """Return the number of entries of each scope, the last written scope first."""

        def count_entries(handle: Connection) -> dict[str, int]:
            return (
                dict(handle.fetch_tuples(SQL["list_scopes"]))
                if handle.has_column(ROUTING_TABLE)
                else {}
            )

        return self._read(count_entries)

    def dump_entries(
        self,
        *,
        scope: str = "",
        without: Collection[str] = (),
        limit: int = 1000,
        cursor: str | None = None,
    ) -> Page[str]:
        """Return the entries of a scope as members of a JSON object, without broken entries."""
        excluded = frozenset(validation.parse_texts("without", without) or ())
        after = 0 if cursor is None else cursors.decode_cursor(_CURSOR_KIND, scope, cursor)
        bounds = {"scope": scope, "after": after, "limit": limit}

        def read_members(handle: Connection) -> list[tuple[int, str, str]]:
            return (
                handle.fetch_tuples(SQL["dump_routes"], bounds)
                if handle.has_column(ROUTING_TABLE)
                else []
            )

        rows = self._read(read_members)
        more = (
            cursors.encode_cursor(_CURSOR_KIND, scope, rows[-1][0]) if len(rows) == limit else None
        )
        return Page([member for _, key, member in rows if key not in excluded], more)

    def save_entry(
        self, session_key: str, entry_json: str, *, scope: str = "", expect: str | None
    ) -> None:
        """Store one entry.

        `expect` is the text that was read before, or None for a new entry.

        Raises:
            Conflict: the entry has changed since.
        """
        now = self._clock()

        def put_entry(handle: Connection) -> None:
            _require_table(handle)
            # Compared under the write lock, so that two readers of one entry cannot both replace
            # it.
            if _read_entry(handle, scope, session_key) != expect:
                raise Conflict(f"the route of {session_key} has changed; read it again")
            values = {"scope": scope, "key": session_key, "entry": entry_json, "now": now}
            forget_routed_sessions(handle)
            handle.execute_update(SQL["put_route"], values)

        self._write(put_entry)

    def delete_entries(self, entries: Mapping[str, str], *, scope: str = "") -> list[str]:
        """Delete the entries that are unchanged since they were read, and return their keys."""
        validation.check_mapping("what is deleted", entries)

        def delete_unchanged_entries(handle: Connection) -> list[str]:
            _require_table(handle)
            # An entry that changed meanwhile belongs to a chat that is in use.
            unchanged = [
                key for key, text in entries.items() if _read_entry(handle, scope, key) == text
            ]
            for key in unchanged:
                delete_route(handle, scope, key)
            return unchanged

        return self._write(delete_unchanged_entries)

    def find_latest_session(
        self,
        *,
        source: str,
        session_key: str | None = None,
        user_id: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
        ended_as: Collection[str] | None = None,
        older_than: str | None = None,
    ) -> SessionRow | None:
        """Return the newest session of a chat, by its key, otherwise by user and chat.

        Sessions without messages and sessions that the chat has left are ignored. With `ended_as`,
        the session is live or ended for one of these reasons. With `older_than`, it began before
        that session.
        """
        reasons = validation.parse_texts("ended_as", ended_as)
        ended = None if reasons is None else json.dumps(reasons)
        bounds = {"source": source, "ended_as": ended, "older_than": older_than}
        peer = {
            "user_id": user_id or "",
            "chat_id": chat_id or "",
            "chat_type": chat_type or "",
            "thread_id": thread_id or "",
        }

        def read_latest_session(handle: Connection) -> SessionRow | None:
            if not handle.has_column("sessions", "session_key"):
                return None
            by_key = bounds | {"session_key": session_key}
            row = handle.fetch_row(SQL["find_by_key"], by_key) if session_key else None
            # A row without a chat belongs to no chat. Imported rows may have only a user.
            if row is None and (chat_id or (user_id and chat_type)):
                row = handle.fetch_row(SQL["find_by_peer"], bounds | peer)
            return cast("SessionRow | None", row)

        return self._read(read_latest_session)


def list_routed_sessions(handle: Connection) -> frozenset[Any]:
    """Return the sessions that routes lead to, cached until a route changes."""
    session_ids = handle.cache.get(_CACHE_KEY)
    if session_ids is None:
        session_ids = frozenset(
            session_id for (session_id,) in handle.fetch_tuples(SQL["list_led"])
        )
        handle.cache[_CACHE_KEY] = session_ids
    return cast("frozenset[Any]", session_ids)


def forget_routed_sessions(handle: Connection) -> None:
    """Clear the cache of routed sessions. Call this with each change of a route."""
    handle.cache.pop(_CACHE_KEY, None)


def delete_route(handle: Connection, scope: str, key: str) -> None:
    """Delete one route."""
    forget_routed_sessions(handle)
    handle.execute_update(SQL["delete_route"], {"scope": scope, "key": key})


def _read_entry(handle: Connection, scope: str, key: str) -> str | None:
    """Return the text of an entry, to be compared within one transaction."""
    stored = handle.fetch_value(SQL["get_route"], {"scope": scope, "key": key})
    return None if stored is None else _decode_text(stored)


def _decode_text(stored: Any) -> str:
    """Decode stored text, which may be bytes, so that the row can be replaced."""
    return stored.decode("utf-8", "replace") if isinstance(stored, bytes) else stored


def _require_table(handle: Connection) -> None:
    if not handle.has_column(ROUTING_TABLE):
        raise Unsupported("this home keeps its routes only in sessions.json")
