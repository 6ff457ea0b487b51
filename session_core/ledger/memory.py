"""The ledger of a database in memory.

Its tables are in memory too, and live as long as the database.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from session_core import _sqlite3
from session_core.errors import Unsupported
from session_core.ledger.database import PACKAGE, LedgerDatabase
from session_core.ledger.database_location import DatabaseLedgerLocation
from session_core.state import sql_blocks
from session_core.state.protocol import StateDatabase
from session_core.state.sqlite.connection import Connection

T = TypeVar("T")

_LABEL = Path(":memory:")
"""Stands for the path in errors; no file has it."""

_locations: dict[str, MemoryLedgerLocation] = {}
_lock = threading.Lock()


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
        weakref.finalize(db, _drop_folder, home_id)
    return folder


_instances: dict[str, weakref.WeakSet[StateDatabase]] = {}


def _drop_folder(home_id: str) -> None:
    # Listed, since the set still counts the instance whose end calls this.
    if not list(_instances.get(home_id, ())):
        _instances.pop(home_id, None)
        _locations.pop(home_id, None)
