"""What sessions are to each other."""

from __future__ import annotations

from typing import Protocol

from session_core.models import LinkKind, SessionRow


class Lineage(Protocol):
    """What sessions are to each other."""

    def link_kind(self, session_id: str) -> LinkKind | None:
        """Return what the session is to its parent, None where it has none.

        A delegate is one by its mark, also if it has lost its parent.
        """

    def get_compression_tip(self, session_id: str) -> str:
        """Return the newest continuation of the conversation, itself where there is none."""

    def get_conversation_root(self, session_id: str) -> str:
        """Return the session in which the conversation began.

        A branch and a delegate begin one of their own, where Hermes goes on to their parents.
        """

    def get_compression_lineage(self, session_id: str) -> list[str]:
        """Return the whole conversation from root to tip."""

    def children(self, session_id: str) -> list[SessionRow]:
        """Return the sessions whose parent this is, oldest first."""
