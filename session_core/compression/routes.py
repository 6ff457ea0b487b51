"""The chats that are in a session, of which there may be several, and how they are led on."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from session_core.errors import Changed, Conflict, NotFound
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase


@dataclass(frozen=True, slots=True)
class RoutedChats:
    """The chats that are in some sessions just now: by session their keys, and all their rows."""

    keys: dict[str, list[str]]
    rows: frozenset[tuple[str, str]]
    """Scope and key of each, those of other folders too, which are not ours to change."""


class ChatRoutes:
    """The routes of a home; without a store there are none."""

    def __init__(self, db: StateDatabase, store: SessionStore | None) -> None:
        self._db = db
        self._store = store

    def find_chats(self, session_ids: Iterable[str]) -> RoutedChats:
        """Return the chats that are in these sessions; a session's own chat comes last."""
        entries = self._store.load_entries() if self._store else {}
        sessions = list(session_ids)
        keys = {
            each: [key for key, entry in entries.items() if entry.session_id == each]
            for each in sessions
        }
        for each, found in keys.items():
            # Whichever is led last is the chat that its session says it is of.
            own = (self._db.get_session(each) or {}).get("session_key")
            found.sort(key=own.__eq__)
        rows = frozenset(
            self._get_row_key(row) for each in sessions for row in self.list_rows(each)
        )
        return RoutedChats(keys, rows)

    def list_rows(self, session_id: str) -> list[dict[str, Any]]:
        """Return the rows that lead to a session, as they are stored."""
        return self._db.list_routing_rows(session_id)

    def open_transaction(self, led: RoutedChats) -> AbstractContextManager[object]:
        """What changes inside, in sessions and in the routes of these chats, is one transaction."""
        keys = [key for found in led.keys.values() for key in found]
        return self._store.transaction(*keys) if self._store and keys else nullcontext()

    def redirect_table(self, led: RoutedChats, to_session_id: str) -> None:
        """Lead the chats to a session that the transaction around this makes.

        A file is no part of that: before the commit it would lead to a session that may never be.
        The session is told of its chats in any case, so that leading them on changes no more of it.

        Raises:
            Changed: another chat has come meanwhile.
        """
        if self._db.has_routing:
            self.redirect_chats(led, to_session_id)
        elif self._store is not None:
            for key in (key for keys in led.keys.values() for key in keys):
                entry = self._store.get(key)
                if entry is not None:
                    fields = self._store.build_peer_fields(entry)
                    self._db.record_gateway_session_peer(to_session_id, **fields)

    def redirect_file(self, led: RoutedChats) -> None:
        """Lead the chats on, once that is committed, where they are in a file alone.

        Where this is cut short, the next message of the chat does it.
        """
        if not self._db.has_routing:
            for session_id, keys in led.keys.items():
                tip = self._db.get_compression_tip(session_id)
                with suppress(Conflict, NotFound):  # the chat is elsewhere by now
                    self.redirect_chats(RoutedChats({session_id: keys}, led.rows), tip)

    def redirect_chats(self, led: RoutedChats, to_session_id: str) -> None:
        """Lead the chats to another session.

        Raises:
            Changed: another chat has come meanwhile.
        """
        for session_id, keys in led.keys.items():
            for row in self.list_rows(session_id):
                if row["session_key"] not in keys and self._get_row_key(row) not in led.rows:
                    raise Changed(f"another chat came into session {session_id}; try again")
            for key in keys:
                if self._store is not None:
                    self._store.move_to_continuation(key, session_id, to_session_id)

    @staticmethod
    def _get_row_key(row: dict[str, Any]) -> tuple[str, str]:
        return row["scope"], row["session_key"]
