"""Pending hook calls of a dead process are delivered before new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import Hooks, SessionRuntime, SessionStore
from session_core.routing.entries import PENDING_FIELD
from tests.lifecycle.runtimes import World, echo
from tests.routing.chats import KEY, chat


@pytest.fixture
def owing_world(world: World) -> World:
    """A runtime with a chat that changed its session in a dead process."""
    owe(world, new_session_id=world.say().session_id)
    return world


def owe(world: World, **changed: Any) -> None:
    """Store a pending boundary of two hours ago in the route of the chat."""
    entry = world.store.get(KEY)
    assert entry is not None
    owed = {
        "id": "a boundary",
        "holder": "pid=1",
        "since": "2026-03-10T10:00:00",
        "new_session_id": entry.session_id,
        "old_session_id": "old",
        "reason": "new_session",
        "used_at": "2026-03-10T10:00:00",
    }
    entry.extra[PENDING_FIELD] = [owed | changed]
    world.store.save(entry)


def test_pending_boundary_is_delivered_before_close(owing_world: World) -> None:
    new = owing_world.runtime.finalize(KEY)
    assert owing_world.boundaries == [("finalize", "old"), ("reset", new), ("finalize", new)]


def test_prune_keeps_route_with_pending_boundary(owing_world: World) -> None:
    owing_world.clock.advance(days=100)
    assert owing_world.store.prune_old_entries(90) == 0
    owing_world.store.deliver_pending_hooks()
    assert len(owing_world.boundaries) == 2
    assert owing_world.store.prune_old_entries(90) == 1


@pytest.mark.parametrize("verb", ["handle", "reset", "finalize"])
def test_process_without_listeners_leaves_pending_boundary(
    owing_world: World, home_path: Path, verb: str
) -> None:
    with SessionStore(owing_world.folder, db=owing_world.db, now=owing_world.clock) as store:
        deaf = SessionRuntime(store, lambda _: echo, hooks=Hooks(group=None))
        if verb == "handle":
            deaf.handle(chat(), "hello")
        else:
            getattr(deaf, verb)(KEY)
    owing_world.store.deliver_pending_hooks()
    assert [hook for hook, _ in owing_world.boundaries] == ["finalize", "reset"]
    assert owing_world.boundaries[0] == ("finalize", "old")


@pytest.mark.parametrize("name", ["old_session_id", "new_session_id"])
@pytest.mark.parametrize("unsafe", ["../../secrets", "/etc/passwd", "a\\b"])
def test_pending_boundary_with_unsafe_id_is_dropped(world: World, name: str, unsafe: str) -> None:
    world.say()
    owe(world, **{name: unsafe})
    world.store.deliver_pending_hooks()
    world.say()
    world.runtime.finalize(KEY)
    assert unsafe not in [session_id for _, session_id in world.boundaries]


def test_stale_save_does_not_restore_pending_boundary(owing_world: World) -> None:
    entry = owing_world.store.get(KEY)
    assert entry is not None
    owing_world.store.deliver_pending_hooks()
    entry.display_name = "changed"
    owing_world.store.save(entry)
    owing_world.store.deliver_pending_hooks()
    assert len(owing_world.boundaries) == 2
