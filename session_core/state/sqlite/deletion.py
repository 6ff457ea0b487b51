"""Deletion of sessions in bounded transactions, and the two cleanups that Hermes has.

They act at once and protect no session; the layers above decide which sessions may be changed.
Rows that belong to a session are deleted with it, the session row last: an interrupted delete
leaves a session with fewer messages, never messages without a session. Routes and files of a home
belong to the session store and stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from session_core.state import sql_blocks, validation
from session_core.state.batch_size import BatchSize
from session_core.state.sqlite import fts, lineage, sessions
from session_core.state.sqlite.connection import Connection, quote_name
from session_core.state.sqlite.store import SqliteOperations

SQL = sql_blocks.load_blocks("admin")

ESTIMATED_ROW_BYTES = 200
"""Size of a message row in addition to its content."""

_SESSION_BYTES = 1_000
_PAGE_ROWS = 1_000

UnlinkedDelegates = Mapping[str, Sequence[str]]

_OTHER_ID_COLUMNS = {"session_turn_leases": "conversation_id"}
"""Tables that refer to a session by another column name, without a foreign key."""

_KEPT_TABLES = {"messages", "gateway_routing", "conversation_generations"}
"""Tables that are not deleted with a session row.

Messages are deleted separately, routes by the session store, and generations are never reused.
"""


_WEEK_S = 604_800
_DAY_S = 86_400
_CHUNK_SESSIONS = 200
_AMONG_IDS = " AND id IN (SELECT value FROM json_each(:ids))"
"""Restricts a selection to chosen sessions, which are checked again in the changing transaction."""


class SqliteDeletion(SqliteOperations):
    """Deletion and finalization of sessions at once."""

    def finalize_orphaned_compression_sessions(self) -> int:
        """End continuations that never ran, at once, and return their number.

        Such a session has no accounted call, has not ended, began more than a week ago, continues a
        compressed parent, and has a message.
        """
        before = self._clock() - _WEEK_S
        orphans = self._read(lambda handle: list_orphaned_continuations(handle, before))
        return sum(
            self._write(partial(_finalize_orphans, ids=chunk, now=self._clock(), before=before))
            for chunk in _iter_chunks(orphans)
        )

    def prune_empty_ghost_sessions(self) -> int:
        """Delete empty terminal sessions without children, at once, and return their number.

        Such a session has no title and no message, has ended, and began more than a day ago.
        """
        before = self._clock() - _DAY_S
        ghosts = self._read(lambda handle: list_ghosts(handle, before))
        return sum(
            self._write(partial(_prune_ghosts, ids=chunk, before=before))
            for chunk in _iter_chunks(ghosts)
        )

    def delete_session(self, session_id: str) -> bool:
        """Delete a session, its delegates and all rows that belong to them, at once.

        This has no undo; `Maintenance.delete_session` moves a session to the trash instead. Other
        children of the session lose their parent. A large session is deleted in several
        transactions: messages first, the session row last, so that an interrupted delete can be
        repeated. Routes and files stay. Return True if the session existed.
        """
        return self.delete_sessions([session_id]) == 1

    def delete_sessions(self, session_ids: Sequence[str]) -> int:
        """Delete several sessions as `delete_session` does and return their number."""
        remaining = self._read(partial(list_existing_sessions, session_ids=session_ids))
        requested, deleted, pace = set(remaining), set[str](), BatchSize()
        # Once, and outside of the transactions, because it scans all sessions.
        unlinked = self._read(lineage.list_unlinked_delegates)
        while remaining:
            with self._store.transaction():
                done, removed = self._write(
                    partial(_delete_within_pace, ids=remaining, unlinked=unlinked, pace=pace)
                )
            pace.end_batch()
            deleted |= removed
            remaining = remaining[done:]
        return len(deleted & requested)


def list_orphaned_continuations(handle: Connection, before: float) -> list[str]:
    """Return the continuations that never ran."""
    if not handle.has_column("sessions", "api_call_count"):
        return []
    return [row[0] for row in handle.fetch_tuples(SQL["list_orphans"], {"before": before})]


def list_ghosts(handle: Connection, before: float) -> list[str]:
    """Return the empty terminal sessions without children."""
    return [row[0] for row in handle.fetch_tuples(SQL["list_ghosts"], {"before": before})]


def _finalize_orphans(handle: Connection, ids: Sequence[str], now: float, before: float) -> int:
    bounds = {"ids": json.dumps(ids), "before": before}
    orphans = [
        row[0]
        for row in handle.fetch_tuples(
            handle.resolve_block(SQL["list_orphans"]) + _AMONG_IDS, bounds
        )
    ]
    for orphan in orphans:
        handle.forget_session_counts(orphan)
    return handle.execute_update(SQL["finalize"], {"ids": json.dumps(orphans), "now": now})


def _prune_ghosts(handle: Connection, ids: Sequence[str], before: float) -> int:
    bounds = {"ids": json.dumps(ids), "before": before}
    ghosts = [
        row[0]
        for row in handle.fetch_tuples(
            handle.resolve_block(SQL["list_ghosts"]) + _AMONG_IDS, bounds
        )
    ]
    for ghost in ghosts:
        delete_session_row(handle, ghost)
    return len(ghosts)


def _delete_within_pace(
    handle: Connection, ids: Sequence[str], unlinked: UnlinkedDelegates, pace: BatchSize
) -> tuple[int, set[str]]:
    pace.begin_batch()
    return delete_batch(handle, ids, unlinked, pace.max_bytes)


def _iter_chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + _CHUNK_SESSIONS] for start in range(0, len(ids), _CHUNK_SESSIONS))


def list_existing_sessions(handle: Connection, session_ids: Sequence[str]) -> list[str]:
    """Return the ids that exist, without duplicates."""
    unique_ids = dict.fromkeys(validation.parse_texts("session_ids", session_ids) or ())
    return [session_id for session_id in unique_ids if sessions.has_session(handle, session_id)]


def delete_batch(
    handle: Connection, session_ids: Sequence[str], unlinked: UnlinkedDelegates, room: int
) -> tuple[int, set[str]]:
    """Delete sessions of about `room` bytes in total.

    Return the number of ids that are done and the ids of all deleted sessions.
    """
    batch = _DeletionBatch(handle, room)
    done = 0
    for session_id in session_ids:
        if not all(
            batch.add_session(member)
            # Delegates go first: their parent leads to them if the delete is interrupted and
            # repeated.
            for member in reversed(list_session_with_delegates(handle, session_id, unlinked))
        ):
            break
        done += 1
        if batch.room <= 0:
            break
    delete_message_rows(handle, batch.rows)
    for member in batch.sessions:
        delete_session_row(handle, member)
    return done, set(batch.sessions)


class _DeletionBatch:
    """The messages and session rows to delete in one transaction."""

    def __init__(self, handle: Connection, room: int) -> None:
        self._handle = handle
        self.room = room
        self.rows: list[int] = []
        self.sessions: dict[str, None] = {}

    def add_session(self, session_id: str) -> bool:
        """Add a session and return True if all its messages fit."""
        if session_id in self.sessions:
            return True
        if self.room <= 0:
            return False
        self._handle.forget_session_counts(session_id)
        # If the room ends here, these messages are deleted, and the session row in a later batch.
        statement = self._handle.expand_sql(SQL["list_rows"])
        for row_id, size in self._handle.iter_rows(statement, (session_id,)):
            if self.room <= 0:
                return False
            self.rows.append(row_id)
            self.room -= ESTIMATED_ROW_BYTES + size
        self.sessions[session_id] = None
        self.room -= _SESSION_BYTES
        return True


def list_session_with_delegates(
    handle: Connection, session_id: str, unlinked: UnlinkedDelegates
) -> list[str]:
    """Return a session and its delegates, recursively, without its own ancestors.

    `unlinked` holds the delegates without a link to their parent, read in an earlier transaction.
    """
    if not sessions.has_session(handle, session_id):
        return []
    seen = lineage.list_all_ancestors(handle, session_id) | {session_id}
    members = [session_id]
    for member in members:
        for child, config in handle.fetch_tuples(SQL["list_children"], (member,)):
            if child not in seen and lineage.is_delegate(config):
                seen.add(child)
                members.append(child)
        for child in unlinked.get(member, ()):
            if child not in seen and lineage.is_unlinked_delegate(handle, child, member):
                seen.add(child)
                members.append(child)
    return members


def delete_message_rows(handle: Connection, rows: Sequence[int]) -> int:
    """Delete messages and their entries in the search indexes, and return the number of rows."""
    # An index of Hermes flushes and merges whenever an id is lower than the one before.
    ordered = sorted(rows)
    deleted = 0
    for start in range(0, len(ordered), _PAGE_ROWS):
        page = ordered[start : start + _PAGE_ROWS]
        fts.remove_index_entries(handle, page)
        fts.repair_entries(handle, page)
        deleted += handle.execute_update(SQL["delete_rows"], (json.dumps(page),))
    return deleted


def delete_if_empty(handle: Connection, session_id: str) -> bool:
    """Delete a session without messages, title and children, and return True if it was deleted."""
    is_empty = handle.fetch_value(SQL["get_empty"], (session_id,)) is not None
    if is_empty:
        delete_session_row(handle, session_id)
    return is_empty


def delete_session_row(handle: Connection, session_id: str) -> None:
    """Delete a session row without messages, and the rows of other tables that refer to it."""
    handle.forget_session_counts(session_id)
    for table, column in list_belonging_columns(handle):
        handle.execute_update(_build_delete_or_unlink(table, column), (session_id,))
    handle.execute_update(SQL["detach_children"], (session_id,))
    handle.execute_update(SQL["delete_session"], (session_id,))


def list_belonging_columns(handle: Connection) -> list[tuple[str, str]]:
    """Return the tables and columns that refer to sessions, from the schema."""
    pairs: list[tuple[str, str]] | None = handle.schema.get("belonging")
    if pairs is None:
        pairs = [
            (table, column)
            for table, column in handle.fetch_tuples(SQL["list_columns_of_sessions"])
            if table not in _KEPT_TABLES and (table, column) != ("sessions", "parent_session_id")
        ]
        pairs += [pair for pair in _OTHER_ID_COLUMNS.items() if handle.has_column(*pair)]
        handle.schema["belonging"] = pairs
    return pairs


def _build_delete_or_unlink(table: str, column: str) -> str:
    if table == "sessions":
        return f"UPDATE sessions SET {quote_name(column)} = NULL WHERE {quote_name(column)} = ?"  # noqa: S608 -- quoted names of the schema
    return f"DELETE FROM {quote_name(table)} WHERE {quote_name(column)} = ?"  # noqa: S608 -- quoted names of the schema
