"""Rows exactly as they are stored: read, compared, found by their key, and written.

Text that is no UTF-8 is `Raw`. A table without a primary key is keyed by its row ids. Columns that
are computed are none of the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from session_core import _sqlite3
from session_core.state.sqlite import sql_blocks
from session_core.state.sqlite.connection import Connection, Params, quote_name
from session_core.types import RawText

SQL = sql_blocks.load_blocks("stored")

Row = tuple[Any, ...]

_MAX_VALUES = 20_000
"""So many values are bound to one statement; SQLite takes 32,766."""

_ROWID_NAMES = ("rowid", "_rowid_", "oid")


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key: columns of a table, and those of another that they name."""

    columns: tuple[str, ...]
    table: str
    named: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableShape:
    """What a table looks like here."""

    table: str
    columns: tuple[str, ...]
    """As its rows are imaged: where there is no primary key, behind the row id."""
    key: tuple[str, ...]
    keyed: bool
    """Whether the key is a primary key, by which a row is known wherever it is."""
    defaults: Mapping[str, str]
    """Expressions, of the columns that have one."""
    links: tuple[ForeignKey, ...]
    reads: str
    """The statement that reads rows, up to its condition."""

    def build_select(self, where: str) -> str:
        """Return the statement that reads rows."""
        return self.reads + where

    def get_row_key(self, row: Sequence[Any]) -> Row:
        """Return the key of a row."""
        return tuple(row[self.columns.index(name)] for name in self.key)


def get_shape(handle: Connection, table: str) -> TableShape | None:
    """Return what a table looks like, None where this home has none of that name."""
    key = "shape", table
    if key not in handle.schema:
        handle.schema[key] = _read_shape(handle, table)
    return cast("TableShape | None", handle.schema[key])


def _read_shape(handle: Connection, table: str) -> TableShape | None:
    found = handle.fetch_tuples(SQL["list_columns"], (table,))
    columns = tuple(name for name, _ in found)
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
        defaults={name: default for name, default in found if default is not None},
        links=_read_foreign_keys(handle, table),
        reads=f"SELECT {join_columns(columns)} FROM {quote_name(table)} WHERE ",  # noqa: S608 -- from the schema, quoted
    )


def _read_foreign_keys(handle: Connection, table: str) -> tuple[ForeignKey, ...]:
    parts: dict[int, list[Row]] = {}
    for number, *part in handle.fetch_tuples(SQL["list_links"], (table,)):
        parts.setdefault(number, []).append(tuple(part))
    found = []
    for several in parts.values():
        parent = several[0][1]
        named = tuple(to for _, _, to in several)
        if None in named:
            named = _read_key_columns(handle, parent)
        found.append(ForeignKey(tuple(one for one, _, _ in several), parent, named))
    return tuple(found)


def _read_key_columns(handle: Connection, table: str) -> tuple[str, ...]:
    return tuple(row[0] for row in handle.fetch_tuples(SQL["list_keys"], (table,)))


def read_rows(handle: Connection, sql: str, params: Params = ()) -> list[Row]:
    """Run a statement and return its rows, every value as it is stored."""
    connection = handle.connection
    usual = connection.text_factory
    try:
        # Without a call for each text; one that is no UTF-8 is rare.
        connection.text_factory = str
        try:
            return connection.execute(sql, params).fetchall()
        except _sqlite3.load_library().OperationalError as error:
            if "decode to UTF-8" not in str(error):
                raise
        connection.text_factory = _decode_text
        return connection.execute(sql, params).fetchall()
    finally:
        connection.text_factory = usual


def _decode_text(stored: bytes) -> str | RawText:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return RawText(stored)


def find_rows(handle: Connection, of: TableShape, key: Mapping[str, Any]) -> list[Row]:
    """Return the rows with a key, or with these values in some other columns."""
    return read_rows(handle, of.build_select(build_condition(key)), bind_values(key.values()))


def is_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether values are equal and of the same types, which SQLite does not tell apart."""
    return list(one) == list(other) and list(map(type, one)) == list(map(type, other))


def build_condition(values: Mapping[str, Any]) -> str:
    """Return the condition that columns have values, which are bound by `bound`."""
    return (
        " AND ".join(
            f"{quote_name(name)} IS {make_placeholder(value)}" for name, value in values.items()
        )
        or "1"
    )


def insert_row(handle: Connection, table: str, values: Mapping[str, Any]) -> int:
    """Insert a row as it is stored; return its row id."""
    marks = ", ".join(map(make_placeholder, values.values()))
    sql = f"INSERT INTO {quote_name(table)} ({join_columns(values)}) VALUES ({marks})"  # noqa: S608 -- from the schema, quoted
    return handle.connection.execute(sql, bind_values(values.values())).lastrowid or 0


def insert_rows(
    handle: Connection, table: str, names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Insert rows as they are stored, in few statements.

    An index of Hermes writes what it has gathered at the end of each.
    """
    together = max(_MAX_VALUES // len(names), 1)
    for start in range(0, len(rows), together):
        some = rows[start : start + together]
        marks = ", ".join(f"({', '.join(map(make_placeholder, row))})" for row in some)
        sql = f"INSERT INTO {quote_name(table)} ({join_columns(names)}) VALUES {marks}"  # noqa: S608 -- from the schema, quoted
        handle.connection.execute(sql, bind_values(chain.from_iterable(some)))


def update_rows(
    handle: Connection, table: str, key: Mapping[str, Any], values: Mapping[str, Any]
) -> int:
    """Set columns of the rows with a key; return how many there are."""
    changes = ", ".join(
        f"{quote_name(name)} = {make_placeholder(value)}" for name, value in values.items()
    )
    sql = f"UPDATE {quote_name(table)} SET {changes} WHERE {build_condition(key)}"  # noqa: S608 -- from the schema, quoted
    return handle.run_change(sql, bind_values([*values.values(), *key.values()]))


def delete_rows(handle: Connection, table: str, key: Mapping[str, Any]) -> int:
    """Delete the rows with a key; return how many there were."""
    sql = f"DELETE FROM {quote_name(table)} WHERE {build_condition(key)}"  # noqa: S608 -- from the schema, quoted
    return handle.run_change(sql, bind_values(key.values()))


def make_placeholder(value: Any) -> str:
    """Return what stands for a value in a statement."""
    return "CAST(? AS TEXT)" if isinstance(value, RawText) else "?"


def bind_values(values: Any) -> list[Any]:
    """Return values as they are bound to their marks."""
    return [value.stored if isinstance(value, RawText) else value for value in values]


def join_columns(names: Any) -> str:
    """Return columns, for use in a statement."""
    return ", ".join(map(quote_name, names))
