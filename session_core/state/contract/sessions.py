"""Session rows: created, filled, ended, reopened, and what a session is at one moment."""

from __future__ import annotations

from typing import Any, Protocol

from session_core.models import Revision, SessionRow


class Sessions(Protocol):
    """Session rows."""

    def create_session(
        self,
        /,
        session_id: str,
        source: str,
        *,
        model: str | None = None,
        parent_session_id: str | None = None,
        started_at: float | None = None,
        **fields: Any,
    ) -> str:
        """Create a session, or fill what is empty in the one that is there; return its id.

        Raises:
            InvalidInput: a field makes no sense, or the parent is the session or came from it.
            NotFound: the parent is not there.
        """

    def get_session(self, session_id: str) -> SessionRow | None:
        """Return a session's row."""

    def resolve_session_id(self, session: str) -> str | None:
        """Return the id that `session` is, or is the only prefix of."""

    def update_session(self, /, session_id: str, **fields: Any) -> bool:
        """Overwrite columns of a session; return whether it is there.

        Raises:
            InvalidInput: a field makes no sense, or the parent is the session or came from it.
            NotFound: the parent is not there.
            Unsupported: this home has no such column.
        """

    def end_session(self, session_id: str, end_reason: str | None) -> bool:
        """End a session unless it has ended already: the first reason wins."""

    def promote_to_session_reset(self, session_id: str, reason: str = "session_reset") -> bool:
        """End a session by a reset, also one that was only closed by its agent."""

    def reopen_session(self, session_id: str) -> bool:
        """Forget that a session has ended."""

    def set_session_archived(self, session_id: str, archived: bool) -> int:
        """Archive a whole conversation or bring it back; return how many rows changed."""

    def set_expiry_finalized(self, session_id: str, finalized: bool = True) -> bool:
        """Note that the hooks of an expired session were called."""

    def record_gateway_session_peer(
        self,
        session_id: str,
        *,
        source: str,
        user_id: str | None = None,
        session_key: str | None = None,
        chat_id: str | None = None,
        chat_type: str | None = None,
        thread_id: str | None = None,
        display_name: str | None = None,
        origin_json: str | None = None,
    ) -> bool:
        """Store which chat a session belongs to; the last two only where they are given."""

    def revision(self, session_id: str) -> Revision:
        """Return what the session is now, in one statement."""
