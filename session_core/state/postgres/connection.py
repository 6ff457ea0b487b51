"""A connection to PostgreSQL, which runs the statements of both engines, and its errors.

The operations of both engines are the same code, and they name their statements. This connection
runs its own text for a name if a `*.sql` file of this package has it, otherwise the common text.
Placeholders are written as in SQLite (`?` and `:name`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, lru_cache
from typing import Any, cast

import psycopg
from psycopg import errors, pq

from session_core.errors import (
    Busy,
    Conflict,
    Corrupt,
    Denied,
    InvalidInput,
    SessionError,
    StorageError,
    StorageFull,
)
from session_core.state import sql_blocks
from session_core.state.postgres import fts, stored_text
from session_core.state.query import Node
from session_core.state.sql_blocks import SqlBlock
from session_core.state.sqlite.connection import Connection, Params
from session_core.state.sqlite.rows.raw_rows import RawBytes
from session_core.types import RawText

_PACKAGE = "session_core.state.postgres"
_LEAST_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1
_INSERT_ROWS = 200
"""Messages in one statement, which bounds its length."""

Fetched = tuple[list[str], list[tuple[Any, ...]]]
"""The columns and rows of a statement."""

STANDBY = "standby"
"""How the life of a server begins that follows another one."""

_UNKNOWN_OID = 705
"""The type of a text whose type the server has not decided."""

_TABLES = (
    "sessions",
    "messages",
    "session_model_usage",
    "state_meta",
    "gateway_routing",
    "compression_locks",
    "ms_session_state",
    "ms_shared_state",
)
_UNIQUE_COLUMNS = {"session_rows_title": "sessions.title", "session_rows_pkey": "sessions.id"}
"""Which column a unique index keeps unique, as SQLite names it."""

_PLACEHOLDER = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | :: | \? | :([a-z_]\w*) | %""",
    re.VERBOSE | re.IGNORECASE,
)
_MESSAGE_INSERT = re.compile(r'INSERT INTO "?messages"?\s', re.IGNORECASE)


