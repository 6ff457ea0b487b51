"""`SessionStore`: which session each chat is in.

The truth is in the table (or the file, without a database) and asked each time; the store holds
nothing but the locks that let one caller a chat decide at a time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from session_core.routing import policies
from session_core.routing.checking import Checking
from session_core.routing.entries import SessionEntry

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from session_core.state.contract import StateDatabase


class SessionStore(Checking):
    """The sessions that chats are in."""

    # -- looking -----------------------------------------------------------------------------

    @property
    def problems(self) -> list[str]:
        """What could not be read, and what was set aside."""
        return self._copies.problems

    def get(self, session_key: str) -> SessionEntry | None:
        """Return the entry of a key as it is now; it is the caller's own until it is saved."""
        return self._copies.get(session_key)

    def entries(self) -> dict[str, SessionEntry]:
        """Return all entries by their keys."""
        return self._copies.all()

    def peek_session_id(self, session_key: str) -> str | None:
        """Return the id of the session that a chat is in."""
        entry = self.get(session_key)
        return None if entry is None else entry.session_id

    def lookup_by_session_id(self, session_id: str) -> SessionEntry | None:
        """Return the entry that leads to a session."""
        found = (entry for entry in self.entries().values() if entry.session_id == session_id)
        return next(found, None)

    def list_sessions(self, active_minutes: int | None = None) -> list[SessionEntry]:
        """Return the entries, the one that was used last first."""
        found = sorted(self.entries().values(), key=lambda entry: entry.updated_at, reverse=True)
        if active_minutes is None:
            return found
        since = self._now() - timedelta(minutes=active_minutes)
        return [entry for entry in found if entry.updated_at >= since]

    def is_session_finalizable(self, entry: SessionEntry) -> bool:
        """Whether the policy of this chat ever ends its session."""
        policy = self.config.policy_for(entry.platform, entry.chat_type)
        return policy.mode in ("idle", "daily", "both")

    # -- marks -------------------------------------------------------------------------------

    def save(self, entry: SessionEntry, *, urgent: bool = False) -> None:
        """Store an entry that the caller has changed.

        Raises:
            Conflict: somebody else has changed it since it was read.
        """
        self._ready(entry.key)
        self._put(entry.key, entry, urgent=urgent)

    def update_session(
        self, session_key: str, last_prompt_tokens: int | None = None
    ) -> SessionEntry | None:
        """Note that a chat was active, and how long its prompt was."""

        def change(entry: SessionEntry) -> bool:
            entry.updated_at = self._now()
            if last_prompt_tokens is not None:
                entry.last_prompt_tokens = last_prompt_tokens
            return True

        return self._change(session_key, change)

    def end_turn(
        self,
        session_key: str,
        session_id: str,
        last_prompt_tokens: int | None = None,
        *,
        finished: bool = True,
    ) -> SessionEntry | None:
        """Note that a turn has ended; None where the chat is in another session by now.

        That the session was begun anew is known then, and a turn that was finished makes good an
        interruption.
        """

        def change(entry: SessionEntry) -> bool:
            if entry.session_id != session_id:
                return False
            entry.updated_at = self._now()
            entry.was_auto_reset = entry.is_fresh_reset = False
            entry.auto_reset_reason = None
            if last_prompt_tokens is not None:
                entry.last_prompt_tokens = last_prompt_tokens
            if finished:
                _forget_interruption(entry)
            return True

        return self._change(session_key, change)

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
            _forget_interruption(entry)
            return True

        return self._change(session_key, change) is not None

    def suspend_recently_active(self, max_age_seconds: int = 120) -> int:
        """Mark what was active just before an unclean stop as interrupted; return how many."""
        since = self._now() - timedelta(seconds=max_age_seconds)
        recent = [
            key
            for key, entry in self.entries().items()
            if entry.updated_at >= since and not entry.suspended and not entry.resume_pending
        ]
        return sum(self.mark_resume_pending(key, "restart_interrupted") for key in recent)

    def set_model_override(self, session_key: str, override: dict[str, str] | None) -> bool:
        """Store the model that a chat asked for, or forget it; a key of an interface never is."""

        def change(entry: SessionEntry) -> bool:
            entry.model_override = dict(override) if override else None
            return True

        return self._change(session_key, change) is not None

    def set_expiry_finalized(
        self, entry: SessionEntry, *, clear_model_override: bool = True
    ) -> bool:
        """Note, in the route and in the session's row, that the hooks of an expired session ran.

        On a Hermes home nothing is noted, since its own watcher would then skip its plugins.
        """
        if self.db is not None and self.db.kind == "hermes":
            return False

        def change(current: SessionEntry) -> bool:
            if current.session_id != entry.session_id:
                return False
            current.expiry_finalized = True
            if clear_model_override:
                current.model_override = None
            return True

        def end(db: StateDatabase) -> None:
            db.set_expiry_finalized(entry.session_id)
            db.promote_to_session_reset(entry.session_id, "session_reset")

        return self._change(entry.key, change, end) is not None

    # -- removal -----------------------------------------------------------------------------

    def prune_old_entries(self, max_age_days: int | None) -> int:
        """Remove entries that were not used for so many days; return how many. Acts at once.

        Suspended ones and those with active processes stay. The sessions themselves are kept.
        """
        if max_age_days is None or max_age_days <= 0:
            return 0
        now = self._now()
        old = {
            key: entry
            for key, entry in self.entries().items()
            if policies.prunable(entry, max_age_days, now, active=self._has_active_processes)
        }
        return len(self.remove(old)) if old else 0

    def remove(self, entries: dict[str, SessionEntry]) -> list[str]:
        """Remove entries, as they were read, from both copies; return the keys of those that were.

        One that was changed since stays. Acts at once.
        """
        self._ready()
        return self._copies.remove(entries)

    # -- ending ------------------------------------------------------------------------------

    def close(self) -> None:
        """Bring the mirror up to date; the state database is closed by whoever opened it."""
        self._copies.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _forget_interruption(entry: SessionEntry) -> None:
    entry.resume_pending = False
    entry.resume_reason = entry.last_resume_marked_at = None
