"""Changes of a chat's session: policies, resets, switches and rotations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from session_core import Conflict, NotFound, SessionDB, SessionStore
from session_core.config import GatewayConfig, SessionResetPolicy
from tests.routing.chats import (
    BOTH,
    DAILY,
    IDLE,
    KEY,
    NONE,
    Clock,
    begin_session,
    chat,
    get_end_reason,
    make_stored_entry,
    put_row,
    read_rows,
)

# Policies, through the store


@pytest.mark.requirement("store:policies")
@pytest.mark.parametrize(
    ("config", "at", "later", "reason"),
    [
        pytest.param(NONE, "12:00", {"days": 999}, None, id="none never resets"),
        pytest.param(IDLE, "12:00", {"minutes": 60}, None, id="idle at the minute stays"),
        pytest.param(IDLE, "12:00", {"minutes": 60, "microseconds": 1}, "idle", id="idle after it"),
        pytest.param(DAILY, "04:00", {"hours": 23}, None, id="daily at the boundary stays"),
        pytest.param(DAILY, "03:59", {"seconds": 60}, "daily", id="daily before the boundary"),
        pytest.param(DAILY, "03:00", {"seconds": 3599}, None, id="daily before its hour"),
        pytest.param(BOTH, "03:59", {"minutes": 5}, "daily", id="both by the day"),
        pytest.param(BOTH, "03:00", {"hours": 3}, "idle", id="both by idling first"),
        pytest.param(IDLE, "12:00", {"days": -1}, None, id="a time in the future stays"),
    ],
)
def test_policy_resets_at_boundary(  # noqa: PLR0917 -- fixtures
    make: Any,
    db: SessionDB,
    clock: Clock,
    config: GatewayConfig,
    at: str,
    later: dict[str, int],
    reason: str | None,
) -> None:
    store = make(db, config=config)
    hour, minute = map(int, at.split(":"))
    clock.time = clock.time.replace(hour=hour, minute=minute)
    first = begin_session(store, db)
    clock.advance(**later)
    entry = store.get_or_create_session(chat())
    assert (entry.session_id != first, entry.auto_reset_reason) == (bool(reason), reason)
    assert get_end_reason(db, first) == reason


def test_entry_without_platform_uses_key_platform(make: Any, db: SessionDB, folder: Path) -> None:
    idle = SessionResetPolicy(mode="idle", idle_minutes=60)
    put_row(
        db, folder, make_stored_entry() | {"platform": None, "updated_at": "2026-03-10T10:59:00"}
    )
    store = make(db, config=GatewayConfig(reset_by_platform={"telegram": idle}))
    entry = store.get(KEY)
    assert entry is not None
    assert store.find_expiry_reason(entry) == "idle"
    assert store.is_session_finalizable(entry)
    assert store.get_or_create_session(chat()).auto_reset_reason == "idle"


@pytest.mark.requirement("store:policies")
@pytest.mark.parametrize("active", [lambda _: True, lambda _: 1 / 0])
def test_chat_with_active_process_is_kept(
    make: Any, db: SessionDB, clock: Clock, active: Any
) -> None:
    asked = []
    store = make(
        db, config=IDLE, has_active_processes_fn=lambda key: asked.append(key) or active(key)
    )
    first = store.get_or_create_session(chat())
    clock.advance(days=2)
    assert store.get_or_create_session(chat()).session_id == first.session_id
    assert asked == [KEY]


@pytest.mark.requirement("store:policies")
def test_reset_records_previous_activity(make: Any, db: SessionDB, clock: Clock) -> None:
    store = make(db, config=IDLE)
    store.get_or_create_session(chat())
    clock.advance(hours=2)
    assert not store.get_or_create_session(chat()).reset_had_activity
    store.update_session(KEY, last_prompt_tokens=100)
    clock.advance(hours=2)
    assert store.get_or_create_session(chat()).reset_had_activity


@pytest.mark.requirement("store:reset")
def test_reset_ends_agent_closed_session(make: Any, db: SessionDB, clock: Clock) -> None:
    store = make(db, config=IDLE)
    first = begin_session(store, db)
    db.end_session(first, "ws_orphan_reap")
    clock.advance(hours=2)
    store.get_or_create_session(chat())
    assert get_end_reason(db, first) == "idle"


# Reset and switch


@pytest.mark.requirement("store:reset")
def test_requested_reset_creates_fresh_session(any_store: SessionStore, clock: Clock) -> None:
    first = any_store.get_or_create_session(chat(chat_name="Ann"))
    clock.advance(minutes=1)
    second = any_store.reset_session(KEY)
    assert second is not None
    assert second.session_id != first.session_id
    assert (second.is_fresh_reset, second.was_auto_reset) == (True, False)
    assert (second.created_at, second.display_name) == (clock.time, "Ann")
    assert any_store.get(KEY) == second


@pytest.mark.requirement("store:reset")
def test_reset_ends_session_and_model_override(store: SessionStore, db: SessionDB) -> None:
    first = begin_session(store, db)
    store.set_model_override(KEY, {"model": "m", "api_key": "secret"})
    overridden = store.get(KEY)
    assert overridden is not None
    assert overridden.model_override == {"model": "m"}
    entry = store.reset_session(KEY, display_name="Trip")
    assert entry is not None
    assert (entry.model_override, entry.display_name) == (None, "Trip")
    assert get_end_reason(db, first) == "session_reset"


@pytest.mark.requirement("store:afresh")
@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(lambda store: store.reset_session(KEY), id="a reset"),
        pytest.param(lambda store: store.switch_session(KEY, "target"), id="a switch"),
        pytest.param(
            lambda store: store.suspend_session(KEY) and store.get_or_create_session(chat()),
            id="an automatic reset",
        ),
    ],
)
def test_new_session_keeps_only_chat_fields(
    store: SessionStore, db: SessionDB, folder: Path, begin: Callable[[SessionStore], Any]
) -> None:
    """As in Hermes, whose newer fields describe the running turn or its prompt."""
    db.create_session("target", "telegram")
    of_the_chat = {"display_name": "Ann", "platform": "telegram", "chat_type": "dm"}
    of_the_session = {"active_turn_token": "t", "total_tokens": 5, "cost_status": "estimated"}
    put_row(db, folder, make_stored_entry(origin=chat().to_dict(), **of_the_chat, **of_the_session))
    entry = begin(store)
    assert (entry.extra, entry.total_tokens, entry.cost_status) == ({}, 0, "unknown")
    kept = read_rows(db, folder)[KEY]
    assert {name: kept[name] for name in of_the_chat} == of_the_chat
    assert kept["origin"] == chat().to_dict()


@pytest.mark.requirement("store:reset")
def test_reset_ends_missed_continuation(store: SessionStore, db: SessionDB) -> None:
    parent = begin_session(store, db)
    db.end_session(parent, "compression")
    db.create_session("tip", "telegram", parent_session_id=parent)
    store.reset_session(KEY)
    assert (get_end_reason(db, parent), get_end_reason(db, "tip")) == (
        "compression",
        "session_reset",
    )


def test_reset_without_route_begins_no_session(any_store: SessionStore) -> None:
    assert any_store.reset_session(KEY) is None


@pytest.mark.requirement("store:switch")
def test_switch_reopens_target_and_ends_current(store: SessionStore, db: SessionDB) -> None:
    first = begin_session(store, db)
    db.create_session("target", "cli")
    db.end_session("target", "cli_close")
    entry = store.switch_session(KEY, "target")
    assert entry is not None
    assert entry.session_id == store.peek_session_id(KEY) == "target"
    assert (get_end_reason(db, first), get_end_reason(db, "target")) == ("session_switch", None)
    assert (entry.was_auto_reset, entry.is_fresh_reset) == (False, False)


@pytest.mark.requirement("store:switch")
def test_switch_to_current_session_reopens_session(store: SessionStore, db: SessionDB) -> None:
    first = begin_session(store, db)
    db.end_session(first, "cli_close")
    assert store.switch_session(KEY, first) is not None
    assert get_end_reason(db, first) is None


@pytest.mark.requirement("store:switch")
def test_switch_to_missing_session_is_refused(store: SessionStore, db: SessionDB) -> None:
    first = begin_session(store, db)
    with pytest.raises(NotFound):
        store.switch_session(KEY, "nowhere")
    assert (store.peek_session_id(KEY), get_end_reason(db, first)) == (first, None)


def test_switch_without_route_is_ignored(store: SessionStore, db: SessionDB) -> None:
    db.create_session("target", "cli")
    assert store.switch_session(KEY, "target") is None


# A rotation


@pytest.mark.requirement("store:follow")
def test_rotation_keeps_entry_fields(store: SessionStore, db: SessionDB) -> None:
    old = begin_session(store, db, user_id="7", chat_name="Ann", thread_id="9")
    db.create_session("child", "telegram", parent_session_id=old)
    store.move_to_continuation(f"{KEY}:9", old, "child")
    row, parent = db.get_session("child"), db.get_session(old)
    assert row is not None
    assert parent is not None
    carried = ("session_key", "chat_id", "chat_type", "thread_id", "user_id", "display_name")
    names = (*carried, "origin_json", "source")
    assert {name: row[name] for name in names} == {name: parent[name] for name in names}


@pytest.mark.requirement("store:follow")
def test_rotation_to_same_id_does_not_write(store: SessionStore, db: SessionDB) -> None:
    old = begin_session(store, db)
    before = db.routes.get_entry(KEY, scope=store.scope)
    cursor = db.read_changes().cursor
    assert store.move_to_continuation(KEY, old, old).session_id == old
    assert db.routes.get_entry(KEY, scope=store.scope) == before
    assert db.read_changes(cursor).events == []


@pytest.mark.requirement("store:follow")
def test_rotation_of_moved_chat_raises_conflict(
    any_store: SessionStore,
) -> None:
    old = any_store.get_or_create_session(chat()).session_id
    new = any_store.reset_session(KEY)
    assert new is not None
    with pytest.raises(Conflict):
        any_store.move_to_continuation(KEY, old, "child")
    assert any_store.peek_session_id(KEY) == new.session_id


def test_rotation_without_route_raises_not_found(any_store: SessionStore) -> None:
    with pytest.raises(NotFound):
        any_store.move_to_continuation(KEY, "a", "b")
