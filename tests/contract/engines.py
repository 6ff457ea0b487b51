"""The engines of the contract suite: opening a database, and foreign writes to it.

The tests next to this file know the contract only. A new engine in `ENGINES` has to pass all of
them. Columns that an old home lacks must raise `Unsupported`, never give a wrong result.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pytest

from session_core import SessionDB, StateDatabase, Unsupported
from tests.homes import connect, make_hermes_database


class Engine(Protocol):
    """Opens the database of a folder, and creates it if it is missing."""

    @property
    def name(self) -> str:
        """The name of the engine in `ENGINES`."""
        ...

    def __call__(self, home: Path, *, patience_s: float = 20.0) -> StateDatabase:
        """Open the database; every call returns an instance of its own."""
        ...

    def run_foreign_sql(self, home: Path, sql: str, *values: Any) -> int:
        """Run a statement as a careless foreign process would: no checks, no instance of ours."""
        ...


@dataclass(frozen=True)
class Sqlite:
    """A home of our own, or a Hermes home of a schema."""

    name: str
    schema: int | None = None

    def __call__(self, home: Path, *, patience_s: float = 20.0) -> StateDatabase:
        """Open the database; every call returns an instance of its own."""
        path = home / "state.db"
        if self.schema is not None and not path.exists():
            home.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_make_empty_database(self.schema), path)
        return SessionDB(path, patience_s=patience_s)

    def run_foreign_sql(self, home: Path, sql: str, *values: Any) -> int:
        """Run a statement as a careless foreign process would: no checks, no instance of ours."""
        with connect(home / "state.db") as connection:
            connection.execute("PRAGMA foreign_keys=OFF")
            return connection.execute(sql, values).rowcount


ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Sqlite("sqlite"),
        Sqlite("sqlite-hermes", 22),
        Sqlite("sqlite-hermes-16", 16),
        Sqlite("sqlite-hermes-30", 30),
    )
}
MAIN_ENGINES = ("sqlite", "sqlite-hermes")
"""The engines that run every test; the others run the tests marked `schemas`."""


@contextmanager
def require_column(db: StateDatabase, column: str) -> Iterator[None]:
    """Expect the block to work if the home has a column, and to raise `Unsupported` otherwise."""
    if has_column(db, column):
        yield
    else:
        with pytest.raises(Unsupported):
            yield


def has_column(db: StateDatabase, column: str) -> bool:
    """Return True if sessions or messages of this home have a column."""
    with roll_back_at_end(db):
        message_id = db.append_message("probe", "user", "x", create={"source": "cli"})
        found = {**(db.get_message(message_id) or {}), **(db.get_session("probe") or {})}
    return column in found


@contextmanager
def roll_back_at_end(db: StateDatabase) -> Iterator[None]:
    """Run the block in a transaction that is rolled back."""
    with suppress(_RollBack), db.transaction():
        yield
        raise _RollBack


class _RollBack(Exception):
    """Ends a transaction."""


@cache
def _make_empty_database(schema: int) -> Path:
    """Make an empty database once; it is copied, never opened."""
    folder = Path(tempfile.mkdtemp(prefix="schema_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make_hermes_database(folder / "state.db", schema)
    return folder / "state.db"
