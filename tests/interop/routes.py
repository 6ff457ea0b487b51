"""Chats in one home that the real session store and ours both route, with two stored copies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from session_core.chats import SessionSource
from session_core.config import GatewayConfig
from session_core.routing.session_store import SessionStore
from session_core.state.sqlite.session_db import SessionDB
from tests.homes import connect
from tests.interop.hermes import Hermes

Stored = dict[str, dict[str, Any]]

_CHATS: tuple[dict[str, Any], ...] = (
    {"platform": "telegram", "chat_id": "42", "chat_name": "Ann Ü", "user_id": "42"},
    {"platform": "telegram", "chat_id": "-100", "chat_type": "group", "user_id": "7",
     "user_name": "Bob", "thread_id": "5", "message_id": "m1", "chat_topic": "旅行"},
    {"platform": "discord", "chat_id": "900", "chat_type": "channel", "user_id": "7",
     "user_id_alt": "alt-7", "guild_id": "g1", "parent_chat_id": "899"},
    {"platform": "slack", "chat_id": "C1", "chat_type": "thread", "thread_id": "17.5",
     "user_id": "U1", "profile": "coder"},
    {"platform": "whatsapp", "chat_id": "60123456789:47@s.whatsapp.net", "user_name": "Eve"},
    {"platform": "signal", "chat_id": "s.1", "chat_type": "group", "user_id": "u",
     "chat_id_alt": "g="},
    {"platform": "matrix", "chat_id": "!room:server", "chat_type": "group",
     "user_id": "@me:server"},
)  # fmt: skip

SOURCES = {
    name: {"chat_type": "dm", **chat}
    for name, chat in zip(
        ("ann", "thread", "channel", "slack", "whatsapp", "signal", "matrix"), _CHATS, strict=True
    )
}
"""Chats of several platforms by a name of ours, as their origin is stored."""


class Chats:
    """The routes of one home."""

    def __init__(self, theirs: Hermes, db: SessionDB) -> None:
        self.theirs = theirs
        self.db = db
        self.folder = db.path.parent / "sessions"
        self.file_path = self.folder / "sessions.json"
        self.keys: dict[str, str] = {}
        """The session key of each chat by our name for it."""

    @property
    def has_table(self) -> bool:
        """Return True if this version keeps its routes in a table."""
        return self.db.routes.is_available

    def furnish(self) -> None:
        """Let the real store route every chat, each in another state."""
        do = self.theirs.job
        do("store_open")
        for name, source in SOURCES.items():
            entry = do("arrive", source=source)
            do("say", session_id=entry["session_id"], texts=[f"hello from {name}"])
            self.keys[name] = entry["session_key"]
        do("store_call", method="suspend_session", args=[self.keys["thread"]])
        do(
            "store_call",
            method="mark_resume_pending",
            args=[self.keys["channel"], "restart_timeout"],
        )
        do("store_call", method="reset_session", args=[self.keys["slack"]])
        do("store_call", method="suspend_session", args=[self.keys["whatsapp"]])
        do("arrive", source=SOURCES["whatsapp"])
        counts = {"input_tokens": 5, "last_prompt_tokens": 1234, "estimated_cost_usd": 0.25}
        do("store_set", key=self.keys["signal"], fields={**counts, "cost_status": "estimated"})
        if "set_model_override" in do("store_methods"):
            override = {"model": "m", "provider": "p", "base_url": "https://b.test", "api_key": "k"}
            do("store_call", method="set_model_override", args=[self.keys["matrix"], override])

    @contextmanager
    def ours(self, **options: Any) -> Iterator[SessionStore]:
        """Our store on this home."""
        config = GatewayConfig.from_dict(options.pop("config", {}))
        with SessionStore(self.folder, config=config, db=self.db, **options) as store:
            yield store

    def loaded_by_theirs(self) -> Stored:
        """Return the entries that the real store loads and keeps after its check."""
        entries: Stored = self.theirs.job("store_open")
        return entries

    def source(self, name: str) -> SessionSource:
        """Return a chat as our source."""
        return SessionSource.from_dict(SOURCES[name])

    def table(self) -> Stored:
        """Return the rows of this home."""
        if not self.has_table:
            return {}
        rows = self.db.routes.load_entries(scope=str(self.folder.resolve()))
        return {key: json.loads(text) for key, text in rows.items()}

    def file(self) -> dict[str, Any]:
        """Return the whole file with its metadata."""
        data: dict[str, Any] = json.loads(self.file_path.read_text(encoding="utf-8"))
        return data

    def file_entries(self) -> Stored:
        """Return the entries of the file."""
        return {key: value for key, value in self.file().items() if not key.startswith("_")}

    def edit_file(self, **members: Any) -> None:
        """Edit the file directly."""
        self.file_path.write_text(json.dumps(self.file() | members), encoding="utf-8")

    def edit_row(self, key: str, entry: dict[str, Any]) -> None:
        """Edit a row directly, as another program does."""
        with connect(self.db.path) as connection:
            connection.execute(
                "UPDATE gateway_routing SET entry_json = ? WHERE session_key = ? AND scope = ?",
                (json.dumps(entry), key, str(self.folder.resolve())),
            )

    def edit(self, name: str, **fields: Any) -> None:
        """Set fields of an entry in every copy. None removes a field."""
        key = self.keys[name]
        for copy, write in (
            (self.file_entries(), self._edit_member),
            (self.table(), self.edit_row),
        ):
            if key in copy:
                merged = {**copy[key], **fields}
                write(key, {k: v for k, v in merged.items() if v is not None or k not in fields})

    def _edit_member(self, key: str, entry: dict[str, Any]) -> None:
        self.edit_file(**{key: entry})

    def lose(self, copy: str) -> None:
        """Delete one of the two copies: the `table`, the `file` or `neither`."""
        if copy == "file":
            self.file_path.unlink()
        elif copy == "table":
            with connect(self.db.path) as connection:
                connection.execute("DELETE FROM gateway_routing")

    def copies_to_lose(self) -> tuple[str, ...]:
        """Return the copies that can be deleted without losing the routes."""
        return ("neither", "table", "file") if self.has_table else ("neither",)
