"""The rows of a database session as lines of canonical JSON, and tables made from them.

The first line of each table has its columns. Bytes, and text that is not UTF-8, are preserved.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from session_core import _sqlite3
from session_core.transcripts.database_feed import get_database_errors, make_query, open_read_only
from session_core.transcripts.format import DatabaseFormat, Query, RowSelection

_READ_S = 0.1
_PAGE_BYTES = 8_000_000
_BYTES_KEY = "$bytes"
_BATCH_ROWS = 500


def read_session_rows(
    path: str, reader: DatabaseFormat, session_id: str
) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines of a session, each with True if it is a row with messages.

    Each page of rows is one short read transaction.
    """
    tables: set[str] = set()
    for selection in reader.row_selections:
        # The ids first: a page is then found without a scan, and the agent can write in between.
        columns, row_ids = _list_columns_and_row_ids(path, selection, session_id)
        if columns and selection.table not in tables:
            tables.add(selection.table)
            yield _encode_json_line({"columns": columns, "table": selection.table}), False
        done = 0
        while done < len(row_ids):
            rows, read = _read_source_page(path, selection, columns, session_id, row_ids[done:])
            done += read
            for values in rows:
                row = dict(zip(columns, map(_encode_value, values), strict=True))
                yield (
                    _encode_json_line({"row": row, "table": selection.table}),
                    selection.has_messages,
                )


def has_message_tables(reader: DatabaseFormat) -> bool:
    """Return True if the sessions of a format have their messages in the database."""
    return any(selection.has_messages for selection in reader.row_selections)


def has_message_rows(path: str, reader: DatabaseFormat, session_id: str) -> bool:
    """Return False if a session has lost all its messages.

    Return True if the database cannot be read.
    """
    selections = [selection for selection in reader.row_selections if selection.has_messages]
    try:
        row_ids = [
            _list_columns_and_row_ids(path, selection, session_id)[1] for selection in selections
        ]
    except get_database_errors():
        return True
    return not selections or any(row_ids)


def _list_columns_and_row_ids(
    path: str, selection: RowSelection, session_id: str
) -> tuple[list[str], list[int]]:
    """Return the columns of a table and the row ids of a session.

    The columns are empty if the table is missing.
    """
    with open_read_only(path) as connection:
        names = "SELECT name FROM pragma_table_info(?) ORDER BY cid"
        columns = [row[0] for row in connection.execute(names, (selection.table,))]
        if not columns or not set(selection.needs) <= set(columns):
            return [], []
        sql = f"SELECT rowid FROM {selection.table} WHERE {selection.where}"  # noqa: S608 -- the inserted names are constants
        return columns, sorted(row[0] for row in connection.execute(sql, (session_id,)))


def _read_source_page(
    path: str,
    selection: RowSelection,
    columns: Sequence[str],
    session_id: str,
    row_ids: Sequence[int],
) -> tuple[list[tuple[Any, ...]], int]:
    """Return the first rows that still belong to the session, and the number of ids used."""
    rows: list[tuple[Any, ...]] = []
    sql = (
        f"SELECT {', '.join(map(_quote, columns))} FROM {selection.table}"  # noqa: S608 -- names are quoted
        # SQLite gives freed row ids again, so a row may belong to another session by now.
        f" WHERE rowid = ? AND ({selection.where})"
    )
    with open_read_only(path) as connection:
        connection.text_factory = _decode_text
        until, room, read = time.monotonic() + _READ_S, _PAGE_BYTES, 0
        for row_id in row_ids:
            page_rows = connection.execute(sql, (row_id, session_id)).fetchall()
            rows += page_rows
            read += 1
            room -= sum(len(v) for row in page_rows for v in row if isinstance(v, (str, bytes)))
            if room < 0 or time.monotonic() > until:
                break
    return rows, read


@contextmanager
def open_rows(lines: Iterable[bytes]) -> Iterator[Query]:
    """Build tables from kept rows, and open them for a format.

    They are in a temporary database, which SQLite writes to disk once it is large.
    """
    # An empty name is a temporary database, which SQLite writes to disk once it is large.
    with closing(_sqlite3.connect("file:", busy_timeout_s=0)) as connection:
        connection.execute("BEGIN")
        columns: dict[str, list[str]] = {}
        pending: dict[str, list[list[Any]]] = {}
        size = 0
        for line in lines:
            record = json.loads(line)
            table = record["table"]
            if "columns" in record:
                columns[table], pending[table] = record["columns"], []
                _create_table(connection, table, columns[table])
                continue
            pending[table].append([_decode_value(record["row"][name]) for name in columns[table]])
            size += len(line)
            if len(pending[table]) >= _BATCH_ROWS or size >= _PAGE_BYTES:
                _insert_all(connection, pending)
                size = 0
        _insert_all(connection, pending)
        for table, names in columns.items():
            _create_indexes(connection, table, names)
        yield make_query(connection)
        connection.rollback()


def _create_table(connection: _sqlite3.Connection, table: str, columns: Sequence[str]) -> None:
    names = ", ".join(map(_quote, columns))
    connection.execute(f"CREATE TABLE {_quote(table)} ({names})")


def _insert_all(connection: _sqlite3.Connection, pending: dict[str, list[list[Any]]]) -> None:
    for table, rows in pending.items():
        _insert_rows(connection, table, rows)


def _insert_rows(connection: _sqlite3.Connection, table: str, rows: list[list[Any]]) -> None:
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {_quote(table)} VALUES ({marks})", rows)  # noqa: S608 -- names are quoted
        rows.clear()


def _create_indexes(connection: _sqlite3.Connection, table: str, columns: Sequence[str]) -> None:
    """Create indexes on id columns, as the agents have them."""
    for name in columns:
        if name == "id" or name.endswith("_id"):
            index = _quote(f"{table} {name}")
            connection.execute(f"CREATE INDEX {index} ON {_quote(table)} ({_quote(name)})")


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _encode_json_line(record: dict[str, Any]) -> bytes:
    # Canonical, since copies are compared with their source by the hashes of these bytes.
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=True)
    return text.encode() + b"\n"


def _encode_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return {_BYTES_KEY: base64.b64encode(value).decode()}
    return value


def _decode_value(value: Any) -> Any:
    if isinstance(value, dict):
        return base64.b64decode(value[_BYTES_KEY])
    # A format sees text that is not UTF-8 as it would in the database, with replacements.
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value


def _decode_text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogateescape")
