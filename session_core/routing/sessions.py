"""Which session a chat is in: the first one, a new one after a reset, or one it returns to.

The route and the rows of its sessions change in one transaction.
"""

from __future__ import annotations

from datetime import datetime

from session_core.chats import SessionSource, check_session_id
from session_core.errors import Conflict, NotFound
from session_core.routing import policies, recovery
from session_core.routing.decisions import DatabaseChange
from session_core.routing.entries import SessionEntry
from session_core.routing.expiry import SessionExpiry
from session_core.routing.json_backend import JsonBackend
from session_core.state.protocol import StateDatabase
from session_core.types import SessionRow

_RESET_REASON = "session_reset"


class SessionStarts(SessionExpiry):
    """Entries of new sessions, stored together with the end of the previous one."""

    def _store_new_entry(self, key: str, source: SessionSource) -> SessionEntry:
        now = self._now()
        entry = self._build_entry(key, source, self._new_id(now), now)
        self._store_entry(key, entry, urgent=True)
        return entry

    def _build_entry(
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

    def _reset_on_request(
        self, key: str, old: SessionEntry, source: SessionSource | None = None
    ) -> SessionEntry:
        """Start a new session because the user or the caller asked for it."""
        entry = self._create_successor(old, source)
        entry.is_fresh_reset = True
        self._store_boundary(
            key, old, entry, "new_session", self._build_end_change(old, _RESET_REASON)
        )
        return entry

    def _reset_by_policy(
        self, key: str, old: SessionEntry, reason: str, source: SessionSource
    ) -> SessionEntry:
        entry = self._create_successor(old, source)
        entry.was_auto_reset, entry.auto_reset_reason = True, reason
        self._store_boundary(key, old, entry, reason, self._build_end_change(old, reason))
        return entry

    def _replace_ended(self, key: str, old: SessionEntry, source: SessionSource) -> SessionEntry:
        """Start a new session because the old one has ended already, which is not a boundary."""
        entry = self._create_successor(old, source)
        # Routes in a file: an interrupted reset has ended the session and called no hook.
        if isinstance(self._copies, JsonBackend) and self._get_end_reason(old) == _RESET_REASON:
            self._store_boundary(key, old, entry, _RESET_REASON)
        else:
            self._store_entry(key, entry, urgent=True)
        return entry

    def _switch_entry(self, key: str, old: SessionEntry, session_id: str) -> SessionEntry:
        entry = self._create_successor(old)
        entry.session_id, entry.reset_had_activity = session_id, False
        end_session = self._build_end_change(old, "session_switch")

        def switch(db: StateDatabase) -> None:
            end_session(db)
            db.reopen_session(session_id)
            self._build_peer_change(entry)(db)

        self._mark_reopened(session_id)
        self._store_boundary(key, old, entry, "session_switch", switch)
        return entry

    def _store_boundary(
        self,
        key: str,
        old: SessionEntry,
        new: SessionEntry,
        reason: str,
        end_session: DatabaseChange | None = None,
    ) -> None:
        """Store the entry of a chat in its new session, with the boundary to report."""

        def change_database(db: StateDatabase) -> None:
            self._add_boundary(old, new, reason)
            if end_session is not None:
                end_session(db)

        if self.db is None:
            self._add_boundary(old, new, reason)
        self._store_entry(key, new, change_database, urgent=True)

    def _create_successor(
        self, old: SessionEntry, source: SessionSource | None = None
    ) -> SessionEntry:
        now = self._now()
        return old.create_successor(self._new_id(now), now, source)

    def _get_end_reason(self, entry: SessionEntry) -> str | None:
        row = None if self.db is None else self.db.get_session(entry.session_id)
        return None if row is None else row["end_reason"]

    @staticmethod
    def _build_end_change(old: SessionEntry, reason: str) -> DatabaseChange:
        return lambda db: db.promote_to_session_reset(old.session_id, reason)

    def _build_peer_change(self, entry: SessionEntry) -> DatabaseChange:
        """Return the change that records a chat in the row of its session."""
        fields = self.build_peer_fields(entry)
        return lambda db: db.record_gateway_session_peer(entry.session_id, **fields)


class SessionRouting(SessionStarts):
    """Routing of messages: find, create, reset and switch the session of a chat."""

    def get_or_create_session(
        self, source: SessionSource, force_new: bool = False, *, turn: str | None = None
    ) -> SessionEntry:
        """Return the entry of a chat for an incoming message, in a new session if a reset is due.

        Messages that force a new session at the same moment share one. With the token of a `turn`,
        the same commit records the turn as `begin_turn` does.
        """
        key = self.get_session_key(source)
        arrived_at = self._now()
        before = self._copies.get(key) if force_new else None

        def decide(entry: SessionEntry | None) -> SessionEntry:
            if entry is None:
                recovered = None if force_new else self._recover_session(key, source)
                return recovered or self._store_new_entry(key, source)
            # First, so that the boundaries of a chat are delivered in order.
            self._schedule_orphaned(key, entry)
            # Another message that arrived at the same moment may have created a new session.
            is_same = before is not None and entry.session_id == before.session_id
            forced = force_new and (is_same or entry.created_at < arrived_at)
            return self._route_message(key, source, entry, force_new=forced)

        def decide_in_turn(entry: SessionEntry | None) -> SessionEntry:
            outer_turn, self._thread_state.turn = (
                self._thread_state.turn,
                None if turn is None else (key, turn),
            )
            try:
                return decide(entry)
            finally:
                self._thread_state.turn = outer_turn

        return self._run_decision(key, decide_in_turn)

    def reset_session(
        self, session_key: str, display_name: str | None = None
    ) -> SessionEntry | None:
        """Start a new session on request; return None if the chat has no route."""

        def decide(entry: SessionEntry | None) -> SessionEntry | None:
            if entry is None:
                return None
            self._schedule_orphaned(session_key, entry)
            self._follow_compression(entry)
            entry.display_name = display_name or entry.display_name
            return self._reset_on_request(session_key, entry)

        return self._run_decision(session_key, decide)

    def switch_session(self, session_key: str, target_session_id: str) -> SessionEntry | None:
        """Move a chat to an existing session and reopen that session.

        Raises:
            InvalidInput: the session id is not safe.
            NotFound: there is no such session.
        """
        check_session_id(target_session_id)

        def decide(entry: SessionEntry | None) -> SessionEntry | None:
            if entry is None:
                return None
            self._schedule_orphaned(session_key, entry)
            target = None if self.db is None else self.db.get_session(target_session_id)
            if entry.session_id == target_session_id:
                self._reopen_session(target)
                return entry
            if self.db is not None and target is None:
                raise NotFound(f"session {target_session_id!r} to switch to does not exist")
            self._follow_compression(entry)
            return self._switch_entry(session_key, entry, target_session_id)

        return self._run_decision(session_key, decide)

    def move_to_continuation(
        self, session_key: str, old_session_id: str, new_session_id: str
    ) -> SessionEntry:
        """Move a route to the session id that a compression has created.

        If the route has that id already, nothing is written.

        Raises:
            NotFound: the chat has no route.
            Conflict: the chat is in another session by now.
        """

        def decide(entry: SessionEntry | None) -> SessionEntry:
            if entry is None:
                raise NotFound(f"no route for {session_key!r}")
            if entry.session_id not in {old_session_id, new_session_id}:
                # Not a Conflict yet: `_run_decision` would retry it.
                raise _RouteMovedError(f"{session_key} is now in session {entry.session_id}")
            if entry.session_id != new_session_id:
                entry.session_id = new_session_id
                self._store_entry(session_key, entry, self._build_peer_change(entry), urgent=True)
            return entry

        try:
            return self._run_decision(session_key, decide)
        except _RouteMovedError as error:
            raise Conflict(str(error)) from None

    def _route_message(
        self, key: str, source: SessionSource, entry: SessionEntry, *, force_new: bool
    ) -> SessionEntry:
        routed_id = entry.session_id
        has_ended = self._follow_compression(entry)
        if force_new:
            return self._reset_on_request(key, entry, source)
        reason = self._find_reset_reason(entry)
        if reason is not None:
            return self._reset_by_policy(key, entry, reason, source)
        if has_ended:
            recovered = self._recover_session(key, source, entry)
            return recovered or self._replace_ended(key, entry, source)
        entry.updated_at = self._now()
        if not self._is_hermes:
            entry.expiry_finalized = False  # the session continues; its next end is delivered again
        has_moved = entry.session_id != routed_id
        self._store_entry(
            key, entry, self._build_peer_change(entry) if has_moved else None, urgent=has_moved
        )
        return entry

    def _follow_compression(self, entry: SessionEntry) -> bool:
        """Follow a compression that the route has missed; return True if the session has ended."""
        if self.db is None:
            return False
        row = self.db.get_session(entry.session_id)
        if row is not None and row["end_reason"] == "compression":
            entry.session_id = self.db.get_compression_tip(entry.session_id)
            row = self.db.get_session(entry.session_id)
        return row is not None and row["end_reason"] is not None

    def _find_reset_reason(self, entry: SessionEntry) -> str | None:
        if entry.suspended:
            return "suspended"
        reason = self.find_expiry_reason(entry)
        if reason is None and entry.resume_pending:
            freshness_s = self.config.auto_continue_freshness_s
            if policies.is_resume_expired(entry, self._get_policy(entry), self._now(), freshness_s):
                return "resume_pending_expired"
        return reason

    def _recover_session(
        self,
        key: str,
        source: SessionSource,
        lost: SessionEntry | None = None,
        *,
        arriving: bool = True,
    ) -> SessionEntry | None:
        """Move a chat to the session that it can continue, and reopen that session."""
        if self.db is None:
            return None
        routed = lost.session_id if lost else None
        kept = lost is not None and self.is_ended_elsewhere(lost)
        row = recovery.find_session(self.db, key, source, routed, self._profile, kept=kept)
        if row is None:
            return None
        entry = lost or self._build_entry(
            key, source, row["id"], recovery.parse_start_time(row) or self._now()
        )
        entry.session_id, entry.expiry_finalized = row["id"], False
        if arriving:
            entry.updated_at = self._now()
        peer = self._build_peer_change(entry) if row.get("session_key") != key else None

        def reopen(db: StateDatabase) -> None:
            if row["ended_at"] is not None:
                db.reopen_session(row["id"])
            if peer is not None:
                peer(db)

        self._mark_reopened(row["id"])
        self._store_entry(key, entry, reopen, urgent=True)
        return entry

    def _reopen_session(self, row: SessionRow | None) -> None:
        if self.db is not None and row is not None and row["ended_at"] is not None:
            self.db.reopen_session(row["id"])
            self._mark_reopened(row["id"])


class _RouteMovedError(Exception):
    """The chat is in another session by now, which a retry does not change."""


class SessionInterruptions(SessionRouting):
    """Marks of interrupted and suspended sessions."""

    def suspend_session(self, session_key: str) -> bool:
        """Make the next message start a new session, whatever the reset policy is."""

        def change(entry: SessionEntry) -> bool:
            entry.suspended = True
            return True

        return self._change_entry(session_key, change) is not None

    def mark_resume_pending(self, session_key: str, reason: str = "restart_timeout") -> bool:
        """Record that a turn was interrupted, unless the session is suspended."""

        def change(entry: SessionEntry) -> bool:
            if entry.suspended:
                return False
            entry.resume_pending = True
            entry.resume_reason = reason
            entry.last_resume_marked_at = self._now()
            return True

        return self._change_entry(session_key, change) is not None

    def clear_resume_pending(self, session_key: str) -> bool:
        """Record that the turn after an interruption has finished."""

        def change(entry: SessionEntry) -> bool:
            if not entry.resume_pending:
                return False
            entry.clear_interruption()
            return True

        return self._change_entry(session_key, change) is not None

    def suspend_recently_active(self, max_age_seconds: int = 120) -> int:
        """Mark sessions in use just before an unclean stop as interrupted; return how many.

        Sessions with an agent at work in a live process were not interrupted.
        """
        now = self._now()
        recent = [
            key
            for key, entry in self._copies.list_entries().items()
            if policies.is_recently_used(entry, max_age_seconds, now)
            if not (entry.suspended or entry.resume_pending or self.has_active_turn(entry))
        ]
        return sum(self.mark_resume_pending(key, "restart_interrupted") for key in recent)
