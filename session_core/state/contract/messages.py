"""Messages: appended, taken back, brought back, replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from session_core.models import Appended, AppendedMany, Revision, Rewound


class Messages(Protocol):
    """Messages as they are stored."""

    def append_message(
        self,
        /,
        session_id: str,
        role: str,
        content: Any = None,
        *,
        create: Mapping[str, Any] | None = None,
        expect: Revision | None = None,
        **columns: Any,
    ) -> Appended:
        """Append a message and return its id, with the revision before and after.

        With `create`, the fields of `create_session`, a session that is not there yet is created
        in the same step. With `expect`, a session that was changed since is a `Conflict`.
        `columns` are those of `MessageRow`; a time that is not given is now.
        """

    def append_messages(
        self,
        session_id: str,
        messages: Iterable[Mapping[str, Any]],
        *,
        create: Mapping[str, Any] | None = None,
        expect: Revision | None = None,
    ) -> AppendedMany:
        """Append messages in one step; each is a mapping of the columns of `MessageRow`."""

    def rewind_to_message(self, session_id: str, target_message_id: int) -> Rewound:
        """Take back a user message and all that is live after it."""

    def restore_rewound(self, session_id: str, since_message_id: int) -> int:
        """Bring back what was rewound since a message; compacted rows stay compacted."""

    def replace_messages(
        self, session_id: str, messages: Iterable[Mapping[str, Any]], active_only: bool = False
    ) -> AppendedMany:
        """Delete all rows, or the live ones, and store others. They are gone at once."""

    def clear_messages(self, session_id: str) -> int:
        """Delete all messages of a session at once; return how many."""
