"""The engines of the contract suite: opening a database, and foreign changes of it.

The tests next to this file know the contract only. A new engine in `ENGINES` has to pass all of
them. Columns that an old home lacks must raise `Unsupported`, never give a wrong result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import pytest

from session_core import SessionDB, StateDatabase, Unsupported
from session_core.state.sqlite.connection import Connection, quote_name
from session_core.state.sqlite.memory_database import MemoryDatabase
from session_core.state.sqlite.rows import raw_rows
from tests.homes import connect, make_hermes_database, make_own_database


class Engine(Protocol):
    """Opens the database of a folder, and creates it if it is missing."""

    @property
    def name(self) -> str:
        """The name of the engine in `ENGINES`."""
        ...

    def __call__(self, home: Path, *, patience_s: float = 20.0) -> StateDatabase:
        """Open the database. Every call returns an instance of its own."""
        ...

    @property
    def features(self) -> frozenset[str]:
        """What some tests need of an engine, by the names in `FEATURES`."""
        ...

    def make_foreign_writer(self, home: Path) -> ForeignWriter:
        """Return a writer on the database of a folder."""
        ...


FEATURES = {
    "loose types": "a column may hold a value of another type",
    "foreign columns": "other programs may add columns",
    "foreign tables": "other programs may add tables",
    "processes": "another process may open the database",
    "own file": "the home is a file, whose size shows what it holds",
    "restored files": "a file may be replaced by an older copy of itself",
}


class ForeignWriter(Protocol):
    """Changes rows as a careless foreign process would: no checks, no instance of ours.

    `where` holds the values of the rows to change; empty for all rows.
    """

    def insert_row(self, table: str, **values: Any) -> None:
        """Insert a row."""

    def update_rows(self, table: str, where: Mapping[str, Any], **values: Any) -> int:
        """Set columns of rows, and return their number."""
        ...

    def delete_rows(self, table: str, where: Mapping[str, Any]) -> int:
        """Delete rows, and return their number."""
        ...

    def add_column(self, table: str, column: str, declaration: str) -> None:
        """Add a column. Needs "foreign columns"."""

    def add_notes_table(self) -> None:
        """Add a table `notes` whose column `about` refers to sessions. Needs "foreign tables"."""

    def reset_message_ids(self, last_id: int) -> None:
        """Let the next message have the id after `last_id`. Needs "restored files"."""


@dataclass(frozen=True)
class SqliteForeignWriter:
    """Changes rows through a connection of its own."""

    path: Path

    def insert_row(self, table: str, **values: Any) -> None:
        """Insert a row. A `RawText` is stored as text that is not UTF-8."""
        marks = ", ".join(map(raw_rows.make_placeholder, values.values()))
        columns = raw_rows.join_columns(values)
        self._run(f'INSERT INTO "{table}" ({columns}) VALUES ({marks})', *values.values())  # noqa: S608 -- names of the tests

    def update_rows(self, table: str, where: Mapping[str, Any], **values: Any) -> int:
        """Set columns of rows, and return their number."""
        changes = ", ".join(f"{quote_name(name)} = ?" for name in values)
        sql = f'UPDATE "{table}" SET {changes} WHERE {raw_rows.build_condition(where)}'  # noqa: S608 -- names of the tests
        return self._run(sql, *values.values(), *where.values())

    def delete_rows(self, table: str, where: Mapping[str, Any]) -> int:
        """Delete rows, and return their number."""
        sql = f'DELETE FROM "{table}" WHERE {raw_rows.build_condition(where)}'  # noqa: S608 -- names of the tests
        return self._run(sql, *where.values())

    def add_column(self, table: str, column: str, declaration: str) -> None:
        """Add a column."""
        self._run(f'ALTER TABLE "{table}" ADD COLUMN {quote_name(column)} {declaration}')

    def add_notes_table(self) -> None:
        """Add a table with a link to sessions, and a column with the name of one."""
        self._run(
            "CREATE TABLE notes (note TEXT, about TEXT REFERENCES sessions(id), session_id TEXT)"
        )

    def reset_message_ids(self, last_id: int) -> None:
        """Let the next message have the id after `last_id`, as in a restored backup."""
        self._run("UPDATE sqlite_sequence SET seq = ? WHERE name = 'messages'", last_id)

    def _run(self, sql: str, *values: Any) -> int:
        with connect(self.path) as connection:
            connection.execute("PRAGMA foreign_keys=OFF")
            return connection.execute(sql, raw_rows.bind_values(values)).rowcount


@dataclass(frozen=True)
class Sqlite:
    """A home of our own, or a Hermes home of a schema."""

    name: str
    schema: int | None = None

    def __call__(self, home: Path, *, patience_s: float = 20.0) -> StateDatabase:
        """Open the database. Every call returns an instance of its own."""
        path = home / "state.db"
        if not path.exists():
            make_hermes_database(path, self.schema) if self.schema else make_own_database(path)
        return SessionDB(path, patience_s=patience_s)

    @property
    def features(self) -> frozenset[str]:
        """What some tests need of an engine: SQLite has all of it."""
        return frozenset(FEATURES)

    def make_foreign_writer(self, home: Path) -> ForeignWriter:
        """Return a writer on the database of a folder."""
        return SqliteForeignWriter(home / "state.db")


class MemoryForeignWriter(SqliteForeignWriter):
    """Changes rows through the one connection, as if it were another's."""

    def _run(self, sql: str, *values: Any) -> int:
        with SessionDB(name_memory(self.path.parent)) as db:
            database: MemoryDatabase = db._store.pool.database  # type: ignore[attr-defined]

            def change(handle: Connection) -> int:
                handle.connection.execute("PRAGMA foreign_keys=OFF")
                changed = handle.connection.execute(sql, raw_rows.bind_values(values)).rowcount
                handle.connection.execute("PRAGMA foreign_keys=ON")
                database.forget_all_content()
                return changed

            writer = db._store.pool.writer
            assert writer is not None
            return writer.run_exclusively(change)


