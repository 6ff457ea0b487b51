"""Leases of turns in an entry: held, expired, or of a dead process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB, SessionStore
from session_core.routing import leases
from tests.routing.chats import (
    KEY,
    Clock,
    begin_session,
    get_entry,
    put_row,
    read_rows,
)


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


@pytest.mark.requirement("store:turns")
def test_turn_lease_uses_hermes_field_names(
    store: SessionStore, db: SessionDB, folder: Path, clock: Clock
) -> None:
    token = store.begin_turn(KEY, begin_session(store, db))
    noted = json.loads(json.dumps(read_rows(db, folder)[KEY]))
    assert noted["active_turn_token"] == token
    assert noted["active_turn_started_at"] == clock().isoformat()
