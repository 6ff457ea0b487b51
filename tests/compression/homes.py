"""A home with a long conversation, and readers of its whole content."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from session_core import (
    Compressor,
    Hooks,
    Ledger,
    SessionDB,
    SessionEntry,
    SessionSource,
    SessionStore,
    StateDatabase,
    hookimpl,
)
from session_core.compression import NotCompressed
from tests import postgres_home
from tests.faults import state as homes
from tests.homes import connect

SESSION = "20260101_120000_abcdef01"
CHAT = SessionSource(platform="telegram", chat_id="42", user_id="7", chat_type="dm")
LAST = 8
"""Number of messages that the tests keep at the end."""


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class HookRecorder:
    """A plugin that records the compression hooks."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    @hookimpl
    def before_compression(self, session_id: str, in_place: bool) -> None:
        """Record the beginning of a compression."""
        self.calls.append(("before", session_id, in_place))

    @hookimpl
    def after_compression(
        self, session_id: str, old_session_id: str, in_place: bool, platform: str
    ) -> None:
        """Record its result."""
        self.calls.append(("after", old_session_id, session_id, in_place, platform))


@dataclass
class Chat:
    """A chat with its home, its ledger and compressors."""

    db: StateDatabase
    store: SessionStore
    ledger: Ledger
    clock: Clock
    key: str
    state: Path
    """Return the root of the ledger's folders."""
    told: HookRecorder = field(default_factory=HookRecorder)

    @property
    def entry(self) -> SessionEntry:
        """Return the current route."""
        entry = self.store.get(self.key)
        assert entry is not None
        return entry

    @property
    def session_id(self) -> str:
        """Return the current session of the chat."""
        return self.entry.session_id

    def compressor(self, **options: Any) -> Compressor:
        """Return a new compressor of this home."""
        hooks = Hooks(group=None)
        hooks.register(self.told)
        return Compressor(
            self.db, self.ledger, store=self.store, hooks=hooks, clock=self.clock, **options
        )

    def say(self, text: str, session_id: str | None = None) -> int:
        """Append a user message."""
        return int(self.db.append_message(session_id or self.session_id, "user", text))

    def texts(self, session_id: str | None = None) -> list[Any]:
        """Return the content of the live messages of a session."""
        return [row["content"] for row in self.db.get_messages(session_id or self.session_id)]

    def whole(self) -> dict[str, Any]:
        """Return everything that an undo must restore: all tables but indexes and locks."""
        hits = self.db.search("ticket", per="message", limit=100).hits
        return {
            **self._read_tables(),
            "found": [(hit.message_id, hit.compacted) for hit in hits],
            "damage": self.db.admin.check_integrity(deep=True),
        }

    def _read_tables(self) -> dict[str, Any]:
        if self.db.path is not None:
            return read_tables(self.db.path)
        tables = postgres_home.read_tables(self.db)
        return {name: rows for name, rows in tables.items() if name != "compression_locks"}

    def open_again(self) -> StateDatabase:
        """Open the database again, as another process does. The caller closes it."""
        if self.db.path is None:
            return postgres_home.make_again(self.db, clock=self.clock)
        return SessionDB(self.db.path, clock=self.clock)

    def change(self, sql: str, *values: Any) -> None:
        """Change the home as another program does."""
        if self.db.path is None:
            postgres_home.change_rows(self.db, sql, values)
            return
        with connect(self.db.path) as connection:
            connection.execute(sql, values)

    def lease(self, session_id: str) -> None:
        """Record that this process has a session open."""
        folder = self.db.path.parent / "runtime"
        folder.mkdir(exist_ok=True)
        lease = {"session_id": session_id, "pid": os.getpid(), "surface": "cli"}
        (folder / "active_sessions.json").write_text(json.dumps([lease]))


def read_tables(path: Path) -> dict[str, Any]:
    """Return the rows of each table by primary key."""
    with homes.open_connection(path) as opened:
        found = {
            name: sorted(map(repr, opened.execute(f'SELECT * FROM "{name}"')))  # noqa: S608 -- names that were read
            for name in homes.list_tables(opened)
            if name != "compression_locks"
        }
    found["state_meta"] = [row for row in found["state_meta"] if "mcp_sessions_" not in row]
    return found


def append_talk(chat: Chat, session_id: str, turns: int = 20) -> None:
    """Append text, a call with its results, and multi-part messages."""
    fields = chat.store.build_session_fields(chat.entry)
    talk: list[dict[str, Any]] = []
    for turn in range(turns):
        long = f"ticket ABC-{turn} in src/part_{turn}.py " + "and so on " * 40
        call = {
            "id": f"c{turn}",
            "type": "function",
            "function": {"name": "look", "arguments": f'{{"at": {turn}}}'},
        }
        rows = [
            {"role": "user", "content": long, "platform_message_id": f"p{turn}"},
            {"role": "assistant", "content": "", "tool_calls": [call], "reasoning": "hm"},
            {"role": "tool", "content": long, "tool_call_id": f"c{turn}", "tool_name": "look"},
            {"role": "assistant", "content": [{"type": "text", "text": long}]},
        ]
        talk += rows
    chat.db.append_messages(session_id, talk, create=fields)


def append_more(chat: Chat) -> None:
    """Append more messages."""
    for number in range(15):
        chat.say(f"and then {number} " + "again " * 50)
        chat.db.append_message(chat.session_id, "assistant", f"so {number} " + "again " * 50)


def refused(code: str) -> Any:
    """Expect a refusal with this code."""
    return pytest.raises(NotCompressed, check=lambda error: error.code == code)


def summarize_short(_: object) -> str:
    """Return a summary as a model writes it."""
    return "They looked at twenty parts, tickets ABC-0 to ABC-19."


Summarize = Callable[[Any], Any]
