"""Turns and interruptions that entries record."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import Hooks, SessionDB, SessionStore
from session_core.routing import leases
from tests.routing.chats import (
    DAILY,
    IDLE,
    KEY,
    Clock,
    begin_session,
    chat,
    count_writes,
    get_entry,
    pop_written_rows,
)

# Suspension and interruption


@pytest.mark.requirement("store:interrupted")
def test_suspended_session_is_not_marked_interrupted(any_store: SessionStore) -> None:
    any_store.get_or_create_session(chat())
    any_store.suspend_session(KEY)
    assert not any_store.mark_resume_pending(KEY)
    entry = any_store.get(KEY)
    assert entry is not None
    assert not entry.resume_pending


@pytest.mark.requirement("store:interrupted")
def test_interruption_is_marked_and_cleared(any_store: SessionStore, clock: Clock) -> None:
    any_store.get_or_create_session(chat())
    assert any_store.mark_resume_pending(KEY, "shutdown_timeout")
    entry = any_store.get(KEY)
    assert entry is not None
    assert (entry.resume_reason, entry.last_resume_marked_at) == ("shutdown_timeout", clock.time)
    assert any_store.clear_resume_pending(KEY)
    assert not any_store.clear_resume_pending(KEY)
    entry = any_store.get(KEY)
    assert entry is not None
    assert (entry.resume_pending, entry.resume_reason, entry.last_resume_marked_at) == (
        False,
        None,
        None,
    )


@pytest.mark.requirement("store:interrupted")
def test_recently_active_sessions_are_marked_interrupted(store: SessionStore, clock: Clock) -> None:
    for name in ("old", "suspended", "marked", "recent"):
        store.get_or_create_session(chat(name))
        clock.advance(seconds=0 if name != "old" else 121)
    store.suspend_session("agent:main:telegram:dm:suspended")
    store.mark_resume_pending("agent:main:telegram:dm:marked", "restart_timeout")
    assert store.suspend_recently_active() == 1
    reasons = {key.rpartition(":")[2]: e.resume_reason for key, e in store.load_entries().items()}
    assert reasons == {
        "old": None,
        "suspended": None,
        "marked": "restart_timeout",
        "recent": "restart_interrupted",
    }


@pytest.mark.parametrize(
    "verb", ["suspend_session", "mark_resume_pending", "clear_resume_pending", "update_session"]
)
def test_marking_chat_without_route_returns_false(any_store: SessionStore, verb: str) -> None:
    assert not getattr(any_store, verb)(KEY)
    assert any_store.load_entries() == {}


# The end of a turn


def test_turn_end_clears_reset_marks(store: SessionStore, clock: Clock) -> None:
    session_id = store.get_or_create_session(chat()).session_id
    store.suspend_session(KEY)
    session_id = store.get_or_create_session(chat()).session_id
    store.mark_resume_pending(KEY)
    clock.advance(seconds=5)
    entry = store.end_turn(KEY, session_id, 77)
    assert entry is not None
    assert (entry.was_auto_reset, entry.auto_reset_reason, entry.resume_pending) == (
        False,
        None,
        False,
    )
    assert (entry.last_prompt_tokens, entry.updated_at) == (77, clock.time)


def test_unfinished_turn_keeps_interruption(store: SessionStore) -> None:
    session_id = store.get_or_create_session(chat()).session_id
    store.mark_resume_pending(KEY)
    entry = store.end_turn(KEY, session_id, finished=False)
    assert entry is not None
    assert entry.resume_pending


def test_turn_end_in_left_session_is_ignored(store: SessionStore) -> None:
    old = store.get_or_create_session(chat()).session_id
    store.reset_session(KEY)
    before = store.get(KEY)
    assert store.end_turn(KEY, old, 77) is None
    assert store.get(KEY) == before


# Turns


@pytest.mark.requirement("store:turns")
def test_active_turn_prevents_expiry(make: Any, db: SessionDB, clock: Clock) -> None:
    store, other = make(db, config=DAILY), make(db, config=DAILY)
    clock.advance(hours=15, minutes=59)
    session_id = begin_session(store, db)
    token = store.begin_turn(KEY, session_id)
    clock.advance(minutes=2)
    assert other.has_active_turn(get_entry(other))
    assert not other.claim_expiry(get_entry(other))
    assert other.get_or_create_session(chat()).session_id == session_id
    assert store.end_turn(KEY, session_id, token=token)
    assert not other.has_active_turn(get_entry(other))
    assert other.get_or_create_session(chat()).session_id == session_id


@pytest.mark.requirement("store:turns")
@pytest.mark.parametrize("way", ["new", "goes on", "is reset", "is found again", "is forced"])
def test_turn_lease_is_stored_with_message(
    make: Any, db: SessionDB, clock: Clock, way: str
) -> None:
    store = make(db, config=IDLE)
    if way != "new":
        begin_session(store, db)
    if way == "is reset":
        clock.advance(hours=2)
    elif way == "is found again":
        store.remove(store.load_entries())
    count_writes(db)
    token = leases.create_token()
    store.get_or_create_session(chat(), way == "is forced", turn=token)
    assert len(pop_written_rows(db)) == 1
    assert (store.has_active_turn(get_entry(store)), store.drop_turn(KEY, token)) == (True, True)


def test_message_without_turn_stores_no_lease(store: SessionStore, db: SessionDB) -> None:
    begin_session(store, db)
    store.get_or_create_session(chat(), turn=leases.create_token())
    store.end_turn(KEY, get_entry(store).session_id)
    store.get_or_create_session(chat())
    assert not store.has_active_turn(get_entry(store))


@pytest.mark.requirement("store:turns")
def test_dropped_turn_allows_expiry(make: Any, db: SessionDB, clock: Clock) -> None:
    store = make(db, config=IDLE)
    token = store.begin_turn(KEY, begin_session(store, db))
    clock.advance(minutes=61)
    before = get_entry(store).updated_at
    assert store.drop_turn(KEY, token)
    assert not store.drop_turn(KEY, token)
    assert get_entry(store).updated_at == before
    assert store.claim_expiry(get_entry(store))


@pytest.mark.requirement("store:turns")
def test_later_turn_survives_earlier_end(store: SessionStore, db: SessionDB) -> None:
    session_id = begin_session(store, db)
    first = store.begin_turn(KEY, session_id)
    store.begin_turn(KEY, session_id)
    store.end_turn(KEY, session_id, token=first)
    assert not store.drop_turn(KEY, first)
    assert store.has_active_turn(get_entry(store))


def test_later_turn_survives_reset_delivery(make: Any, db: SessionDB, clock: Clock) -> None:
    hooks, later = Hooks(group=None), leases.create_token()
    store, other = make(db, config=IDLE, hooks=hooks), make(db, config=IDLE)
    begin_session(store, db)
    clock.advance(hours=2)
    hooks.add(
        "on_session_finalize", lambda: other.get_or_create_session(chat(), turn=later) and None
    )
    earlier = leases.create_token()
    store.get_or_create_session(chat(), turn=earlier)
    assert not store.drop_turn(KEY, earlier)
    assert store.drop_turn(KEY, later)


def test_turn_in_left_session_is_ignored(store: SessionStore, db: SessionDB) -> None:
    old = begin_session(store, db)
    store.reset_session(KEY)
    store.begin_turn(KEY, old)
    assert not store.has_active_turn(get_entry(store))


def test_turn_cancels_expiry_claim(expired: SessionStore) -> None:
    entry = get_entry(expired)
    assert expired.claim_expiry(entry)
    token = expired.begin_turn(KEY, entry.session_id)
    expired.drop_turn(KEY, token)
    assert not expired.set_expiry_finalized(entry)


def test_turn_lease_survives_session_rotation(store: SessionStore, db: SessionDB) -> None:
    old = begin_session(store, db)
    store.begin_turn(KEY, old)
    store.move_to_continuation(KEY, old, "next")
    assert store.has_active_turn(get_entry(store))


@pytest.mark.requirement("store:turns")
def test_active_turn_is_not_marked_interrupted(store: SessionStore, db: SessionDB) -> None:
    store.begin_turn(KEY, begin_session(store, db))
    assert store.suspend_recently_active() == 0
