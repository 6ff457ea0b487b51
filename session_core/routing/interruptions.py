"""Sessions that were interrupted and are gone on with, and suspended ones, which are not."""

from __future__ import annotations

from session_core.routing import policies
from session_core.routing.arrivals import Arrivals
from session_core.routing.entries import SessionEntry


class Interruptions(Arrivals):
    """What was interrupted is marked, and cleared when a turn was finished."""

    def suspend_session(self, session_key: str) -> bool:
        """Let the next message begin a new session, whatever the policy says."""

        def change(entry: SessionEntry) -> bool:
            entry.suspended = True
            return True

        return self._change(session_key, change) is not None

    def mark_resume_pending(self, session_key: str, reason: str = "restart_timeout") -> bool:
        """Note that a turn was interrupted, unless the session is suspended."""

        def change(entry: SessionEntry) -> bool:
            if entry.suspended:
                return False
            entry.resume_pending = True
            entry.resume_reason = reason
            entry.last_resume_marked_at = self._now()
            return True

        return self._change(session_key, change) is not None

    def clear_resume_pending(self, session_key: str) -> bool:
        """Note that the turn after an interruption was finished."""

        def change(entry: SessionEntry) -> bool:
            if not entry.resume_pending:
                return False
            entry.forget_interruption()
            return True

        return self._change(session_key, change) is not None

    def suspend_recently_active(self, max_age_seconds: int = 120) -> int:
        """Mark what was active just before an unclean stop as interrupted; return how many.

        Where an agent is at work in a process that lives, nothing was interrupted.
        """
        now = self._now()
        recent = [
            key
            for key, entry in self._copies.all().items()
            if policies.used_within(entry, max_age_seconds, now)
            if not (entry.suspended or entry.resume_pending or self.is_in_turn(entry))
        ]
        return sum(self.mark_resume_pending(key, "restart_interrupted") for key in recent)
