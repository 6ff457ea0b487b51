"""Homes for export and import tests, and a comparison of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from session_core import SessionDB
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.transfer.exporter import Exporter
from session_core.maintenance.transfer.importer import Importer
from tests.homes import (
    add_message,
    add_session,
    connect,
    fill_database,
    make_hermes_database,
    make_own_database,
)

TABLES = {
    "sessions": ("id",),
    "messages": ("id",),
    "session_model_usage": ("session_id", "model", "billing_provider", "billing_base_url",
                            "billing_mode", "task"),
}  # fmt: skip

CHAT_STATE = (
    *("session_key", "chat_id", "chat_type", "thread_id", "display_name", "origin_json"),
    *("expiry_finalized", "handoff_state", "handoff_platform", "handoff_error"),
    *("profile_name", "transport_profile"),
)
"""The columns of sessions that no import brings."""

_PARENTS = {
    "a": "c",
    "b": "a",
    "c": "b",
    "of_a": "a",
    "own": "own",
    "one": None,
    "two": "one",
    "three": "two",
}
"""A circle with a branch, one that is its own parent, and a chain."""

Rows = dict[str, dict[tuple[Any, ...], dict[str, Any]]]


class Place:
    """A home with its exporter and importer."""

    def __init__(self, db: SessionDB, ledger: Ledger) -> None:
        self.db, self.ledger, self.path = db, ledger, db.path
        self.exporting = Exporter(HomeContext(db, ledger), "test")
        self.importing = Importer(HomeContext(db, ledger), "test")


@contextmanager
def place(folder: Path, kind: str | int) -> Iterator[Place]:
    """Open a home of a kind. Create an empty one if there is none."""
    path = folder / "state.db"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        make_hermes_database(path, kind) if isinstance(kind, int) else make_own_database(path)
    with SessionDB(path) as db, Ledger(StateFolder(path)) as ledger:
        yield Place(db, ledger)


def rows(path: Path) -> Rows:
    """Return the rows of each table by their keys, exactly as they are stored."""
    found: Rows = {}
    with connect(path, "ro") as connection:
        connection.text_factory = bytes
        there = connection.execute("SELECT name FROM sqlite_master").fetchall()
        for table, key in TABLES.items():
            found[table] = {}
            if (table.encode(),) not in there:
                continue
            cursor = connection.execute(f"SELECT * FROM {table}")  # noqa: S608 -- one of these
            names = [name for name, *_ in cursor.description]
            every = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
            here = [name for name in key if name in names]
            found[table] = {tuple(item[name] for name in here): item for item in every}
    return found


def differences(one: Rows, other: Rows) -> list[Any]:
    """Return the differences: rows of only one home, and cells of columns that both have.

    The chat state of sessions is not compared.
    """
    found: list[Any] = []
    for table in TABLES:
        here, there = one[table], other[table]
        found += [(table, key, "missing") for key in here.keys() ^ there.keys()]
        for key in here.keys() & there.keys():
            names = (here[key].keys() & there[key].keys()).difference(CHAT_STATE)
            found += [
                (table, key, name, here[key][name], there[key][name])
                for name in sorted(names)
                if (type(here[key][name]), here[key][name])
                != (type(there[key][name]), there[key][name])
            ]
    return sorted(found, key=repr)


def fill_oddly(path: Path) -> None:
    """Fill a home with conversations and with every kind of value."""
    fill_database(path, 8, 12)
    with connect(path) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("ALTER TABLE sessions ADD COLUMN of_the_future TEXT DEFAULT 'kept'")
        connection.execute("ALTER TABLE messages ADD COLUMN of_the_future INTEGER DEFAULT 7")
        add_session(connection, "odd", chat_id="7", session_key="agent:main:telegram:dm:7")
        contents: tuple[Any, ...] = (
            *("", None, b"\x00\xff", "a\x00b", "\x00json:[broken", '\x00json:{"a":1}', "123"),
            *([{"type": "text", "text": "\u2028 \U0001f680"}], {"$bytes": "no"}, {"a": 1.0}),
            *("\x00json:[1, NaN]", '\x00json:"text"', "line\nbreak\r\n"),
        )
        for content in contents:
            add_message(connection, "odd", content=content, timestamp=1.0)
        for column, value in (
            *(("timestamp", float("inf")), ("timestamp", "soon"), ("tool_calls", "[broken")),
            *(("tool_calls", '[{"id":"a"}]'), ("tool_calls", '[{"id": "a"}]')),
            *(("token_count", 2**63 - 1), ("token_count", 1.5), ("active", 0)),
        ):
            number = add_message(connection, "odd", "assistant", "x", timestamp=2.0)
            sql = f"UPDATE messages SET {column} = ? WHERE id = ?"  # noqa: S608 -- one of these
            connection.execute(sql, (value, number))
        raw = "UPDATE messages SET content = CAST(x'ff41' AS TEXT) WHERE content = '123'"
        connection.execute(raw)
        connection.execute("UPDATE messages SET active = 0 WHERE timestamp = 1.0")
        add_message(connection, "odd", content="summed up", active=0, compacted=1)
        for name, parent in _PARENTS.items():
            add_session(connection, name, parent_session_id=parent)
            add_message(connection, name, content=f"said in {name}")
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name LIKE '%_usage'").fetchall():
            usage = "INSERT INTO session_model_usage (session_id, model, input_tokens)"
            connection.execute(f"{usage} VALUES ('odd', 'm', 5)")
