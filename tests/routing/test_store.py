"""The session store: in which session a message arrives, and what changes that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from session_core import Conflict, Denied, Hooks, NotFound, SessionDB, SessionStore
from session_core.settings import GatewayConfig, SessionResetPolicy
from tests.routing.chats import KEY, Clock, chat, put_row, rows, say, stored

IDLE = GatewayConfig(default_reset_policy=SessionResetPolicy(mode="idle", idle_minutes=60))
DAILY = GatewayConfig(default_reset_policy=SessionResetPolicy(mode="daily", at_hour=4))
BOTH = GatewayConfig(
    default_reset_policy=SessionResetPolicy(mode="both", idle_minutes=60, at_hour=4)
)
NONE = GatewayConfig()


def ended(db: SessionDB, session_id: str) -> str | None:
    """Return how a session has ended."""
    row = db.get_session(session_id)
    assert row is not None
    return row["end_reason"]


def begun(store: SessionStore, db: SessionDB, **fields: Any) -> str:
    """Let a first message come in and be stored; return the id of its session."""
    entry = store.get_or_create_session(chat(**fields))
    say(store, db, entry)
    return entry.session_id


# A message comes in


def test_a_first_message_begins_a_session(any_store: SessionStore, clock: Clock) -> None:
    entry = any_store.get_or_create_session(chat(chat_name="Ann", user_id="7"))
    assert entry.session_key == KEY
    assert entry.created_at == entry.updated_at == clock.time
    assert (entry.display_name, entry.chat_type, str(entry.platform)) == ("Ann", "dm", "telegram")
    assert entry.origin == chat(chat_name="Ann", user_id="7")
    assert any_store.get(KEY) == entry


def test_a_new_id_tells_its_local_time_and_eight_letters(store: SessionStore) -> None:
    session_id = store.get_or_create_session(chat()).session_id
    assert session_id.startswith("20260310_120000_")
    assert len(session_id) == len("20260310_120000_") + 8


def test_nothing_is_stored_of_a_session_before_its_first_message(
    store: SessionStore, db: SessionDB
) -> None:
    entry = store.get_or_create_session(chat())
    assert db.get_session(entry.session_id) is None


def test_a_first_message_stores_which_chat_it_belongs_to(
    store: SessionStore, db: SessionDB
) -> None:
    session_id = begun(store, db, user_id="7", chat_name="Ann", thread_id="9")
    row = db.get_session(session_id)
    assert row is not None
    names = ("source", "session_key", "user_id", "chat_id", "chat_type", "thread_id")
    assert [row[name] for name in names] == ["telegram", f"{KEY}:9", "7", "42", "dm", "9"]
    assert row["display_name"] == "Ann"


def test_a_next_message_stays_in_its_session_and_is_noted(
    any_store: SessionStore, clock: Clock
) -> None:
    first = any_store.get_or_create_session(chat())
    clock.advance(days=400)
    second = any_store.get_or_create_session(chat())
    assert second.session_id == first.session_id
    assert (second.created_at, second.updated_at) == (first.created_at, clock.time)


def test_an_entry_is_the_callers_own_until_it_is_saved(any_store: SessionStore) -> None:
    entry = any_store.get_or_create_session(chat())
    entry.session_id = "elsewhere"
    assert any_store.peek_session_id(KEY) != "elsewhere"
    any_store.save(entry)
    assert any_store.peek_session_id(KEY) == "elsewhere"


def test_a_forced_message_begins_a_new_session(any_store: SessionStore) -> None:
    first = any_store.get_or_create_session(chat())
    second = any_store.get_or_create_session(chat(), force_new=True)
    assert second.session_id != first.session_id
    assert (second.is_fresh_reset, second.was_auto_reset) == (True, False)


def test_a_forced_message_finds_no_lost_session_again(store: SessionStore, db: SessionDB) -> None:
    lost = begun(store, db)
    store.remove(store.entries())
    assert store.get_or_create_session(chat(), force_new=True).session_id != lost


# The order in which it is decided


def test_first_a_route_follows_its_compression(make: Any, db: SessionDB, clock: Clock) -> None:
    store = make(db, config=IDLE)
    parent = begun(store, db)
    db.end_session(parent, "compression")
    db.create_session("tip", "telegram", parent_session_id=parent)
    db.append_message("tip", "user", "a summary")
    clock.advance(minutes=61)
    entry = store.get_or_create_session(chat())
    assert (entry.auto_reset_reason, ended(db, "tip")) == ("idle", "idle")


def test_a_compression_is_followed_along_its_chain_with_all_that_is_known_of_the_chat(
    store: SessionStore, db: SessionDB
) -> None:
    parent = begun(store, db, user_id="7")
    for old, new in ((parent, "second"), ("second", "third")):
        db.end_session(old, "compression")
        db.create_session(new, "telegram", parent_session_id=old)
        db.append_message(new, "user", "a summary")
    assert store.get_or_create_session(chat()).session_id == "third"
    row = db.get_session("third")
    assert row is not None
    assert (row["session_key"], row["chat_id"], row["user_id"]) == (KEY, "42", "7")


def test_then_a_reset_comes_before_a_recovery(make: Any, db: SessionDB, clock: Clock) -> None:
    store = make(db, config=IDLE)
    first = begun(store, db)
    db.end_session(first, "agent_close")
    clock.advance(minutes=61)
    entry = store.get_or_create_session(chat())
    assert entry.session_id != first
    assert (entry.was_auto_reset, entry.auto_reset_reason) == (True, "idle")
    assert ended(db, first) == "idle"


def test_a_session_that_has_ended_is_gone_on_with_where_only_its_agent_was_closed(
    store: SessionStore, db: SessionDB
) -> None:
    first = begun(store, db)
    db.end_session(first, "agent_close")
    assert store.get_or_create_session(chat()).session_id == first
    assert ended(db, first) is None


def test_what_is_known_of_a_chat_survives_a_recovery(store: SessionStore, db: SessionDB) -> None:
    first = begun(store, db)
    put_row(db, store._folder, rows(db, store._folder)[KEY] | {"future": 1, "total_tokens": 5})
    store.set_model_override(KEY, {"model": "m"})
    db.end_session(first, "agent_close")
    entry = store.get_or_create_session(chat())
    assert (entry.extra, entry.total_tokens) == ({"future": 1}, 5)
    assert entry.model_override == {"model": "m"}


def test_a_session_that_has_ended_for_good_gives_way_to_a_fresh_one(
    store: SessionStore, db: SessionDB
) -> None:
    first = begun(store, db)
    db.end_session(first, "cli_close")
    entry = store.get_or_create_session(chat())
    assert entry.session_id != first
    assert (entry.was_auto_reset, entry.is_fresh_reset) == (False, False)
    assert ended(db, first) == "cli_close"


def test_a_session_that_has_ended_without_a_reason_is_not_stale(
    store: SessionStore, db: SessionDB
) -> None:
    first = begun(store, db)
    db.end_session(first, None)
    assert store.get_or_create_session(chat()).session_id == first


def test_a_session_without_a_row_is_not_stale(store: SessionStore) -> None:
    first = store.get_or_create_session(chat())
    assert store.get_or_create_session(chat()).session_id == first.session_id


def test_a_suspended_session_is_reset_whatever_the_policy(any_store: SessionStore) -> None:
    first = any_store.get_or_create_session(chat())
    assert any_store.suspend_session(KEY)
    second = any_store.get_or_create_session(chat())
    assert second.session_id != first.session_id
    assert (second.auto_reset_reason, second.suspended) == ("suspended", False)


def test_suspended_comes_before_the_policy(make: Any, db: SessionDB, clock: Clock) -> None:
    store = make(db, config=IDLE)
    store.get_or_create_session(chat())
    store.suspend_session(KEY)
    clock.advance(hours=2)
    assert store.get_or_create_session(chat()).auto_reset_reason == "suspended"


def test_an_interrupted_session_is_gone_on_with_and_stays_marked(
    make: Any, db: SessionDB, clock: Clock
) -> None:
    store = make(db, config=DAILY)
    first = store.get_or_create_session(chat())
    store.mark_resume_pending(KEY)
    clock.advance(seconds=3600)
    entry = store.get_or_create_session(chat())
    assert (entry.session_id, entry.resume_pending) == (first.session_id, True)


def test_an_interrupted_session_is_reset_by_the_policy_first(
    make: Any, db: SessionDB, clock: Clock
) -> None:
    store = make(db, config=IDLE)
    store.get_or_create_session(chat())
    store.mark_resume_pending(KEY)
    clock.advance(hours=2)
    entry = store.get_or_create_session(chat())
    assert (entry.auto_reset_reason, entry.resume_pending) == ("idle", False)


def test_an_interruption_of_more_than_an_hour_ago_is_a_reset(
    make: Any, db: SessionDB, clock: Clock
) -> None:
    store = make(db, config=DAILY)
    store.get_or_create_session(chat())
    store.mark_resume_pending(KEY)
    clock.advance(seconds=3600.001)
    assert store.get_or_create_session(chat()).auto_reset_reason == "resume_pending_expired"


def test_where_nothing_ever_resets_an_interruption_does_not_either(
    store: SessionStore, clock: Clock
) -> None:
    first = store.get_or_create_session(chat())
    store.mark_resume_pending(KEY)
    clock.advance(days=30)
    assert store.get_or_create_session(chat()).session_id == first.session_id


@pytest.mark.parametrize(("seconds", "resets"), [("60", True), ("0", False), ("-1", False)])
def test_how_long_an_interruption_is_fresh_is_configured(  # noqa: PLR0917 -- fixtures
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


# Policies, through the store


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
def test_a_policy_resets_at_its_boundary(  # noqa: PLR0917 -- fixtures
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
    first = begun(store, db)
    clock.advance(**later)
    entry = store.get_or_create_session(chat())
    assert (entry.session_id != first, entry.auto_reset_reason) == (bool(reason), reason)
    assert ended(db, first) == reason


@pytest.mark.parametrize("active", [lambda _: True, lambda _: 1 / 0])
def test_a_chat_with_a_process_at_work_is_not_reset(
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


def test_a_reset_says_whether_there_was_activity(make: Any, db: SessionDB, clock: Clock) -> None:
    store = make(db, config=IDLE)
    store.get_or_create_session(chat())
    clock.advance(hours=2)
    assert not store.get_or_create_session(chat()).reset_had_activity
    store.update_session(KEY, last_prompt_tokens=100)
    clock.advance(hours=2)
    assert store.get_or_create_session(chat()).reset_had_activity


def test_a_reset_ends_what_its_agent_has_only_closed(
    make: Any, db: SessionDB, clock: Clock
) -> None:
    store = make(db, config=IDLE)
    first = begun(store, db)
    db.end_session(first, "ws_orphan_reap")
    clock.advance(hours=2)
    store.get_or_create_session(chat())
    assert ended(db, first) == "idle"


# Reset, switch, suspension, interruption


def test_a_reset_that_was_asked_for_begins_a_fresh_session(
    any_store: SessionStore, clock: Clock
) -> None:
    first = any_store.get_or_create_session(chat(chat_name="Ann"))
    clock.advance(minutes=1)
    second = any_store.reset_session(KEY)
    assert second is not None
    assert second.session_id != first.session_id
    assert (second.is_fresh_reset, second.was_auto_reset) == (True, False)
    assert (second.created_at, second.display_name) == (clock.time, "Ann")
    assert any_store.get(KEY) == second


def test_a_reset_ends_the_session_and_the_model_that_was_asked_for(
    store: SessionStore, db: SessionDB
) -> None:
    first = begun(store, db)
    store.set_model_override(KEY, {"model": "m", "api_key": "secret"})
    overridden = store.get(KEY)
    assert overridden is not None
    assert overridden.model_override == {"model": "m"}
    entry = store.reset_session(KEY, display_name="Trip")
    assert entry is not None
    assert (entry.model_override, entry.display_name) == (None, "Trip")
    assert ended(db, first) == "session_reset"


def test_a_reset_aims_at_the_continuation_that_the_route_has_missed(
    store: SessionStore, db: SessionDB
) -> None:
    parent = begun(store, db)
    db.end_session(parent, "compression")
    db.create_session("tip", "telegram", parent_session_id=parent)
    store.reset_session(KEY)
    assert (ended(db, parent), ended(db, "tip")) == ("compression", "session_reset")


def test_a_reset_of_a_chat_without_a_session_is_none(any_store: SessionStore) -> None:
    assert any_store.reset_session(KEY) is None


def test_a_switch_reopens_the_session_and_ends_the_other(
    store: SessionStore, db: SessionDB
) -> None:
    first = begun(store, db)
    db.create_session("target", "cli")
    db.end_session("target", "cli_close")
    entry = store.switch_session(KEY, "target")
    assert entry is not None
    assert entry.session_id == store.peek_session_id(KEY) == "target"
    assert (ended(db, first), ended(db, "target")) == ("session_switch", None)
    assert (entry.was_auto_reset, entry.is_fresh_reset) == (False, False)


def test_a_switch_to_where_the_chat_is_reopens_that(store: SessionStore, db: SessionDB) -> None:
    first = begun(store, db)
    db.end_session(first, "cli_close")
    assert store.switch_session(KEY, first) is not None
    assert ended(db, first) is None


def test_a_switch_to_a_session_that_is_not_there_changes_nothing(
    store: SessionStore, db: SessionDB
) -> None:
    first = begun(store, db)
    with pytest.raises(NotFound):
        store.switch_session(KEY, "nowhere")
    assert (store.peek_session_id(KEY), ended(db, first)) == (first, None)


def test_a_switch_of_a_chat_without_a_route_is_none(store: SessionStore, db: SessionDB) -> None:
    db.create_session("target", "cli")
    assert store.switch_session(KEY, "target") is None


def test_a_suspended_session_is_not_marked_as_interrupted(any_store: SessionStore) -> None:
    any_store.get_or_create_session(chat())
    any_store.suspend_session(KEY)
    assert not any_store.mark_resume_pending(KEY)
    entry = any_store.get(KEY)
    assert entry is not None
    assert not entry.resume_pending


def test_an_interruption_is_marked_with_its_reason_and_cleared(
    any_store: SessionStore, clock: Clock
) -> None:
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


def test_what_was_active_just_before_a_crash_is_marked_as_interrupted(
    store: SessionStore, clock: Clock
) -> None:
    for name in ("old", "suspended", "marked", "recent"):
        store.get_or_create_session(chat(name))
        clock.advance(seconds=0 if name != "old" else 121)
    store.suspend_session("agent:main:telegram:dm:suspended")
    store.mark_resume_pending("agent:main:telegram:dm:marked", "restart_timeout")
    assert store.suspend_recently_active() == 1
    reasons = {key.rpartition(":")[2]: e.resume_reason for key, e in store.entries().items()}
    assert reasons == {
        "old": None,
        "suspended": None,
        "marked": "restart_timeout",
        "recent": "restart_interrupted",
    }


@pytest.mark.parametrize(
    "verb", ["suspend_session", "mark_resume_pending", "clear_resume_pending", "update_session"]
)
def test_a_mark_on_a_chat_without_a_route_is_none(any_store: SessionStore, verb: str) -> None:
    assert not getattr(any_store, verb)(KEY)
    assert any_store.entries() == {}


# The end of a turn


def test_the_end_of_a_turn_consumes_the_marks_of_its_beginning(
    store: SessionStore, clock: Clock
) -> None:
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


def test_a_turn_that_was_not_finished_makes_no_interruption_good(store: SessionStore) -> None:
    session_id = store.get_or_create_session(chat()).session_id
    store.mark_resume_pending(KEY)
    entry = store.end_turn(KEY, session_id, finished=False)
    assert entry is not None
    assert entry.resume_pending


def test_the_end_of_a_turn_in_another_session_is_not_noted(store: SessionStore) -> None:
    old = store.get_or_create_session(chat()).session_id
    store.reset_session(KEY)
    before = store.get(KEY)
    assert store.end_turn(KEY, old, 77) is None
    assert store.get(KEY) == before


# A rotation


def test_a_rotation_is_followed_with_all_that_is_known_of_the_chat(
    store: SessionStore, db: SessionDB
) -> None:
    old = begun(store, db, user_id="7", chat_name="Ann", thread_id="9")
    db.create_session("child", "telegram", parent_session_id=old)
    store.follow(f"{KEY}:9", old, "child")
    row, parent = db.get_session("child"), db.get_session(old)
    assert row is not None
    assert parent is not None
    carried = ("session_key", "chat_id", "chat_type", "thread_id", "user_id", "display_name")
    names = (*carried, "origin_json", "source")
    assert {name: row[name] for name in names} == {name: parent[name] for name in names}


def test_a_rotation_to_the_same_id_writes_nothing(store: SessionStore, db: SessionDB) -> None:
    old = begun(store, db)
    before = db.get_gateway_routing_entry(KEY, scope=store._copies._scope)
    cursor = db.changes().cursor
    assert store.follow(KEY, old, old).session_id == old
    assert db.get_gateway_routing_entry(KEY, scope=store._copies._scope) == before
    assert db.changes(cursor).events == []


def test_a_rotation_of_a_chat_that_is_elsewhere_by_now_is_a_conflict(
    any_store: SessionStore,
) -> None:
    old = any_store.get_or_create_session(chat()).session_id
    new = any_store.reset_session(KEY)
    assert new is not None
    with pytest.raises(Conflict):
        any_store.follow(KEY, old, "child")
    assert any_store.peek_session_id(KEY) == new.session_id


def test_a_rotation_of_a_chat_without_a_route_is_not_found(any_store: SessionStore) -> None:
    with pytest.raises(NotFound):
        any_store.follow(KEY, "a", "b")


# Expiry


def test_an_expired_session_is_marked_in_both_places_and_ended(
    store: SessionStore, db: SessionDB
) -> None:
    session_id = begun(store, db)
    store.set_model_override(KEY, {"model": "m"})
    entry = store.get(KEY)
    assert entry is not None
    assert store.set_expiry_finalized(entry)
    marked, row = store.get(KEY), db.get_session(session_id)
    assert marked is not None
    assert row is not None
    assert (marked.expiry_finalized, marked.model_override) == (True, None)
    assert (row["expiry_finalized"], row["end_reason"]) == (1, "session_reset")


def test_an_expired_session_may_keep_its_model(store: SessionStore, db: SessionDB) -> None:
    begun(store, db)
    store.set_model_override(KEY, {"model": "m"})
    entry = store.get(KEY)
    assert entry is not None
    store.set_expiry_finalized(entry, clear_model_override=False)
    marked = store.get(KEY)
    assert marked is not None
    assert marked.model_override == {"model": "m"}


def test_an_expired_session_that_has_given_way_already_is_not_marked(
    store: SessionStore, db: SessionDB
) -> None:
    begun(store, db)
    entry = store.get(KEY)
    assert entry is not None
    store.reset_session(KEY)
    assert not store.set_expiry_finalized(entry)
    after = store.get(KEY)
    assert after is not None
    assert not after.expiry_finalized


def test_on_a_hermes_home_nothing_is_marked_as_expired(make: Any, hermes: SessionDB) -> None:
    store = make(hermes)
    session_id = begun(store, hermes)
    entry = store.get(KEY)
    assert entry is not None
    assert not store.set_expiry_finalized(entry)
    assert store.get(KEY) == entry
    row = hermes.get_session(session_id)
    assert row is not None
    assert (row["expiry_finalized"], row["end_reason"]) == (0, None)


# Looking


def test_entries_are_found_by_their_session(any_store: SessionStore) -> None:
    for name in ("a", "b"):
        any_store.get_or_create_session(chat(name))
    key = "agent:main:telegram:dm:b"
    session_id = any_store.peek_session_id(key)
    assert session_id is not None
    found = any_store.lookup_by_session_id(session_id)
    assert found is not None
    assert found.session_key == key
    assert any_store.lookup_by_session_id("none") is None
    assert any_store.peek_session_id("none") is None


def test_entries_are_listed_newest_first_and_by_activity(
    any_store: SessionStore, clock: Clock
) -> None:
    for name in ("a", "b", "c"):
        any_store.get_or_create_session(chat(name))
        clock.advance(minutes=10)
    names = [entry.session_key[-1] for entry in any_store.list_sessions()]
    recent = [entry.session_key[-1] for entry in any_store.list_sessions(active_minutes=20)]
    assert (names, recent) == (["c", "b", "a"], ["c", "b"])


@pytest.mark.parametrize(("config", "ends"), [(NONE, False), (IDLE, True), (BOTH, True)])
def test_whether_a_session_ever_ends_is_said_by_its_policy(
    make: Any, db: SessionDB, config: GatewayConfig, ends: bool
) -> None:
    store = make(db, config=config)
    assert store.is_session_finalizable(store.get_or_create_session(chat())) is ends


# Who else is there


def test_a_change_of_another_process_is_seen(any_store: SessionStore, make: Any) -> None:
    any_store.get_or_create_session(chat())
    other = make(any_store.db)
    reset = other.reset_session(KEY)
    assert reset is not None
    assert any_store.peek_session_id(KEY) == reset.session_id
    assert any_store.get_or_create_session(chat()).session_id == reset.session_id


def test_a_lost_update_is_a_conflict(any_store: SessionStore, make: Any) -> None:
    any_store.get_or_create_session(chat())
    stale = any_store.get(KEY)
    assert stale is not None
    make(any_store.db).suspend_session(KEY)
    stale.total_tokens = 5
    with pytest.raises(Conflict):
        any_store.save(stale)
    entry = any_store.get(KEY)
    assert entry is not None
    assert (entry.suspended, entry.total_tokens) == (True, 0)


def test_a_new_entry_does_not_take_the_place_of_another(
    any_store: SessionStore,
) -> None:
    entry = any_store.get_or_create_session(chat())
    entry.stored = None
    entry.session_id = "another"
    with pytest.raises(Conflict):
        any_store.save(entry)


def live_gateway(home: Path, pid: int) -> None:
    """Say that a gateway lives, as it says it itself."""
    argv = ["hermes", "gateway", "run"]
    record = {"pid": pid, "kind": "hermes-gateway", "argv": argv}
    (home / "gateway.pid").write_text(json.dumps(record))


@pytest.fixture
def gateway(home_path: Path) -> Any:
    """A process that looks like a live gateway of this home."""
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, "hermes", "gateway", "run"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        live_gateway(home_path, process.pid)
        yield process
        process.kill()


def test_beside_a_live_gateway_routes_are_read_and_not_changed(
    make: Any, hermes: SessionDB, gateway: Any, folder: Path
) -> None:
    put_row(hermes, folder, stored())
    store = make(hermes)
    entry = store.get(KEY)
    assert entry is not None
    before = rows(hermes, folder)
    changes = (
        lambda: store.get_or_create_session(chat()),
        lambda: store.reset_session(KEY),
        lambda: store.suspend_session(KEY),
        lambda: store.save(entry),
        lambda: store.prune_old_entries(1),
        lambda: store.remove(store.entries()),
        lambda: store.follow(KEY, "s1", "s2"),
        store.check_against_state,
    )
    entry.total_tokens = 9
    store._now.advance(days=30)
    for change in changes:
        with pytest.raises(Denied, match=rf"gateway \(pid {gateway.pid}\).*stop it"):
            change()
    assert rows(hermes, folder) == before
    assert not (folder / "sessions.json").exists()


def test_a_live_gateway_is_heeded_without_a_database_too(make: Any, gateway: Any) -> None:
    with pytest.raises(Denied):
        make().get_or_create_session(chat())


def test_a_gateway_that_embeds_the_store_is_not_refused(
    make: Any, hermes: SessionDB, home_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_gateway(home_path, os.getpid())
    monkeypatch.setattr("session_core.processes.argv", lambda _: ("hermes", "gateway", "run"))
    assert make(hermes).get_or_create_session(chat()).session_key == KEY


# Hooks of boundaries


@pytest.fixture
def told(make: Any, db: SessionDB) -> list[tuple[str, str, str | None]]:
    """What the hooks of a store were told."""
    return []


@pytest.fixture
def hooks(told: list[Any]) -> Hooks:
    hooks = Hooks(group=None, report=lambda *_: None)
    for hook in ("on_session_finalize", "on_session_reset"):
        hooks.add(
            hook,
            lambda session_id, reason, _hook=hook: told.append((_hook[11:], session_id, reason)),
        )
    return hooks


def test_a_reset_that_was_asked_for_is_told_once_old_before_new(
    make: Any, db: SessionDB, hooks: Hooks, told: list[Any]
) -> None:
    store = make(db, hooks=hooks)
    old = begun(store, db)
    new = store.reset_session(KEY).session_id
    assert told == [("finalize", old, "new_session"), ("reset", new, "new_session")]


@pytest.mark.parametrize(
    ("config", "prepare", "reason"),
    [
        (IDLE, lambda store: store._now.advance(hours=2), "idle"),
        (DAILY, lambda store: store._now.advance(days=2), "daily"),
        (NONE, lambda store: store.suspend_session(KEY), "suspended"),
        (
            DAILY,
            lambda store: store.mark_resume_pending(KEY) and store._now.advance(hours=2),
            "resume_pending_expired",
        ),
    ],
)
def test_an_automatic_reset_is_told_once_old_before_new(  # noqa: PLR0917 -- fixtures
    make: Any,
    db: SessionDB,
    hooks: Hooks,
    told: list[Any],
    config: GatewayConfig,
    prepare: Any,
    reason: str,
) -> None:
    store = make(db, config=config, hooks=hooks)
    old = begun(store, db)
    prepare(store)
    new = store.get_or_create_session(chat()).session_id
    assert told == [("finalize", old, reason), ("reset", new, reason)]


def test_the_end_of_a_session_that_was_marked_as_expired_is_not_told_again(
    make: Any, db: SessionDB, hooks: Hooks, told: list[Any]
) -> None:
    first = make(db, config=IDLE)
    begun(first, db)
    first.set_expiry_finalized(first.get(KEY))
    first._now.advance(hours=2)
    store = make(db, config=IDLE, hooks=hooks)
    new = store.get_or_create_session(chat()).session_id
    assert told == [("reset", new, "idle")]


def test_a_switch_is_told_there_and_back(
    make: Any, db: SessionDB, hooks: Hooks, told: list[Any]
) -> None:
    store = make(db, hooks=hooks)
    old = begun(store, db)
    db.create_session("target", "cli")
    for session_id in ("target", old, "target"):
        store.switch_session(KEY, session_id)
    why = "session_switch"
    assert told == [
        ("finalize", old, why),
        ("reset", "target", why),
        ("finalize", "target", why),
        ("reset", old, why),
        ("finalize", old, why),
        ("reset", "target", why),
    ]


def test_a_switch_to_where_another_chat_has_begun_is_told(
    make: Any, db: SessionDB, hooks: Hooks, told: list[Any]
) -> None:
    store = make(db, hooks=hooks)
    old = begun(store, db)
    store.get_or_create_session(chat("other"))
    shared = store.reset_session("agent:main:telegram:dm:other").session_id
    db.create_session(shared, "telegram")
    told.clear()
    store.switch_session(KEY, shared)
    assert [event[:2] for event in told] == [("finalize", old), ("reset", shared)]


def test_the_end_of_a_session_that_was_reopened_is_told_again(
    make: Any, db: SessionDB, hooks: Hooks, told: list[Any]
) -> None:
    store = make(db, hooks=hooks)
    old = begun(store, db)
    hooks.once("on_session_finalize", session_id=old, platform="telegram")
    db.end_session(old, "agent_close")
    assert store.get_or_create_session(chat()).session_id == old
    store.reset_session(KEY)
    assert [told_of for told_of in told if told_of[1] == old] == [
        ("finalize", old, None),
        ("finalize", old, "new_session"),
    ]


def test_the_hooks_of_a_reset_are_told_when_it_is_stored(
    make: Any, db: SessionDB, hooks: Hooks
) -> None:
    store = make(db, hooks=hooks)
    begun(store, db)
    seen: list[Any] = []
    hooks.add(
        "on_session_finalize",
        lambda new_session_id: seen.append(store.peek_session_id(KEY) == new_session_id),
    )
    store.reset_session(KEY)
    assert seen == [True]


def test_no_hook_is_told_of_a_change_that_failed(
    make: Any, db: SessionDB, hooks: Hooks, told: list[Any]
) -> None:
    store = make(db, hooks=hooks)
    begun(store, db)
    with pytest.raises(NotFound):
        store.switch_session(KEY, "nowhere")
    assert told == []


def test_a_mirror_that_cannot_be_written_keeps_no_reset_and_no_hook_from_coming(
    make: Any, db: SessionDB, hooks: Hooks, told: list[Any], folder: Path
) -> None:
    store = make(db, hooks=hooks)
    begun(store, db)
    (folder / "sessions.json").unlink()
    (folder / "sessions.json").mkdir()
    new = store.reset_session(KEY)
    assert new is not None
    assert store.peek_session_id(KEY) == new.session_id
    assert len(told) == 2
    assert any("mirror" in problem for problem in store.problems)


def test_a_retry_tells_a_boundary_once(
    make: Any, db: SessionDB, hooks: Hooks, told: list[Any], folder: Path
) -> None:
    """Another process is faster between what was read and what is written."""
    store = make(db, hooks=hooks)
    begun(store, db)
    real, calls = store._heal, []

    def heal(entry: Any) -> bool:
        calls.append(entry)
        if len(calls) == 1:
            put_row(db, folder, rows(db, folder)[KEY] | {"total_tokens": 7})
        return real(entry)

    store._heal = heal
    store.reset_session(KEY)
    assert [hook for hook, *_ in told] == ["finalize", "reset"]
    assert len(calls) == 2


def test_an_entry_whose_time_is_in_another_zone_is_pruned_as_any(
    store: SessionStore, db: SessionDB, folder: Path, clock: Clock
) -> None:
    old = (clock.time - timedelta(days=40)).astimezone().isoformat()
    put_row(db, folder, stored(updated_at=old))
    assert store.prune_old_entries(30) == 1