class PostgresConnection(Connection):
    """A connection of the pool for the time of one transaction."""

    queues_texts = True
    has_row_ids = False
    has_foreign_keys = False

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(cast("Any", connection))
        self.driver = connection
        self.life = ""
        """The life of the server, within which ids of transactions mean one transaction each."""
        self.snapshot = ""
        """The snapshot of a read-only transaction."""
        self.has_note = False
        """Whether the transaction has stored that this program holds the home."""
        self.change = ""
        """The id of a changing transaction, by which its outcome can be asked for."""
        self.reads_one_moment = False
        """Whether the transaction is read-only, so that a statement has one result in it."""
        self._fetched: dict[tuple[str, str], Fetched] = {}
        self._changes = 0
        self._savepoints = 0

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open that was not ended by an error."""
        return self.driver.info.transaction_status == pq.TransactionStatus.INTRANS

    @property
    def has_changes(self) -> bool:
        """True if this connection has changed a row."""
        return self._changes > 0

    @property
    def integrity_error(self) -> type[Exception]:
        """The error of the driver for a row that a constraint refuses."""
        return psycopg.IntegrityError

    def describe_refusal(self, error: Exception) -> str:
        """Describe the refusal of a row in the words of SQLite, without stored values."""
        if isinstance(error, errors.UniqueViolation):
            name = error.diag.constraint_name or ""
            return f"UNIQUE constraint failed: {_UNIQUE_COLUMNS.get(name, name)}"
        if isinstance(error, errors.NotNullViolation):
            return f"NOT NULL constraint failed: {error.diag.column_name}"
        return "constraint failed"

    def compose_match(self, node: Node) -> str | None:
        """Build the `tsquery` of a node, which may match more messages than the node."""
        return fts.compose_match(node)

    def resolve_block(self, block: str) -> str:
        """Return the text of a block for PostgreSQL."""
        if isinstance(block, SqlBlock):
            return _load_own_blocks(block.key[0]).get(block.key[1], block)
        return block

    def execute(self, sql: str, params: Params = ()) -> psycopg.Cursor[Any]:
        """Run a statement."""
        statement = _translate_placeholders(self.resolve_block(sql))
        for value in params.values() if isinstance(params, dict) else params:
            if type(value) is int and not _LEAST_INTEGER <= value <= _MAX_INTEGER:
                raise OverflowError
        return self.driver.execute(cast("Any", statement), params)

    def run_script(self, script: str) -> psycopg.Cursor[Any]:
        """Run several statements without parameters in one round trip."""
        return self.driver.execute(cast("Any", script))

    def iter_rows(self, sql: str, params: Params = ()) -> Iterator[tuple[Any, ...]]:
        """Run a statement and yield its rows."""
        return iter(self.execute(sql, params))

    def insert_row(self, sql: str, params: Params = ()) -> int:
        """Run an INSERT of one row and return the id of a message, or 0 for any other row."""
        self._changes += 1
        if not _MESSAGE_INSERT.match(sql):
            self.execute(sql, params)
            return 0
        row = self.execute(f"{sql} RETURNING id", params).fetchone()
        return 0 if row is None else int(row[0])

    def insert_rows(self, sql: str, rows: Sequence[Sequence[Any]]) -> list[int]:
        """Run an INSERT for several messages, in few statements, and return their ids in order."""
        ids: list[int] = []
        begin, _, marks = sql.rpartition(" VALUES ")
        for start in range(0, len(rows), _INSERT_ROWS):
            batch = rows[start : start + _INSERT_ROWS]
            statement = f"{begin} VALUES {', '.join([marks] * len(batch))} RETURNING id"
            self._changes += 1
            values = [value for row in batch for value in row]
            ids += [row[0] for row in self.fetch_tuples(statement, values)]
        return ids

    def fetch_rows(self, sql: str, params: Params = ()) -> list[dict[str, Any]]:
        """Run a statement and return its rows as mappings."""
        names, rows = self._fetch(sql, params)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def fetch_row(self, sql: str, params: Params = ()) -> dict[str, Any] | None:
        """Run a statement and return its first row, or None."""
        names, rows = self._fetch(sql, params)
        return dict(zip(names, rows[0], strict=True)) if rows else None

    def fetch_tuples(self, sql: str, params: Params = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows as tuples."""
        return self._fetch(sql, params)[1]

    def fetch_value(self, sql: str, params: Params = ()) -> Any:
        """Run a statement and return the first column of its first row, or None."""
        _, rows = self._fetch(sql, params)
        return rows[0][0] if rows else None

    def _fetch(self, sql: str, params: Params) -> Fetched:
        """Return the columns and rows of a statement, which may have been fetched before."""
        if self._fetched and len(params) == 1:
            (key,) = params.values() if isinstance(params, dict) else params
            fetched = self._fetched.get((sql, key)) if isinstance(key, str) else None
            if fetched is not None:
                return fetched[0], list(fetched[1])
        cursor = self.execute(sql, params)
        names = [column.name for column in cursor.description or ()]
        return names, cursor.fetchall() if names else []

    @property
    def can_prefetch(self) -> bool:
        """True in a read-only transaction, in which a statement has one result."""
        return self.reads_one_moment

    def list_relatives(self, session_ids: Sequence[str]) -> list[str]:
        """Return the sessions that are in a chain of compressions with some, and these."""
        return [row[0] for row in self.fetch_tuples(_LIST_RELATIVES, (list(session_ids),))]

    def prefetch_rows(self, statements: Iterable[str], keys: Sequence[str]) -> None:
        """Run statements with one key for many keys, all in one round trip."""
        if not self.reads_one_moment or not keys:
            return
        blocks = list(statements)
        cursor = cast("psycopg.ClientCursor[Any]", self.driver.cursor())
        bulks = (_compose_bulk(self.resolve_block(sql)) for sql in blocks)
        texts = [cursor.mogrify(cast("Any", bulk), (list(keys),)) for bulk in bulks]
        cursor.execute(cast("Any", "; ".join(texts)))
        for sql in blocks:
            names = [column.name for column in cursor.description or ()][2:]
            rows: dict[str, list[tuple[Any, ...]]] = {key: [] for key in keys}
            for key, is_found, *row in cursor:
                if is_found:
                    rows[key].append(tuple(row))
            self._fetched |= {(sql, key): (names, fetched) for key, fetched in rows.items()}
            cursor.nextset()

    def execute_update(self, sql: str, params: Params = ()) -> int:
        """Run a statement that changes rows and return the number of affected rows."""
        self._changes += 1
        return self.execute(sql, params).rowcount

    def execute_updates(self, sql: str, rows: Sequence[Params]) -> int:
        """Run a statement with several rows of values, in few round trips.

        Return the number of affected rows.
        """
        statement, changed = _translate_placeholders(self.resolve_block(sql)), 0
        self._changes += len(rows)
        for start in range(0, len(rows), _INSERT_ROWS):
            cursor = cast("psycopg.ClientCursor[Any]", self.driver.cursor())
            batch = rows[start : start + _INSERT_ROWS]
            texts = [cursor.mogrify(cast("Any", statement), values) for values in batch]
            cursor.execute(cast("Any", "; ".join(texts)))
            changed += sum(_iter_counts(cursor))
        return changed

    def list_columns(self, table: str) -> tuple[str, ...]:
        """Return the columns of a table of the home, or none for any other table."""
        if table not in _TABLES:
            # Asked by name: the engines share the question whether there is an index of our own.
            return ("words",) if table == "ms_index" else ()
        columns = self._columns.get(table)
        if columns is None:
            rows = self.fetch_tuples(_LIST_COLUMNS, (table,))
            columns = self._columns[table] = tuple(row[0] for row in rows)
        return columns

    def list_computed_columns(self, table: str) -> set[str]:  # noqa: ARG002 -- the signature of the base class
        """Return no columns, since no table has a generated column."""
        return set()

    def expand_sql(self, block: str) -> str:
        """Return a block with its placeholders replaced by conditions."""
        return self.resolve_block(block).format_map(_CONDITIONS)

    def isolate_failure(self) -> AbstractContextManager[None]:
        """Return a block in which a statement may fail without ending the transaction."""
        return self._open_savepoint()

    @contextmanager
    def _open_savepoint(self) -> Iterator[None]:
        self._savepoints += 1
        name = f"attempt_{self._savepoints}"
        self.run_script(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            if self.driver.info.transaction_status != pq.TransactionStatus.UNKNOWN:
                self.run_script(f"ROLLBACK TO {name}; RELEASE {name}")
            raise
        else:
            self.run_script(f"RELEASE {name}")
        finally:
            self._savepoints -= 1

    def share_schema(self, columns: dict[str, tuple[str, ...]], schema: dict[Any, Any]) -> None:
        """Use the facts about the schema that other connections have read."""
        self._columns, self.schema = columns, schema

    def forget_schema(self) -> None:
        """Keep the facts about the schema, which only migrations change."""

    def forget_transaction(self) -> None:
        """Clear all caches except the facts about the schema."""
        self.forget_all()
        self._fetched = {}
        self.changed = False


def _iter_counts(cursor: psycopg.Cursor[Any]) -> Iterator[int]:
    """Yield the number of changed rows of each statement."""
    yield cursor.rowcount
    while cursor.nextset():
        yield cursor.rowcount


_LIST_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""

_LIST_RELATIVES = """
WITH RECURSIVE starts(id) AS (SELECT unnest(?::text[]) COLLATE "C"), above(id) AS (
    SELECT id FROM starts
    UNION
    SELECT step.id FROM above CROSS JOIN LATERAL (
        SELECT parent.id FROM sessions AS child, sessions AS parent
        WHERE child.id = above.id AND parent.id = child.parent_session_id
            AND parent.end_reason = 'compression'
        OFFSET 0
    ) AS step
), below(id) AS (
    SELECT id FROM starts
    UNION
    SELECT step.id FROM below CROSS JOIN LATERAL (
        SELECT child.id FROM sessions AS parent, sessions AS child
        WHERE parent.id = below.id AND child.parent_session_id = parent.id
            AND parent.end_reason = 'compression'
        OFFSET 0
    ) AS step
)
SELECT id FROM above UNION SELECT id FROM below
"""
"""Whole chains of compressions, with abandoned continuations: the walks decide on each link.

Each step is a look-up by an index, whatever the planner knows of the tables, because of `OFFSET`.
"""

_CONDITIONS = {
    "like": "ILIKE",
    "live": "active = 1",
    "payload": "payload_json",
    "payload_bytes": "coalesce(length(payload_json), 0)",
    "compacted": "(active = 0 AND compacted = 1)",
    "visible": "(active = 1 OR (active = 0 AND compacted = 1))",
}


@cache
def _load_own_blocks(file: str) -> dict[str, SqlBlock]:
    try:
        return sql_blocks.load_blocks(file, _PACKAGE)
    except FileNotFoundError:
        return {}


_BULK = """
SELECT asked.key, found.* FROM unnest(%s::text[]) AS asked(key) LEFT JOIN LATERAL (
    SELECT true AS is_found, bulk.* FROM ({statement}
) AS bulk OFFSET 0) AS found ON true
"""
"""The `OFFSET` keeps a look-up by an index for each key, whatever the planner knows of tables."""


@lru_cache(maxsize=64)
def _compose_bulk(sql: str) -> str:
    """Compose a statement that runs `sql` for each value of an array.

    `sql` has one placeholder for the value. Each result row begins with its value.
    """

    def replace(match: re.Match[str]) -> str:
        text = match[0]
        if text == "?" or match[1]:
            return "asked.key"
        return "" if text.startswith("--") else text.replace("%", "%%")

    return _BULK.format(statement=_PLACEHOLDER.sub(replace, sql))


@lru_cache(maxsize=1024)
def _translate_placeholders(sql: str) -> str:
    """Replace the placeholders of a statement by placeholders of psycopg."""

    def replace(match: re.Match[str]) -> str:
        text = match[0]
        if text == "?":
            return "%s"
        if match[1]:
            return f"%({match[1]})s"
        return "" if text.startswith("--") else text.replace("%", "%%")

    return _PLACEHOLDER.sub(replace, sql)


def register_texts(connection: psycopg.Connection[Any]) -> None:
    """Register adapters that store text, bytes and flags in columns of text or integers."""
    adapters = connection.adapters
    adapters.register_dumper(str, stored_text.TextDumper)
    adapters.register_dumper(bytes, stored_text.BytesDumper)
    adapters.register_dumper(bool, stored_text.FlagDumper)
    adapters.register_dumper(RawText, stored_text.RawTextDumper)
    adapters.register_dumper(RawBytes, stored_text.RawBytesDumper)
    for name in ("text", "varchar"):
        adapters.register_loader(name, stored_text.TextLoader)
    adapters.register_loader(_UNKNOWN_OID, stored_text.TextLoader)


_TRANSLATIONS: Sequence[tuple[tuple[type[Exception], ...], type[SessionError], str]] = (
    (
        (errors.LockNotAvailable, errors.QueryCanceled, errors.DeadlockDetected),
        Busy,
        "the home is in use by another transaction; let it finish, then try again",
    ),
    (
        (errors.SerializationFailure, errors.TransactionRollback),
        Busy,
        "another transaction was first; try again",
    ),
    (
        (errors.DiskFull, errors.OutOfMemory, errors.ProgramLimitExceeded),
        StorageFull,
        "the server has no room left; free some space, then try again",
    ),
    (
        (errors.InsufficientPrivilege, errors.InvalidAuthorizationSpecification),
        Denied,
        "the role may not do this; check its grants",
    ),
    ((errors.ReadOnlySqlTransaction,), Denied, "the server accepts no changes; write to another"),
    (
        (errors.DataCorrupted, errors.IndexCorrupted),
        Corrupt,
        "the server reports damaged data; restore it from a backup",
    ),
    (
        (errors.UndefinedTable, errors.UndefinedColumn, errors.UndefinedFunction),
        StorageError,
        "the schema lacks a table, column or function; run the migrations",
    ),
    (
        (errors.UniqueViolation,),
        Conflict,
        "another process stored the same key first; read again",
    ),
    (
        (psycopg.DataError, errors.NotNullViolation, errors.DatatypeMismatch),
        InvalidInput,
        "a value is of a type or size that cannot be stored",
    ),
    (
        (psycopg.OperationalError, psycopg.InterfaceError),
        Busy,
        "the connection to the server was lost or refused; check the server, then try again",
    ),
)


def translate_error(error: Exception) -> SessionError:
    """Convert an error of the driver to an error of our tree, without its text.

    The text of the driver may contain stored values.
    """
    name = type(error).__name__
    # An error without a code is of the driver, which has no form for a value.
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return InvalidInput("a value is of a type that cannot be stored")
    for kinds, kind, message in _TRANSLATIONS:
        if isinstance(error, kinds):
            return kind(f"{message} ({name})")
    return StorageError(f"the database operation failed ({name}); check the server, then try again")
