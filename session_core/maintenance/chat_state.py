"""The chat state in an export: routes, chats and hand-offs, which an import never brings.

A file may come from a stranger. A row that names a chat would receive the next message of that
chat, and a hand-off or a delegation that waits for delivery would be sent to one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from session_core.models import Images

_COLUMNS = frozenset(
    {
        "session_key",
        "thread_id",
        "display_name",
        "expiry_finalized",
        "profile_name",
        "transport_profile",
    }
)
_PREFIXES = ("chat_", "origin_", "handoff_")
"""Newer homes add columns of these kinds."""

_TABLES = frozenset({"async_delegations"})
_KEYS = frozenset({"session_key", "chat_id"})
"""A row of another table with one of these columns belongs to a chat."""


def drop_columns(row: dict[str, Any]) -> list[str]:
    """Remove the chat state from the row of a session; return the columns that had a value."""
    names = [name for name in row if name in _COLUMNS or name.startswith(_PREFIXES)]
    return [name for name in names if row.pop(name)]


def drop_rows(images: Iterable[Images]) -> tuple[list[Images], list[str]]:
    """Return the rows of other tables without those of chats, and the tables that had some."""
    kept: list[Images] = []
    dropped: list[str] = []
    for image in images:
        is_of_chat = image.table in _TABLES or not _KEYS.isdisjoint(image.columns)
        if not is_of_chat:
            kept.append(image)
        elif image.rows:
            dropped.append(f"rows of {image.table}")
    return kept, dropped
