"""The chats that are in a session, and moving them to another session."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from session_core.errors import Changed, Conflict, NotFound
from session_core.routing.session_store import SessionStore
from session_core.state.protocol import StateDatabase


@dataclass(frozen=True, slots=True)
class RoutedChats:
    """The chats in some sessions: their keys by session id, and all their routing rows."""

    keys: dict[str, list[str]]
    rows: frozenset[tuple[str, str]]
    """Scope and key of each row, including those of other folders, which are not changed."""


class ChatRoutes:
    """The routes of a home. Without a session store there are none."""

    def __init__(self, db: StateDatabase, store: SessionStore | None) -> None:
        self._db = db
        self._store = store

    def find_chats(self, session_ids: Iterable[str]) -> RoutedChats:
        """Return the chats in these sessions.

        A session's own chat comes last.
        """
        entries = self._store.load_entries() if self._store else {}
        sessions = list(session_ids)
        keys = {
            session_id: [key for key, entry in entries.items() if entry.session_id == session_id]
            for session_id in sessions
        }
        for session_id, session_keys in keys.items():
            # The session records the chat that is moved last as its own.
            row = self._db.get_session(session_id)
            own = row and row.get("session_key")
            session_keys.sort(key=own.__eq__)
        rows = frozenset(
            self._get_row_key(row) for session_id in sessions for row in self.list_rows(session_id)
        )
        return RoutedChats(keys, rows)

    def list_rows(self, session_id: str) -> list[dict[str, Any]]:
        """Return the stored routing rows of a session."""
        return self._db.rows.list_routing_rows(session_id)

    def open_transaction(self, chats: RoutedChats) -> AbstractContextManager[object]:
        """Run the `with` block as one transaction over sessions and the routes of these chats."""
        keys = [key for session_keys in chats.keys.values() for key in session_keys]
        return self._store.transaction(*keys) if self._store and keys else nullcontext()

    def redirect_in_table(self, chats: RoutedChats, to_session_id: str) -> None:
        """Move the chats to a session that the open transaction creates.

        The peer fields of the session are written in any case, so that a later `redirect_in_file`
        changes nothing else in it.

        Raises:
            Changed: another chat has entered the session.
        """
        # A file is not part of the transaction: before the commit it would name a session that
        # may never exist.
        if self._db.routes.is_available:
            self.redirect_chats(chats, to_session_id)
        elif self._store is not None:
            for key in (key for keys in chats.keys.values() for key in keys):
                entry = self._store.get(key)
                if entry is not None:
                    fields = self._store.build_peer_fields(entry)
                    self._db.record_gateway_session_peer(to_session_id, **fields)

    def redirect_in_file(self, chats: RoutedChats) -> None:
        """Move the chats after the commit if their routes are only in a file.

        After an interruption, the next message of a chat moves it.
        """
        if not self._db.routes.is_available:
            for session_id, keys in chats.keys.items():
                tip = self._db.get_compression_tip(session_id)
                with suppress(Conflict, NotFound):  # the chat has moved on
                    self.redirect_chats(RoutedChats({session_id: keys}, chats.rows), tip)

    def redirect_chats(self, chats: RoutedChats, to_session_id: str) -> None:
        """Move the chats to another session.

        Raises:
            Changed: another chat has entered the session.
        """
        for session_id, keys in chats.keys.items():
            for row in self.list_rows(session_id):
                if row["session_key"] not in keys and self._get_row_key(row) not in chats.rows:
                    raise Changed(f"another chat came into session {session_id}; try again")
            for key in keys:
                if self._store is not None:
                    self._store.move_to_continuation(key, session_id, to_session_id)

    @staticmethod
    def _get_row_key(row: dict[str, Any]) -> tuple[str, str]:
        return row["scope"], row["session_key"]
