"""Raw rows and the shapes of their tables: reading, comparing, inserting, updating and deleting.

Text that is not UTF-8 is `RawText`. The key of a table without a primary key is its row id.
Computed columns are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from session_core import _sqlite3
from session_core.state import sql_blocks
from session_core.state.sqlite.connection import Connection, Params, quote_name
from session_core.types import RawText

SQL = sql_blocks.load_blocks("stored")

Row = tuple[Any, ...]

_MAX_VALUES = 20_000
"""The maximum number of values bound to one statement; SQLite allows 32,766."""

_ROWID_NAMES = ("rowid", "_rowid_", "oid")


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key: columns of a table, and the columns of another table to which they refer."""

    columns: tuple[str, ...]
    table: str
    named: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableShape:
    """The columns, key and links of a table in this home."""

    table: str
    columns: tuple[str, ...]
    """All stored columns. Without a primary key, the row id comes first."""
    key: tuple[str, ...]
    keyed: bool
    """True if the key is a primary key, which identifies a row in any home."""
    defaults: Mapping[str, str]
    """The default expressions of columns, for columns with a default."""
    links: tuple[ForeignKey, ...]
    reads: str
    """The statement that reads rows, without its condition."""

    def build_select(self, where: str) -> str:
        """Return a statement that reads rows."""
        return self.reads + where

    def get_row_key(self, row: Sequence[Any]) -> Row:
        """Return the key of a row."""
        return tuple(row[self.columns.index(name)] for name in self.key)


class RawBytes(bytes):
    """The bytes of a text that is not UTF-8, as a parameter. Plain `bytes` are a blob."""

    __slots__ = ()


def get_shape(handle: Connection, table: str) -> TableShape | None:
    """Return the shape of a table, or None if the home lacks the table."""
    key = "shape", table
    if key not in handle.schema:
        handle.schema[key] = _read_shape(handle, table)
    return cast("TableShape | None", handle.schema[key])


def _read_shape(handle: Connection, table: str) -> TableShape | None:
    rows = handle.fetch_tuples(SQL["list_columns"], (table,))
    columns = tuple(name for name, _ in rows)
    if not columns:
        return None
    keys = _read_key_columns(handle, table)
    lowered = {name.lower() for name in columns}
    row_id = next((name for name in _ROWID_NAMES if name not in lowered), None)
    if keys or row_id is None:
        key = keys or columns
    else:
        key, columns = (row_id,), (row_id, *columns)
    return TableShape(
        table,
        columns,
        key,
        keyed=bool(keys),
        defaults={name: default for name, default in rows if default is not None},
        links=_read_foreign_keys(handle, table),
        reads=f"SELECT {join_columns(columns)} FROM {quote_name(table)} WHERE ",  # noqa: S608 -- quoted names of the schema
    )


def _read_foreign_keys(handle: Connection, table: str) -> tuple[ForeignKey, ...]:
    parts: dict[int, list[Row]] = {}
    for number, *part in handle.fetch_tuples(SQL["list_links"], (table,)):
        parts.setdefault(number, []).append(tuple(part))
    keys = []
    for group in parts.values():
        parent = group[0][1]
        named = tuple(to for _, _, to in group)
        # A foreign key without named columns refers to the primary key.
        if None in named:
            named = _read_key_columns(handle, parent)
        keys.append(ForeignKey(tuple(column for column, _, _ in group), parent, named))
    return tuple(keys)


def _read_key_columns(handle: Connection, table: str) -> tuple[str, ...]:
    return tuple(row[0] for row in handle.fetch_tuples(SQL["list_keys"], (table,)))


def read_rows(handle: Connection, sql: str, params: Params = ()) -> list[Row]:
    """Run a statement and return its rows with the values as stored."""
    if not handle.has_row_ids:
        return handle.fetch_tuples(sql, params)
    connection = handle.connection
    text_factory = connection.text_factory
    try:
        # `str` avoids a Python call for each text. Text that is not UTF-8 is rare.
        connection.text_factory = str
        try:
            return connection.execute(sql, params).fetchall()
        except _sqlite3.load_library().OperationalError as error:
            if "decode to UTF-8" not in str(error):
                raise
        connection.text_factory = _decode_text
        return connection.execute(sql, params).fetchall()
    finally:
        connection.text_factory = text_factory


def _decode_text(stored: bytes) -> str | RawText:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return RawText(stored)


def find_rows(handle: Connection, shape: TableShape, key: Mapping[str, Any]) -> list[Row]:
    """Return the rows with the values of a key, which may be any columns."""
    return read_rows(handle, shape.build_select(build_condition(key)), bind_values(key.values()))


def is_same(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return True if values and their types are equal.

    SQLite treats 1 and 1.0 as equal.
    """
    return list(values) == list(others) and list(map(type, values)) == list(map(type, others))


def build_condition(values: Mapping[str, Any]) -> str:
    """Build the condition that columns have values, for the parameters of `bind_values`."""
    return " AND ".join(_compare_column(*pair) for pair in values.items()) or "1 = 1"


def _compare_column(name: str, value: Any) -> str:
    # A key may have a NULL, which equals nothing; `IS` would not use an index of every engine.
    if value is None:
        return f"({quote_name(name)} IS NULL AND ? IS NULL)"
    return f"{quote_name(name)} = {make_placeholder(value)}"


def insert_row(handle: Connection, table: str, values: Mapping[str, Any]) -> int:
    """Insert a row unchanged and return its row id."""
    marks = ", ".join(map(make_placeholder, values.values()))
    sql = f"INSERT INTO {quote_name(table)} ({join_columns(values)}) VALUES ({marks})"  # noqa: S608 -- quoted names of the schema
    return handle.insert_row(sql, bind_values(values.values()))


def insert_rows(
    handle: Connection, table: str, names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Insert rows unchanged, in few statements."""
    # A Hermes index writes its pending entries at the end of each statement.
    batch_size = max(_MAX_VALUES // len(names), 1)
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        marks = ", ".join(f"({', '.join(map(make_placeholder, row))})" for row in batch)
        sql = f"INSERT INTO {quote_name(table)} ({join_columns(names)}) VALUES {marks}"  # noqa: S608 -- quoted names of the schema
        handle.execute_update(sql, bind_values(chain.from_iterable(batch)))


def update_rows(
    handle: Connection, table: str, key: Mapping[str, Any], values: Mapping[str, Any]
) -> int:
    """Set columns of the rows with a key and return the number of rows."""
    changes = ", ".join(
        f"{quote_name(name)} = {make_placeholder(value)}" for name, value in values.items()
    )
    sql = f"UPDATE {quote_name(table)} SET {changes} WHERE {build_condition(key)}"  # noqa: S608 -- quoted names of the schema
    return handle.execute_update(sql, bind_values([*values.values(), *key.values()]))


def delete_rows(handle: Connection, table: str, key: Mapping[str, Any]) -> int:
    """Delete the rows with a key and return the number of rows."""
    sql = f"DELETE FROM {quote_name(table)} WHERE {build_condition(key)}"  # noqa: S608 -- quoted names of the schema
    return handle.execute_update(sql, bind_values(key.values()))


def make_placeholder(value: Any) -> str:
    """Return the placeholder of a value in a statement."""
    return "CAST(? AS TEXT)" if isinstance(value, RawText) else "?"


def bind_values(values: Any) -> list[Any]:
    """Return the parameters for the placeholders of values."""
    return [RawBytes(value.stored) if isinstance(value, RawText) else value for value in values]


def join_columns(names: Any) -> str:
    """Return quoted column names for a statement."""
    return ", ".join(map(quote_name, names))
