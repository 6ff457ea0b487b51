"""The small home on which mutations are tried: a bit of everything, at most forty rows."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from session_core import _sqlite3
from tests.faults.mutations import NOW_S, ROUTE_ENTRY, ROUTE_KEY, DatabaseMutation, open_home
from tests.homes import add_message, add_session, connect, make_hermes_database, make_own_database

DAY_S = 86_400.0


def find_memory_folder() -> Path | None:
    """Return a folder in memory, or None. Faults are simulated, so no disk is needed."""
    folder = Path("/dev/shm")  # noqa: S108 -- for folders with names of their own
    return folder if os.access(folder, os.W_OK) else None


def build_home(home: Path, kind: str) -> None:
    """Make and close a home of one of the kinds."""
    home.mkdir(parents=True)
    if kind == "none":
        return
    path = home / "state.db"
    if kind in ("hermes", "journal"):
        make_hermes_database(path)
    else:
        make_own_database(path)
    if kind == "empty":
        return
    with connect(path) as connection:
        connection.execute("BEGIN")
        _add_conversations(connection)
        _add_leftovers(connection)
        connection.execute("COMMIT")
        if kind == "journal":
            # So it is on a network disk, where a log cannot be shared.
            connection.execute("PRAGMA journal_mode=DELETE")


def prepare_home(home: Path, mutation: DatabaseMutation) -> None:
    """Bring a home to the state before the mutation, with a log that is not folded back."""
    if mutation.kind == "none":
        return
    with open_home(home) as db:
        db.set_meta("prepared", mutation.name)
        db.append_message("done", "assistant", "needle in the log")
        if mutation.prepare is not None:
            mutation.prepare(db)


def copy_home(home: Path, to: Path) -> Path:
    """Copy a closed home, without the files that SQLite makes again."""
    shutil.copytree(home, to, ignore=shutil.ignore_patterns("*-shm"))
    return to


def _add_conversations(connection: _sqlite3.Connection) -> None:
    _add_session(
        connection, "root", title="Trip", ended_at=NOW_S - 50 * DAY_S, end_reason="compression"
    )
    _add_session(connection, "tip", parent_session_id="root", started_at=NOW_S - 50 * DAY_S)
    _add_session(connection, "chat", model="some-model")
    _add_session(
        connection, "helper", parent_session_id="chat", model_config=_build_marker("_delegate_from")
    )
    _add_session(
        connection, "branch", parent_session_id="chat", model_config=_build_marker("_branched_from")
    )
    _add_session(connection, "done", ended_at=NOW_S - DAY_S, end_reason="cli_close")
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    _add_message(connection, "root", "user", "needle of the root")
    _add_message(connection, "tip", "user", "needle of the tip")
    _add_message(connection, "chat", "user", "needle asked")
    _add_message(connection, "chat", "assistant", "", tool_calls=[call])
    _add_message(
        connection, "chat", "tool", "needle found", tool_call_id="call_1", tool_name="look"
    )
    _add_message(connection, "chat", "assistant", "the needle is 针在草堆里", reasoning="because")
    _add_message(connection, "chat", "user", [{"type": "text", "text": "needle in parts"}])
    _add_message(connection, "chat", "user", "needle taken back", active=0)
    for session_id in ("helper", "branch", "done"):
        _add_message(connection, session_id, "user", f"needle of {session_id}")
    connection.execute(
        "INSERT INTO gateway_routing VALUES ('', ?, ?, ?)", (ROUTE_KEY, ROUTE_ENTRY, NOW_S)
    )
    for session_id in ("chat", "helper"):
        connection.execute(
            "INSERT INTO session_model_usage (session_id, model, input_tokens) VALUES (?, ?, 7)",
            (session_id, "some-model"),
        )
        connection.execute(
            "INSERT INTO compression_locks VALUES (?, 'somebody', ?, ?)", (session_id, NOW_S, NOW_S)
        )


def _add_leftovers(connection: _sqlite3.Connection) -> None:
    long_ago = NOW_S - 60 * DAY_S
    _add_session(connection, "ghost", source="tui", started_at=long_ago, ended_at=long_ago)
    _add_session(connection, "broken", ended_at=long_ago, end_reason="compression")
    _add_session(connection, "orphan", parent_session_id="broken", started_at=long_ago)
    _add_message(connection, "orphan", "user", "needle of the orphan")
    _add_session(connection, "drifted")
    _add_message(connection, "drifted", "user", "needle that was not counted")
    connection.execute("UPDATE sessions SET message_count = 9 WHERE id = 'drifted'")


def _add_session(connection: _sqlite3.Connection, session_id: str, **columns: Any) -> None:
    row = {"started_at": NOW_S - 90 * DAY_S, **columns}
    add_session(connection, session_id, **row)


def _add_message(
    connection: _sqlite3.Connection, session_id: str, role: str, content: Any, **columns: Any
) -> None:
    add_message(connection, session_id, role, content, timestamp=NOW_S - 30 * DAY_S, **columns)


def _build_marker(name: str) -> str:
    return json.dumps({name: "chat"})
