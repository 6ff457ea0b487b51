"""Databases for tests: an empty Hermes one of any schema, one of our own, and sample rows.

Schemas 16, 17, 19 and 22 are as the real packages create them (`tests/interop/` compares them); 18,
20 and 21 lie between. Schemas 23 to 30 have the known columns and tables, which may have come with
another number.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from session_core import _sqlite3
from session_core.state.sqlite.connection import make_file_uri
from session_core.state.sqlite.database_file import HOME_ID_KEY, create_database
from tests.hermes_schema import list_statements

SCHEMAS = range(16, 31)


def make_hermes_database(
    path: Path, schema: int = 22, *, fts_layout: int | None = None, null_flags: bool = False
) -> None:
    """Make an empty database as Hermes does.

    `fts_layout` is 0 for indexes with a copy of the text, 1 for external content from `messages`, 3
    for the view `messages_fts_src`. An upgraded database keeps 0 in every schema. With `null_flags`
    the flag of messages was added later, and may be NULL.
    """
    layout = fts_layout if fts_layout is not None else 0 if schema < 23 else 1 if schema < 26 else 3
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_read_hermes_database(schema, layout, null_flags))


def make_own_database(path: Path) -> None:
    """Make an empty database of our own, with an id of its own."""
    content, home_id = _read_own_database()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(0o600)
    path.write_bytes(content.replace(home_id, uuid.uuid4().hex.encode()))


# A copy takes a thirtieth of the time of the statements; no process has these files open.
@cache
def _read_hermes_database(schema: int, layout: int, null_flags: bool) -> bytes:
    with tempfile.TemporaryDirectory(prefix="template_") as folder:
        path = Path(folder, "state.db")
        with connect(path, mode="rwc") as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("BEGIN")
            for statement in list_statements(schema, layout):
                strict = "active INTEGER NOT NULL"
                connection.execute(
                    statement.replace(strict, "active INTEGER") if null_flags else statement
                )
            connection.execute("INSERT INTO schema_version VALUES (?)", (schema,))
            if schema >= 23 and layout:
                connection.execute(
                    "INSERT INTO state_meta VALUES ('fts_storage_version', ?)", (str(layout),)
                )
            connection.execute("COMMIT")
        return path.read_bytes()


@cache
def _read_own_database() -> tuple[bytes, bytes]:
    """Return the content of a database of our own, and its id."""
    with tempfile.TemporaryDirectory(prefix="template_") as folder:
        path = Path(folder, "state.db")
        create_database(path, 5.0)
        with connect(path) as connection:
            select = "SELECT value FROM state_meta WHERE key = ?"
            home_id = connection.execute(select, (HOME_ID_KEY,)).fetchone()[0]
        return path.read_bytes(), home_id.encode()


@contextmanager
def connect(path: Path, mode: str = "rw") -> Iterator[_sqlite3.Connection]:
    """Open a plain connection and close it at the end."""
    connection = _sqlite3.connect(make_file_uri(path, f"mode={mode}"), busy_timeout_s=5)
    try:
        connection.execute("PRAGMA foreign_keys=ON")
        yield connection
    finally:
        connection.close()


def add_session(connection: _sqlite3.Connection, session_id: str, **columns: Any) -> str:
    """Insert a session row, without the columns that this schema lacks."""
    row = {"id": session_id, "source": "cli", "started_at": time.time(), **columns}
    _insert_row(connection, "sessions", row)
    return session_id


def add_message(
    connection: _sqlite3.Connection,
    session_id: str,
    role: str = "user",
    content: Any = "hello",
    **columns: Any,
) -> int:
    """Insert a raw message row, count it if it is live, and return its id."""
    row = {"session_id": session_id, "role": role, "timestamp": time.time(), **columns}
    row["content"] = "\x00json:" + json.dumps(content) if _is_json(content) else content
    calls = row.get("tool_calls")
    if _is_json(calls):
        row["tool_calls"] = json.dumps(calls)
    message_id = _insert_row(connection, "messages", row)
    if row.get("active", 1):
        connection.execute(
            "UPDATE sessions SET message_count = message_count + 1,"
            " tool_call_count = tool_call_count + ? WHERE id = ?",
            (len(calls) if isinstance(calls, list) else 0, session_id),
        )
    return message_id


def fill_database(
    path: Path, sessions: int = 12, messages: int = 10, *, seed: int = 0, start: float = 1.7e9
) -> list[str]:
    """Add conversations of several sources, scripts and shapes. Return their ids, oldest first."""
    chance = random.Random(seed)
    with connect(path) as connection:
        connection.execute("BEGIN")
        ids = [
            _add_conversation(connection, f"fill_{seed}_{number:05}", number, start)
            for number in range(sessions)
        ]
        for number, session_id in enumerate(ids):
            for turn in range(messages):
                _add_turn(connection, chance, session_id, turn, start + number * 3600 + turn)
        connection.execute("COMMIT")
    return ids


SOURCES = ("cli", "telegram", "discord", "slack", "whatsapp", "cron", "tui")
TEXTS = (
    "please look at the deploy script, it fails on foo_bar.baz",
    "数据库架构的决定是什么",
    "قاعدة البيانات جاهزة للنشر",
    "проверь миграцию базы данных",
    "데이터베이스 마이그레이션을 확인해 주세요",
    "ship it 🚀 and tell the team",
)


def _add_conversation(
    connection: _sqlite3.Connection, session_id: str, number: int, start: float
) -> str:
    at = start + number * 3600
    ended = number % 3 == 0
    return add_session(
        connection,
        session_id,
        source=SOURCES[number % len(SOURCES)],
        model="some-model",
        title=f"Conversation {session_id}" if number % 2 else None,
        started_at=at,
        ended_at=at + 1800 if ended else None,
        end_reason="cli_close" if ended else None,
        cwd="/srv/project" if number % 4 else None,
    )


def _add_turn(
    connection: _sqlite3.Connection, chance: random.Random, session_id: str, turn: int, at: float
) -> None:
    """Add one message: a question, a tool call, its result, or an answer."""
    text = f"{chance.choice(TEXTS)} ({session_id} turn {turn})"
    if turn % 4 == 0:
        content = [{"type": "text", "text": text}] if turn % 8 == 4 else text
        add_message(connection, session_id, "user", content, timestamp=at)
    elif turn % 4 == 1:
        call = {"name": "read_file", "arguments": json.dumps({"path": f"notes_{turn}.md"})}
        calls = [{"id": f"call_{turn}", "type": "function", "function": call}]
        add_message(connection, session_id, "assistant", "", timestamp=at, tool_calls=calls)
    elif turn % 4 == 2:
        columns = {"timestamp": at, "tool_call_id": f"call_{turn - 1}", "tool_name": "read_file"}
        add_message(connection, session_id, "tool", json.dumps({"text": text}), **columns)
    else:
        add_message(connection, session_id, "assistant", text, timestamp=at, reasoning="because")


def _insert_row(connection: _sqlite3.Connection, table: str, row: dict[str, Any]) -> int:
    empty = connection.execute(f"SELECT * FROM {table} LIMIT 0")  # noqa: S608 -- known names
    known = {column[0] for column in empty.description}
    row = {name: value for name, value in row.items() if name in known}
    marks = ", ".join("?" * len(row))
    sql = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})"  # noqa: S608 -- known names
    return connection.execute(sql, tuple(row.values())).lastrowid or 0


def _is_json(value: Any) -> bool:
    return isinstance(value, (list, dict))
