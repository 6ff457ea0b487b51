"""How a session is deleted: its rows in bounded transactions, and its own row at the very last.

A delete that is cut short leaves a session with fewer messages, never messages without a session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from session_core.state import validation
from session_core.state.sqlite import fts, lineage, sessions, sql_blocks
from session_core.state.sqlite.connection import Handle, quoted

SQL = sql_blocks.load("admin")

ROW_BYTES = 200
"""What a row of a message counts beside its content."""

_SESSION_BYTES = 1_000
_PAGE = 1_000

Unlinked = Mapping[str, Sequence[str]]

_OTHER_KEYS = {"session_turn_leases": "conversation_id"}
"""Tables that Hermes ties to a session by a column of another name, without a foreign key."""

_KEPT = {"messages", "gateway_routing", "conversation_generations"}
"""Messages go on their own, routes with the session store, and a generation is never used twice."""


def there(handle: Handle, session_ids: Sequence[str]) -> list[str]:
    """Return those of the sessions that are there, each once."""
    given = dict.fromkeys(validation.texts("session_ids", session_ids) or ())
    return [each for each in given if sessions.is_there(handle, each)]


def delete_some(
    handle: Handle, session_ids: Sequence[str], unlinked: Unlinked, room: int
) -> tuple[int, set[str]]:
    """Delete as much as there is room for; return how many are done with, and what is gone."""
    taken = _Taken(handle, room)
    done = 0
    for session_id in session_ids:
        if not all(taken.take(each) for each in reversed(doomed_by(handle, session_id, unlinked))):
            break
        done += 1
        if taken.room <= 0:
            break
    delete_messages(handle, taken.rows)
    for each in taken.sessions:
        delete_row(handle, each)
    return done, set(taken.sessions)


class _Taken:
    """What one transaction deletes: messages, and sessions whose last messages are among them."""

    def __init__(self, handle: Handle, room: int) -> None:
        self._handle = handle
        self.room = room
        self.rows: list[int] = []
        self.sessions: dict[str, None] = {}

    def take(self, session_id: str) -> bool:
        """Take a session; return whether there was room for all of it."""
        if session_id in self.sessions:
            return True
        if self.room <= 0:
            return False
        self._handle.touched(session_id)
        for row_id, size in self._handle.connection.execute(SQL["list_rows"], (session_id,)):
            if self.room <= 0:
                return False
            self.rows.append(row_id)
            self.room -= ROW_BYTES + size
        self.sessions[session_id] = None
        self.room -= _SESSION_BYTES
        return True


def doomed_by(handle: Handle, session_id: str, unlinked: Unlinked) -> list[str]:
    """Return a session and its delegates, theirs too, but none of the sessions it came from.

    `unlinked` are the delegates without a link to their parent, as they were a moment ago.
    """
    if not sessions.is_there(handle, session_id):
        return []
    seen = lineage.above(handle, session_id) | {session_id}
    doomed = [session_id]
    for each in doomed:
        for child, config in handle.values(SQL["list_children"], (each,)):
            if child not in seen and lineage.is_delegate(config):
                seen.add(child)
                doomed.append(child)
        for child in unlinked.get(each, ()):
            if child not in seen and lineage.is_unlinked_delegate(handle, child, each):
                seen.add(child)
                doomed.append(child)
    return doomed


def delete_messages(handle: Handle, rows: Sequence[int]) -> int:
    """Delete messages and what the search indexes have of them; return how many there were.

    By their ids, since an index of Hermes writes what it has gathered whenever one is lower than
    the one before, and merges all the more.
    """
    ordered = sorted(rows)
    deleted = 0
    for start in range(0, len(ordered), _PAGE):
        page = ordered[start : start + _PAGE]
        fts.forget(handle, page)
        fts.mend(handle, page)
        deleted += handle.run(SQL["delete_rows"], (json.dumps(page),))
    return deleted


def delete_row(handle: Handle, session_id: str) -> None:
    """Delete the row of a session that has no messages, and what other tables have of it."""
    handle.touched(session_id)
    for table, column in belonging(handle):
        handle.run(_removal(table, column), (session_id,))
    handle.run(SQL["detach_children"], (session_id,))
    handle.run(SQL["delete_session"], (session_id,))


def belonging(handle: Handle) -> list[tuple[str, str]]:
    """Return the tables with rows of a session, and the columns that say so, found by looking."""
    found: list[tuple[str, str]] | None = handle.schema.get("belonging")
    if found is None:
        found = [
            (table, column)
            for table, column in handle.values(SQL["list_columns_of_sessions"])
            if table not in _KEPT and (table, column) != ("sessions", "parent_session_id")
        ]
        found += [pair for pair in _OTHER_KEYS.items() if handle.has(*pair)]
        handle.schema["belonging"] = found
    return found


def _removal(table: str, column: str) -> str:
    if table == "sessions":
        return f"UPDATE sessions SET {quoted(column)} = NULL WHERE {quoted(column)} = ?"  # noqa: S608 -- from the schema, quoted
    return f"DELETE FROM {quoted(table)} WHERE {quoted(column)} = ?"  # noqa: S608 -- from the schema, quoted
