"""The file of kept copies in the state folder, its schema and its transactions.

The copies may be all that is left of a session. Each commit is therefore synced, and a damaged file
is reported and never replaced. Removed bytes are overwritten.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from session_core import _sqlite3
from session_core.errors import StorageError
from session_core.state import sql_blocks
from session_core.transcripts.index import make_private_folder, translate_errors, truncate_log

SQL = sql_blocks.load_blocks("kept", "session_core.transcripts.keep")

LAYOUT = 1
"""The version of the schema. A later version must take over the copies of this one."""

MUST_CLEAR, MUST_PURGE = 2, 1
"""The remaining work after sessions were forgotten: empty the index, then overwrite."""

_SCHEMA = [body for name, body in SQL.items() if name.startswith("create_")]
_BUSY_TIMEOUT_S = 5.0
_SUBJECT = "the file of kept transcripts"
_REMEDY = "restore a backup of it, or move it away: forgotten sessions are then read again"


class KeptDatabase:
    """Two connections to the file of kept copies, opened at the first use.

    Raises:
        Denied: the folder cannot be created or written.
        StorageFull: the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"kept-{LAYOUT}.db"
        self._lock = threading.RLock()
        self._writing = threading.RLock()
        self._reader: _sqlite3.Connection | None = None
        self._writer: _sqlite3.Connection | None = None

    def exists(self) -> bool:
        """Return True if the file exists, which the first change or setting creates."""
        return self._reader is not None or self.path.exists()

    def close(self) -> None:
        """Close both connections."""
        with self._writing, self._lock:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._reader = self._writer = None

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run a SELECT.

        Return no rows if there is no file.
        """
        if not self.exists():
            return []
        with self._lock, translate_errors(_SUBJECT, _REMEDY):
            return self._get_reader().execute(sql, parameters).fetchall()

    def get_data_version(self) -> int:
        """Return a number that changes with each commit of another connection."""
        with self._lock, translate_errors(_SUBJECT, _REMEDY):
            return int(self._get_reader().execute("PRAGMA data_version").fetchone()[0])

    def get_setting(self, key: str) -> Any:
        """Return a setting, or None."""
        rows = self.read(SQL["get_setting"], (key,))
        return rows[0][0] if rows else None

    @contextmanager
    def open_transaction(self) -> Iterator[_sqlite3.Connection]:
        """Run the `with` block as one durable transaction, creating the file if needed.

        Raises:
            Busy: another process holds the write lock for too long.
        """
        with self._writing, translate_errors(_SUBJECT, _REMEDY):
            writer = self._get_writer()
            writer.execute("BEGIN IMMEDIATE")
            try:
                yield writer
                writer.execute("COMMIT")
            finally:
                # In this frame, so that no interrupt can come in between. No effect after COMMIT.
                writer.rollback()

    def overwrite_removed_bytes(self, tries: int) -> bool:
        """Return free pages to the file system, and empty the log, which may hold removed bytes."""
        with self._writing, translate_errors(_SUBJECT, _REMEDY):
            writer = self._get_writer()
            writer.execute("PRAGMA incremental_vacuum").fetchall()
            return truncate_log(writer, tries)

    def _get_reader(self) -> _sqlite3.Connection:
        if self._reader is None:
            with self._writing:
                self._get_writer()
            self._reader = self._connect(self.path)
            self._reader.execute("PRAGMA query_only=1")
        return self._reader

    def _get_writer(self) -> _sqlite3.Connection:
        if self._writer is None:
            make_private_folder(self.path.parent)
            if not self.path.exists():
                self._create_file()
            writer = self._connect(self.path)
            try:
                _require_tables(writer)
                _set_pragmas(writer)
            except BaseException:
                writer.close()
                raise
            self._writer = writer
        return self._writer

    def _create_file(self) -> None:
        """Create the file with its tables. If two processes do so, the first file stays."""
        new = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}.new")
        try:
            with closing(self._connect(new)) as db:
                _set_pragmas(db)
                _create_tables(db)
            with suppress(FileExistsError):
                os.link(new, self.path)
        finally:
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.unlink(f"{new}{suffix}")  # noqa: PTH108 -- the path is text with a suffix

    @staticmethod
    def _connect(path: Path) -> _sqlite3.Connection:
        return _sqlite3.connect(f"{path.as_uri()}?mode=rwc", busy_timeout_s=_BUSY_TIMEOUT_S)


def _set_pragmas(writer: _sqlite3.Connection) -> None:
    """Set the pragmas that decide how the file is written."""
    # Before the first table, since it changes how pages are laid out.
    writer.execute("PRAGMA auto_vacuum=INCREMENTAL")
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("PRAGMA synchronous=FULL")
    writer.execute("PRAGMA secure_delete=ON")


def _require_tables(writer: _sqlite3.Connection) -> None:
    """Raise if the file has no tables. A new file has them, so it has lost data."""
    if writer.execute("PRAGMA user_version").fetchone()[0] != LAYOUT:
        raise StorageError(f"{_SUBJECT} is damaged; {_REMEDY}")


def _create_tables(writer: _sqlite3.Connection) -> None:
    writer.execute("BEGIN IMMEDIATE")
    try:
        for statement in _SCHEMA:
            writer.execute(statement)
        writer.execute(f"PRAGMA user_version={LAYOUT}")
        writer.execute("COMMIT")
    finally:
        writer.rollback()


def request_clearing(db: _sqlite3.Connection) -> None:
    """Record that this process or a later one has to empty the index."""
    db.execute(SQL["put_setting"], ("unfinished", MUST_CLEAR))
    increment_counter(db, "clearing")


def increment_counter(db: _sqlite3.Connection, key: str) -> int:
    """Increment a counter that other processes watch, and return its value."""
    row = db.execute(SQL["get_setting"], (key,)).fetchone()
    number = 1 if row is None else int(row[0]) + 1
    db.execute(SQL["put_setting"], (key, number))
    return number
