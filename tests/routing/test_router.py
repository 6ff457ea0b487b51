"""The session of an incoming message, and the order of the checks that choose it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB, SessionStore
from session_core.config import GatewayConfig
from tests.routing.chats import (
    DAILY,
    IDLE,
    KEY,
    Clock,
    append_text,
    begin_session,
    chat,
    get_end_reason,
    put_row,
    read_rows,
)

# Incoming messages


def test_first_message_creates_session(any_store: SessionStore, clock: Clock) -> None:
    entry = any_store.get_or_create_session(chat(chat_name="Ann", user_id="7"))
    assert entry.session_key == KEY
    assert entry.created_at == entry.updated_at == clock.time
    assert (entry.display_name, entry.chat_type, str(entry.platform)) == ("Ann", "dm", "telegram")
    assert entry.origin == chat(chat_name="Ann", user_id="7")
    assert any_store.get(KEY) == entry


def test_session_id_has_local_time_and_suffix(store: SessionStore) -> None:
    session_id = store.get_or_create_session(chat()).session_id
    assert session_id.startswith("20260310_120000_")
    assert len(session_id) == len("20260310_120000_") + 8


def test_session_row_missing_before_first_message(store: SessionStore, db: SessionDB) -> None:
    entry = store.get_or_create_session(chat())
    assert db.get_session(entry.session_id) is None


def test_routed_message_knows_existing_session(store: SessionStore, db: SessionDB) -> None:
    first = store.router.route_message(chat())
    assert not first.has_session
    append_text(store, db, first.entry)
    assert store.router.route_message(chat()).has_session
    assert not store.router.route_message(chat(), force_new=True).has_session


def test_recovered_session_exists(store: SessionStore, db: SessionDB) -> None:
    begin_session(store, db)
    store.remove(store.load_entries())
    assert store.router.route_message(chat()).has_session


def test_first_message_stores_chat_fields(store: SessionStore, db: SessionDB) -> None:
    session_id = begin_session(store, db, user_id="7", chat_name="Ann", thread_id="9")
    row = db.get_session(session_id)
    assert row is not None
    names = ("source", "session_key", "user_id", "chat_id", "chat_type", "thread_id")
    assert [row[name] for name in names] == ["telegram", f"{KEY}:9", "7", "42", "dm", "9"]
    assert row["display_name"] == "Ann"


def test_next_message_keeps_session_updates_entry(any_store: SessionStore, clock: Clock) -> None:
    first = any_store.get_or_create_session(chat())
    clock.advance(days=400)
    second = any_store.get_or_create_session(chat())
    assert second.session_id == first.session_id
    assert (second.created_at, second.updated_at) == (first.created_at, clock.time)


def test_entry_changes_need_save(any_store: SessionStore) -> None:
    entry = any_store.get_or_create_session(chat())
    entry.session_id = "elsewhere"
    assert any_store.peek_session_id(KEY) != "elsewhere"
    any_store.save(entry)
    assert any_store.peek_session_id(KEY) == "elsewhere"


@pytest.mark.requirement("store:force")
def test_force_new_creates_session(any_store: SessionStore) -> None:
    first = any_store.get_or_create_session(chat())
    second = any_store.get_or_create_session(chat(), force_new=True)
    assert second.session_id != first.session_id
    assert (second.is_fresh_reset, second.was_auto_reset) == (True, False)


@pytest.mark.requirement("store:force")
def test_force_new_skips_recovery(store: SessionStore, db: SessionDB) -> None:
    lost = begin_session(store, db)
    store.remove(store.load_entries())
    assert store.get_or_create_session(chat(), force_new=True).session_id != lost


# The order of the checks


@pytest.mark.requirement("store:order")
def test_compression_is_followed_before_reset(make: Any, db: SessionDB, clock: Clock) -> None:
    store = make(db, config=IDLE)
    parent = begin_session(store, db)
    db.end_session(parent, "compression")
    db.create_session("tip", "telegram", parent_session_id=parent)
    db.append_message("tip", "user", "a summary")
    clock.advance(minutes=61)
    entry = store.get_or_create_session(chat())
    assert (entry.auto_reset_reason, get_end_reason(db, "tip")) == ("idle", "idle")


def test_compression_chain_keeps_entry_fields(store: SessionStore, db: SessionDB) -> None:
    parent = begin_session(store, db, user_id="7")
    for old, new in ((parent, "second"), ("second", "third")):
        db.end_session(old, "compression")
        db.create_session(new, "telegram", parent_session_id=old)
        db.append_message(new, "user", "a summary")
    assert store.get_or_create_session(chat()).session_id == "third"
    row = db.get_session("third")
    assert row is not None
    assert (row["session_key"], row["chat_id"], row["user_id"]) == (KEY, "42", "7")


@pytest.mark.requirement("store:order")
def test_reset_precedes_recovery(make: Any, db: SessionDB, clock: Clock) -> None:
    store = make(db, config=IDLE)
    first = begin_session(store, db)
    db.end_session(first, "agent_close")
    clock.advance(minutes=61)
    entry = store.get_or_create_session(chat())
    assert entry.session_id != first
    assert (entry.was_auto_reset, entry.auto_reset_reason) == (True, "idle")
    assert get_end_reason(db, first) == "idle"


def test_session_continues_after_agent_close(store: SessionStore, db: SessionDB) -> None:
    first = begin_session(store, db)
    db.end_session(first, "agent_close")
    assert store.get_or_create_session(chat()).session_id == first
    assert get_end_reason(db, first) is None


def test_recovery_keeps_entry_fields(store: SessionStore, db: SessionDB) -> None:
    first = begin_session(store, db)
    put_row(db, store.folder, read_rows(db, store.folder)[KEY] | {"future": 1, "total_tokens": 5})
    store.set_model_override(KEY, {"model": "m"})
    db.end_session(first, "agent_close")
    entry = store.get_or_create_session(chat())
    assert (entry.extra, entry.total_tokens) == ({"future": 1}, 5)
    assert entry.model_override == {"model": "m"}


@pytest.mark.requirement("store:order")
def test_ended_session_is_replaced(store: SessionStore, db: SessionDB) -> None:
    first = begin_session(store, db)
    db.end_session(first, "cli_close")
    entry = store.get_or_create_session(chat())
    assert entry.session_id != first
    assert (entry.was_auto_reset, entry.is_fresh_reset) == (False, False)
    assert get_end_reason(db, first) == "cli_close"


@pytest.mark.requirement("store:stale")
def test_session_without_end_reason_is_kept(store: SessionStore, db: SessionDB) -> None:
    first = begin_session(store, db)
    db.end_session(first, None)
    assert store.get_or_create_session(chat()).session_id == first


@pytest.mark.requirement("store:stale")
def test_session_without_row_is_kept(store: SessionStore) -> None:
    first = store.get_or_create_session(chat())
    assert store.get_or_create_session(chat()).session_id == first.session_id


@pytest.mark.requirement("store:order")
def test_suspended_session_resets_under_every_policy(any_store: SessionStore) -> None:
    first = any_store.get_or_create_session(chat())
    assert any_store.suspend_session(KEY)
    second = any_store.get_or_create_session(chat())
    assert second.session_id != first.session_id
    assert (second.auto_reset_reason, second.suspended) == ("suspended", False)


@pytest.mark.requirement("store:order")
def test_suspension_precedes_policy_reason(make: Any, db: SessionDB, clock: Clock) -> None:
    store = make(db, config=IDLE)
    store.get_or_create_session(chat())
    store.suspend_session(KEY)
    clock.advance(hours=2)
    assert store.get_or_create_session(chat()).auto_reset_reason == "suspended"


@pytest.mark.requirement("store:order")
def test_interrupted_session_continues_and_stays_marked(
    make: Any, db: SessionDB, clock: Clock
) -> None:
    store = make(db, config=DAILY)
    first = store.get_or_create_session(chat())
    store.mark_resume_pending(KEY)
    clock.advance(seconds=3600)
    entry = store.get_or_create_session(chat())
    assert (entry.session_id, entry.resume_pending) == (first.session_id, True)


@pytest.mark.requirement("store:order")
def test_policy_reset_precedes_interruption(make: Any, db: SessionDB, clock: Clock) -> None:
    store = make(db, config=IDLE)
    store.get_or_create_session(chat())
    store.mark_resume_pending(KEY)
    clock.advance(hours=2)
    entry = store.get_or_create_session(chat())
    assert (entry.auto_reset_reason, entry.resume_pending) == ("idle", False)


@pytest.mark.requirement("store:freshness")
def test_old_interruption_resets_session(make: Any, db: SessionDB, clock: Clock) -> None:
    store = make(db, config=DAILY)
    store.get_or_create_session(chat())
    store.mark_resume_pending(KEY)
    clock.advance(seconds=3600.001)
    assert store.get_or_create_session(chat()).auto_reset_reason == "resume_pending_expired"


@pytest.mark.requirement("store:freshness")
def test_interruption_never_resets_without_policy(store: SessionStore, clock: Clock) -> None:
    first = store.get_or_create_session(chat())
    store.mark_resume_pending(KEY)
    clock.advance(days=30)
    assert store.get_or_create_session(chat()).session_id == first.session_id


@pytest.mark.requirement("store:freshness")
@pytest.mark.parametrize(("seconds", "resets"), [("60", True), ("0", False), ("-1", False)])
def test_interruption_freshness_is_configurable(  # noqa: PLR0917 -- fixtures
    make: Any, db: SessionDB, clock: Clock, tmp_path: Path, seconds: str, resets: bool
) -> None:
    (tmp_path / "gateway.json").write_text('{"default_reset_policy": {"mode": "daily"}}')
    config = GatewayConfig.load(tmp_path, {"HERMES_AUTO_CONTINUE_FRESHNESS": seconds})
    store = make(db, config=config)
    store.get_or_create_session(chat())
    store.mark_resume_pending(KEY)
    clock.advance(hours=2)
    reason = store.get_or_create_session(chat()).auto_reset_reason
    assert (reason == "resume_pending_expired") is resets