class Memory:
    """A home of our own in memory, which lives until another is opened."""

    name = "memory"
    features = frozenset(FEATURES) - {"processes", "restored files"}

    def __init__(self) -> None:
        self._kept: StateDatabase | None = None
        self._home: Path | None = None

    def __call__(self, home: Path, *, patience_s: float = 20.0) -> StateDatabase:
        """Open the database. Every call returns an instance of its own."""
        if self._home != home:
            if self._kept is not None:
                self._kept.close()
            # So it outlives the instances of a test, which may close and open it again.
            self._kept, self._home = SessionDB(name_memory(home)), home
        return SessionDB(name_memory(home), patience_s=patience_s)

    def make_foreign_writer(self, home: Path) -> ForeignWriter:
        """Return a writer on the database of a folder."""
        return MemoryForeignWriter(home / "state.db")


def name_memory(home: Path) -> str:
    """Return the name of the database in memory of a home."""
    return f":memory:{home}"


@dataclass(frozen=True)
class Postgres:
    """A home in the PostgreSQL server of the test run, named by its folder."""

    name: str = "postgres"

    def __call__(self, home: Path, *, patience_s: float = 20.0) -> StateDatabase:
        """Open the database. Every call returns an instance of its own."""
        from session_core.state.postgres.session_db import PostgresDB  # noqa: PLC0415 -- an extra

        return PostgresDB(self._get_address(home), patience_s=patience_s)

    @property
    def features(self) -> frozenset[str]:
        """What some tests need of an engine: the schema of PostgreSQL is ours alone."""
        return frozenset({"processes"})

    def make_foreign_writer(self, home: Path) -> ForeignWriter:
        """Return a writer on the database of a folder."""
        from session_core.state.postgres.store import PostgresStore  # noqa: PLC0415 -- an extra

        return PostgresForeignWriter(lambda: PostgresStore(self._get_address(home)))

    def _get_address(self, home: Path) -> str:
        from tests import postgres_server  # noqa: PLC0415 -- an extra

        return f"{postgres_server.get_address()}&home={quote(str(home))}"


@dataclass(frozen=True)
class PostgresForeignWriter:
    """Changes rows through the views of a home, without the engine's operations."""

    open_store: Callable[[], Any]

    def insert_row(self, table: str, **values: Any) -> None:
        """Insert a row."""
        marks = ", ".join("?" * len(values))
        self._run(f"INSERT INTO {table} ({raw_rows.join_columns(values)}) VALUES ({marks})", values)  # noqa: S608 -- names of the tests

    def update_rows(self, table: str, where: Mapping[str, Any], **values: Any) -> int:
        """Set columns of rows, and return their number."""
        changes = ", ".join(f"{name} = ?" for name in values)
        sql = f"UPDATE {table} SET {changes} WHERE {raw_rows.build_condition(where)}"  # noqa: S608 -- names of the tests
        return self._run(sql, values, where)

    def delete_rows(self, table: str, where: Mapping[str, Any]) -> int:
        """Delete rows, and return their number."""
        return self._run(f"DELETE FROM {table} WHERE {raw_rows.build_condition(where)}", where)  # noqa: S608 -- names of the tests

    def add_column(self, table: str, column: str, declaration: str) -> None:
        """Refuse: the schema is ours."""
        raise NotImplementedError

    def add_notes_table(self) -> None:
        """Refuse: the schema is ours."""
        raise NotImplementedError

    def reset_message_ids(self, last_id: int) -> None:
        """Refuse: ids come from a sequence."""
        raise NotImplementedError

    def _run(self, sql: str, *values: Mapping[str, Any]) -> int:
        bound = [value for mapping in values for value in mapping.values()]
        store = self.open_store()
        try:
            changed: int = store.write(lambda handle: handle.execute_update(sql, bound))
        finally:
            store.close()
        return changed


ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Sqlite("sqlite"),
        Memory(),
        Sqlite("sqlite-hermes", 22),
        Sqlite("sqlite-hermes-16", 16),
        Sqlite("sqlite-hermes-30", 30),
        Postgres(),
    )
}
MAIN_ENGINES = ("sqlite", "memory", "sqlite-hermes", "postgres")
"""The engines that run every test; the others run the tests marked `schemas`."""
SHARED_ENGINES = {"memory": 4, "postgres": 8}
"""The main engines on which the fast tests run one test in so many; `-m thorough` runs the rest."""


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
