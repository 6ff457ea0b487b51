"""Titles: unique, and numbered along a lineage."""

from __future__ import annotations

from typing import Protocol

from session_core.models import SessionRow


class Titles(Protocol):
    """Titles."""

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Set or clear a title; it moves from an ancestor of the same conversation.

        Raises:
            TitleTaken: another conversation has it.
            InvalidInput: it is too long.
        """

    def set_auto_title_if_empty(self, session_id: str, title: str) -> bool:
        """Set a title where there is none; return whether it was set."""

    def get_session_title(self, session_id: str) -> str | None:
        """Return the title of a session."""

    def get_session_by_title(self, title: str) -> SessionRow | None:
        """Return the session with exactly this title."""

    def resolve_session_by_title(self, title: str) -> str | None:
        """Return the newest session of the lineage of this title, else the one that has it."""

    def get_next_title_in_lineage(self, base_title: str) -> str:
        """Return the next free title: "Trip", then "Trip #2"."""
