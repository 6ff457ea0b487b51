"""Homes without the table: a crash between the change of the sessions and of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import Busy, Hooks, SessionDB, SessionStore
from tests.homes import connect, make_hermes_database
from tests.routing.chats import KEY, begin_session, chat, file_entries, get_end_reason


@pytest.fixture(params=[16, 17], ids=["sessions know no chats", "sessions know their chats"])
def older(request: pytest.FixtureRequest, home_path: Path) -> Iterator[SessionDB]:
    """The state database of an older Hermes home without a table of routes."""
    make_hermes_database(home_path / "state.db", request.param)
    with SessionDB(home_path / "state.db", patience_s=0.05) as db:
        yield db


@pytest.fixture
def store(make: Any, older: SessionDB) -> SessionStore:
    """A store on that home."""
    store: SessionStore = make(older)
    return store


def create_switch_target(db: SessionDB) -> str:
    """Add an ended session to switch to."""
    db.append_message("target", "user", "said before", create={"source": "telegram"})
    db.end_session("target", "cli_close")
    return "target"


CHANGES = {
    "a reset": lambda store: store.reset_session(KEY),
    "an automatic reset": lambda store: store.get_or_create_session(chat(), force_new=True),
    "a switch": lambda store: store.switch_session(KEY, "target"),
    "a rotation": lambda store: store.move_to_continuation(
        KEY, store.peek_session_id(KEY), "target"
    ),
}


@pytest.mark.requirement("copies:older")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_failed_session_change_keeps_route(
    store: SessionStore, older: SessionDB, folder: Path, change: Callable[[SessionStore], object]
) -> None:
    first = begin_session(store, older)
    create_switch_target(older)
    before = file_entries(folder)
    with connect(older.path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy):
            change(store)
    assert file_entries(folder) == before
    assert get_end_reason(older, first) is None
    assert store.get_or_create_session(chat()).session_id == first


@pytest.mark.requirement("copies:older")
def test_next_message_completes_interrupted_reset(store: SessionStore, older: SessionDB) -> None:
    first = begin_session(store, older)
    older.promote_to_session_reset(first, "session_reset")
    second = store.get_or_create_session(chat()).session_id
    assert second != first
    assert get_end_reason(older, first) == "session_reset"
    assert store.get_or_create_session(chat()).session_id == second


@pytest.mark.requirement("copies:older")
@pytest.mark.parametrize("look", [True, False], ids=["looked at", "not looked at"])
def test_interrupted_switch_keeps_conversation(
    store: SessionStore, older: SessionDB, look: bool
) -> None:
    first = begin_session(store, older)
    session_id = create_switch_target(older)
    entry = store.get(KEY)
    assert entry is not None
    older.promote_to_session_reset(first, "session_switch")
    older.reopen_session(session_id)
    older.record_gateway_session_peer(session_id, **build_peer(store, entry))
    if look:
        store.repair_routes()
    arrived_id = store.get_or_create_session(chat()).session_id
    assert arrived_id in {first, session_id}
    assert get_end_reason(older, arrived_id) is None


@pytest.mark.requirement("copies:older")
def test_chat_stays_in_shared_session(store: SessionStore, older: SessionDB) -> None:
    first = begin_session(store, older)
    session_id = create_switch_target(older)
    store.get_or_create_session(chat(43))
    store.switch_session("agent:main:telegram:dm:43", first)
    store.switch_session("agent:main:telegram:dm:43", session_id)
    assert store.get_or_create_session(chat()).session_id == first


def build_peer(store: SessionStore, entry: Any) -> dict[str, Any]:
    fields = store.build_session_fields(entry)
    fields.pop("profile_name", None)
    return fields


def test_next_message_delivers_interrupted_reset_hooks(make: Any, older: SessionDB) -> None:
    hook_calls: list[tuple[str, str]] = []
    hooks = Hooks(group=None)
    hooks.add("on_session_finalize", lambda session_id: hook_calls.append(("finalize", session_id)))
    hooks.add("on_session_reset", lambda session_id: hook_calls.append(("reset", session_id)))
    store = make(older, hooks=hooks)
    old = begin_session(store, older)
    older.promote_to_session_reset(old, "session_reset")
    new = store.get_or_create_session(chat()).session_id
    assert new != old
    assert hook_calls == [("finalize", old), ("reset", new)]
