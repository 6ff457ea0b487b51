"""The whole content of a home, so that a state can be compared with before and after."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from session_core import _sqlite3
from session_core.state.sqlite.connection import make_file_uri

EMPTY_STATE: dict[str, str] = {}

_INDEX_MARK_KEY = "mcp_sessions_indexed_to"
"""Up to where the search index goes: it follows a change in transactions of its own."""

_TABLES_SQL = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'sqlite_sequence'"
_INDEXES_SQL = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%'"


@contextmanager
def open_connection(path: Path, mode: str = "ro") -> Iterator[_sqlite3.Connection]:
    """Yield a plain SQLite connection, without the library."""
    opened = _sqlite3.connect(make_file_uri(path, f"mode={mode}"), busy_timeout_s=5)
    try:
        yield opened
    finally:
        opened.close()


def digest_tables(home: Path) -> dict[str, str]:
    """Return a digest of each table by primary key. A search index has the digest of its text."""
    path = home / "state.db"
    if not path.exists() or path.stat().st_size == 0:
        return EMPTY_STATE
    try:
        with open_connection(path) as opened:
            return {table: _digest_table(opened, table) for table in list_tables(opened)}
    except _sqlite3.load_library().OperationalError:
        # A writable connection rolls back a journal that a kill has left.
        with open_connection(path, "rw") as opened:
            return {table: _digest_table(opened, table) for table in list_tables(opened)}


def count_rows(home: Path) -> int:
    """Return how many rows there are in all tables."""
    return sum(int(digest.partition(":")[0]) for digest in digest_tables(home).values())


def list_tables(opened: _sqlite3.Connection) -> list[str]:
    """Return the tables of a home without its search indexes."""
    indexes = tuple(name for (name,) in opened.execute(_INDEXES_SQL))
    shadows = tuple(f"{name}_" for name in indexes)
    names = sorted(name for (name,) in opened.execute(_TABLES_SQL))
    return [name for name in names if name not in indexes and not name.startswith(shadows)]


def find_searchable_ids(home: Path, word: bytes) -> set[int]:
    """Return the messages that a search for a word must find, without rewound messages."""
    with open_connection(home / "state.db") as opened:
        rows = opened.execute(
            "SELECT id FROM messages AS message"
            " WHERE instr(CAST(content AS BLOB), ?) AND (active OR compacted AND NOT EXISTS ("
            "  SELECT 1 FROM messages AS copy WHERE copy.id > message.id AND copy.active"
            "  AND copy.session_id = message.session_id AND copy.timestamp = message.timestamp"
            "  AND copy.role = message.role AND copy.content IS message.content))",
            (word,),
        ).fetchall()
    return {number for (number,) in rows}


def find_damage(home: Path) -> list[str]:
    """Return the problems that the checks of SQLite find, also in search indexes."""
    path = home / "state.db"
    if not path.exists():
        return []
    with open_connection(path, "rw") as opened:
        rows = [row for (row,) in opened.execute("PRAGMA quick_check") if row != "ok"]
        for (name,) in opened.execute(_INDEXES_SQL).fetchall():
            try:
                check = f"INSERT INTO {name}({name}, rank) VALUES('integrity-check', 0)"
                opened.execute(check)
            except _sqlite3.load_library().Error as error:
                rows.append(f"{name}: {error}")
    return rows


def _digest_table(opened: _sqlite3.Connection, table: str) -> str:
    keys = opened.execute(
        "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,)
    ).fetchall()
    order = ", ".join(f'"{key}"' for (key,) in keys) or "rowid"
    rows = opened.execute(f'SELECT * FROM "{table}" ORDER BY {order}').fetchall()  # noqa: S608 -- names that were read
    if table == "state_meta":
        rows = [_remove_identity(row) for row in rows if row[0] != _INDEX_MARK_KEY]
    return f"{len(rows)}:{hashlib.sha256(json.dumps(rows, default=repr).encode()).hexdigest()[:16]}"


def _remove_identity(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Every home of our own is given an identity of its own at creation."""
    return (row[0], "") if row[0] == "mcp_sessions_home" else row
