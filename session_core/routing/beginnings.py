"""How a session of a chat begins: as its first, in place of another, or by going back to one."""

from __future__ import annotations

from datetime import datetime

from session_core.keys import SessionSource
from session_core.routing.deciding import Beside
from session_core.routing.entries import SessionEntry
from session_core.routing.expiry import Expiry
from session_core.routing.file import File
from session_core.state.contract import StateDatabase

_RESET = "session_reset"


class Beginnings(Expiry):
    """Entries of sessions that begin, stored together with the end of the one before."""

    def _store_new(self, key: str, source: SessionSource) -> SessionEntry:
        now = self._now()
        entry = self._entry(key, source, self._new_id(now), now)
        self._put(key, entry, urgent=True)
        return entry

    def _entry(
        self, key: str, source: SessionSource, session_id: str, created_at: datetime
    ) -> SessionEntry:
        return SessionEntry(
            session_key=key,
            session_id=session_id,
            created_at=created_at,
            updated_at=self._now(),
            origin=source,
            display_name=source.chat_name,
            platform=source.platform,
            chat_type=source.chat_type,
        )

    def _reset(
        self, key: str, old: SessionEntry, source: SessionSource | None = None
    ) -> SessionEntry:
        """Begin a session because somebody asked."""
        entry = self._successor(old, source)
        entry.is_fresh_reset = True
        self._cross(key, old, entry, "new_session", self._end(old, _RESET))
        return entry

    def _reset_by_policy(
        self, key: str, old: SessionEntry, reason: str, source: SessionSource
    ) -> SessionEntry:
        entry = self._successor(old, source)
        entry.was_auto_reset, entry.auto_reset_reason = True, reason
        self._cross(key, old, entry, reason, self._end(old, reason))
        return entry

    def _replace_ended(self, key: str, old: SessionEntry, source: SessionSource) -> SessionEntry:
        """Begin a session because the old one had ended already, which is no boundary.

        But where routes are in a file, a reset that was cut short has ended it, and nobody told.
        """
        entry = self._successor(old, source)
        if isinstance(self._copies, File) and self._ended_as(old) == _RESET:
            self._cross(key, old, entry, _RESET)
        else:
            self._put(key, entry, urgent=True)
        return entry

    def _switch(self, key: str, old: SessionEntry, session_id: str) -> SessionEntry:
        entry = self._successor(old)
        entry.session_id, entry.reset_had_activity = session_id, False
        end = self._end(old, "session_switch")

        def switch(db: StateDatabase) -> None:
            end(db)
            db.reopen_session(session_id)
            self._peer(entry)(db)

        self._went_on(session_id)
        self._cross(key, old, entry, "session_switch", switch)
        return entry

    def _cross(
        self, key: str, old: SessionEntry, new: SessionEntry, reason: str, end: Beside | None = None
    ) -> None:
        """Store the entry of another session of a chat, with what the hooks are owed for that."""

        def step(db: StateDatabase) -> None:
            self._owe(old, new, reason)
            if end is not None:
                end(db)

        if self.db is None:
            self._owe(old, new, reason)
        self._put(key, new, step, urgent=True)

    def _successor(self, old: SessionEntry, source: SessionSource | None = None) -> SessionEntry:
        now = self._now()
        return old.successor(self._new_id(now), now, source)

    def _ended_as(self, entry: SessionEntry) -> str | None:
        row = None if self.db is None else self.db.get_session(entry.session_id)
        return None if row is None else row["end_reason"]

    @staticmethod
    def _end(old: SessionEntry, reason: str) -> Beside:
        return lambda db: db.promote_to_session_reset(old.session_id, reason)

    def _peer(self, entry: SessionEntry) -> Beside:
        """Return the step that says in the row of its session which chat that belongs to."""
        fields = self.peer_fields(entry)
        return lambda db: db.record_gateway_session_peer(entry.session_id, **fields)
