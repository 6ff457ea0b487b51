"""Helpers of list tests: making sessions, and reading all pages of a list."""

from __future__ import annotations

from typing import Any

from session_core import SessionFilter, StateDatabase
from session_core.types import SessionSummary


def add_session_at(db: StateDatabase, session_id: str, *times: float, **fields: Any) -> str:
    """Create a session with a message of the user at each of the times."""
    db.create_session(session_id, fields.pop("source", "cli"), **fields)
    messages = [{"role": "user", "content": f"at {at}", "timestamp": at} for at in times]
    db.append_messages(session_id, messages)
    return session_id


def list_session_ids(
    db: StateDatabase, where: SessionFilter | None = None, **options: Any
) -> list[str]:
    return [line.id for line in walk_list(db, where, **options)]


def walk_list(
    db: StateDatabase, where: SessionFilter | None = None, *, limit: int = 50, **options: Any
) -> list[SessionSummary]:
    """Read page after page of a list until its end."""
    page = db.list_sessions(where, limit=limit, **options)
    lines = list(page.items)
    while page.next_cursor is not None:
        assert len(page.items) == limit
        page = db.list_sessions(where, limit=limit, cursor=page.next_cursor, **options)
        assert page.items, "a cursor leads to something"
        lines += page.items
    return lines
