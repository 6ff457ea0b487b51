"""A database in memory: one connection that writes, and copies of its committed state to read.

SQLite has no log in memory, so a reader of the one connection would see changes that are not
committed, or block them. A read therefore gets a copy of the last commit. Copies are kept and read
again until the next commit. A transaction of a caller begins with a copy, which other threads and
tasks read until it ends.
"""

from __future__ import annotations

import math
import os
import time
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any

from session_core import _sqlite3
from session_core.errors import Busy, Denied, InvalidInput, SessionError
from session_core.state.sqlite import database_file, fts
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.feed_cursor import FileState, FileWatch
from session_core.state.sqlite.lock_wait import is_busy
from session_core.state.sqlite.store import ConnectionPool, SqliteStore
from session_core.state.sqlite.write_queue import WriteJob, WriteQueue
from session_core.state.sqlite.writer import Writer
from session_core.types import Holder, HomeKind

MEMORY_NAME = ":memory:"
"""The path of a private database in memory. Stores with the same longer path share a database."""

_RECHECK_S = 0.05


class MemoryDatabase:
    """One database in memory, shared by the stores of its name until the last is closed."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.queue = WriteQueue()
        self.version = 0
        """A number that grows with each commit."""
        self.users = 0
        self.handle = _create_database()
        self._changes = self.handle.connection.total_changes
        self._committed: Connection | None = None
        self._open_job: WriteJob | None = None

    def copy_present(self, target: Connection | None) -> Connection:
        """Return a copy of the present state.

        The caller must have exclusive use of the connection.
        """
        return self._copy(self.handle, target)

    def keep_committed(self, job: WriteJob) -> None:
        """Keep a copy of the committed state for readers, before a transaction begins."""
        with self.lock:
            kept = self._committed
            if kept is None or kept.file != (self.version,):
                self._committed = self._copy(self.handle, kept)
            self._open_job = job

    def copy_committed(self, target: Connection | None) -> Connection | None:
        """Return a copy of the state before the open transaction, or None without a transaction."""
        with self.lock:
            kept = self._committed
            return self._copy(kept, target) if kept is not None and self.has_committed else None

    @property
    def has_committed(self) -> bool:
        """True if a transaction is open whose readers see the state before it."""
        job = self._open_job
        # An interrupted transaction may not have ended in order.
        return job is not None and not job.over and self.queue.leader is job

    def end_commit(self) -> None:
        """Count a commit if it has changed rows."""
        changes = self.handle.connection.total_changes
        if changes != self._changes:
            self._changes = changes
            self.version += 1

    def begin_commit(self) -> None:
        """Drop the state before the transaction, since the commit replaces it."""
        with self.lock:
            self._open_job = None

    def forget_all_content(self) -> None:
        """Clear all caches after a change outside of a transaction."""
        self.handle.forget_all()
        self.handle.change_token = object()
        self.version += 1

    def close(self) -> None:
        """Close the connections and drop the content."""
        with self.lock:
            kept, self._committed = self._committed, None
            if kept is not None:
                kept.connection.close()
            self.handle.connection.close()

    def _copy(self, source: Connection, target: Connection | None) -> Connection:
        """Copy `source` into an older copy, or into a new database."""
        # The schema of an older copy is known already. To read it takes longer than a small copy.
        if target is None:
            target = Connection(_sqlite3.connect("file::memory:", busy_timeout_s=0))
        source.connection.backup(target.connection)
        target.forget_outdated_content()
        target.file = (self.version,)
        return target


_shared: dict[str, MemoryDatabase] = {}
_shared_lock = RLock()


def acquire_database(name: str) -> MemoryDatabase:
    """Return the shared database of a name, or a new private database."""
    with _shared_lock:
        database = None if name == MEMORY_NAME else _shared.get(name)
        if database is None:
            database = MemoryDatabase()
            if name != MEMORY_NAME:
                _shared[name] = database
        database.users += 1
        return database


def release_database(database: MemoryDatabase) -> None:
    """Close a database that no store uses any more."""
    with _shared_lock:
        database.users -= 1
        if database.users > 0:
            return
        for name in [name for name, shared in _shared.items() if shared is database]:
            del _shared[name]
    database.close()


class MemoryWriter(Writer):
    """Changes a database in memory, in turns with the other stores that share it."""

    def __init__(self, database: MemoryDatabase, patience_s: float, **options: object) -> None:
        super().__init__(
            lambda: database.handle,
            own=True,
            patience_s=patience_s,
            queue=database.queue,
            **options,  # type: ignore[arg-type]
        )
        self._database = database

    def begin_transaction(self, job: WriteJob) -> None:
        """Wait for the connection, keep the committed state, and begin a transaction."""
        self._acquire_connection(job)
        self._open_connection()
        self._database.keep_committed(job)
        super().begin_transaction(job)

    def open_copy(self, deadline: float, target: Connection | None) -> Connection:
        """Return a copy of the committed state, stored in `target` if it is given.

        Raises:
            Busy: a change of another thread takes too long.
        """
        while True:
            copy = self._database.copy_committed(target)
            if copy is not None:
                return copy
            try:
                copy_present = partial(self._copy_present, target)
                return self.run_exclusively(copy_present, wait_s=_RECHECK_S)
            except (Busy, _sqlite3.load_library().OperationalError) as error:
                # Meanwhile a transaction may have begun, which has kept the committed state.
                is_refused = isinstance(error, SessionError) or not is_busy(error)
                if time.monotonic() >= deadline or (
                    is_refused and not self._database.has_committed
                ):
                    raise

    def _copy_present(self, target: Connection | None, _: Connection) -> Connection:
        return self._database.copy_present(target)

    def _commit_transaction(self, job: WriteJob) -> None:
        self._database.begin_commit()
        super()._commit_transaction(job)
        self._database.end_commit()

    def _close_connection(self) -> None:
        # The connection stays open for the other stores.
        self._closed = True
        handle, self._handle = self._handle, None
        if handle is not None and handle.connection.in_transaction:
            handle.connection.rollback()
            handle.forget_all()


def _create_database() -> Connection:
    handle = database_file.open_empty()
    handle.is_placeholder = False
    values = (database_file.HOME_ID_KEY, uuid.uuid4().hex)
    handle.execute_update("INSERT INTO state_meta VALUES (?, ?)", values)
    return handle


class MemoryPool(ConnectionPool):
    """Copies of the committed state of a database in memory, and its writer."""

    def __init__(self, database: MemoryDatabase, patience_s: float) -> None:
        super().__init__()
        self.database = database
        self.exists = True
        self.writer: MemoryWriter = MemoryWriter(database, patience_s, index_batch=fts.index_batch)

    def take_idle_copy(self) -> Connection | None:
        """Return the idle copy that was used last, which may be outdated, or None."""
        with suppress(IndexError):
            return self.readers.pop()
        return None

    def close(self, wait_s: float = math.inf) -> None:
        """Close the copies after the change in progress, and release the database."""
        was_closed, self.closed = self.closed, True
        if was_closed or self._pid != os.getpid() or not self.writer.close(wait_s):
            return
        with suppress(IndexError):
            while True:
                self.readers.pop().connection.close()
        release_database(self.database)


class MemoryStore(SqliteStore):
    """Opens, reads, writes and closes a database in memory, which is a home of our own."""

    pool: MemoryPool

    def _choose_path(self, db_path: str | os.PathLike[str] | None) -> Path:
        # A label for errors. No file has it.
        return Path(os.fspath(db_path or MEMORY_NAME))

    def _make_pool(self, patience_s: float) -> ConnectionPool:
        return MemoryPool(acquire_database(str(self.path)), patience_s)

    @property
    def is_in_memory(self) -> bool:
        """True, since the database has no file."""
        return True

    @property
    def kind(self) -> HomeKind:
        """The kind of this home."""
        self.check_open()
        return "own"

    def list_holders(self) -> list[Holder]:
        """Return no process, since no other process can open the database."""
        return []

    def make_watch(self) -> FileWatch:
        """Return a watch for commits. The caller closes it."""
        return MemoryWatch(self.path, self.pool.database)

    def is_file_missing(self) -> bool:
        """Return False, since the database exists from the beginning."""
        self.check_open()
        return False

    def take_reader(self) -> Connection:
        """Return a copy of the last commit.

        The caller returns it with `pool.release_reader`.
        """
        idle = self.pool.take_idle_copy()
        if idle is not None and idle.file == (self.pool.database.version,):
            return idle
        return self.pool.writer.open_copy(time.monotonic() + self._patience_s, idle)

    def forget_all_content(self, _: Connection) -> None:
        """Clear all caches after a change outside of a transaction."""
        self.pool.database.forget_all_content()

    def get_writer(self) -> Writer:
        """Return the writer."""
        self.check_open()
        if self.read_only:
            raise Denied("this session database was opened read-only")
        if self.snapshots and self.find_snapshot() is not None:
            raise InvalidInput("a snapshot of this task is open; make the change after it")
        return self.pool.writer


class MemoryWatch(FileWatch):
    """Watches a database in memory."""

    def __init__(self, path: Path, database: MemoryDatabase) -> None:
        super().__init__(path)
        self._database = database

    def read_state(self) -> FileState:
        """Return the number of the last commit."""
        return (self._database.version,)


def open_store(db_path: str | os.PathLike[str] | None, **options: Any) -> SqliteStore:
    """Open the store of a path, in memory if the path begins with `:memory:`."""
    is_text = isinstance(db_path, str)
    kind = MemoryStore if is_text and str(db_path).startswith(MEMORY_NAME) else SqliteStore
    return kind(db_path, **options)
