"""The store of one SQLite database, with its pool of readers, its writer and its guard.

Readers are opened with `mode=ro`. A writer is opened only after its guard, a `mode=ro` connection
that outlives it: while the guard is open, no close of this process can unlink the log of a process
that has lost its locks. A Hermes database gets no DDL and no persistent pragma.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from session_core import home, processes
from session_core.errors import (
    Busy,
    Denied,
    InvalidInput,
    SessionError,
    StorageError,
    Unsupported,
)
from session_core.state.caller_blocks import find_block_of_caller
from session_core.state.sqlite import database_file, extension, fts, lock_wait
from session_core.state.sqlite.admin import vacuum_file
from session_core.state.sqlite.connection import (
    Connection,
    list_driver_errors,
    translate_error,
)
from session_core.state.sqlite.database_file import (
    create_database,
    find_home_kind,
    get_file_bytes,
    get_file_identity,
    has_database,
    open_empty,
    open_reader,
    open_writer,
    roll_back_hot_journal,
)
from session_core.state.sqlite.feed_cursor import FileWatch
from session_core.state.sqlite.transaction import ReadSnapshot, Transaction
from session_core.state.sqlite.writer import Writer

if TYPE_CHECKING:
    from session_core.types import Holder, HomeKind


_MAX_IDLE_READERS = 8
"""The largest number of idle readers. Further readers are closed."""


class ConnectionPool:
    """The idle readers, the writer and its guard, which are closed in the only safe order."""

    def __init__(self) -> None:
        self.readers: deque[Connection] = deque()
        self.writer: Writer | None = None
        self.guard: Connection | None = None
        self.exists = False
        self.closed = False
        self._pid = os.getpid()

    def take_idle_reader(self, path: Path) -> Connection | None:
        """Return an idle reader of the current file, or None.

        Idle readers of a file that was replaced are closed.
        """
        with suppress(IndexError):
            while True:
                handle = self.readers.pop()
                # A connection to a file that was replaced would continue to read the deleted file.
                if handle.file == get_file_identity(path, immutable=handle.immutable):
                    return handle
                handle.connection.close()
        return None

    def release_reader(self, handle: Connection) -> None:
        """Keep a reader for the next read, or close it."""
        if handle.is_placeholder:
            handle.connection.close()
            return
        handle.connection.rollback()  # an interrupt may have left a transaction open
        self.readers.append(handle)
        with suppress(IndexError):
            # After a close no other caller would close a reader that comes back late.
            while len(self.readers) > (0 if self.closed else _MAX_IDLE_READERS):
                self.readers.popleft().connection.close()

    def check_same_file(self, path: Path) -> None:
        """Refuse to write to a file that was moved or replaced."""
        if self.guard is not None and self.guard.file != get_file_identity(path):
            raise StorageError(f"{path} was replaced or removed; open it again")

    def close(self, wait_s: float = math.inf) -> None:
        """Close all connections after the change in progress, unless the wait times out.

        A close that was interrupted can be repeated, also by two threads at once.
        """
        self.closed = True
        if self._pid != os.getpid():
            return  # after a fork they belong to the parent, whose threads may be using them
        if self.writer is not None and not self.writer.close(wait_s):
            return  # a thread is in a change at exit; closing out of order would do more harm
        with suppress(IndexError):
            while True:
                self.readers.pop().connection.close()
        # The guard goes last, so that no close before it is the last one, which deletes the log.
        guard, self.guard, self.writer = self.guard, None, None
        if guard is not None:
            guard.connection.close()


T = TypeVar("T")

_LONG_WAL_BYTES = 4 << 20

_MAX_TIDY_S = 5.0
"""Longest time for which a search or a close updates the search index."""

_EXIT_WAIT_S = 1.0
"""The seconds that the process waits at exit for a thread that is in a change."""


class SqliteStore:
    """Opens, reads, writes and closes one database.

    `in_hermes_home` means that the folder was detected as a Hermes home: if it has the marks of a
    Hermes home and no database, no database is created in it. `load_extension` loads the extension
    that the CJK index of a Hermes home needs, if no other user can write that file.
    """

    def __init__(
        self,
        db_path: str | os.PathLike[str] | None = None,
        *,
        read_only: bool = False,
        in_hermes_home: bool = False,
        patience_s: float = 20.0,
        clock: Callable[[], float] = time.time,
        load_extension: bool = False,
    ) -> None:
        self.path = self._choose_path(db_path)
        if not patience_s >= 0:
            raise InvalidInput(f"patience_s must be >= 0, got {patience_s}")
        self.read_only = read_only
        self.clock = clock
        self.loads_extension = load_extension
        self.pool = self._make_pool(patience_s)
        # A default path may lead to a Hermes home. An explicit path was chosen by the caller.
        self._in_hermes_home = in_hermes_home or db_path is None
        self._patience_s = patience_s
        self._pid = os.getpid()
        self._lock = threading.RLock()  # reentrant: a signal handler may write while it is held
        self._pending: list[weakref.ref[Transaction]] = []
        self.snapshots: list[weakref.ref[ReadSnapshot]] = []
        self._kind: HomeKind | None = None
        self._immutable = False
        self._closer = weakref.finalize(self, self.pool.close, _EXIT_WAIT_S)

    def _choose_path(self, db_path: str | os.PathLike[str] | None) -> Path:
        if db_path is not None:
            return _check_path(db_path)
        default = home.find_home()
        if default.db_path is None:
            raise Unsupported(f"{default.found_by} is an address; open it with open_home")
        return _check_path(default.db_path)

    def _make_pool(self, _: float) -> ConnectionPool:
        return ConnectionPool()

    @property
    def is_in_memory(self) -> bool:
        """True if the database has no file."""
        return False

    def list_holders(self) -> list[Holder]:
        """Return the other processes that have the database open."""
        return processes.list_holders(self.path)

    def forget_all_content(self, handle: Connection) -> None:
        """Clear all caches after a change outside of a transaction."""
        handle.forget_all()

    def make_watch(self) -> FileWatch:
        """Return a watch for commits. The caller closes it."""
        return FileWatch(self.path)

    @property
    def kind(self) -> HomeKind:
        """The kind of this home.

        A missing file becomes a home of our own at the first write.
        """
        return self.read(lambda _: self._kind or self._guess_missing_kind())

    @property
    def immutable(self) -> bool:
        """True if the file is read as immutable, on a read-only mount."""
        self.read(lambda _: None)
        return self._immutable

    @property
    def change_token(self) -> object:
        """A token that changes once a transaction finds that messages may have changed."""
        return None if self.pool.writer is None else self.pool.writer.change_token

    def transaction(self, *, linked: bool = True) -> AbstractContextManager[None]:
        """Return the transaction of this task. `SessionDB.transaction` documents its rules."""
        return Transaction(
            self.get_writer,
            errors=self.translate_errors,
            pending=self._pending,
            is_deferred=self.is_file_missing,
            linked=linked,
        )

    def find_snapshot(self) -> ReadSnapshot | None:
        """Return the snapshot that this task has open in this thread, or None."""
        return find_block_of_caller(self.snapshots)

    @property
    def in_transaction(self) -> bool:
        """True if this task has a transaction open in this thread."""
        writer = self.pool.writer
        return bool(self._list_pending_transactions()) or (
            writer is not None and writer.current is not None
        )

    def close(self) -> None:
        """Close every connection.

        Every change that has returned is durable.
        """
        writer = self.pool.writer
        if self.in_transaction:
            raise InvalidInput("this thread has a transaction open; close the database after it")
        if self.find_snapshot() is not None:
            raise InvalidInput("this thread has a snapshot open; close the database after it")
        if writer is not None:
            writer.check_task()
        if writer is not None and self._kind == "own" and self._pid == os.getpid():
            writer.run_deferred_indexing(_MAX_TIDY_S)
        # Detached last, so that an interrupted close can be repeated.
        if self._closer.alive:
            self.pool.close()
            self._closer.detach()

    def read(self, function: Callable[[Connection], T]) -> T:
        """Call `function` with one snapshot of the database and return its result."""
        self.check_open()
        # Not `translate_errors`: a block costs as much as a small read.
        try:
            if self._pending and self._can_create_home():
                self._begin_pending_transactions()
            writer = self.pool.writer
            open_handle = writer.current if writer else None
            if open_handle is not None:
                # Values read before a change of this transaction may be outdated. Only commits of
                # other connections clear them.
                open_handle.seen.clear()
                return function(open_handle)
            snapshot = self.find_snapshot() if self.snapshots else None
            if snapshot is not None:
                return function(snapshot.get_handle())
            handle = self.take_reader()
            try:
                with handle.open_snapshot():
                    return function(handle)
            finally:
                self.pool.release_reader(handle)
        except list_driver_errors() as error:
            raise self._translate_error(error) from error

    def write(self, function: Callable[[Connection], T]) -> T:
        """Run `function` in a transaction and return its result.

        The function may run again, so it must have no effect outside of the database.
        """
        self.check_open()
        try:
            if self.is_file_missing():
                # A step that is refused or changes nothing must not create a home.
                changed, result = _rehearse_step(function)
                if not changed:
                    return result
            self._begin_pending_transactions()
            return self.get_writer().run_in_transaction(function)
        except list_driver_errors() as error:
            raise self._translate_error(error) from error

    def update_search_index(self) -> None:
        """Update the search index.

        If that fails, a search reads the missing messages itself. In a snapshot, which would not
        see the update, the index is updated at the end.
        """
        snapshot = self.find_snapshot()
        if snapshot is not None:
            snapshot.is_index_behind = True
            return
        with suppress(SessionError), self.translate_errors():
            self.get_writer().run_deferred_indexing(_MAX_TIDY_S)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise errors of the driver as errors of our tree."""
        try:
            yield
        except list_driver_errors() as error:
            raise self._translate_error(error) from error

    def _translate_error(self, error: Exception) -> SessionError:
        translated = translate_error(error, self.path)
        missing = extension.find_missing_module(error)
        if isinstance(translated, Busy):
            return self.make_busy_error()
        if missing is not None:
            return extension.make_blocked_error(self.path, missing, requested=self.loads_extension)
        return translated

    def make_busy_error(self) -> SessionError:
        """Return the error for a database that another connection has locked."""
        return lock_wait.make_busy_error(self.path, self.list_holders())

    def check_open(self) -> None:
        """Refuse a closed database, and a database that the parent process has opened."""
        if self.pool.closed:
            raise InvalidInput("this session database is closed; open it again")
        if self._pid != os.getpid():
            raise Unsupported("the database was opened before a fork; open it in the child process")

    def is_file_missing(self) -> bool:
        """Return True if the first change will create a home."""
        self.check_open()
        return self.pool.writer is None and not self.read_only and not has_database(self.path)

    def _can_create_home(self) -> bool:
        """Return True if a change can create the home, or if it exists."""
        return has_database(self.path) or self._guess_missing_kind() == "own"

    def _begin_pending_transactions(self) -> None:
        transactions = self._list_pending_transactions()
        # The home that a transaction creates is read meanwhile.
        if not any(transaction.is_beginning for transaction in transactions):
            # The outermost begins first, the others become its savepoints.
            for transaction in transactions:
                transaction.begin()

    def _list_pending_transactions(self) -> list[Transaction]:
        """Return the transactions of this task that have not begun yet, outermost first."""
        transactions = [transaction() for transaction in list(self._pending)]
        return [
            transaction
            for transaction in transactions
            if transaction is not None and transaction.is_of_caller
        ]

    def _guess_missing_kind(self) -> HomeKind:
        folder = self.path.parent
        if self.path.name != home.DATABASE_NAME or not home.is_hermes_home(folder):
            return "own"
        # The signs of Hermes count for the served home and the installed Hermes, not for any path.
        return "absent" if self._in_hermes_home or home.is_hermes_folder(folder) else "own"

    def take_reader(self) -> Connection:
        """Return an idle or new reader.

        The caller returns it with `pool.release_reader`.
        """
        handle = self.pool.take_idle_reader(self.path)
        if handle is not None:
            return handle
        # Read before the file is checked: a file created between the two was never lost.
        was_there = self.pool.exists
        if not has_database(self.path):
            if was_there:
                raise StorageError(f"{self.path} is gone; put it back, or open another")
            return open_empty()
        handle = open_reader(self.path)
        self._immutable = handle.immutable
        kind = find_home_kind(handle, self.path)
        # A process that creates the database writes its header before its tables.
        if kind is None:
            handle.connection.close()
            return open_empty()
        self._kind, self.pool.exists = kind, True
        if self.loads_extension and kind == "hermes":
            extension.load_extension_if_safe(handle, self.path.parent)
        return handle

    def get_writer(self) -> Writer:
        """Return the writer. The first call may create the database."""
        self.check_open()
        if self.read_only:
            raise Denied("this session database was opened read-only")
        if self.snapshots and self.find_snapshot() is not None:
            raise InvalidInput("a snapshot of this task is open; make the change after it")
        writer = self.pool.writer
        if writer is not None:
            return writer
        with self._lock:
            if self.pool.writer is None:
                self._prepare_writing()
                own = self._kind == "own"
                # Nothing here may refer to `self`: the finalizer closes a store that is dropped.
                self.pool.writer = Writer(
                    partial(_open_writer, self.path, own=own, loads=self.loads_extension),
                    own=own,
                    patience_s=self._patience_s,
                    check=partial(self.pool.check_same_file, self.path),
                    overdue=get_file_bytes(processes.get_sidecar_path(self.path, "-wal"))
                    > _LONG_WAL_BYTES,
                    index_batch=fts.index_batch,
                    prepare=database_file.update_schema_once if own else lambda _: None,
                )
            return self.pool.writer

    def _prepare_writing(self) -> None:
        """Create our own database if the file is missing, and open the guard."""
        # A read-only connection, such as the guard, refuses a file with such a journal.
        roll_back_hot_journal(self.path)
        if self.kind == "absent":
            raise Denied(
                f"{self.path.parent} is a Hermes home without a state database; "
                "start Hermes once to create it, then try again"
            )
        if self._kind is None:
            self._kind = create_database(self.path, self._patience_s)
            self.pool.exists = True
        if self._immutable:
            raise Denied(f"{self.path} is on a read-only mount")
        # Before the first writable connection, whose close could otherwise delete the log.
        self.pool.guard = open_reader(self.path)
        # A killed vacuum leaves a copy that is as large as the database.
        vacuum_file.delete_stale_copies(self.path)


