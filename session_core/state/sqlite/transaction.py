"""Transactions and read snapshots of callers, and savepoints in transactions.

On a path without a file, a transaction begins with its first read or change, so that a transaction
that fails earlier creates no home. It cannot begin later: another process might create the home and
change the rows that were read.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from session_core.errors import InvalidInput, StorageError, Unsupported
from session_core.event_loops import get_current_task
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.write_queue import get_thread_token

if TYPE_CHECKING:
    from session_core.state.sqlite.store import SqliteStore
    from session_core.state.sqlite.write_queue import ThreadToken, WriteJob
    from session_core.state.sqlite.writer import Writer


class Savepoint:
    """A savepoint in an open transaction, whose changes are kept or undone together."""

    def __init__(self, handle: Connection) -> None:
        self._handle = handle
        self._depth = handle.depth

    def __enter__(self) -> None:
        if not self._handle.connection.in_transaction:
            raise StorageError(
                "the transaction was rolled back by an error; end it and begin a new one"
            )
        # Named by depth: an interrupted savepoint is undone with the one around it.
        self._handle.depth = self._depth + 1
        self._handle.connection.execute(f"SAVEPOINT part_{self._depth}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handle.depth = self._depth
        connection = self._handle.connection
        # A full disk or a RAISE(ROLLBACK) ends the whole transaction, and the savepoint with it.
        if kind is not None and connection.in_transaction:
            connection.execute(f"ROLLBACK TO part_{self._depth}")
            # The caches may hold values of the undone changes.
            self._handle.forget_all()
        # ROLLBACK TO undoes the changes and keeps the savepoint open.
        if connection.in_transaction:
            connection.execute(f"RELEASE part_{self._depth}")


class ReadSnapshot:
    """The reads of one task in one thread, all at one moment of the database."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._handle: Connection | None = None
        self._caller: tuple[object, object] | None = None
        self._pid = os.getpid()
        self.began_at = 0.0
        self.is_index_behind = False
        """Whether a search has found an index that cannot be updated before the end."""

    def __enter__(self) -> None:
        # Reads of a transaction are of one moment already, and they see its own changes.
        if self._store.in_transaction or self._store.find_snapshot() is not None:
            return
        with self._store.translate_errors():
            self.began_at = self._store.clock()
            handle = self._store.take_reader()
            try:
                handle.open_snapshot().__enter__()
            except BaseException:
                self._store.pool.release_reader(handle)
                raise
        self._handle, self._caller = handle, (get_thread_token(), get_current_task())
        # A weak reference, so that a snapshot that was interrupted here is dropped.
        self._store.snapshots.append(weakref.ref(self, self._store.snapshots.remove))

    @property
    def is_of_caller(self) -> bool:
        """True if reads of the current task and thread belong to this snapshot."""
        return self._caller == (get_thread_token(), get_current_task())

    def get_handle(self) -> Connection:
        """Return the connection of the snapshot."""
        if self._handle is None or not self._handle.connection.in_transaction:
            raise StorageError("the snapshot was ended by an error; begin a new one")
        return self._handle

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._handle is None or self._pid != os.getpid():
            return  # after a fork the connection belongs to the parent, which continues it
        # First, so that no read of this task uses a connection that the pool gives to another
        # thread.
        self._caller = None
        with self._store.translate_errors():
            self._store.pool.release_reader(self._handle)
        # After the release, since a change is refused while a snapshot is open.
        if kind is None and self.is_index_behind:
            self._store.update_search_index()

    def __del__(self) -> None:
        # An interrupt may have come before the end; the pool has the connection after an end.
        if self._handle is not None and self._caller is not None and self._pid == os.getpid():
            self._handle.connection.close()


class Transaction:
    """The changes of one task in one thread: a transaction, or a savepoint of an outer one."""

    def __init__(
        self,
        open_writer: Callable[[], Writer],
        *,
        errors: Callable[[], AbstractContextManager[None]],
        pending: list[weakref.ref[Transaction]],
        is_deferred: Callable[[], bool],
        linked: bool,
    ) -> None:
        self._open_writer = open_writer
        self._errors = errors
        self._pending = pending
        self._is_deferred = is_deferred
        self._linked = linked
        self._writer: Writer | None = None
        self._job: WriteJob | None = None
        self._part: Savepoint | None = None
        self._thread: weakref.ref[ThreadToken] | None = None
        self._task: weakref.ref[object] | None = None
        self._over = False
        self.is_beginning = False

    def __enter__(self) -> None:
        self._thread, self._task = get_thread_token(), get_current_task()
        with self._errors():
            is_deferred = self._is_deferred()
        if is_deferred:
            # A weak reference, so that a transaction that was interrupted at its end is dropped.
            self._pending.append(weakref.ref(self, self._pending.remove))
        else:
            self.begin()

    @property
    def is_of_caller(self) -> bool:
        """True if changes of the current task and thread belong to this transaction."""
        caller = get_thread_token(), get_current_task()
        return not self._over and (self._thread, self._task) == caller

    def begin(self) -> None:
        """Begin the transaction, unless it has begun."""
        if self._writer is not None:
            return
        self.is_beginning = True
        try:
            with self._errors():
                writer = self._writer = self._open_writer()
                open_handle = writer.current
                if open_handle is None:
                    self._job = writer.create_job(self, linked=self._linked)
                    writer.begin_transaction(self._job)
                else:
                    self._check_linked(open_handle)
                    part = Savepoint(open_handle)
                    part.__enter__()
                    self._part = part
        except BaseException as error:
            # An `__enter__` that raises has no `__exit__`, which would release the lock.
            self._end_transaction(type(error))
            self._writer = self._job = self._part = None
            raise
        finally:
            self.is_beginning = False

    def _check_linked(self, open_handle: Connection) -> None:
        if open_handle.linked and not self._linked:
            raise InvalidInput(
                "the open transaction enforces foreign keys; use linked=False in one of its own"
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            with self._errors():
                self._end_transaction(kind)
        finally:
            # Also if the commit fails: later changes of this task must not join it.
            self._over = True
        if kind is None and self._writer is not None:
            self._writer.run_due_indexing()

    def _end_transaction(self, kind: type[BaseException] | None) -> None:
        if self._writer is not None and self._writer.is_inherited:
            if kind is None:
                raise Unsupported(
                    "the transaction belongs to the parent process, which continues it"
                )
        elif self._part is not None:
            self._part.__exit__(kind, None, None)
        elif self._job is not None and self._writer is not None:
            self._writer.end_transaction(self._job, commit=kind is None)
