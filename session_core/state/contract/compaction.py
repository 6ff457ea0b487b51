"""How messages are summarised away and brought back, and who may do it just now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from session_core.models import AppendedMany


class Compaction(Protocol):
    """Compaction, and the lock of whoever compacts."""

    def archive_and_compact(
        self, session_id: str, compacted_messages: Iterable[Mapping[str, Any]]
    ) -> AppendedMany:
        """Flag all live rows as compacted and append others in their place."""

    def compact_messages(
        self,
        session_id: str,
        message_ids: Sequence[int],
        summary: Iterable[Mapping[str, Any]],
        *,
        carry: Sequence[int] = (),
    ) -> AppendedMany:
        """Flag messages as compacted, append a summary and behind it copies of those to carry.

        Raises:
            Conflict: one of them is no live message of the session any more.
        """

    def copy_messages(
        self, session_id: str, message_ids: Sequence[int], to_session_id: str
    ) -> AppendedMany:
        """Append copies of messages to another session, with every column but the id."""

    def restore_compacted(
        self,
        session_id: str,
        message_ids: Sequence[int],
        *,
        copies: Mapping[int, int] | None = None,
        flags: Mapping[int, Sequence[int | None]] | None = None,
        drop: Sequence[int] = (),
    ) -> AppendedMany:
        """Bring compacted messages back, and delete for good what had been put in their place.

        What `copies` names becomes what its copy is by now, changed or rewound. `flags` are those
        of `active` and `compacted` that a message had which is live again.
        """

    def try_acquire_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = 300.0
    ) -> bool:
        """Take the compression lock of a session, or one that has run out; say whether that was."""

    def refresh_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = 300.0
    ) -> bool:
        """Keep a lock for longer; say no where it was lost."""

    def release_compression_lock(self, session_id: str, holder: str) -> None:
        """Give a lock back; one that somebody else has taken over stays."""

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        """Return who compresses a session just now."""
