"""Helpers of the message tests: the rows, flags and counters of the session `s`."""

from __future__ import annotations

from typing import Any

from session_core import StateDatabase
from session_core.types import MessageRow

CALLS = [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]


def list_contents(db: StateDatabase, *, everything: bool = False) -> list[Any]:
    """Return the contents in order, of live messages only unless `everything`."""
    return [message["content"] for message in db.get_messages("s", include_inactive=everything)]


def append_text(db: StateDatabase, *texts: str, role: str = "user") -> list[int]:
    """Append messages and return their ids."""
    return [db.append_message("s", role, text) for text in texts]


def list_flags(db: StateDatabase) -> list[tuple[Any, int, int]]:
    """Return the text and the two flags of every row, in order."""
    rows = db.get_messages("s", include_inactive=True)
    return [(row["content"], row["active"], row.get("compacted", 0)) for row in rows]


def get(db: StateDatabase, message_id: int) -> MessageRow:
    """Return a message that exists."""
    message = db.get_message(message_id)
    assert message is not None
    return message


def read_counters(db: StateDatabase) -> tuple[int, int]:
    """Return the counts of messages and of tool calls in the row of the session."""
    row = db.get_session("s")
    assert row is not None
    return row["message_count"], row["tool_call_count"]
