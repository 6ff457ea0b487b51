"""One SQLite connection with its caches of schema and rows, and the translation of errors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any, cast

from session_core import _sqlite3
from session_core.errors import (
    Busy,
    Conflict,
    Corrupt,
    Denied,
    InvalidInput,
    NotFound,
    SessionError,
    StorageError,
    StorageFull,
)
from session_core.state.query import Leaf, Node, build_match_expression, quote_fts_string
from session_core.state.sqlite.lock_wait import LOCK_MESSAGES

Params = Sequence[Any] | dict[str, Any]


class Connection:
    """A SQLite connection whose caches are cleared after a commit of another connection.

    Changes through this connection keep `cache` valid. `seen` holds values that were read. `kept`
    survives commits of other connections, so its users check for changes themselves.
    """

    def __init__(self, connection: _sqlite3.Connection) -> None:
        self.connection = connection
        self.cache: dict[Any, Any] = {}
        self.is_placeholder = False
        """Whether this is an empty database in memory, in place of a file that does not exist."""
        self.indexing_due = False
        """Whether a change has made an update of the search index due."""
        self.seen: dict[Any, Any] = {}
        self.kept: dict[str, Any] = {}
        self.file: tuple[int, ...] | None = None
        """Identity of the opened file, if it matters that another file may replace it."""
        self.immutable = False
        """Whether the file was opened as immutable, on a read-only mount."""
        self.linked = True
        """Whether foreign keys are enforced."""
        self.change_token: object = None
        """A token that changes with each transaction before which messages may have changed."""
        self.changed = False
        """Whether this connection has changed a session since `change_token` was set."""
        self.depth = 0
        """Number of nested savepoints that are open."""
        self.schema: dict[Any, Any] = {}
        """Facts derived from the schema, valid until the schema changes."""
        self._columns: dict[str, tuple[str, ...]] = {}
        self._composed: dict[str, str] = {}
        self._schema_version = -1
        self._data_version = -1

    queues_texts = False
    """Whether the database itself records which messages its search index lacks."""

    has_row_ids = True
    """Whether each row has a number that grows with its insertion."""

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open."""
        return self.connection.in_transaction

    @property
    def has_changes(self) -> bool:
        """True if this connection has ever changed a row."""
        return self.connection.total_changes > 0

    @property
    def integrity_error(self) -> type[Exception]:
        """The error of the driver for a row that a constraint or trigger refuses."""
        return cast("type[Exception]", _sqlite3.load_library().IntegrityError)

    has_foreign_keys = True
    """Whether the database itself refuses rows that refer to missing ones."""

    def describe_refusal(self, error: Exception) -> str:
        """Return the message of SQLite for the refusal of a row."""
        return str(error)

    def compose_match(self, node: Node) -> str | None:
        """Build the expression of our own search index for a node, or return None."""
        return build_match_expression(node, _build_own_match)

    def resolve_block(self, block: str) -> str:
        """Return the text of a block for this engine, to compose a statement with it."""
        return block

    def isolate_failure(self) -> AbstractContextManager[None]:
        """Return a block in which a statement may fail without ending the transaction."""
        return nullcontext()

    def iter_rows(self, sql: str, params: Params = ()) -> Iterator[tuple[Any, ...]]:
        """Run a statement and yield its rows."""
        return iter(self.connection.execute(sql, params))

    def insert_row(self, sql: str, params: Params = ()) -> int:
        """Run an INSERT of one row and return its row id."""
        return self.connection.execute(sql, params).lastrowid or 0

    def insert_rows(self, sql: str, rows: Sequence[Sequence[Any]]) -> list[int]:
        """Run an INSERT for several rows and return their row ids in order."""
        execute = self.connection.execute
        return [execute(sql, row).lastrowid or 0 for row in rows]

    def fetch_rows(self, sql: str, params: Params = ()) -> list[dict[str, Any]]:
        """Run a statement and return its rows as mappings."""
        cursor = self.connection.execute(sql, params)
        names = [column[0] for column in cursor.description or ()]
        empty = dict.fromkeys(names)
        rows = []
        for values in cursor:
            # A copy has room for all columns, so it does not grow while it is filled.
            row = empty.copy()
            row |= zip(names, values)  # noqa: B905 -- each row has all columns
            rows.append(row)
        return rows

    def fetch_row(self, sql: str, params: Params = ()) -> dict[str, Any] | None:
        """Run a statement and return its first row, or None."""
        cursor = self.connection.execute(sql, params)
        row = cursor.fetchone()
        if row is None:
            return None
        return dict(zip([column[0] for column in cursor.description], row, strict=True))

    def fetch_tuples(self, sql: str, params: Params = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows as tuples."""
        return self.connection.execute(sql, params).fetchall()

    def fetch_value(self, sql: str, params: Params = ()) -> Any:
        """Run a statement and return the first column of its first row, or None."""
        row = self.connection.execute(sql, params).fetchone()
        return None if row is None else row[0]

    def execute_update(self, sql: str, params: Params = ()) -> int:
        """Run a statement that changes rows and return the number of affected rows."""
        return self.connection.execute(sql, params).rowcount

    def execute_updates(self, sql: str, rows: Sequence[Params]) -> int:
        """Run a statement with several rows of values and return the number of affected rows."""
        return self.connection.executemany(sql, rows).rowcount if rows else 0

    @property
    def can_prefetch(self) -> bool:
        """True if each read is a round trip, so that a list fetches its rows together."""
        return False

    def list_relatives(self, session_ids: Sequence[str]) -> list[str]:  # noqa: ARG002 -- the signature of the other engine
        """Return the sessions that are in a chain of compressions with some, for a prefetch."""
        return []

    def prefetch_rows(self, statements: Iterable[str], keys: Sequence[str]) -> None:
        """Fetch the rows of each statement for all `keys`, if each read is a round trip.

        Every statement has one parameter. SQLite needs no prefetch.
        """

    def list_columns(self, table: str) -> tuple[str, ...]:
        """Return the columns of `table`, or none if the table does not exist."""
        columns = self._columns.get(table)
        if columns is None:
            columns = tuple(
                row[0]
                for row in self.fetch_tuples("SELECT name FROM pragma_table_info(?)", (table,))
            )
            self._columns[table] = columns
        return columns

    def has_column(self, table: str, column: str | None = None) -> bool:
        """Return True if the table has the column, or exists if `column` is None."""
        columns = self.list_columns(table)
        return bool(columns) if column is None else column in columns

    def list_computed_columns(self, table: str) -> set[str]:
        """Return the generated columns of `table`, which cannot be set."""
        rows = self.fetch_tuples("SELECT name FROM pragma_table_xinfo(?)", (table,))
        return {row[0] for row in rows}.difference(self.list_columns(table))

    def expand_sql(self, block: str) -> str:
        """Return a block with its placeholders replaced by expressions of this home.

        They are `{live}`, `{compacted}`, `{visible}`, `{payload}` and `{payload_bytes}`; `{like}`
        compares without regard to case.
        """
        composed = self._composed.get(block)
        if composed is None:
            composed = self._composed[block] = block.format_map(self._build_conditions())
        return composed

    def _build_conditions(self) -> dict[str, str]:
        # Older homes have rows with a NULL flag, which means live, and no column `compacted`.
        strict = self.fetch_value(
            "SELECT \"notnull\" FROM pragma_table_info('messages') WHERE name = 'active'"
        )
        live = "active = 1" if strict else "(active = 1 OR active IS NULL)"
        compacted = "compacted = 1" if self.has_column("messages", "compacted") else "0"
        payload = "payload_json" if self.has_column("messages", "payload_json") else "NULL"
        return {
            "like": "LIKE",
            "live": live,
            "compacted": f"(active = 0 AND {compacted})",
            "visible": f"({live} OR {compacted})",
            "payload": payload,
            "payload_bytes": f"coalesce(length({payload}), 0)",
        }

    def forget_session_counts(self, session_id: str) -> None:
        """Drop the cached counts of a session.

        Call this after each change of its messages or its end.
        """
        self.changed = True
        self.forget_message_counts(session_id)

    def forget_message_counts(self, session_id: str) -> None:
        """Drop the cached counts of a session whose messages are unchanged or deleted."""
        self.cache.pop(("revision", session_id), None)

    def forget_all(self) -> None:
        """Clear all caches after a rollback."""
        for memory in (self.cache, self.seen, self.kept):
            memory.clear()
        self.forget_schema()

    def forget_schema(self) -> None:
        """Drop the facts derived from the schema, after a change of it or a rollback."""
        for memory in (self.schema, self._columns, self._composed):
            memory.clear()

    def forget_outdated_content(self) -> None:
        """Clear outdated caches after a copy has replaced the content."""
        self.cache.clear()
        self.seen.clear()
        (schema,) = self.connection.execute("PRAGMA schema_version").fetchone()
        if schema != self._schema_version:
            self._schema_version = schema
            self.forget_schema()

    def forget_if_changed(self) -> None:
        """Clear outdated caches at the start of a transaction."""
        (version,) = self.connection.execute("PRAGMA data_version").fetchone()
        if version != self._data_version or self.changed:
            self.change_token, self.changed = object(), False
        if version != self._data_version:
            self._data_version = version
            self.forget_outdated_content()

    def open_snapshot(self) -> Snapshot:
        """Return a context manager in which all reads see one moment of the database."""
        return Snapshot(self)


class Snapshot:
    """A read transaction."""

    def __init__(self, handle: Connection) -> None:
        self._handle = handle

    def __enter__(self) -> Connection:
        connection = self._handle.connection
        connection.rollback()  # an interrupt may have left a transaction open
        connection.execute("BEGIN")
        try:
            # In the transaction, so that the caches are valid for exactly its moment.
            self._handle.forget_if_changed()
        except BaseException:
            connection.rollback()
            raise
        return self._handle

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handle.connection.rollback()


def make_file_uri(path: Path, mode: str) -> str:
    """Return the URI that opens `path`, with special characters escaped."""
    return make_uri(Path(os.path.abspath(path)), mode)  # noqa: PTH100 -- Path.resolve follows links


def make_uri(path: PurePath, mode: str) -> str:
    """Return the URI of an absolute path."""
    # SQLite accepts no host in a URI, so the host of a network share becomes part of the path.
    uri = path.as_uri()
    if not uri.startswith("file:///"):
        uri = uri.replace("file://", "file:////", 1)
    return f"{uri}?{mode}"


def _build_own_match(leaf: Leaf) -> str:
    """Build the expression of a leaf for our index, which has every word of every script."""
    return quote_fts_string(" ".join(leaf.words)) + ("*" if leaf.prefix else "")


def quote_name(name: str) -> str:
    """Return a quoted table or column name."""
    return '"' + name.replace('"', '""') + '"'


def list_driver_errors() -> tuple[type[Exception], ...]:
    """Return the classes of errors that a statement, its values and its rows may raise."""
    error = _sqlite3.load_library().Error
    return error, UnicodeDecodeError, UnicodeEncodeError, OverflowError


def translate_error(error: Exception, path: Path) -> SessionError:
    """Convert an error of `list_driver_errors` to an error of our tree.

    The message of SQLite is left out, since it may contain stored values.
    """
    if isinstance(error, (OverflowError, UnicodeEncodeError)):
        return InvalidInput("a value is a number beyond 64 bits or text with a lone surrogate")
    text = str(error)
    # A message may contain a damaged name; Python 3.10 replaces such a message by an empty one.
    if isinstance(error, UnicodeDecodeError) or not text:
        return _to_corrupt_error(path, get_error_name(error))
    for phrases, make in _TRANSLATIONS:
        if text.startswith(phrases):
            return cast("SessionError", make(path, get_error_name(error)))
    return StorageError(
        f"the database operation failed on {path} ({get_error_name(error)}); "
        "check the disk and the database, then try again"
    )


def get_error_name(error: Exception) -> str:
    """Return the SQLite name of an error, or its class before Python 3.11."""
    return str(getattr(error, "sqlite_errorname", type(error).__name__))


DISK_FULL_MESSAGE = "database or disk is full"
"""SQLite's message if no space or no row id is left."""


def _to_corrupt_error(path: Path, name: str) -> Corrupt:
    return Corrupt(
        f"{path} is damaged, encrypted or not a database ({name}); restore it from a backup"
    )


# Errors are distinguished by their text, since Python 3.10 does not pass on their codes.
_TRANSLATIONS: tuple[tuple[tuple[str, ...], Any], ...] = (
    (
        LOCK_MESSAGES,
        lambda path, _: Busy(f"the database {path} is in use by another process; try again"),
    ),
    (
        (DISK_FULL_MESSAGE,),
        lambda path, _: StorageFull(f"no room left for {path}; free some space, then try again"),
    ),
    (
        (
            "database disk image is malformed",
            "malformed database schema",
            "file is not a database",
            "file is encrypted",
        ),
        _to_corrupt_error,
    ),
    (
        (
            "attempt to write a readonly database",
            "unable to open database file",
            "authorization denied",
            "not authorized",
            "access permission denied",
        ),
        lambda path, _: Denied(
            f"{path} cannot be opened or written; check the permissions of the file, of the files "
            "next to it and of their folder"
        ),
    ),
    (
        ("FOREIGN KEY constraint",),
        lambda *_: NotFound("the session or its parent does not exist; create it first"),
    ),
    (
        (
            "Error binding parameter",
            "Binding ",
            "string or blob too big",
            "LIKE or GLOB pattern too complex",
            "Expression tree is too large",
            "parser stack overflow",
            "too many SQL variables",
            "datatype mismatch",
            "NOT NULL constraint",
        ),
        lambda *_: InvalidInput("a value is of a type or size that cannot be stored"),
    ),
    (
        ("UNIQUE constraint",),
        lambda *_: Conflict("another process stored the same key first; read again"),
    ),
)
