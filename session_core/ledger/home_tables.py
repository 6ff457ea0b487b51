"""The ledger of a home whose database has tables for it, such as one in PostgreSQL.

A step, its trash and the change of the home are one transaction, so a crash leaves no step to
decide.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from session_core.errors import Unsupported
from session_core.ledger.database import LedgerDatabase
from session_core.ledger.database_location import DatabaseLedgerLocation
from session_core.ledger.memory import find_memory_location
from session_core.state.ledger_tables import LedgerTables
from session_core.state.protocol import StateDatabase

if TYPE_CHECKING:
    from session_core.state.sqlite.connection import Connection

T = TypeVar("T")


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
