"""A chat's conversation with all features, in a real home, which both sides compress."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from session_core import Compressor, Ledger, StateFolder
from session_core.compression.types import CompressionResult
from session_core.config import GatewayConfig
from session_core.routing.session_store import SessionStore
from session_core.state.sqlite.session_db import SessionDB
from tests.interop.hermes import Hermes

if TYPE_CHECKING:
    from typing_extensions import Self

SOURCE = {"platform": "telegram", "chat_id": "55", "chat_type": "dm", "chat_name": "Ann",
          "user_id": "55", "user_name": "Ann"}  # fmt: skip
TITLE = "Trip to Porto"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
KEEP = 6
WORDS = {"head": "pademelon", "range": "numbat", "parts": "dunnart", "tool": "bettong",
         "cjk": "袋熊在哪里", "tail": "potoroo"}  # fmt: skip
"""A word of each part of the conversation, which stands nowhere else in the home."""

_AGE_S = 7200.0
_LOREM = " The route goes by the coast and the tickets are in the folder." * 8


class Trip:
    """The session, the process of Hermes and our compressor, in one home."""

    def __init__(self, version: str, home: Path) -> None:
        self.version = version
        self.home = home
        self.theirs = Hermes(version, home)
        self.db = SessionDB(home / "state.db")
        self.store = SessionStore(home / "sessions", config=GatewayConfig(), db=self.db)
        self.ledger = Ledger(StateFolder(self.db.path, root=home.with_name("states")))
        self.now = time.time()
        self.compressor = Compressor(self.db, self.ledger, store=self.store, clock=lambda: self.now)
        entry = self.arrive()
        self.session_id: str = entry["session_id"]
        self.key: str = entry["session_key"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()
        self.ledger.close()
        self.db.close()
        self.theirs.__exit__()

    def arrive(self) -> dict[str, Any]:
        """Restart the gateway and handle a message of the chat, and return its entry."""
        self.theirs.job("store_open")
        entry: dict[str, Any] = self.theirs.job("arrive", source=SOURCE)
        return entry

    def furnish(self) -> None:
        """Let the real Hermes append every kind of message, two hours ago, and create children."""
        began = time.time() - _AGE_S
        for number, (role, content, columns) in enumerate(_build_messages()):
            at = {"timestamp": began + number}
            self.theirs.call("append_message", self.session_id, role, content, **at, **columns)
        self.theirs.call("set_session_title", self.session_id, TITLE)
        for name in ("branched", "delegate"):
            marker = {f"_{name}_from": self.session_id}
            self.theirs.call(
                "create_session", f"the_{name}", "cli", model_config=marker,
                parent_session_id=self.session_id,
            )  # fmt: skip
            self.theirs.call("append_message", f"the_{name}", "user", f"I am the {name}")

    def compress(self, shape: Any = "auto") -> CompressionResult:
        """Compress the session with our compressor, without a model."""
        return self.compressor.compress(self.session_id, shape=shape, keep_last=KEEP)

    def go_on(self, session_id: str, count: int, age_s: float = 0.0) -> None:
        """Let the real Hermes append more messages, at a time in the past."""
        for number in range(count):
            role, text = ("user", "assistant")[number % 2], f"since {number}.{_LOREM}"
            at = time.time() - age_s + number * bool(age_s)
            self.theirs.call("append_message", session_id, role, text, timestamp=at)

    def texts(self, session_id: str) -> list[Any]:
        """Return the texts that Hermes reads in a session."""
        return [row["content"] for row in self.theirs.call("get_messages", session_id)]

    def hits(self, word: str) -> list[Any]:
        """Return the messages that its search finds, with repetitions."""
        answer = self.theirs.call("search_messages", f'"{word}"', limit=50)
        return sorted((hit["session_id"], hit["id"]) for hit in answer)

    def lines(self) -> dict[str, Any]:
        """Return the lines of its list about this conversation, by id."""
        rows = self.theirs.call("list_sessions_rich", limit=500)
        roots = {self.session_id, *self.db.get_compression_lineage(self.session_id)}
        return {row["id"]: row for row in rows if row["id"] in roots}


def _build_messages() -> list[tuple[str, Any, dict[str, Any]]]:
    said: list[tuple[str, Any, dict[str, Any]]] = [
        ("user", f"plan the {WORDS['head']} trip.{_LOREM}", {}),
        ("assistant", f"gladly.{_LOREM}", {}),
    ]
    for number in range(12):
        said += _build_tool_turn(number)
    said += [
        ("user", f"we decided on the {WORDS['range']} hostel, port 8443.{_LOREM}", {}),
        ("assistant", f"noted in docs/trip_plan.md.{_LOREM}", {"reasoning": "because"}),
        ("user", [{"type": "text", "text": f"a {WORDS['parts']} photo.{_LOREM}"}, IMAGE], {}),
        ("assistant", f"{WORDS['cjk']}。{_LOREM}", {}),
    ]
    said += _build_tool_turn(20)
    said += [
        ("user", f"and the {WORDS['tail']} tour?", {}),
        ("assistant", "it is booked.", {"finish_reason": "stop"}),
        ("user", [{"type": "text", "text": "the last picture"}, IMAGE], {}),
        ("assistant", "a fine picture.", {}),
    ]
    return said


def _build_tool_turn(number: int) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return a question that takes two calls at once."""
    names = [f"call_{number}_{part}" for part in "ab"]
    function = {"name": "terminal", "arguments": json.dumps({"command": f"make step_{number}"})}
    calls = [{"id": name, "type": "function", "function": function} for name in names]
    results = [
        ("tool", f"step {number}: the {WORDS['tool']} is done.{_LOREM}",
         {"tool_call_id": name, "tool_name": "terminal"})
        for name in names
    ]  # fmt: skip
    return [
        ("user", f"please do step {number} of the plan.{_LOREM}", {}),
        ("assistant", "", {"tool_calls": calls}),
        *results,
        ("assistant", f"step {number} is done, ticket ABC-{number}.{_LOREM}", {}),
    ]
