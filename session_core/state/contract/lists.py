"""Lists of conversations, one line each."""

from __future__ import annotations

from typing import Protocol

from session_core.models import Order, Page, SessionFilter, SessionSummary


class Lists(Protocol):
    """Lists of conversations."""

    def list_sessions(
        self,
        where: SessionFilter | None = None,
        *,
        order: Order = "recent",
        limit: int = 20,
        cursor: str | None = None,
    ) -> Page[SessionSummary]:
        """List conversations, one line each: no continuations, no delegates, the tips.

        Without a status archived ones are left out. `recent` is by the last message, newest
        first; `size` by the number of live messages.
        """

    def summarize(self, session_id: str) -> SessionSummary:
        """Return the line of one session as it would stand in a list."""

    def find_sessions(self, where: SessionFilter) -> list[str]:
        """Return the ids of all rows that match, of every kind, oldest start first."""
