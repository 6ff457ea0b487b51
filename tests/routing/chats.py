"""Chats, messages and stored routes for the tests of the session store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from session_core import SessionDB, SessionEntry, SessionSource, SessionStore
from session_core.config import GatewayConfig, SessionResetPolicy
from tests.homes import connect

KEY = "agent:main:telegram:dm:42"
"""The key of `chat()`."""
OTHER = "agent:main:telegram:dm:43"
"""The key of `chat(43)`."""

IDLE = GatewayConfig(default_reset_policy=SessionResetPolicy(mode="idle", idle_minutes=60))

DAILY = GatewayConfig(default_reset_policy=SessionResetPolicy(mode="daily", at_hour=4))

BOTH = GatewayConfig(
    default_reset_policy=SessionResetPolicy(mode="both", idle_minutes=60, at_hour=4)
)

NONE = GatewayConfig()

UNMIRRORED = GatewayConfig(write_sessions_json=False)


class Clock:
    """A clock set by the test."""

    def __init__(self) -> None:
        self.time = datetime(2026, 3, 10, 12)  # noqa: DTZ001 -- local, as stored

    def __call__(self) -> datetime:
        """Return the current time of the clock."""
        return self.time

    def advance(self, **duration: float) -> None:
        """Advance the clock."""
        self.time += timedelta(**duration)


def chat(chat_id: int | str = 42, **fields: Any) -> SessionSource:
    """Return the source of a message."""
    return SessionSource(platform="telegram", chat_id=str(chat_id), **fields)


def append_text(
    store: SessionStore, db: SessionDB, entry: SessionEntry, text: str = "hello"
) -> None:
    """Append a message to the session of a chat."""
    fields = store.build_session_fields(entry)
    db.append_message(entry.session_id, "user", text, create=fields)


def begin_session(store: SessionStore, db: SessionDB, **fields: Any) -> str:
    """Route and store a first message, and return the id of its session."""
    entry = store.get_or_create_session(chat(**fields))
    append_text(store, db, entry)
    return entry.session_id


def get_end_reason(db: SessionDB, session_id: str) -> str | None:
    """Return the end reason of a session."""
    row = db.get_session(session_id)
    assert row is not None
    return row["end_reason"]


def get_entry(store: SessionStore) -> SessionEntry:
    """Return the entry of `KEY`."""
    entry = store.get(KEY)
    assert entry is not None
    return entry


def get_session_ids(store: SessionStore) -> dict[str, str]:
    """Return the session id of each chat."""
    return {key: entry.session_id for key, entry in store.load_entries().items()}


def make_stored_entry(session_id: str = "s1", key: str = KEY, **fields: Any) -> dict[str, Any]:
    """Return the stored fields of an entry."""
    at = datetime(2026, 3, 10, 11)  # noqa: DTZ001 -- local, as stored
    entry = SessionEntry(session_key=key, session_id=session_id, created_at=at, updated_at=at)
    return entry.to_dict() | fields


def write_file(folder: Path, members: Any) -> Path:
    """Write sessions.json as another program: an object, a text or bytes."""
    folder.mkdir(exist_ok=True)
    path = folder / "sessions.json"
    content = members if isinstance(members, (str, bytes)) else json.dumps(members)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read_file(folder: Path) -> dict[str, Any]:
    """Return the object in sessions.json."""
    members: dict[str, Any] = json.loads((folder / "sessions.json").read_bytes())
    return members


def file_entries(folder: Path) -> dict[str, Any]:
    """Return the entries in sessions.json."""
    return {key: value for key, value in read_file(folder).items() if not key.startswith("_")}


def read_rows(db: SessionDB, folder: Path) -> dict[str, Any]:
    """Return the entries in the table."""
    rows = db.routes.load_entries(scope=str(folder.resolve()))
    return {key: json.loads(text) for key, text in rows.items()}


def put_row(db: SessionDB, folder: Path, entry: dict[str, Any] | str, key: str = KEY) -> None:
    """Store a row as another process."""
    text = entry if isinstance(entry, str) else json.dumps(entry)
    scope = str(folder.resolve())
    before = db.routes.get_entry(key, scope=scope)
    db.routes.save_entry(key, text, scope=scope, expect=before)


def count_writes(db: SessionDB) -> None:
    """Install triggers that record the written rows of the table."""
    with connect(db.path) as connection:
        connection.execute("CREATE TABLE written (verb, key)")
        for verb, row in (("INSERT", "new"), ("UPDATE", "new"), ("DELETE", "old")):
            connection.execute(
                f"CREATE TRIGGER note_{verb} AFTER {verb} ON gateway_routing "  # noqa: S608 -- both are known
                f"BEGIN INSERT INTO written VALUES ('{verb}', {row}.session_key); END"
            )


def pop_written_rows(db: SessionDB) -> list[tuple[str, str]]:
    """Return and clear the recorded rows."""
    with connect(db.path) as connection:
        written_rows = connection.execute("SELECT verb, key FROM written ORDER BY rowid").fetchall()
        connection.execute("DELETE FROM written")
    return written_rows


def wait_until(done: Callable[[], bool]) -> None:
    """Wait for a condition that another thread fulfils, at most 30 seconds."""
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.001)
