"""How a session is deleted: its rows in bounded transactions, and its own row at the very last.

A delete that is cut short leaves a session with fewer messages, never messages without a session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from session_core.state import validation
from session_core.state.sqlite import fts, lineage, sessions, sql_blocks
from session_core.state.sqlite.connection import Connection, quote_name

SQL = sql_blocks.load_blocks("admin")

ESTIMATED_ROW_BYTES = 200
"""What a row of a message counts beside its content."""

_SESSION_BYTES = 1_000
_PAGE_ROWS = 1_000

UnlinkedDelegates = Mapping[str, Sequence[str]]

_OTHER_ID_COLUMNS = {"session_turn_leases": "conversation_id"}
"""Tables that Hermes ties to a session by a column of another name, without a foreign key."""

_KEPT_TABLES = {"messages", "gateway_routing", "conversation_generations"}
"""Messages go on their own, routes with the session store, and a generation is never used twice."""


def list_existing_sessions(handle: Connection, session_ids: Sequence[str]) -> list[str]:
    """Return those of the sessions that are there, each once."""
    given = dict.fromkeys(validation.parse_texts("session_ids", session_ids) or ())
    return [each for each in given if sessions.has_session(handle, each)]


def delete_batch(
    handle: Connection, session_ids: Sequence[str], unlinked: UnlinkedDelegates, room: int
) -> tuple[int, set[str]]:
    """Delete as much as there is room for; return how many are done with, and what is gone."""
    taken = _DeletionBatch(handle, room)
    done = 0
    for session_id in session_ids:
        if not all(
            taken.add_session(each)
            for each in reversed(list_with_delegates(handle, session_id, unlinked))
        ):
            break
        done += 1
        if taken.room <= 0:
            break
    delete_messages(handle, taken.rows)
    for each in taken.sessions:
        delete_session_row(handle, each)
    return done, set(taken.sessions)


class _DeletionBatch:
    """What one transaction deletes: messages, and sessions whose last messages are among them."""

    def __init__(self, handle: Connection, room: int) -> None:
        self._handle = handle
        self.room = room
        self.rows: list[int] = []
        self.sessions: dict[str, None] = {}

    def add_session(self, session_id: str) -> bool:
        """Take a session; return whether there was room for all of it."""
        if session_id in self.sessions:
            return True
        if self.room <= 0:
            return False
        self._handle.forget_session_counts(session_id)
        for row_id, size in self._handle.connection.execute(SQL["list_rows"], (session_id,)):
            if self.room <= 0:
                return False
            self.rows.append(row_id)
            self.room -= ESTIMATED_ROW_BYTES + size
        self.sessions[session_id] = None
        self.room -= _SESSION_BYTES
        return True


def list_with_delegates(
    handle: Connection, session_id: str, unlinked: UnlinkedDelegates
) -> list[str]:
    """Return a session and its delegates, theirs too, but none of the sessions it came from.

    `unlinked` are the delegates without a link to their parent, as they were a moment ago.
    """
    if not sessions.has_session(handle, session_id):
        return []
    seen = lineage.list_all_ancestors(handle, session_id) | {session_id}
    doomed = [session_id]
    for each in doomed:
        for child, config in handle.fetch_tuples(SQL["list_children"], (each,)):
            if child not in seen and lineage.is_delegate(config):
                seen.add(child)
                doomed.append(child)
        for child in unlinked.get(each, ()):
            if child not in seen and lineage.is_unlinked_delegate(handle, child, each):
                seen.add(child)
                doomed.append(child)
    return doomed


def delete_messages(handle: Connection, rows: Sequence[int]) -> int:
    """Delete messages and what the search indexes have of them; return how many there were.

    By their ids, since an index of Hermes writes what it has gathered whenever one is lower than
    the one before, and merges all the more.
    """
    ordered = sorted(rows)
    deleted = 0
    for start in range(0, len(ordered), _PAGE_ROWS):
        page = ordered[start : start + _PAGE_ROWS]
        fts.remove_messages(handle, page)
        fts.repair_entries(handle, page)
        deleted += handle.run_change(SQL["delete_rows"], (json.dumps(page),))
    return deleted


def delete_session_row(handle: Connection, session_id: str) -> None:
    """Delete the row of a session that has no messages, and what other tables have of it."""
    handle.forget_session_counts(session_id)
    for table, column in list_belonging_columns(handle):
        handle.run_change(_to_delete_result(table, column), (session_id,))
    handle.run_change(SQL["detach_children"], (session_id,))
    handle.run_change(SQL["delete_session"], (session_id,))


def list_belonging_columns(handle: Connection) -> list[tuple[str, str]]:
    """Return the tables with rows of a session, and the columns that say so, found by looking."""
    found: list[tuple[str, str]] | None = handle.schema.get("belonging")
    if found is None:
        found = [
            (table, column)
            for table, column in handle.fetch_tuples(SQL["list_columns_of_sessions"])
            if table not in _KEPT_TABLES and (table, column) != ("sessions", "parent_session_id")
        ]
        found += [pair for pair in _OTHER_ID_COLUMNS.items() if handle.has_column(*pair)]
        handle.schema["belonging"] = found
    return found


def _to_delete_result(table: str, column: str) -> str:
    if table == "sessions":
        return f"UPDATE sessions SET {quote_name(column)} = NULL WHERE {quote_name(column)} = ?"  # noqa: S608 -- from the schema, quoted
    return f"DELETE FROM {quote_name(table)} WHERE {quote_name(column)} = ?"  # noqa: S608 -- from the schema, quoted
