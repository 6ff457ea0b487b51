"""Interrupted and suspended sessions, the end of a turn, and recorded expiry."""

from __future__ import annotations

import pytest

from session_core import SessionStore
from tests.routing.chats import (
    KEY,
    Clock,
    chat,
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
