"""How a session is deleted: its rows in bounded transactions, and its own row at the very last.

A delete that is cut short leaves a session with fewer messages, never messages without a session.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

from session_core.state import arguments
from session_core.state.sqlite import blocks, index, lineage, sessions, trigram
from session_core.state.sqlite.handle import Handle, quoted

SQL = blocks.load("upkeep")

_TARGET_S = 0.02
_FIRST_BYTES = 64_000
_LEAST_BYTES = 4_000
_MEMORY = 0.8
_MOST_BYTES = 4_000_000
_ROW_BYTES = 200
_SESSION_BYTES = 1_000
_PAGE = 1_000

_OTHER_KEYS = {"session_turn_leases": "conversation_id"}
"""Tables that Hermes ties to a session by a column of another name, without a foreign key."""

_KEPT = {"messages", "gateway_routing", "conversation_generations"}
"""Messages go on their own, routes with the session store, and a generation is never used twice."""


class Pace:
    """How many bytes of messages one transaction may delete so that it holds the lock briefly.

    Now and then a transaction pays for merging the search index that those before it left behind,
    so it is the pace of the last few that counts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.room = _FIRST_BYTES
        self._clock = clock
        self._bytes = 0.0
        self._seconds = 0.0
        self._began_at = 0.0

    def begin(self) -> None:
        """Note that a transaction has the lock."""
        self._began_at = self._clock()

    def end(self) -> None:
        """Adapt to how long it had it."""
        self._bytes = self._bytes * _MEMORY + self.room
        self._seconds = self._seconds * _MEMORY + self._clock() - self._began_at
        wanted = _TARGET_S * self._bytes / max(self._seconds, 0.0001)
        self.room = int(min(max(wanted, _LEAST_BYTES), 2 * self.room, _MOST_BYTES))


def there(handle: Handle, session_ids: Sequence[str]) -> list[str]:
    """Return those of the sessions that are there, each once."""
    given = dict.fromkeys(arguments.texts("session_ids", session_ids) or ())
    return [each for each in given if sessions.is_there(handle, each)]


def delete_some(handle: Handle, session_ids: Sequence[str], room: int) -> tuple[int, set[str]]:
    """Delete as much as there is room for; return how many are done with, and what is gone."""
    taken = _Taken(handle, room)
    done = 0
    for session_id in session_ids:
        if not all(taken.take(each) for each in reversed(doomed_by(handle, session_id))):
            break
        done += 1
        if taken.room <= 0:
            break
    _delete_messages(handle, taken.rows)
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
            self.room -= _ROW_BYTES + size
        self.sessions[session_id] = None
        self.room -= _SESSION_BYTES
        return True


def doomed_by(handle: Handle, session_id: str) -> list[str]:
    """Return a session and its delegates, theirs too, but none of the sessions it came from."""
    if not sessions.is_there(handle, session_id):
        return []
    seen = lineage.above(handle, session_id) | {session_id}
    doomed = [session_id]
    for each in doomed:
        for child, config in handle.values(SQL["list_children"], (each,)):
            if child not in seen and lineage.is_delegate(config):
                seen.add(child)
                doomed.append(child)
    return doomed


def _delete_messages(handle: Handle, rows: Sequence[int]) -> None:
    for start in range(0, len(rows), _PAGE):
        page = rows[start : start + _PAGE]
        index.forget(handle, page)
        trigram.mend(handle, page)
        handle.run(SQL["delete_rows"], (json.dumps(page),))


def delete_row(handle: Handle, session_id: str) -> None:
    """Delete the row of a session that has no messages, and what other tables have of it."""
    handle.touched(session_id)
    for table, column in belonging(handle):
        handle.run(_removal(table, column), (session_id,))
    handle.run(SQL["detach_children"], (session_id,))
    handle.run(SQL["delete_session"], (session_id,))


def belonging(handle: Handle) -> list[tuple[str, str]]:
    """Return the tables with rows of a session, and the columns that say so, found by looking."""
    found: list[tuple[str, str]] | None = handle.cache.get("belonging")
    if found is None:
        found = [
            (table, column)
            for table, column in handle.values(SQL["list_columns_of_sessions"])
            if table not in _KEPT and (table, column) != ("sessions", "parent_session_id")
        ]
        found += [pair for pair in _OTHER_KEYS.items() if handle.has(*pair)]
        handle.cache["belonging"] = found
    return found


def _removal(table: str, column: str) -> str:
    if table == "sessions":
        return f"UPDATE sessions SET {quoted(column)} = NULL WHERE {quoted(column)} = ?"  # noqa: S608 -- from the schema, quoted
    return f"DELETE FROM {quoted(table)} WHERE {quoted(column)} = ?"  # noqa: S608 -- from the schema, quoted
