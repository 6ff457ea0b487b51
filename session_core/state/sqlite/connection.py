"""One connection and what it looks like: tables, columns, rows as mappings, errors of our tree."""

from __future__ import annotations

import os
from collections.abc import Sequence
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

Params = Sequence[Any] | dict[str, Any]


class Connection:
    """A connection; what it remembers is forgotten as soon as anybody else commits.

    `cache` is kept true by those who change something through this handle, `seen` holds what was
    read, `kept` outlives the commits of others: who uses it looks at what they changed.
    """

    def __init__(self, connection: _sqlite3.Connection) -> None:
        self.connection = connection
        self.cache: dict[Any, Any] = {}
        self.stands_in = False
        """Whether it is an empty one in memory, in place of a file that is not there yet."""
        self.due = False
        """Whether a change has left something to be done in transactions of its own."""
        self.seen: dict[Any, Any] = {}
        self.kept: dict[str, Any] = {}
        self.file: tuple[int, ...] | None = None
        """Which file it was opened on, where that matters: another may take its place."""
        self.immutable = False
        """Whether it was opened as a file that cannot change, on a mount that nobody can write."""
        self.linked = True
        """Whether what refers to another row needs it to be there."""
        self.moment: object = None
        """Renewed with each transaction before which messages may have been changed."""
        self.changed = False
        """Whether it has itself changed a session since."""
        self.depth = 0
        """How many parts of a transaction are open, one in another."""
        self.schema: dict[Any, Any] = {}
        """What the schema says, until somebody changes it."""
        self._columns: dict[str, tuple[str, ...]] = {}
        self._composed: dict[str, str] = {}
        self._schema_version = -1
        self._data_version = -1

    def fetch_rows(self, sql: str, params: Params = ()) -> list[dict[str, Any]]:
        """Run a statement and return its rows as mappings."""
        cursor = self.connection.execute(sql, params)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]

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

    def run_change(self, sql: str, params: Params = ()) -> int:
        """Run a change and return the number of rows that it touched."""
        return self.connection.execute(sql, params).rowcount

    def list_columns(self, table: str) -> tuple[str, ...]:
        """Return the columns that `table` has here, none if it is not there."""
        found = self._columns.get(table)
        if found is None:
            found = tuple(
                row[0]
                for row in self.fetch_tuples("SELECT name FROM pragma_table_info(?)", (table,))
            )
            self._columns[table] = found
        return found

    def has_column(self, table: str, column: str | None = None) -> bool:
        """Whether there is such a table, or such a column of it."""
        columns = self.list_columns(table)
        return bool(columns) if column is None else column in columns

    def list_computed_columns(self, table: str) -> set[str]:
        """Return the columns of `table` that nobody can set, though its rows have them."""
        found = self.fetch_tuples("SELECT name FROM pragma_table_xinfo(?)", (table,))
        return {row[0] for row in found}.difference(self.list_columns(table))

    def expand_sql(self, block: str) -> str:
        """Return a block with `{live}`, `{compacted}` and `{visible}` as this home tells them."""
        composed = self._composed.get(block)
        if composed is None:
            composed = self._composed[block] = block.format_map(self._build_conditions())
        return composed

    def _build_conditions(self) -> dict[str, str]:
        """Older homes have rows whose flag is NULL, which means live, and no flag `compacted`."""
        strict = self.fetch_value(
            "SELECT \"notnull\" FROM pragma_table_info('messages') WHERE name = 'active'"
        )
        live = "active = 1" if strict else "(active = 1 OR active IS NULL)"
        compacted = "compacted = 1" if self.has_column("messages", "compacted") else "0"
        return {
            "live": live,
            "compacted": f"(active = 0 AND {compacted})",
            "visible": f"({live} OR {compacted})",
        }

    def forget_session_counts(self, session_id: str) -> None:
        """Forget what was counted of a session: called by whoever changes its rows or its end."""
        self.changed = True
        self.forget_message_counts(session_id)

    def forget_message_counts(self, session_id: str) -> None:
        """Forget what was counted of a session whose messages are what they were, or gone."""
        self.cache.pop(("revision", session_id), None)

    def forget_all(self) -> None:
        """Forget everything that was read or counted, after a change that was rolled back."""
        for memory in (self.cache, self.seen, self.kept):
            memory.clear()

    def forget_if_changed(self) -> None:
        """Forget what others have changed since; called at the start of each transaction."""
        (version,) = self.connection.execute("PRAGMA data_version").fetchone()
        if version != self._data_version or self.changed:
            self.moment, self.changed = object(), False
        if version != self._data_version:
            self._data_version = version
            self.cache.clear()
            self.seen.clear()
            (schema,) = self.connection.execute("PRAGMA schema_version").fetchone()
            if schema != self._schema_version:
                self._schema_version = schema
                for memory in (self.schema, self._columns, self._composed):
                    memory.clear()

    def open_snapshot(self) -> Snapshot:
        """Everything that is read inside is of one moment."""
        return Snapshot(self)


