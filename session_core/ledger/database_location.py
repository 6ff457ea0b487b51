"""The location and tables of a ledger in the database of its home, for homes without files.

The ledger of a database in memory is in memory too, and lives as long as the database. A database
on a server has tables for it: a step, its trash and the change of the home are one transaction, so
a crash leaves no step to decide.
"""

from __future__ import annotations

import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from session_core import _sqlite3
from session_core.errors import InvalidInput, Unsupported
from session_core.ledger.database import PACKAGE, LedgerDatabase
from session_core.ledger.state_folder import StateFolder
from session_core.state import sql_blocks
from session_core.state.ledger_tables import LedgerTables
from session_core.state.protocol import StateDatabase
from session_core.state.sqlite.connection import Connection

T = TypeVar("T")

_LABEL = Path(":memory:")
"""Stands for the path in errors; no file has it."""

_locations: dict[str, MemoryLedgerLocation] = {}
_lock = threading.Lock()


class DatabaseLedgerLocation(StateFolder):
    """The location of a ledger in its database, in place of a state folder.

    Nothing is stored outside of the database.
    """

    has_files = False

    def __init__(self, label: str) -> None:
        self.label = Path(label)
        """Stands for paths in errors; no file has it."""
        self.db_path = self.label

    @abstractmethod
    def open_tables(self, schema: str) -> LedgerDatabase:
        """Return the tables of a schema, which all ledgers of the home share."""

    @abstractmethod
    def is_of_home(self, db: StateDatabase) -> bool:
        """Return True if this is the location of the ledger of a database."""

    def load_home_name(self, db: StateDatabase) -> None:
        """Check that this is the ledger of a database.

        Raises:
            InvalidInput: it belongs to another one.
        """
        if not self.is_of_home(db):
            raise InvalidInput(
                "the ledger of a database without a file cannot be used for another one; "
                "open it with Ledger.open(db)"
            )

    def find(self) -> Path | None:
        """Return a label, as if the folder existed."""
        return self.label

    def make(self) -> Path:
        """Return a label, as if the folder existed."""
        return self.label

    @property
    def place(self) -> Path:
        """Return a label, which is not the path of a folder."""
        return self.label

    @property
    def is_adjacent(self) -> bool:
        """Return False, since there is no folder."""
        return False

    def check_place(self, trash_dir: Path | None = None) -> None:
        """Refuse a folder for trash, which would not follow its database.

        Raises:
            Unsupported: a folder is given.
        """
        if trash_dir is not None:
            raise Unsupported("the trash of this home stays in its database; omit trash_dir")


def open_ledger_database(
    folder: StateFolder,
    find: Callable[[], Path | None],
    make: Callable[[], Path],
    patience_s: float,
    *,
    schema: str = "schema",
) -> LedgerDatabase:
    """Return the tables of a ledger, in a file of its folder or in the database of its home."""
    if isinstance(folder, DatabaseLedgerLocation):
        return folder.open_tables(schema)
    return LedgerDatabase(find, make, patience_s, schema=schema)


class MemoryLedgerLocation(DatabaseLedgerLocation):
    """The location of the ledger of a database in memory, which has no files."""

    def __init__(self, home_id: str) -> None:
        super().__init__(":memory:")
        # Names the home in cursors.
        self.db_path = Path(f":memory:{home_id}")
        self.home_id = home_id
        self._lock = threading.Lock()
        self._tables: dict[str, MemoryTables] = {}

    def is_of_home(self, db: StateDatabase) -> bool:
        """Return True if this is the location of the ledger of a database."""
        return db.admin.get_home_id() == self.home_id

    @property
    def trash_name(self) -> str:
        """Return the name of the home."""
        return self.home_id

    def open_tables(self, schema: str) -> LedgerDatabase:
        """Return the tables of a schema, which all ledgers of the home share."""
        with self._lock:
            if schema not in self._tables:
                self._tables[schema] = MemoryTables(schema)
            return MemoryLedgerDatabase(self._tables[schema])


