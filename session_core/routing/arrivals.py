"""When a chat begins another session, and when one is found again.

Where a chat changes its session, the route and the rows of the sessions change in one transaction.
"""

from __future__ import annotations

from datetime import datetime

from session_core.errors import Conflict, NotFound, SessionError
from session_core.keys import SessionSource
from session_core.routing import policies, recovery
from session_core.routing.deciding import Deciding
from session_core.routing.entries import SessionEntry

FRESHNESS_S = 3600.0
"""For so long a session that was interrupted by a restart is gone on with."""


class Arrivals(Deciding):
    """Messages come in; sessions begin, begin anew, are switched and are found again."""

    def get_or_create_session(self, source: SessionSource, force_new: bool = False) -> SessionEntry:
        """Return the entry of a chat for a message that came in, in a new session where it is due.

        One caller a chat decides at a time; when another process was faster, it is decided anew.
        """
        key = self.key_of(source)
        return self._deciding(key, lambda entry: self._arrive(key, source, entry, force_new))

    def _arrive(
        self, key: str, source: SessionSource, entry: SessionEntry | None, force_new: bool
    ) -> SessionEntry:
        if entry is None or force_new:
            if entry is not None:
                return self._begin_anew(entry, "session_reset", fresh=True, source=source)
            return self._recover(key, source, None) or self._store_new(key, source)
        arrived_id = entry.session_id
        ended = self._heal(entry)
        reason = self._reset_reason(entry)
        if reason is not None:
            return self._begin_anew(entry, reason, source=source)
        if ended:
            return self._recover(key, source, entry) or self._begin_anew(entry, None, source=source)
        entry.updated_at = self._now()
        self._put(key, entry, urgent=entry.session_id != arrived_id)
        return entry

    def _heal(self, entry: SessionEntry) -> bool:
        """Follow a compression that the route has missed; return whether the session has ended."""
        if self.db is None:
            return False
        row = self.db.get_session(entry.session_id)
        if row is not None and row["end_reason"] == "compression":
            entry.session_id = self.db.get_compression_tip(entry.session_id)
            row = self.db.get_session(entry.session_id)
        return row is not None and row["end_reason"] is not None

    def _reset_reason(self, entry: SessionEntry) -> str | None:
        if entry.suspended:
            return "suspended"
        reason = self.is_session_expired(entry)
        if reason is None and entry.resume_pending:
            policy = self.config.policy_for(entry.platform, entry.chat_type)
            if policies.resume_expired(entry, policy, self._now(), FRESHNESS_S):
                return "resume_pending_expired"
        return reason

    def _recover(
        self, key: str, source: SessionSource, lost: SessionEntry | None
    ) -> SessionEntry | None:
        if self.db is None:
            return None
        row = recovery.find(self.db, key, source, lost.session_id if lost else None)
        if row is None:
            return None
        entry = self._entry(key, source, row["id"])
        entry.created_at = datetime.fromtimestamp(row["started_at"])  # noqa: DTZ006 -- local, as stored
        entry.stored = None if lost is None else lost.stored
        with self._step():
            self.db.reopen_session(row["id"])
            self._copies.put(key, entry)
        self._copies.changed(urgent=True)
        return entry

    def _store_new(self, key: str, source: SessionSource) -> SessionEntry:
        entry = self._entry(key, source, self._new_id(self._now()))
        self._put(key, entry, urgent=True)
        return entry

    def _entry(self, key: str, source: SessionSource, session_id: str) -> SessionEntry:
        now = self._now()
        return SessionEntry(
            session_key=key,
            session_id=session_id,
            created_at=now,
            updated_at=now,
            origin=source,
            display_name=source.chat_name,
            platform=source.platform,
            chat_type=source.chat_type,
        )

    def _begin_anew(
        self,
        old: SessionEntry,
        reason: str | None,
        *,
        source: SessionSource | None = None,
        fresh: bool = False,
        session_id: str | None = None,
    ) -> SessionEntry:
        """Give a chat another session and end the old one, in one step.

        Without a reason nothing was reset: the old session had ended already.
        """
        now = self._now()
        origin = source or old.origin
        entry = SessionEntry(
            session_key=old.session_key,
            session_id=session_id or self._new_id(now),
            created_at=now,
            updated_at=now,
            origin=origin,
            display_name=old.display_name or (origin.chat_name if origin else None),
            platform=old.platform,
            chat_type=old.chat_type,
            is_fresh_reset=fresh,
            was_auto_reset=reason is not None and not fresh and session_id is None,
            auto_reset_reason=None if fresh or session_id else reason,
            reset_had_activity=old.last_prompt_tokens > 0,
            extra=dict(old.extra),
            stored=old.stored,
        )
        with self._step():
            self._copies.put(old.session_key, entry)
            if self.db is not None and reason is not None:
                self.db.promote_to_session_reset(old.session_id, reason)
            if self.db is not None and session_id is not None:
                self.db.reopen_session(session_id)
                self._record_peer(entry)
        self._copies.changed(urgent=True)
        if reason is not None:
            self._told.boundaries.append((old, entry, "new_session" if fresh else reason))
        return entry

    def reset_session(
        self, session_key: str, display_name: str | None = None
    ) -> SessionEntry | None:
        """Begin a new session because somebody asked; None for a chat that has none."""

        def decide(entry: SessionEntry | None) -> SessionEntry | None:
            if entry is None:
                return None
            entry.display_name = display_name or entry.display_name
            return self._begin_anew(entry, "session_reset", fresh=True)

        return self._deciding(session_key, decide)

    def switch_session(self, session_key: str, target_session_id: str) -> SessionEntry | None:
        """Put a chat into a session that is there already, which is reopened.

        Raises:
            NotFound: there is no such session.
        """

        def decide(entry: SessionEntry | None) -> SessionEntry | None:
            if entry is None or entry.session_id == target_session_id:
                return entry
            if self.db is not None and self.db.get_session(target_session_id) is None:
                raise NotFound(f"no session {target_session_id!r} to switch to")
            return self._begin_anew(entry, "session_switch", session_id=target_session_id)

        return self._deciding(session_key, decide)

    def follow(self, session_key: str, old_session_id: str, new_session_id: str) -> SessionEntry:
        """Let the route follow a session whose id has changed by compression.

        An id that is there already writes nothing.

        Raises:
            NotFound: the chat has no route.
            Conflict: it is in another session by now.
        """

        def decide(entry: SessionEntry | None) -> SessionEntry:
            if entry is None:
                raise NotFound(f"no route for {session_key!r}")
            if entry.session_id == new_session_id:
                return entry
            if entry.session_id != old_session_id:
                raise Conflict(f"{session_key} is in session {entry.session_id} by now")
            entry.session_id = new_session_id
            with self._step():
                self._copies.put(session_key, entry)
                if self.db is not None:
                    self._record_peer(entry)
            self._copies.changed(urgent=True)
            return entry

        return self._deciding(session_key, decide)

    def _record_peer(self, entry: SessionEntry) -> None:
        fields = self.session_fields(entry)
        fields.pop("profile_name", None)
        if self.db is not None:
            self.db.record_gateway_session_peer(entry.session_id, **fields)

    def check_against_state(self) -> list[str]:
        """Look at each route once, as at a start: heal what a crash has left; return the keys.

        A route whose session has ended is led to its continuation or to the session that can be
        gone on with. One that leads nowhere is removed, and the next message begins afresh.
        """
        return [key for key in self._copies.all() if self._deciding(key, self._check)]

    def _check(self, entry: SessionEntry | None) -> bool:
        if entry is None or self.db is None:
            return False
        arrived_id = entry.session_id
        try:
            ended = self._heal(entry)
            found = None
            if ended and entry.origin is not None:
                found = self._recover(entry.session_key, entry.origin, entry)
        except SessionError:
            return False  # what cannot be looked up now is looked up when a message comes
        if ended and found is None:
            self._copies.remove({entry.session_key: entry})
        elif not ended and entry.session_id != arrived_id:
            self._put(entry.session_key, entry, urgent=True)
        return ended or entry.session_id != arrived_id
