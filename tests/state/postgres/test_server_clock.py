"""Leases of machines whose clocks differ: the server's clock decides for all."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from session_core import GatewayConfig, Platform, SessionSource, open_home
from session_core.activity import load_home_activity
from session_core.routing import leases
from session_core.state.postgres.server_clock import ServerClock
from session_core.state.postgres.session_db import PostgresDB

HOUR_S = 3600.0
CHAT = SessionSource(Platform.TELEGRAM, chat_id="1", chat_type="dm")

SetClock = Callable[[float], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Return a function that sets the clock of this machine ahead by seconds."""
    real = time.time

    def set_ahead(ahead_s: float) -> None:
        monkeypatch.setattr(time, "time", lambda: real() + ahead_s)

    return set_ahead


def test_small_difference_is_left() -> None:
    clock = ServerClock()
    clock.compare(time.time() + 0.5)
    assert clock.offset_s == 0.0
    clock.compare(time.time() + 90)
    clock.compare(time.time() + 90.5)
    assert 89 < clock.offset_s < 90.2
    clock.compare(time.time())
    assert clock.offset_s == 0.0


@pytest.mark.parametrize("ahead_s", [-HOUR_S, HOUR_S])
def test_wrong_clock_stores_time_of_server(
    address: str, set_clock: SetClock, ahead_s: float
) -> None:
    before = time.time()
    set_clock(ahead_s)
    with PostgresDB(address) as db:
        db.create_session("s", "cli")
        message = db.append_message("s", "user", "hello")
        row = db.get_message(message)
    assert row is not None
    assert abs(row["timestamp"] - before) < 600


@pytest.mark.requirement("postgres:clock")
def test_fast_clock_takes_no_compression_lock(address: str, set_clock: SetClock) -> None:
    with PostgresDB(address) as here, PostgresDB(address) as there:
        here.create_session("s", "cli")
        assert here.try_acquire_compression_lock("s", "here")
        set_clock(HOUR_S)
        assert there.get_session("s") is not None
        assert not there.try_acquire_compression_lock("s", "there")
        assert there.get_compression_lock_holder("s") == "here"
        assert load_home_activity(there, time.time()).at < time.time() - HOUR_S / 2


@pytest.mark.requirement("postgres:clock")
def test_turn_of_other_machine_counts_by_server_clock(
    address: str, set_clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "pid=1:start=1:host=elsewhere:agent=mcp-sessions:nonce=1"
    config = GatewayConfig(session_store_max_age_days=1)
    with open_home(address, config=config) as here, open_home(address, config=config) as there:
        entry = here.store.get_or_create_session(CHAT)
        monkeypatch.setattr("session_core.routing.turn_records.create_token", lambda: token)
        here.store.begin_turn(entry.session_key, entry.session_id)
        monkeypatch.undo()
        set_clock(7 * HOUR_S)
        assert there.db.get_session(entry.session_id) is None
        stored = there.store.get(entry.session_key)
        assert stored is not None
        now = there.store.settings.now()
        assert leases.TURN_LEASE.find_holder(stored, now) == token
        late = now + timedelta(hours=7)
        assert leases.TURN_LEASE.find_holder(stored, late) is None


def test_later_turn_of_other_machine_stays(address: str) -> None:
    with open_home(address) as here, open_home(address) as there:
        entry = here.store.get_or_create_session(CHAT)
        first = here.store.begin_turn(entry.session_key, entry.session_id)
        second = there.store.begin_turn(entry.session_key, entry.session_id)
        key, session = entry.session_key, entry.session_id
        assert here.store.end_turn(key, session, 900, token=first) is None
        ended = there.store.end_turn(key, session, 100, token=second)
        assert ended is not None
        assert ended.last_prompt_tokens == 100
