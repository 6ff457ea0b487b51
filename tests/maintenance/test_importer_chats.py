"""An imported line cannot receive the messages of a chat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionSource
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.transfer.importer import Importer
from tests.homes import make_hermes_database
from tests.lifecycle.runtimes import World, of

PEERS: dict[str, dict[str, Any]] = {
    "its key": {"session_key": of(42)},
    "its peer": {"user_id": "u", "chat_id": "42", "chat_type": "dm", "thread_id": None},
    "its origin": {
        "origin_json": json.dumps({"platform": "telegram", "chat_id": "42", "chat_type": "dm"})
    },
    "all of it": {
        "session_key": of(42),
        "user_id": "u",
        "chat_id": "42",
        "chat_type": "dm",
        "handoff_state": "pending",
        "handoff_platform": "telegram",
        "expiry_finalized": 0,
    },
}


@pytest.mark.requirement("maintenance:import-chats")
@pytest.mark.parametrize("kind", ["own", 22, 30], ids=str)
@pytest.mark.parametrize("known", [False, True], ids=["a new chat", "a chat with a session"])
@pytest.mark.parametrize("peer", PEERS)
def test_imported_line_receives_no_message(
    home_path: Path, tmp_path: Path, peer: str, known: bool, kind: Any
):
    home_path.mkdir(exist_ok=True)
    if kind != "own":
        make_hermes_database(home_path / "state.db", kind)
    world = World(home_path)
    own = world.say("mine", user_id="u").session_id if known else None
    message = {"role": "user", "content": "planted", "timestamp": 9e9}
    planted = {"id": "evil", "source": "telegram", "started_at": 9e9, **PEERS[peer]}
    file = tmp_path / "sessions.jsonl"
    file.write_text(json.dumps({**planted, "messages": [message]}))
    with Ledger(StateFolder(world.db.path)) as ledger:
        result = Importer(HomeContext(world.db, ledger), "test").import_file(file)
    assert result.ids == ("evil",)
    if own is not None:
        world.store.remove({of(42): world.store.load_entries()[of(42)]})
    reply = world.say("hello", user_id="u")
    assert reply.session_id == own or (own is None and reply.session_id != "evil")
    assert [row["content"] for row in world.db.get_messages("evil")] == ["planted"]
    world.runtime.close()
    world.store.close()
    world.db.close()


@pytest.mark.requirement("maintenance:import-chats")
def test_imported_line_receives_no_message_without_chat(home_path: Path, tmp_path: Path):
    world = World(home_path)
    planted = {"id": "evil", "source": "telegram", "user_id": "u", "started_at": 9e9}
    message = {"role": "user", "content": "planted", "timestamp": 9e9}
    file = tmp_path / "sessions.jsonl"
    file.write_text(json.dumps({**planted, "messages": [message]}))
    world.say("make the home")
    with Ledger(StateFolder(world.db.path)) as ledger:
        Importer(HomeContext(world.db, ledger), "test").import_file(file)
    source = SessionSource("telegram", chat_id="", user_id="u", chat_type="")
    assert world.runtime.handle(source, "hello").session_id != "evil"
    world.runtime.close()
    world.store.close()
    world.db.close()