class MemoryTables:
    """The tables of one schema, in one connection."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        # Reentrant, since a step may read the tables that it changes.
        self.lock = threading.RLock()
        connection = _sqlite3.connect("file::memory:", busy_timeout_s=0)
        # No ledger closes tables that all ledgers of a home share. Python 3.13 warns about it.
        weakref.finalize(self, connection.close)
        self.handle = Connection(connection)
        for statement in sql_blocks.split_statements(schema, PACKAGE):
            self.handle.execute_update(statement)


class MemoryLedgerDatabase(LedgerDatabase):
    """Tables of the ledger in memory.

    Closing it leaves the tables to other ledgers of the home.
    """

    def __init__(self, tables: MemoryTables) -> None:
        super().__init__(lambda: _LABEL, lambda: _LABEL, 0, schema=tables.schema)
        self._tables = tables

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run `query` on one snapshot of the tables."""
        self._require_own_process()
        with self._tables.lock, self._translate_errors(_LABEL):
            self._require_open()
            handle = self._tables.handle
            if handle.connection.in_transaction:  # of this thread, which has the lock
                return query(handle)
            with handle.open_snapshot():
                return query(handle)

    def write(self, change: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Run `change` in a transaction and return its result."""
        self._require_own_process()
        with self._tables.lock, self._translate_errors(_LABEL):
            self._require_open()
            return self._run_change(self._tables.handle, _LABEL, change, durable=durable)

    def reclaim_space(self, *, overwrite: bool = False) -> None:
        """Free the memory of deleted rows.

        `overwrite` changes nothing, since there is no disk.
        """
        del overwrite
        self._require_own_process()
        with self._tables.lock:
            self._require_open()
            self._tables.handle.connection.execute("VACUUM")

    def close(self) -> None:
        """Refuse further calls."""
        self._closed = True


def find_memory_location(db: StateDatabase) -> MemoryLedgerLocation:
    """Return the ledger location of a database in memory.

    It lives as long as one of the instances of the database.

    Raises:
        Unsupported: the database has no id.
    """
    home_id = db.admin.get_home_id()
    if home_id is None:
        raise Unsupported("a ledger needs a database with an id, and this database has none")
    with _lock:
        folder = _locations.setdefault(home_id, MemoryLedgerLocation(home_id))
    # The finalizer of the last instance drops the folder; a ledger that is open keeps it.
    if db not in _instances.setdefault(home_id, weakref.WeakSet()):
        _instances[home_id].add(db)
        weakref.finalize(db, _forget_memory_location, home_id)
    return folder


_instances: dict[str, weakref.WeakSet[StateDatabase]] = {}


def _forget_memory_location(home_id: str) -> None:
    # Listed, since the set still counts the instance whose end calls this.
    if not list(_instances.get(home_id, ())):
        _instances.pop(home_id, None)
        _locations.pop(home_id, None)


class HomeLedgerLocation(DatabaseLedgerLocation):
    """The location of a ledger whose tables are in the database of the home."""

    shares_transactions = True

    def __init__(self, db: StateDatabase, tables: LedgerTables) -> None:
        super().__init__("database")
        self._db = db
        self._tables = tables

    def is_of_home(self, db: StateDatabase) -> bool:
        """Return True if this is the instance whose transactions the ledger joins."""
        return db is self._db

    @property
    def scope(self) -> str:
        """Return the name of the home in cursors."""
        return str(self._db.admin.get_home_id())

    trash_name = scope

    def open_tables(self, schema: str) -> LedgerDatabase:  # noqa: ARG002 -- one handle has the tables of all schemas
        """Return the tables of the database."""
        return HomeLedgerDatabase(self._tables)


class HomeLedgerDatabase(LedgerDatabase):
    """The tables of a ledger in the database of its home.

    Closing it leaves the database open.
    """

    def __init__(self, tables: LedgerTables) -> None:
        super().__init__(lambda: None, _refuse_path, 0)
        self._tables = tables

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run `query` on one snapshot of the database."""
        self._require_own_process()
        self._require_open()
        return self._tables.read(query)

    def write(self, change: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Run `change` in a durable transaction and return its result."""
        del durable
        self._require_own_process()
        self._require_open()
        return self._tables.write(change)

    def reclaim_space(self, *, overwrite: bool = False) -> None:
        """Do nothing, since the server reuses the space of deleted rows."""
        del overwrite
        self._require_own_process()
        self._require_open()

    def close(self) -> None:
        """Refuse further calls."""
        self._closed = True


def find_database_location(db: StateDatabase) -> DatabaseLedgerLocation:
    """Return the location of the ledger of a database without a path.

    Raises:
        Unsupported: the database is in memory and has no id.
    """
    tables = db.admin.get_ledger_tables()
    return find_memory_location(db) if tables is None else HomeLedgerLocation(db, tables)


def _refuse_path() -> Path:
    raise Unsupported("the ledger of this home has no file")
