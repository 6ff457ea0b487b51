"""Ends of expired sessions: one process claims and delivers each."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import Hooks, SessionDB, SessionStore
from session_core.routing import leases
from tests.routing.chats import (
    IDLE,
    KEY,
    Clock,
    begin_session,
    chat,
    get_end_reason,
    get_entry,
)

HookCalls = list[tuple[str, str]]


def record_hooks(hook_calls: HookCalls) -> Hooks:
    hooks = Hooks(group=None, report=lambda *_: None)
    for hook in ("on_session_finalize", "on_session_reset"):
        hooks.add(hook, lambda session_id, hook=hook: hook_calls.append((hook[11:], session_id)))
    return hooks


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
