"""`SessionRouter`: which session a chat is in.

Each public method is one decision. The route and the rows of its sessions change in one
transaction. A change of session is stored together with the boundary whose hooks are to be called
(see `outbox`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from session_core.chats import SessionSource, check_session_id
from session_core.errors import Busy, Conflict, NotFound, SessionError
from session_core.routing import recovery
from session_core.routing.entries import SessionEntry, build_peer_fields
from session_core.routing.pending_boundaries import list_pending_boundaries

if TYPE_CHECKING:
    from session_core.routing.decisions import DatabaseChange, RouteDecision, RouteDecisions
    from session_core.routing.outbox import HookOutbox, SessionEnds
    from session_core.routing.policies import ResetPolicies
    from session_core.routing.settings import StoreSettings
    from session_core.state.protocol import StateDatabase
    from session_core.types import SessionRow

_RESET_REASON = "session_reset"


@dataclass(frozen=True, slots=True)
class RoutedMessage:
    """The entry of a chat for a message, and whether its session existed when it was routed."""

    entry: SessionEntry
    has_session: bool = False


class SessionRouter:
    """Finds, creates, resets, switches and repairs the session of a chat."""

    def __init__(
        self,
        settings: StoreSettings,
        decisions: RouteDecisions,
        policies: ResetPolicies,
        ends: SessionEnds,
        outbox: HookOutbox,
    ) -> None:
        self._settings = settings
        self._decisions = decisions
        self._policies = policies
        self._ends = ends
        self._outbox = outbox

    def route_message(
        self, source: SessionSource, *, force_new: bool = False, turn: str | None = None
    ) -> RoutedMessage:
        """Return the entry of a chat for a message, in a new session if a reset is due."""
        key = self._settings.get_session_key(source)
        arrived_at = self._settings.now()
        before = self._decisions.backend.get(key) if force_new else None

        def decide_route(decision: RouteDecision) -> RoutedMessage:
            entry = decision.entry
            if entry is None:
                recovered = None if force_new else self._recover_session(decision, source)
                if recovered is not None:
                    return RoutedMessage(recovered, has_session=True)
                return RoutedMessage(self._store_first_entry(decision, source))
            # First, so that the boundaries of a chat are delivered in order.
            self._outbox.schedule_takeovers(decision)
            # Another message that arrived at the same moment may have created a new session.
            is_same = before is not None and entry.session_id == before.session_id
            forced = force_new and (is_same or entry.created_at < arrived_at)
            return self._continue_or_reset(decision, source, entry, force_new=forced)

        return self._decisions.run_decision(key, decide_route, turn_token=turn)

    def reset_session(self, session_key: str, display_name: str | None) -> SessionEntry | None:
        """Start a new session on request.

        Return None if the chat has no route.
        """

        def decide_reset(decision: RouteDecision) -> SessionEntry | None:
            entry = decision.entry
            if entry is None:
                return None
            self._outbox.schedule_takeovers(decision)
            # The continuation ends, not its parent, which the compression has ended.
            self._follow_compression(entry)
            entry.display_name = display_name or entry.display_name
            return self._reset_on_request(decision, entry)

        return self._decisions.run_decision(session_key, decide_reset)

    def switch_session(self, session_key: str, target_session_id: str) -> SessionEntry | None:
        """Move a chat to an existing session and reopen that session."""
        check_session_id(target_session_id)

        def decide_switch(decision: RouteDecision) -> SessionEntry | None:
            entry, db = decision.entry, self._settings.db
            if entry is None:
                return None
            self._outbox.schedule_takeovers(decision)
            target = None if db is None else db.get_session(target_session_id)
            if entry.session_id == target_session_id:
                self._reopen_session(decision, target)
                return entry
            if db is not None and target is None:
                raise NotFound(f"session {target_session_id!r} to switch to does not exist")
            self._follow_compression(entry)
            return self._switch_entry(decision, entry, target_session_id)

        return self._decisions.run_decision(session_key, decide_switch)

    def move_to_continuation(
        self, session_key: str, old_session_id: str, new_session_id: str
    ) -> SessionEntry:
        """Move a route to the session that a compression has created."""

        def move_route(decision: RouteDecision) -> SessionEntry:
            entry = decision.entry
            if entry is None:
                raise NotFound(f"no route for {session_key!r}")
            if entry.session_id not in {old_session_id, new_session_id}:
                # Not a Conflict yet: the decision would be tried again.
                raise _RouteMovedError(f"{session_key} is now in session {entry.session_id}")
            if entry.session_id != new_session_id:
                entry.session_id = new_session_id
                decision.save_entry(entry, _build_peer_change(entry), urgent=True)
            return entry

        try:
            return self._decisions.run_decision(session_key, move_route)
        except _RouteMovedError as error:
            raise Conflict(str(error)) from None

    def repair_routes(self) -> list[str]:
        """Check each route and repair the damage of a crash.

        Return the repaired keys.
        """
        repaired_keys: list[str] = []
        try:
            self._decisions.prepare_change()
            for key, entry in self._decisions.backend.list_entries().items():
                if self._get_end_reason(entry) is not None and self._decisions.run_decision(
                    key, self._repair_route
                ):
                    repaired_keys.append(key)
        except Busy as error:
            self._settings.report("some routes were not checked: the database is busy", error)
        return repaired_keys

    def _repair_route(self, decision: RouteDecision) -> bool:
        entry = decision.entry
        if entry is None or self._settings.db is None:
            return False
        if (
            entry.expiry_finalized
            or list_pending_boundaries(entry)
            or self._policies.has_active_turn(entry)
        ):
            return False  # its next message calls the hooks, or its turn moves the route
        routed_id = entry.session_id
        try:
            row = self._follow_compression(entry)
            if row is None or row["end_reason"] is None:
                has_moved = entry.session_id != routed_id
                if has_moved:
                    decision.save_entry(entry, _build_peer_change(entry), urgent=True)
                return has_moved
            if entry.origin and self._recover_session(
                decision, entry.origin, entry, arriving=False
            ):
                return True
            if entry.suspended and not entry.origin:
                return False  # a message would recover the session, which is suspended
        # For the callers: a conflict repeats this decision, a locked database ends the check.
        except (Busy, Conflict):
            raise
        except SessionError:
            return False  # the next message tries again
        return bool(self._decisions.backend.remove({decision.key: entry}))

    def _continue_or_reset(
        self,
        decision: RouteDecision,
        source: SessionSource,
        entry: SessionEntry,
        *,
        force_new: bool,
    ) -> RoutedMessage:
        routed_id = entry.session_id
        row = self._follow_compression(entry)
        if force_new:
            return RoutedMessage(self._reset_on_request(decision, entry, source))
        # First, because a suspended or expired chat resets even if its session has ended.
        reason = self._policies.find_reset_at_message(entry)
        if reason is not None:
            return RoutedMessage(self._reset_by_policy(decision, entry, reason, source))
        if row is not None and row["end_reason"] is not None:
            recovered = self._recover_session(decision, source, entry)
            if recovered is not None:
                return RoutedMessage(recovered, has_session=True)
            return RoutedMessage(self._replace_ended(decision, entry, source))
        entry.updated_at = self._settings.now()
        if not self._settings.is_hermes:
            entry.expiry_finalized = False  # the session continues; its next end is delivered again
        has_moved = entry.session_id != routed_id
        decision.save_entry(
            entry, _build_peer_change(entry) if has_moved else None, urgent=has_moved
        )
        return RoutedMessage(entry, has_session=row is not None)

    def _follow_compression(self, entry: SessionEntry) -> SessionRow | None:
        """Move an entry to the tip if its session was compressed.

        Return the row of the session.
        """
        db = self._settings.db
        if db is None:
            return None
        row = db.get_session(entry.session_id)
        if row is not None and row["end_reason"] == "compression":
            entry.session_id = db.get_compression_tip(entry.session_id)
            row = db.get_session(entry.session_id)
        return row

    def _recover_session(
        self,
        decision: RouteDecision,
        source: SessionSource,
        lost: SessionEntry | None = None,
        *,
        arriving: bool = True,
    ) -> SessionEntry | None:
        """Move a chat to the session that it can continue, and reopen that session."""
        settings, key = self._settings, decision.key
        if settings.db is None:
            return None
        routed = lost.session_id if lost else None
        kept = lost is not None and self._policies.is_ended_elsewhere(lost)
        row = recovery.find_session(settings.db, key, source, routed, settings.profile, kept=kept)
        if row is None:
            return None
        entry = lost or self._build_entry(
            key, source, row["id"], recovery.parse_start_time(row) or settings.now()
        )
        # The session continues, so its next end is delivered again.
        entry.session_id, entry.expiry_finalized = row["id"], False
        if arriving:
            entry.updated_at = settings.now()
        peer = _build_peer_change(entry) if row.get("session_key") != key else None

        def reopen_session(db: StateDatabase) -> None:
            if row["ended_at"] is not None:
                db.reopen_session(row["id"])
            if peer is not None:
                peer(db)

        self._ends.schedule_reopened(decision, row["id"])
        decision.save_entry(entry, reopen_session, urgent=True)
        return entry

    def _reopen_session(self, decision: RouteDecision, row: SessionRow | None) -> None:
        db = self._settings.db
        if db is not None and row is not None and row["ended_at"] is not None:
            db.reopen_session(row["id"])
            self._ends.schedule_reopened(decision, row["id"])

    # -- new sessions ------------------------------------------------------------------------

    def _store_first_entry(self, decision: RouteDecision, source: SessionSource) -> SessionEntry:
        now = self._settings.now()
        entry = self._build_entry(decision.key, source, self._settings.new_id(now), now)
        decision.save_entry(entry, urgent=True)
        return entry

    def _build_entry(
        self, key: str, source: SessionSource, session_id: str, created_at: datetime
    ) -> SessionEntry:
        return SessionEntry(
            session_key=key,
            session_id=session_id,
            created_at=created_at,
            updated_at=self._settings.now(),
            origin=source,
            display_name=source.chat_name,
            platform=source.platform,
            chat_type=source.chat_type,
        )

    def _reset_on_request(
        self, decision: RouteDecision, old: SessionEntry, source: SessionSource | None = None
    ) -> SessionEntry:
        """Start a new session on request of the user or the caller."""
        entry = self._create_successor(old, source)
        entry.is_fresh_reset = True
        self._store_boundary(
            decision, old, entry, "new_session", _build_end_change(old, _RESET_REASON)
        )
        return entry

    def _reset_by_policy(
        self, decision: RouteDecision, old: SessionEntry, reason: str, source: SessionSource
    ) -> SessionEntry:
        entry = self._create_successor(old, source)
        entry.was_auto_reset, entry.auto_reset_reason = True, reason
        self._store_boundary(decision, old, entry, reason, _build_end_change(old, reason))
        return entry

    def _replace_ended(
        self, decision: RouteDecision, old: SessionEntry, source: SessionSource
    ) -> SessionEntry:
        """Start a new session after the old session has ended, without reporting a boundary."""
        entry = self._create_successor(old, source)
        # Routes in a file: an interrupted reset has ended the session and called no hook.
        is_in_file = not self._decisions.backend.is_transactional
        if is_in_file and self._get_end_reason(old) == _RESET_REASON:
            self._store_boundary(decision, old, entry, _RESET_REASON)
        else:
            decision.save_entry(entry, urgent=True)
        return entry

    def _switch_entry(
        self, decision: RouteDecision, old: SessionEntry, session_id: str
    ) -> SessionEntry:
        entry = self._create_successor(old)
        entry.session_id, entry.reset_had_activity = session_id, False
        end_session, record_peer = (
            _build_end_change(old, "session_switch"),
            _build_peer_change(entry),
        )

        def switch_sessions(db: StateDatabase) -> None:
            end_session(db)
            db.reopen_session(session_id)
            record_peer(db)

        self._ends.schedule_reopened(decision, session_id)
        self._store_boundary(decision, old, entry, "session_switch", switch_sessions)
        return entry

    def _store_boundary(
        self,
        decision: RouteDecision,
        old: SessionEntry,
        new: SessionEntry,
        reason: str,
        end_session: DatabaseChange | None = None,
    ) -> None:
        """Store the entry of a chat in its new session, with the boundary to report."""

        def change_database(db: StateDatabase) -> None:
            self._outbox.add_boundary(decision, old, new, reason)
            if end_session is not None:
                end_session(db)

        # Without a database `change_database` is never called.
        if self._settings.db is None:
            self._outbox.add_boundary(decision, old, new, reason)
        decision.save_entry(new, change_database, urgent=True)

    def _create_successor(
        self, old: SessionEntry, source: SessionSource | None = None
    ) -> SessionEntry:
        now = self._settings.now()
        return old.create_successor(self._settings.new_id(now), now, source)

    def _get_end_reason(self, entry: SessionEntry) -> str | None:
        db = self._settings.db
        row = None if db is None else db.get_session(entry.session_id)
        return None if row is None else row["end_reason"]


class _RouteMovedError(Exception):
    """The chat is in another session, which a retry does not change."""


def _build_end_change(old: SessionEntry, reason: str) -> DatabaseChange:
    return lambda db: db.promote_to_session_reset(old.session_id, reason)


def _build_peer_change(entry: SessionEntry) -> DatabaseChange:
    """Return the database change that records a chat in the row of its session."""
    fields = build_peer_fields(entry)
    return lambda db: db.record_gateway_session_peer(entry.session_id, **fields)
