"""Delivery of boundary hooks by a store: once, after the commit, the old id before the new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import Conflict, Hooks, NotFound, SessionDB
from session_core.config import GatewayConfig
from session_core.routing.entries import PENDING_FIELD
from tests.routing.chats import (
    DAILY,
    IDLE,
    KEY,
    NONE,
    begin_session,
    chat,
    put_row,
    read_rows,
)


@pytest.fixture
def hook_calls(make: Any, db: SessionDB) -> list[tuple[str, str, str | None]]:
    """The recorded hook calls."""
    return []


@pytest.fixture
def hooks(hook_calls: list[Any]) -> Hooks:
    hooks = Hooks(group=None, report=lambda *_: None)
    for hook in ("on_session_finalize", "on_session_reset"):
        hooks.add(
            hook,
            lambda session_id, reason, _hook=hook: hook_calls.append(
                (_hook[11:], session_id, reason)
            ),
        )
    return hooks


@pytest.mark.requirement("store:hooks")
def test_requested_reset_calls_hooks_in_order(
    make: Any, db: SessionDB, hooks: Hooks, hook_calls: list[Any]
) -> None:
    store = make(db, hooks=hooks)
    old = begin_session(store, db)
    new = store.reset_session(KEY).session_id
    assert hook_calls == [("finalize", old, "new_session"), ("reset", new, "new_session")]


@pytest.mark.requirement("store:hooks")
@pytest.mark.parametrize(
    ("config", "prepare", "reason"),
    [
        (IDLE, lambda store: store.settings.now.advance(hours=2), "idle"),
        (DAILY, lambda store: store.settings.now.advance(days=2), "daily"),
        (NONE, lambda store: store.suspend_session(KEY), "suspended"),
        (
            DAILY,
            lambda store: store.mark_resume_pending(KEY) and store.settings.now.advance(hours=2),
            "resume_pending_expired",
        ),
    ],
)
def test_automatic_reset_calls_hooks_in_order(  # noqa: PLR0917 -- fixtures
    make: Any,
    db: SessionDB,
    hooks: Hooks,
    hook_calls: list[Any],
    config: GatewayConfig,
    prepare: Any,
    reason: str,
) -> None:
    store = make(db, config=config, hooks=hooks)
    old = begin_session(store, db)
    prepare(store)
    new = store.get_or_create_session(chat()).session_id
    assert hook_calls == [("finalize", old, reason), ("reset", new, reason)]


def test_expired_session_is_not_finalized_again(
    make: Any, db: SessionDB, hooks: Hooks, hook_calls: list[Any]
) -> None:
    first = make(db, config=IDLE)
    begin_session(first, db)
    first.settings.now.advance(hours=2)
    assert first.claim_expiry(first.get(KEY))
    assert first.set_expiry_finalized(first.get(KEY))
    store = make(db, config=IDLE, hooks=hooks)
    new = store.get_or_create_session(chat()).session_id
    assert hook_calls == [("reset", new, "idle")]


@pytest.mark.requirement("store:hooks")
def test_switch_and_return_call_hooks(
    make: Any, db: SessionDB, hooks: Hooks, hook_calls: list[Any]
) -> None:
    store = make(db, hooks=hooks)
    old = begin_session(store, db)
    db.create_session("target", "cli")
    for session_id in ("target", old, "target"):
        store.switch_session(KEY, session_id)
    why = "session_switch"
    assert hook_calls == [
        ("finalize", old, why),
        ("reset", "target", why),
        ("finalize", "target", why),
        ("reset", old, why),
        ("finalize", old, why),
        ("reset", "target", why),
    ]


def test_switch_to_shared_session_calls_hooks(
    make: Any, db: SessionDB, hooks: Hooks, hook_calls: list[Any]
) -> None:
    store = make(db, hooks=hooks)
    old = begin_session(store, db)
    store.get_or_create_session(chat("other"))
    shared = store.reset_session("agent:main:telegram:dm:other").session_id
    db.create_session(shared, "telegram")
    hook_calls.clear()
    store.switch_session(KEY, shared)
    assert [event[:2] for event in hook_calls] == [("finalize", old), ("reset", shared)]


@pytest.mark.requirement("store:hooks")
def test_reopened_session_is_finalized_again(
    make: Any, db: SessionDB, hooks: Hooks, hook_calls: list[Any]
) -> None:
    store = make(db, hooks=hooks)
    old = begin_session(store, db)
    hooks.call_once("on_session_finalize", session_id=old, platform="telegram")
    db.end_session(old, "agent_close")
    assert store.get_or_create_session(chat()).session_id == old
    store.reset_session(KEY)
    assert [call for call in hook_calls if call[1] == old] == [
        ("finalize", old, None),
        ("finalize", old, "new_session"),
    ]


def test_reset_hooks_run_after_store(make: Any, db: SessionDB, hooks: Hooks) -> None:
    store = make(db, hooks=hooks)
    begin_session(store, db)
    results: list[Any] = []
    hooks.add(
        "on_session_finalize",
        lambda new_session_id: results.append(store.peek_session_id(KEY) == new_session_id),
    )
    store.reset_session(KEY)
    assert results == [True]


def test_failed_change_calls_no_hooks(
    make: Any, db: SessionDB, hooks: Hooks, hook_calls: list[Any]
) -> None:
    store = make(db, hooks=hooks)
    begin_session(store, db)
    with pytest.raises(NotFound):
        store.switch_session(KEY, "nowhere")
    assert hook_calls == []


def test_unwritable_mirror_blocks_no_reset_hooks(
    make: Any, db: SessionDB, hooks: Hooks, hook_calls: list[Any], folder: Path
) -> None:
    store = make(db, hooks=hooks)
    begin_session(store, db)
    (folder / "sessions.json").unlink()
    (folder / "sessions.json").mkdir()
    new = store.reset_session(KEY)
    assert new is not None
    assert store.peek_session_id(KEY) == new.session_id
    assert len(hook_calls) == 2
    assert any("mirror" in problem for problem in store.problems)


@pytest.mark.requirement("store:hooks")
def test_retry_calls_boundary_hooks_once(
    make: Any, db: SessionDB, hooks: Hooks, hook_calls: list[Any], folder: Path
) -> None:
    """Another process writes between the read and the write."""
    store = make(db, hooks=hooks)
    begin_session(store, db)
    real, calls = store.router._follow_compression, []

    def heal(entry: Any) -> bool:
        calls.append(entry)
        if len(calls) == 1:
            put_row(db, folder, read_rows(db, folder)[KEY] | {"total_tokens": 7})
        return real(entry)

    store.router._follow_compression = heal
    store.reset_session(KEY)
    assert [hook for hook, *_ in hook_calls] == ["finalize", "reset"]
    assert len(calls) == 2


@pytest.mark.parametrize("way", ["reset", "arrival", "force", "switch"])
def test_entry_after_boundary_can_be_saved(
    make: Any, db: SessionDB, hooks: Hooks, hook_calls: list[Any], way: str
) -> None:
    store = make(db, config=IDLE, hooks=hooks)
    begin_session(store, db)
    db.create_session("target", "cli")
    store.settings.now.advance(hours=2 if way == "arrival" else 0)
    ways = {
        "reset": lambda: store.reset_session(KEY),
        "arrival": lambda: store.get_or_create_session(chat()),
        "force": lambda: store.get_or_create_session(chat(), force_new=True),
        "switch": lambda: store.switch_session(KEY, "target"),
    }
    entry = ways[way]()
    entry.display_name = "changed"
    store.save(entry)
    assert store.get(KEY).display_name == "changed"
    store.deliver_pending_hooks()
    assert PENDING_FIELD not in store.get(KEY).extra
    assert [hook for hook, *_ in hook_calls] == ["finalize", "reset"]


def test_concurrent_entry_change_makes_save_conflict(
    make: Any, db: SessionDB, hooks: Hooks
) -> None:
    store = make(db, hooks=hooks)
    begin_session(store, db)
    entry = store.reset_session(KEY)
    store.update_session(KEY, 5)
    entry.display_name = "changed"
    with pytest.raises(Conflict):
        store.save(entry)


def test_session_reset_elsewhere_calls_no_hooks(
    make: Any, db: SessionDB, hooks: Hooks, hook_calls: list[Any]
) -> None:
    store = make(db, hooks=hooks)
    old = begin_session(store, db)
    db.promote_to_session_reset(old, "session_reset")
    assert store.get_or_create_session(chat()).session_id != old
    assert hook_calls == []
