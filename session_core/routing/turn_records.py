"""`TurnRecords`: active and interrupted turns, as entries record them.

A turn is a lease in the entry. Until it ends or its process dies, no policy of any process ends the
session. An interrupted turn sets `resume_pending`, and the next message continues the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from session_core.errors import InvalidInput
from session_core.routing.leases import END_CLAIM, TURN_LEASE, create_token
from session_core.routing.policies import is_recently_used

if TYPE_CHECKING:
    from session_core.routing.decisions import RouteDecisions
    from session_core.routing.entries import SessionEntry
    from session_core.routing.policies import ResetPolicies
    from session_core.routing.settings import StoreSettings


class TurnRecords:
    """Records turns and interruptions in the entries of chats."""

    def __init__(
        self, settings: StoreSettings, decisions: RouteDecisions, policies: ResetPolicies
    ) -> None:
        self._settings = settings
        self._decisions = decisions
        self._policies = policies

    def begin_turn(self, session_key: str, session_id: str) -> str:
        """Record that an agent is at work in a session.

        Return the token of the turn.
        """
        token = create_token()

        def record_turn(entry: SessionEntry) -> bool:
            if entry.session_id != session_id:
                return False
            TURN_LEASE.put(entry, token, self._settings.now())
            # The session is in use again: the claimed end is void.
            END_CLAIM.clear(entry)
            return True

        self._decisions.change_entry(session_key, record_turn)
        return token

    def drop_turn(self, session_key: str, token: str) -> bool:
        """Remove a turn without recording its end."""

        def clear_turn(entry: SessionEntry) -> bool:
            return TURN_LEASE.clear(entry, token)

        return self._decisions.change_entry(session_key, clear_turn) is not None

    def end_turn(
        self,
        session_key: str,
        session_id: str,
        last_prompt_tokens: int | None,
        *,
        finished: bool,
        token: str | None,
    ) -> SessionEntry | None:
        """Record the end of a turn.

        Return None if the chat is in another session by now.
        """

        def record_end(entry: SessionEntry) -> bool:
            now = self._settings.now()
            # A later turn of the chat, here or on another machine, has another token.
            later = None if token is None else TURN_LEASE.find_holder(entry, now)
            if entry.session_id != session_id or later not in {None, token}:
                return False
            TURN_LEASE.clear(entry, token)
            entry.updated_at = now
            entry.was_auto_reset = entry.is_fresh_reset = False
            entry.auto_reset_reason = None
            if last_prompt_tokens is not None:
                entry.last_prompt_tokens = last_prompt_tokens
            if finished:
                entry.clear_interruption()
            return True

        return self._decisions.change_entry(session_key, record_end)

    def update_session(
        self, session_key: str, last_prompt_tokens: int | None
    ) -> SessionEntry | None:
        """Record that a chat was active, and the token count of its last prompt."""

        def record_activity(entry: SessionEntry) -> bool:
            entry.updated_at = self._settings.now()
            if last_prompt_tokens is not None:
                entry.last_prompt_tokens = last_prompt_tokens
            return True

        return self._decisions.change_entry(session_key, record_activity)

    def set_model_override(self, session_key: str, override: dict[str, str] | None) -> bool:
        """Store the model that a chat asked for, or remove it."""
        if override is not None and not isinstance(override, Mapping):
            raise InvalidInput(
                "override must be a mapping with model, provider or base_url, "
                f"got {type(override).__name__}"
            )

        def store_override(entry: SessionEntry) -> bool:
            entry.model_override = dict(override) if override else None
            return True

        return self._decisions.change_entry(session_key, store_override) is not None

    # -- interruptions -----------------------------------------------------------------------

    def suspend_session(self, session_key: str) -> bool:
        """Make the next message start a new session, without regard to the reset policy."""

        def suspend_entry(entry: SessionEntry) -> bool:
            entry.suspended = True
            return True

        return self._decisions.change_entry(session_key, suspend_entry) is not None

    def mark_resume_pending(self, session_key: str, reason: str) -> bool:
        """Record that a turn was interrupted, unless the session is suspended."""

        def record_interruption(entry: SessionEntry) -> bool:
            if entry.suspended:
                return False
            entry.resume_pending = True
            entry.resume_reason = reason
            entry.last_resume_marked_at = self._settings.now()
            return True

        return self._decisions.change_entry(session_key, record_interruption) is not None

    def clear_resume_pending(self, session_key: str) -> bool:
        """Record that the turn after an interruption has finished."""

        def clear_interruption(entry: SessionEntry) -> bool:
            if not entry.resume_pending:
                return False
            entry.clear_interruption()
            return True

        return self._decisions.change_entry(session_key, clear_interruption) is not None

    def suspend_recently_active(self, max_age_seconds: int) -> int:
        """Mark sessions that were in use just before an unclean stop as interrupted.

        Return their number.
        """
        now = self._settings.now()
        recent = [
            key
            for key, entry in self._decisions.backend.list_entries().items()
            if is_recently_used(entry, max_age_seconds, now)
            if not (entry.suspended or entry.resume_pending)
            # An agent at work in a live process was not interrupted.
            if not self._policies.has_active_turn(entry)
        ]
        return sum(self.mark_resume_pending(key, "restart_interrupted") for key in recent)
