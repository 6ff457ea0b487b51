"""When the session of a chat is over by the clock, who tells that, and the turns that keep it."""

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
    """Turns begin and end, and sessions expire."""

    def is_session_finalizable(self, entry: SessionEntry) -> bool:
        """Whether the policy of this chat ever ends its session."""
        return self._get_policy(entry).mode in ("idle", "daily", "both")

    def has_active_turn(self, entry: SessionEntry) -> bool:
        """Whether an agent is at work in a session, of whatever process, as far as its entry says.

        A turn counts no more once its process is dead or it has taken six hours.
        """
        return TURN_LEASE.find_holder(entry, self._now()) is not None

    def find_expiry_reason(self, entry: SessionEntry) -> str | None:
        """Return the reason for which the policy would end a session now; a turn keeps it."""
        if self.has_active_turn(entry):
            return None
        return policies.find_reset_reason(
            entry,
            self._get_policy(entry),
            self._now(),
            has_active_processes=self._has_active_processes,
        )

    def is_ended_elsewhere(self, entry: SessionEntry) -> bool:
        """Whether the session of a chat was ended by the clock of another one, and not of this.

        Several chats may be in one session, and each has a clock of its own.
        """
        row = None if self.db is None else self.db.get_session(entry.session_id)
        if row is None or entry.expiry_finalized or not is_ended_by_policy(row):
            return False
        return self.find_expiry_reason(entry) is None

    def _get_policy(self, entry: SessionEntry) -> SessionResetPolicy:
        """Return what says when the session of a chat ends by itself."""
        platform = entry.platform or get_key_platform(entry.session_key) or None
        return self.config.get_reset_policy(platform, entry.chat_type)

    # -- turns -----------------------------------------------------------------------------

    def begin_turn(self, session_key: str, session_id: str) -> str:
        """Note that an agent is at work in the session of a chat; return the token of its turn.

        Meanwhile no policy ends the session, whatever process looks at it. A later turn takes the
        place of this one, and nothing is noted where the chat is in another session by now.
        """
        token = create_token()

        def change(entry: SessionEntry) -> bool:
            if entry.session_id != session_id:
                return False
            TURN_LEASE.put(entry, token, self._now())
            END_CLAIM.clear(entry)
            return True

        self._change_entry(session_key, change)
        return token

    def drop_turn(self, session_key: str, token: str) -> bool:
        """Note that an agent is not at work any more, without an end that is worth noting."""
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
        """Note that a turn has ended; None where the chat is in another session by now.

        That the session was begun anew is known then, and a turn that was finished makes good an
        interruption. With the token of a turn, one that has taken its place goes on.
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
        """Take on to tell that a session has expired, so that one process alone does.

        False where it has not, or not any more, and where somebody else has taken that on: until
        he is done, his process is dead, or an hour has gone by.
        """
        lives = self._is_session_open(entry.session_id)

        def change(current: SessionEntry) -> bool:
            expired = self.find_expiry_reason(current) is not None
            return expired and self._take_claim(current, lives=lives)

        return self._change_end_record(entry.key, entry.session_id, change)

    def set_expiry_finalized(
        self, entry: SessionEntry, *, clear_model_override: bool = True
    ) -> bool:
        """Note, in the route and in the session's row, that the hooks of an expired session ran.

        Only where it is still expired and was claimed here; one that is in use again is let go of,
        and its next end is told. On a Hermes home nothing is noted in it, since its own watcher
        would then skip its plugins: that stands in `marks`.
        """
        marked = False

        def change(current: SessionEntry) -> bool:
            nonlocal marked
            marked = self.find_expiry_reason(current) is not None
            if not END_CLAIM.clear(current, self._token):
                marked = False
                return False
            current.expiry_finalized = marked
            if marked and clear_model_override:
                current.model_override = None
            return True

        def end(db: StateDatabase) -> None:
            if marked:
                db.set_expiry_finalized(entry.session_id)
                db.promote_to_session_reset(entry.session_id, "session_reset")

        return self._change_end_record(entry.key, entry.session_id, change, end) and marked
