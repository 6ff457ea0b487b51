"""Transactions over sessions and routes: all or nothing, without deadlocks."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from session_core import Conflict, Hooks, InvalidInput, SessionDB, SessionEntry, SessionStore
from session_core.routing.decisions import RouteDecision
from session_core.routing.leases import TURN_LEASE, create_token
from tests.routing.chats import (
    IDLE,
    KEY,
    OTHER,
    Clock,
    append_text,
    chat,
    file_entries,
    read_rows,
)


@pytest.fixture
def session_id(store: SessionStore, db: SessionDB) -> str:
    """The session of a chat with one message."""
    entry = store.get_or_create_session(chat())
    append_text(store, db, entry)
    return entry.session_id


def rotate_session(store: SessionStore, db: SessionDB, old: str) -> None:
    """Compress a session and move its chat to the continuation."""
    db.end_session(old, "compression")
    db.create_session("child", "telegram", parent_session_id=old)
    store.move_to_continuation(KEY, old, "child")


@pytest.mark.requirement("store:together")
def test_transaction_rotates_session_and_route(
    store: SessionStore, db: SessionDB, folder: Path, session_id: str
) -> None:
    before = file_entries(folder)
    with store.transaction(KEY):
        rotate_session(store, db, session_id)
        assert file_entries(folder) == before
        assert store.peek_session_id(KEY) == "child"
    assert file_entries(folder) == read_rows(db, folder)
    assert file_entries(folder)[KEY]["session_id"] == "child"


@pytest.mark.requirement("store:together")
def test_failed_transaction_changes_no_route(make: Any, db: SessionDB, folder: Path) -> None:
    hooks = Hooks(group=None, report=lambda *_: None)
    finalized_ids: list[str] = []
    hooks.add("on_session_finalize", lambda session_id: finalized_ids.append(str(session_id)))
    store = make(db, hooks=hooks)
    entry = store.get_or_create_session(chat())
    append_text(store, db, entry)
    before = store.get(KEY), db.get_session(entry.session_id), file_entries(folder)

    def fail() -> None:
        with store.transaction(KEY):
            store.reset_session(KEY)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    after = store.get(KEY), db.get_session(entry.session_id), file_entries(folder)
    assert (after, finalized_ids) == (before, [])


@pytest.mark.requirement("store:together")
def test_transaction_calls_hooks_after_commit(make: Any, db: SessionDB, home_path: Path) -> None:
    hooks = Hooks(group=None, report=lambda *_: None)
    store = make(db, hooks=hooks)
    old = store.get_or_create_session(chat()).session_id
    seen_ids: list[Any] = []
    with SessionDB(home_path / "state.db") as other:
        other_store = make(other)
        hooks.add("on_session_finalize", lambda: seen_ids.append(other_store.peek_session_id(KEY)))
        with store.transaction(KEY):
            new = store.reset_session(KEY).session_id
            assert seen_ids == []
            assert other_store.peek_session_id(KEY) == old
    assert seen_ids == [new]


def test_transaction_changes_several_chats(store: SessionStore) -> None:
    ids = [store.get_or_create_session(chat(name)).session_id for name in (42, 43)]
    with store.transaction(OTHER, KEY):
        changed = [store.reset_session(key) for key in (KEY, OTHER)]
    new = [entry.session_id for entry in changed if entry]
    assert not set(ids) & set(new)
    assert [store.peek_session_id(key) for key in (KEY, OTHER)] == new


@pytest.mark.requirement("store:together")
def test_transaction_and_message_do_not_deadlock(
    store: SessionStore, db: SessionDB, session_id: str
) -> None:
    arrived: list[str] = []
    thread = threading.Thread(
        target=lambda: arrived.append(store.get_or_create_session(chat()).session_id)
    )
    with store.transaction(KEY):
        thread.start()
        thread.join(0.05)
        rotate_session(store, db, session_id)
    thread.join(30)
    assert arrived == ["child"]


@pytest.mark.requirement("store:together")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda store: store.reset_session(KEY), id="a reset"),
        pytest.param(lambda store: store.save(store.get(KEY)), id="a save"),
        pytest.param(lambda store: store.remove(store.load_entries()), id="a removal"),
        pytest.param(lambda store: store.transaction(KEY).__enter__(), id="a transaction"),
    ],
)
def test_open_database_transaction_refuses_route_changes(
    store: SessionStore, db: SessionDB, folder: Path, session_id: str, change: Any
) -> None:
    before = read_rows(db, folder)
    with db.transaction(), pytest.raises(InvalidInput, match="transaction"):
        change(store)
    assert read_rows(db, folder) == before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda store: store.reset_session(OTHER), id="another chat"),
        pytest.param(lambda store: store.remove(store.load_entries()), id="a removal"),
    ],
)
def test_transaction_refuses_unnamed_chats_and_removals(
    store: SessionStore, session_id: str, change: Any
) -> None:
    with pytest.raises(InvalidInput), store.transaction(KEY):
        change(store)
    assert store.peek_session_id(KEY) == session_id


def test_store_works_after_transaction(store: SessionStore, session_id: str) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction(KEY):
        raise ZeroDivisionError
    with store.transaction():
        pass
    assert store.suspend_session(KEY)
    assert store.remove(store.load_entries()) == [KEY]


@pytest.mark.parametrize("attempts", [1, 3])
def test_conflict_drops_calls_of_decision(store: SessionStore, attempts: int) -> None:
    store.get_or_create_session(chat())
    calls: list[int] = []
    decisions: list[RouteDecision] = []

    def decide(decision: RouteDecision) -> None:
        decisions.append(decision)
        decision.after_commit.append(partial(calls.append, len(decisions)))
        if len(decisions) < attempts:
            raise Conflict("another process was faster")

    store.decisions.run_decision(KEY, decide)
    assert calls == [attempts]
    assert len(decisions) == attempts


# A callback of the application may change another chat


@pytest.mark.requirement("store:unsafe")
def test_turn_lease_is_stored_in_own_chat(make: Any, db: SessionDB, clock: Clock) -> None:
    def active(_: str) -> bool:
        store.update_session(OTHER, 1)
        return False

    store = make(db, config=IDLE, has_active_processes_fn=active, hooks=Hooks(group=None))
    for chat_id in (42, 43):
        store.get_or_create_session(chat(chat_id))
    clock.advance(hours=2)
    store.get_or_create_session(chat(), turn="mine")
    noted = {key: "active_turn_token" in entry.extra for key, entry in store.load_entries().items()}
    assert noted == {KEY: True, OTHER: False}


def test_nested_change_calls_hooks_once(make: Any, db: SessionDB, clock: Clock) -> None:
    def active(key: str) -> bool:
        if key == KEY:
            store.switch_session(OTHER, "target")
        return False

    store = make(db, config=IDLE, has_active_processes_fn=active, hooks=Hooks(group=None))
    db.create_session("target", "telegram")
    for chat_id in (42, 43):
        store.get_or_create_session(chat(chat_id))
    hook_calls: list[tuple[Any, ...]] = []
    store.outbox._deliver_boundary = lambda key, _new, boundary, *_, **__: hook_calls.append(
        (key, boundary.reason)
    )
    clock.advance(hours=2)
    store.get_or_create_session(chat())
    assert hook_calls == [(OTHER, "session_switch"), (KEY, "idle")]


def test_inner_decision_begins_no_turn(make: Any, db: SessionDB, clock: Clock) -> None:
    """A callback of the application changes the chat while its message is routed."""

    def is_busy(key: str) -> bool:
        return bool(store.set_model_override(key, {"model": "small"}))

    store = make(db, config=IDLE, has_active_processes_fn=is_busy)
    store.get_or_create_session(chat())
    clock.advance(hours=2)
    seen_tokens: list[Any] = []
    put = store.backend.put

    def record_put(key: str, entry: SessionEntry, *change: Any) -> bool:
        seen_tokens.append(entry.extra.get(TURN_LEASE.token_name))
        stored: bool = put(key, entry, *change)
        return stored

    store.backend.put = record_put
    token = create_token()
    entry = store.get_or_create_session(chat(), turn=token)
    assert seen_tokens[0] is None
    assert entry.model_override == {"model": "small"}
    assert entry.extra[TURN_LEASE.token_name] == token
