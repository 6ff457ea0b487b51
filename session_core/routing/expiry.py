"""Turns, and the expiry of sessions by the reset policies of their chats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from session_core.chats import get_key_platform
from session_core.routing import policies
from session_core.routing.entries import SessionEntry
from session_core.routing.leases import END_CLAIM, TURN_LEASE, create_token
from session_core.routing.outbox import BoundaryOutbox
from session_core.routing.recovery import is_ended_by_policy
from session_core.state.protocol import StateDatabase

if TYPE_CHECKING:
    from session_core.config import SessionResetPolicy


class SessionExpiry(BoundaryOutbox):
    """Records of turns, and claims of expired sessions."""

    def is_session_finalizable(self, entry: SessionEntry) -> bool:
        """Return True if the policy of this chat can end its session."""
        return self._get_policy(entry).mode in ("idle", "daily", "both")

    def has_active_turn(self, entry: SessionEntry) -> bool:
        """Return True if a live process runs a turn in the session; a turn counts for six hours."""
        return TURN_LEASE.find_holder(entry, self._now()) is not None

    def find_expiry_reason(self, entry: SessionEntry) -> str | None:
        """Return the reason for which the policy ends a session now; None during a turn."""
        if self.has_active_turn(entry):
            return None
        return policies.find_reset_reason(
            entry,
            self._get_policy(entry),
            self._now(),
            has_active_processes=self._has_active_processes,
        )

    def is_ended_elsewhere(self, entry: SessionEntry) -> bool:
        """Return True if another chat's policy ended the session and this chat's would not.

        Several chats can share a session, each with its own clock.
        """
        row = None if self.db is None else self.db.get_session(entry.session_id)
        if row is None or entry.expiry_finalized or not is_ended_by_policy(row):
            return False
        return self.find_expiry_reason(entry) is None

    def _get_policy(self, entry: SessionEntry) -> SessionResetPolicy:
        """Return the reset policy of the chat."""
        platform = entry.platform or get_key_platform(entry.session_key) or None
        return self.config.get_reset_policy(platform, entry.chat_type)

    # -- turns -----------------------------------------------------------------------------

    def begin_turn(self, session_key: str, session_id: str) -> str:
        """Record that an agent is at work in the session of a chat; return the token of the turn.

        Until the turn ends, no policy of any process ends the session. A later turn replaces this
        one. Nothing is recorded if the chat is in another session by now.
        """
        token = create_token()

        def change(entry: SessionEntry) -> bool:
            if entry.session_id != session_id:
                return False
            TURN_LEASE.put(entry, token, self._now())
            # The session is in use again: the claimed end is void.
            END_CLAIM.clear(entry)
            return True

        self._change_entry(session_key, change)
        return token

    def drop_turn(self, session_key: str, token: str) -> bool:
        """Remove a turn without recording its end."""
        return (
            self._change_entry(session_key, lambda entry: TURN_LEASE.clear(entry, token))
            is not None
        )

    def end_turn(
        self,
        session_key: str,
        session_id: str,
        last_prompt_tokens: int | None = None,
        *,
        finished: bool = True,
        token: str | None = None,
    ) -> SessionEntry | None:
        """Record the end of a turn; return None if the chat is in another session by now.

        The marks of a reset are cleared, and a finished turn clears an interruption. With a token,
        a turn that has replaced this one stays.
        """

        def change(entry: SessionEntry) -> bool:
            if entry.session_id != session_id:
                return False
            TURN_LEASE.clear(entry, token)
            entry.updated_at = self._now()
            entry.was_auto_reset = entry.is_fresh_reset = False
            entry.auto_reset_reason = None
            if last_prompt_tokens is not None:
                entry.last_prompt_tokens = last_prompt_tokens
            if finished:
                entry.clear_interruption()
            return True

        return self._change_entry(session_key, change)

    # -- expiry ------------------------------------------------------------------------------

    def claim_expiry(self, entry: SessionEntry) -> bool:
        """Claim the end of an expired session, so that only one process delivers it.

        Return False if the session is not expired any more, or if another process has a claim:
        until it finishes or dies, or for an hour.
        """
        is_open = self._is_session_open(entry.session_id)

        def change(current: SessionEntry) -> bool:
            is_expired = self.find_expiry_reason(current) is not None
            return is_expired and self._take_claim(current, is_open=is_open)

        return self._change_end_record(entry.key, entry.session_id, change)

    def set_expiry_finalized(
        self, entry: SessionEntry, *, clear_model_override: bool = True
    ) -> bool:
        """Record, in the route and the session's row, that the hooks of an expired session ran.

        This requires the claim of this store. If the session is in use again, the claim is removed
        and the next end is delivered. On a Hermes home the record is a mark: its own watcher would
        skip its plugins otherwise.
        """
        is_finalized = False

        def change(current: SessionEntry) -> bool:
            nonlocal is_finalized
            is_finalized = self.find_expiry_reason(current) is not None
            if not END_CLAIM.clear(current, self._token):
                is_finalized = False
                return False
            current.expiry_finalized = is_finalized
            if is_finalized and clear_model_override:
                current.model_override = None
            return True

        def end_session(db: StateDatabase) -> None:
            if is_finalized:
                db.set_expiry_finalized(entry.session_id)
                db.promote_to_session_reset(entry.session_id, "session_reset")

        return (
            self._change_end_record(entry.key, entry.session_id, change, end_session)
            and is_finalized
        )
