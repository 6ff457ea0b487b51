"""Fixtures for the compressor: a chat with a long conversation, on a home of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core import Ledger, SessionDB, SessionStore, StateDatabase, StateFolder
from tests.collection import list_items_in
from tests.compression.homes import CHAT, Chat, Clock, append_talk
from tests.homes import make_hermes_database, make_own_database
from tests.postgres_home import can_run, make_postgres
from tests.thorough import mark_thorough, share_kinds


@pytest.fixture(params=["own", "hermes", mark_thorough("postgres")])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the tests that need files on homes without them. Share those of Hermes homes."""
    items[:] = [item for item in items if can_run(item)]
    share_kinds(list_items_in(items, Path(__file__).parent), ["kind"], {"hermes": 3})


@pytest.fixture
def chat(home_path: Path, tmp_path: Path, kind: str) -> Iterator[Chat]:
    """A Telegram chat of eighty messages, titled "Trip"."""
    if kind == "postgres":
        clock = Clock()
        with (
            make_postgres(home_path, clock=clock) as db,
            SessionStore(db=db) as store,
            Ledger.open(db, clock=clock) as ledger,
        ):
            yield make_chat(db, store, ledger, clock, tmp_path / "state")
        return
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
        yield make_chat(db, store, ledger, clock, tmp_path / "state")


def make_chat(
    db: StateDatabase, store: SessionStore, ledger: Ledger, clock: Clock, state: Path
) -> Chat:
    """Fill a home with the conversation of a chat."""
    entry = store.get_or_create_session(CHAT)
    chat = Chat(db, store, ledger, clock, entry.session_key, state)
    append_talk(chat, entry.session_id)
    db.set_session_title(entry.session_id, "Trip")
    return chat
