"""How messages are read: as rows, as a conversation, a window at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from session_core.models import MessageRow, View, Window


class Windows(Protocol):
    """How messages are read."""

    def get_message(self, message_id: int) -> MessageRow | None:
        """Return one message."""

    def find_messages(self, message_ids: Sequence[int]) -> dict[int, MessageRow]:
        """Return messages of one moment by their ids; those that are not there are left out."""

    def get_messages(
        self,
        session_id: str,
        include_inactive: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[MessageRow]:
        """Return the rows of a session in order."""

    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False, include_inactive: bool = False
    ) -> list[dict[str, Any]]:
        """Return what a model is sent: roles, content, tool calls and reasoning, all decoded.

        Memory that was recalled for one call, and reviews of the conversation, are left out.
        Ancestors are the earlier sessions of the same conversation; Hermes also takes those from
        which a branch or a delegate came.
        """

    def read_window(
        self,
        session_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        around: int | None = None,
        limit: int = 50,
        roles: Sequence[str] | None = None,
        view: View = "live",
    ) -> Window:
        """Return the newest messages, or those before, after (exclusive) or around an id."""

    def message_count(self, session_id: str | None = None) -> int:
        """Return how many rows a session has, or all of them."""

    def has_platform_message_id(self, session_id: str, platform_message_id: str) -> bool:
        """Whether a message of a platform was stored already."""