class SqliteOperations:
    """Base class of operations on the database of a store."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        # Bound once, so that an operation costs no further call.
        self._read, self._write, self._clock = store.read, store.write, store.clock


def _check_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a database file, or raise if it cannot be a database file."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise InvalidInput("the path of a database file must be text")
    if not os.fspath(path) or "\0" in os.fspath(path):
        raise InvalidInput("the path of the database file is empty or has a NUL in it; name a file")
    if os.fspath(path).startswith("file:"):
        raise InvalidInput(
            f"the path of a database file must be a path, got {os.fspath(path)!r}: URIs are not "
            "supported; name a file, or ':memory:' for a database in memory"
        )
    scheme, separator, _ = os.fspath(path).partition("://")
    if separator and scheme.isalnum():  # the rest may have a password in it
        raise InvalidInput(
            f"the path of a database file must be a path, got an address ({scheme}://…): databases "
            "on a server are not supported; name a file"
        )
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 -- Path.resolve follows links
    if os.path.isdir(absolute):  # noqa: PTH112 -- Path.is_dir can raise
        raise InvalidInput(f"{absolute} is a directory; name the database file in it")
    if os.path.exists(absolute) and not os.path.isfile(absolute):  # noqa: PTH110, PTH113 -- as for is_dir
        raise InvalidInput(f"{absolute} is a device, a pipe or a socket; name a database file")
    return absolute


def _open_writer(path: Path, *, own: bool, loads: bool) -> Connection:
    """Open a writer, with the extension of a Hermes home if requested."""
    handle = open_writer(path, own=own)
    if loads and not own:
        extension.load_extension_if_safe(handle, path.parent)
    return handle


def _rehearse_step(step: Callable[[Connection], T]) -> tuple[bool, T]:
    """Run a step on an empty database in memory.

    Return True if it changed rows, and the result of the step.
    """
    handle = open_empty()
    with closing(handle.connection):
        before = handle.connection.total_changes
        with handle.open_snapshot():
            result = step(handle)
        return handle.connection.total_changes > before, result
