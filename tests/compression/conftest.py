"""Fixtures for the compressor: a chat with a long conversation, on a home of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core import Ledger, SessionDB, SessionStore, StateFolder
from tests.compression.homes import CHAT, Chat, Clock, append_talk
from tests.homes import make_hermes_database, make_own_database


@pytest.fixture(params=["own", "hermes"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def chat(home_path: Path, tmp_path: Path, kind: str) -> Iterator[Chat]:
    """A Telegram chat of eighty messages, titled "Trip"."""
    path = home_path / "state.db"
    if kind == "own":
        make_own_database(path)
    else:
        schema = 17 if "without table" in kind else 22
        make_hermes_database(path, schema, null_flags="null flags" in kind)
    clock = Clock()
    with (
        SessionDB(path, clock=clock) as db,
        SessionStore(home_path / "sessions", db=db) as store,
        Ledger(StateFolder(path, root=tmp_path / "state"), clock=clock) as ledger,
    ):
        entry = store.get_or_create_session(CHAT)
        chat = Chat(db, store, ledger, clock, entry.session_key, tmp_path / "state")
        append_talk(chat, entry.session_id)
        db.set_session_title(entry.session_id, "Trip")
        yield chat