class Snapshot:
    """A transaction that reads."""

    def __init__(self, handle: Connection) -> None:
        self._handle = handle

    def __enter__(self) -> Connection:
        connection = self._handle.connection
        connection.rollback()  # of one that an interrupt has cut short
        connection.execute("BEGIN")
        try:
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
    """Return the URI that opens `path`, with the characters escaped that a URI gives a meaning."""
    return make_uri(Path(os.path.abspath(path)), mode)  # noqa: PTH100 -- no symlink resolved


def make_uri(path: PurePath, mode: str) -> str:
    """Return the URI of an absolute path: SQLite takes no host, so that of a share goes into it."""
    uri = path.as_uri()
    if not uri.startswith("file:///"):
        uri = uri.replace("file://", "file:////", 1)
    return f"{uri}?{mode}"


def quote_name(name: str) -> str:
    """Return the name of a table or column for use in a statement."""
    return '"' + name.replace('"', '""') + '"'


def translate_error(error: Exception, path: Path) -> SessionError:
    """Return the error of our tree for one of the driver's.

    Its text is looked at and never passed on: it may hold what a row says.
    """
    text = str(error)
    # What SQLite says itself may have a damaged name in it; Python 3.10 leaves such a text out.
    if isinstance(error, UnicodeDecodeError) or not text:
        return _to_corrupt_error(path, get_error_name(error))
    for phrases, make in _TRANSLATIONS:
        if text.startswith(phrases):
            return cast("SessionError", make(path, get_error_name(error)))
    return StorageError(
        f"the database {path} could not do that ({get_error_name(error)}); "
        "check the disk and the database, then try again"
    )


def get_error_name(error: Exception) -> str:
    """Return what SQLite calls an error; older versions of Python do not tell."""
    return str(getattr(error, "sqlite_errorname", type(error).__name__))


def is_busy(error: Exception) -> bool:
    """Whether the lock was taken by somebody else, so that trying again may help."""
    return isinstance(error, _sqlite3.load_library().OperationalError) and str(error).startswith(
        _LOCK_MESSAGES
    )


DISK_FULL_MESSAGE = "database or disk is full"
"""What SQLite says where there is no room, or no id any more."""


def _to_corrupt_error(path: Path, name: str) -> Corrupt:
    return Corrupt(
        f"{path} is damaged, encrypted or no database ({name}); restore it from a backup"
    )


_LOCK_MESSAGES = (
    "database is locked",
    "database table is locked",
    "database schema is locked",
    "locking protocol",
)
_TRANSLATIONS: tuple[tuple[tuple[str, ...], Any], ...] = (
    (
        _LOCK_MESSAGES,
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
            f"{path} may not be opened or written; check the permissions of the file, of those "
            "beside it and of their folder"
        ),
    ),
    (
        ("FOREIGN KEY constraint",),
        lambda *_: NotFound("the session or its parent is not there; create it first"),
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
        lambda *_: Conflict("somebody else stored the same key first; read again"),
    ),
)
