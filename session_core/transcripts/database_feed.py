"""Reads of new rows from a database of another agent, through its format.

A database is opened read-only, and each read transaction is short: a writer whose log cannot be
checkpointed because of a reader would let the log grow.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from session_core import _sqlite3
from session_core.transcripts.file_feed import READER_ERRORS, SETTLED_NS
from session_core.transcripts.format import DatabaseFormat, Message, Query, Record
from session_core.transcripts.parts import SourceEntry, SourcePart
from session_core.transcripts.roots import FileIdentity, get_identity

_BUSY_TIMEOUT_S = 0.2
_READ_ROWS = 200
_READ_S = 0.15
_UNNAMED = "unknown"

SnapshotOpener = Callable[[str], AbstractContextManager[Query]]
"""Opens a database, or the kept copy that replaces it, by path."""


def get_database_identity(path: str, identity: FileIdentity) -> FileIdentity:
    """Return the identity of a database with its log, which changes with each commit."""
    # A commit goes to the log; the database file changes only with a checkpoint.
    try:
        log = os.stat(f"{path}-wal")  # noqa: PTH116 -- os.stat avoids building a Path
    except OSError:
        return identity
    newest = max(identity.mtime_ns, log.st_mtime_ns)
    return identity._replace(size=identity.size + log.st_size, mtime_ns=newest)


def find_database_identity(path: str) -> FileIdentity | None:
    """Return the current identity of a database, or None if it is gone."""
    try:
        return get_database_identity(path, get_identity(os.stat(path)))  # noqa: PTH116 -- os.stat avoids building a Path
    except OSError:
        return None


class DatabaseFeed:
    """Reads the databases of one root through their format."""

    def __init__(self, reader: DatabaseFormat, opener: SnapshotOpener) -> None:
        self._format = reader
        self._open = opener

    def read_part(self, entry: SourceEntry, identity: FileIdentity) -> SourcePart | None:
        """Read the next part in one short transaction.

        Return None if that is not possible. A part without records means that the database was read
        to its end.
        """
        # Another inode is another database, to whose rows the watermark does not belong.
        is_same = entry.version == self._format.version and entry.identity[:2] == identity[:2]
        after = replace(entry, identity=identity, version=self._format.version)
        part = SourcePart(entry, after, None, is_reset=bool(entry.id) and not is_same)
        part.state = json.loads(entry.state) if is_same else {}
        part.unknown = json.loads(entry.unknown)
        try:
            with self._open(entry.full_path) as query:
                if not self._format.has_tables(query):
                    part.unknown = {"unknown layout": 1}
                    after.is_read = True
                    return part
                records = self._read_records(query, part)
                after.is_read = not records
                if after.is_read:
                    part.present_ids = set(self._format.list_session_ids(query))
        except get_database_errors():
            return None
        for record in records:
            part.add_record(record, record.session_id or _UNNAMED)
        if time.time_ns() - identity.mtime_ns < SETTLED_NS:
            after.identity = identity._replace(mtime_ns=-1)
        return part

    def reread_session(
        self, entry: SourceEntry, session_id: str, opened: AbstractContextManager[Query]
    ) -> SourcePart | None:
        """Read a whole session from tables that contain only its rows.

        The returned part replaces the session in the index.
        """
        part = SourcePart(entry, replace(entry), None, renewed_id=session_id)
        state: dict[str, Any] = {}
        try:
            with opened as query:
                while records := self._format.read_changes(query, state, _READ_ROWS):
                    for record in records:
                        if record.session_id == session_id:
                            part.add_record(record, session_id)
        except get_database_errors():
            return None
        part.state, part.unknown = json.loads(entry.state), json.loads(entry.unknown)
        return part

    def _read_records(self, query: Query, part: SourcePart) -> list[Record]:
        until = time.monotonic() + _READ_S
        records: list[Record] = []
        while time.monotonic() < until:
            more = self._format.read_changes(query, part.state, _READ_ROWS)
            records += more
            if not more:
                break
        return records


def read_database_messages(
    reader: DatabaseFormat,
    opener: SnapshotOpener,
    path: str,
    session_id: str,
    numbers: Sequence[tuple[int, int]],
) -> dict[int, Message]:
    """Return messages of a session by their numbers.

    `numbers` has pairs of a message number and its place in its record.
    """
    offsets = sorted({number - place for number, place in numbers})
    try:
        with opener(path) as query:
            records = reader.read_session(query, session_id, offsets)
    except get_database_errors():
        return {}
    messages = {
        record.offset + place: message
        for record in records
        for place, message in enumerate(record.messages)
    }
    return {number: messages[number] for number, _ in numbers if number in messages}


@contextmanager
def open_snapshot(path: str) -> Iterator[Query]:
    """Open a database read-only, for one read transaction."""
    with open_read_only(path) as connection:
        yield make_query(connection)


@contextmanager
def open_read_only(path: str) -> Iterator[_sqlite3.Connection]:
    """Open a database read-only and begin a read transaction."""
    uri = f"{Path(path).as_uri()}?mode=ro"
    with closing(_sqlite3.connect(uri, busy_timeout_s=_BUSY_TIMEOUT_S)) as connection:
        connection.execute("PRAGMA query_only=1")
        connection.execute("BEGIN")
        yield connection
        connection.rollback()


def make_query(connection: _sqlite3.Connection) -> Query:
    """Return the function with which a format queries a database."""

    def run_query(sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return connection.execute(sql, values).fetchall()

    return run_query


def get_database_errors() -> tuple[type[Exception], ...]:
    """Return the exception types of a locked, damaged or unexpected database."""
    return (*READER_ERRORS, OSError, _sqlite3.load_library().Error)
