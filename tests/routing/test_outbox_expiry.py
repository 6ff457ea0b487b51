"""Expiry of sessions: one process delivers the end, and no turn is interrupted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from session_core import Hooks, SessionDB, SessionEntry, SessionStore
from session_core.routing import leases
from tests.routing.chats import (
    DAILY,
    IDLE,
    KEY,
    Clock,
    begin_session,
    chat,
    count_writes,
    get_end_reason,
    pop_written_rows,
    put_row,
    read_rows,
)

HookCalls = list[tuple[str, str]]


@pytest.fixture
def dead() -> str:
    """The token of a process that has ended."""
    code = "from session_core.routing import leases; print(leases.create_token())"
    answer = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    return answer.stdout.strip()


def get_entry(store: SessionStore) -> SessionEntry:
    entry = store.get(KEY)
    assert entry is not None
    return entry


def record_hooks(hook_calls: HookCalls) -> Hooks:
    hooks = Hooks(group=None, report=lambda *_: None)
    for hook in ("on_session_finalize", "on_session_reset"):
        hooks.add(hook, lambda session_id, hook=hook: hook_calls.append((hook[11:], session_id)))
    return hooks


@pytest.fixture
def expired(make: Any, db: SessionDB, clock: Clock) -> SessionStore:
    """A store with a session that has expired."""
    store: SessionStore = make(db, config=IDLE)
    begin_session(store, db)
    clock.advance(minutes=61)
    return store


# Claims


@pytest.mark.requirement("store:expiry")
def test_expired_session_is_marked_and_ended(expired: SessionStore, db: SessionDB) -> None:
    expired.set_model_override(KEY, {"model": "m"})
    entry = get_entry(expired)
    assert expired.claim_expiry(entry)
    assert expired.set_expiry_finalized(entry)
    marked, row = get_entry(expired), db.get_session(entry.session_id)
    assert row is not None
    assert (marked.expiry_finalized, marked.model_override, marked.extra) == (True, None, {})
    assert (row["expiry_finalized"], row["end_reason"]) == (1, "session_reset")


def test_expired_session_can_keep_model_override(expired: SessionStore) -> None:
    expired.set_model_override(KEY, {"model": "m"})
    entry = get_entry(expired)
    assert expired.claim_expiry(entry)
    assert expired.set_expiry_finalized(entry, clear_model_override=False)
    assert get_entry(expired).model_override == {"model": "m"}


@pytest.mark.requirement("store:expiry")
def test_expiry_claim_is_exclusive(expired: SessionStore, make: Any, db: SessionDB) -> None:
    other = make(db, config=IDLE)
    assert expired.claim_expiry(get_entry(expired))
    assert not other.claim_expiry(get_entry(other))
    assert not other.set_expiry_finalized(get_entry(other))
    assert expired.claim_expiry(get_entry(expired))
    assert expired.set_expiry_finalized(get_entry(expired))
    assert not expired.claim_expiry(get_entry(expired))


@pytest.mark.requirement("store:expiry")
def test_claim_of_dead_process_is_transferred(
    expired: SessionStore, dead: str, clock: Clock
) -> None:
    entry = get_entry(expired)
    leases.END_CLAIM.put(entry, dead, clock())
    expired.save(entry)
    assert expired.claim_expiry(entry)
    assert expired.set_expiry_finalized(entry)


@pytest.mark.requirement("store:expiry")
def test_claim_of_hung_process_ends_after_hour(
    expired: SessionStore, make: Any, db: SessionDB, clock: Clock
) -> None:
    other = make(db, config=IDLE)
    assert expired.claim_expiry(get_entry(expired))
    clock.advance(minutes=59)
    assert not other.claim_expiry(get_entry(other))
    clock.advance(minutes=1)
    assert other.claim_expiry(get_entry(other))
    assert not expired.set_expiry_finalized(get_entry(expired))


@pytest.mark.parametrize(("minutes", "counts"), [(59, True), (61, False)])
def test_future_claim_counts_for_an_hour(
    expired: SessionStore, make: Any, clock: Clock, minutes: int, counts: bool
) -> None:
    other = make(expired.db, config=IDLE)
    clock.advance(minutes=minutes)
    assert expired.claim_expiry(get_entry(expired))
    clock.advance(minutes=-minutes)
    assert other.claim_expiry(get_entry(other)) == (not counts)


def test_active_session_cannot_be_claimed(make: Any, db: SessionDB) -> None:
    store = make(db, config=IDLE)
    begin_session(store, db)
    assert not store.claim_expiry(get_entry(store))
    assert not store.set_expiry_finalized(get_entry(store))


@pytest.mark.requirement("store:expiry")
def test_used_session_is_not_marked_expired(expired: SessionStore, db: SessionDB) -> None:
    entry = get_entry(expired)
    assert expired.claim_expiry(entry)
    expired.update_session(KEY)
    assert not expired.set_expiry_finalized(entry)
    assert not get_entry(expired).expiry_finalized
    assert get_end_reason(db, entry.session_id) is None


def test_replaced_session_is_not_marked_expired(
    expired: SessionStore,
) -> None:
    entry = get_entry(expired)
    assert expired.claim_expiry(entry)
    expired.reset_session(KEY)
    assert not expired.claim_expiry(entry)
    assert not expired.set_expiry_finalized(entry)
    assert not get_entry(expired).expiry_finalized


@pytest.mark.requirement("store:expiry")
def test_message_skips_end_delivered_elsewhere(
    expired: SessionStore, make: Any, db: SessionDB
) -> None:
    hook_calls: HookCalls = []
    other = make(db, config=IDLE, hooks=record_hooks(hook_calls))
    entry = get_entry(expired)
    assert expired.claim_expiry(entry)
    assert expired.begin_end_delivery(KEY, entry.session_id)
    new = other.get_or_create_session(chat())
    assert hook_calls == [("reset", new.session_id)]


def test_message_delivers_claimed_end_once(expired: SessionStore, make: Any, db: SessionDB) -> None:
    hook_calls: HookCalls = []
    other = make(db, config=IDLE, hooks=record_hooks(hook_calls))
    entry = get_entry(expired)
    assert expired.claim_expiry(entry)
    new = other.get_or_create_session(chat())
    assert not expired.begin_end_delivery(KEY, entry.session_id)
    assert hook_calls == [("finalize", entry.session_id), ("reset", new.session_id)]


# Hermes


@pytest.mark.requirement("store:expiry")
def test_hermes_home_gets_no_expiry_marks(make: Any, hermes: SessionDB, clock: Clock) -> None:
    store = make(hermes, config=IDLE)
    session_id = begin_session(store, hermes)
    clock.advance(minutes=61)
    entry = get_entry(store)
    assert store.claim_expiry(entry)
    assert store.set_expiry_finalized(entry)
    assert get_entry(store) == entry
    row = hermes.get_session(session_id)
    assert row is not None
    assert (row["expiry_finalized"], row["end_reason"]) == (0, None)


@pytest.mark.requirement("store:expiry")
def test_hermes_home_expiry_is_delivered_once(make: Any, hermes: SessionDB, clock: Clock) -> None:
    hook_calls: HookCalls = []
    store = make(hermes, config=IDLE, hooks=record_hooks(hook_calls))
    begin_session(store, hermes)
    clock.advance(minutes=61)
    entry = get_entry(store)
    assert store.claim_expiry(entry)
    assert store.set_expiry_finalized(entry)
    assert not store.claim_expiry(entry)
    new = store.get_or_create_session(chat())
    assert hook_calls == [("reset", new.session_id)]


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


@pytest.mark.requirement("store:turns")
def test_turn_of_dead_process_allows_expiry(expired: SessionStore, dead: str, clock: Clock) -> None:
    entry = get_entry(expired)
    leases.TURN_LEASE.put(entry, dead, clock())
    expired.save(entry)
    assert not expired.has_active_turn(entry)
    assert expired.claim_expiry(entry)


@pytest.mark.requirement("store:turns")
@pytest.mark.parametrize("token", ["of another program", "pid=1:host=elsewhere:agent=mcp-sessions"])
def test_unknown_turn_counts_for_six_hours(expired: SessionStore, clock: Clock, token: str) -> None:
    entry = get_entry(expired)
    leases.TURN_LEASE.put(entry, token, clock())
    expired.save(entry)
    clock.advance(hours=5, minutes=59)
    assert not expired.claim_expiry(entry)
    clock.advance(minutes=1)
    assert expired.claim_expiry(entry)


@pytest.mark.parametrize(
    "noted",
    [
        {"active_turn_token": None, "active_turn_started_at": None},
        {"active_turn_token": "t", "active_turn_started_at": "then"},
        {"active_turn_token": "t"},
        {"active_turn_token": 7, "active_turn_started_at": "2026-03-10T12:00:00"},
    ],
)
def test_invalid_turn_lease_is_ignored(
    expired: SessionStore, db: SessionDB, folder: Path, noted: dict[str, Any]
) -> None:
    put_row(db, folder, read_rows(db, folder)[KEY] | noted)
    assert expired.claim_expiry(get_entry(expired))


def test_turn_lease_survives_session_rotation(store: SessionStore, db: SessionDB) -> None:
    old = begin_session(store, db)
    store.begin_turn(KEY, old)
    store.move_to_continuation(KEY, old, "next")
    assert store.has_active_turn(get_entry(store))


@pytest.mark.requirement("store:turns")
def test_active_turn_is_not_marked_interrupted(store: SessionStore, db: SessionDB) -> None:
    store.begin_turn(KEY, begin_session(store, db))
    assert store.suspend_recently_active() == 0


@pytest.mark.requirement("store:turns")
def test_turn_lease_uses_hermes_field_names(
    store: SessionStore, db: SessionDB, folder: Path, clock: Clock
) -> None:
    token = store.begin_turn(KEY, begin_session(store, db))
    noted = json.loads(json.dumps(read_rows(db, folder)[KEY]))
    assert noted["active_turn_token"] == token
    assert noted["active_turn_started_at"] == clock().isoformat()
