"""Helpers of search tests: appending a message, and the hits of a search."""

from __future__ import annotations

from typing import Any

from session_core import StateDatabase
from session_core.types import SearchResult


def add_message_text(
    db: StateDatabase, session_id: str, content: Any, role: str = "user", **columns: Any
) -> int:
    """Append a message and return its id."""
    return db.append_message(session_id, role, content, create={"source": "cli"}, **columns)


def list_message_ids(found: SearchResult) -> list[int]:
    """Return the messages of the hits, in their order."""
    return [hit.message_id for hit in found.hits]


def search_message_ids(db: StateDatabase, query: str, **options: Any) -> set[int]:
    """Return the messages that a query finds."""
    return set(list_message_ids(db.search(query, per="message", **options)))
