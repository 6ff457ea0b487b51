"""What a process that has died owes the hooks is told before more is, and by nobody in vain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import Hooks, SessionRuntime, SessionStore
from session_core.routing.entries import PENDING_FIELD
from tests.lifecycle.runtimes import World, echo
from tests.routing.chats import KEY, chat


@pytest.fixture
def owing(world: World) -> World:
    """A runtime whose chat has crossed a boundary in a process that has died."""
    owe(world, new_session_id=world.say().session_id)
    return world


def owe(world: World, **changed: Any) -> None:
    """Let the route of the chat owe a boundary, of two hours ago."""
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


def test_it_is_told_before_the_session_that_it_began_is_closed(owing: World) -> None:
    new = owing.runtime.finalize(KEY)
    assert owing.boundaries == [("finalize", "old"), ("reset", new), ("finalize", new)]


def test_a_prune_keeps_the_route_that_owes_it(owing: World) -> None:
    owing.clock.advance(days=100)
    assert owing.store.prune_old_entries(90) == 0
    owing.store.deliver_pending_hooks()
    assert len(owing.boundaries) == 2
    assert owing.store.prune_old_entries(90) == 1


@pytest.mark.parametrize("verb", ["handle", "reset", "finalize"])
def test_a_process_in_which_nobody_listens_leaves_it_to_who_does(
    owing: World, home_path: Path, verb: str
) -> None:
    with SessionStore(owing.folder, db=owing.db, now=owing.clock) as store:
        deaf = SessionRuntime(store, lambda _: echo, hooks=Hooks(group=None))
        if verb == "handle":
            deaf.handle(chat(), "hello")
        else:
            getattr(deaf, verb)(KEY)
    owing.store.deliver_pending_hooks()
    assert [hook for hook, _ in owing.boundaries] == ["finalize", "reset"]
    assert owing.boundaries[0] == ("finalize", "old")


@pytest.mark.parametrize("name", ["old_session_id", "new_session_id"])
@pytest.mark.parametrize("unsafe", ["../../secrets", "/etc/passwd", "a\\b"])
def test_an_id_that_is_no_safe_one_is_told_to_nobody(world: World, name: str, unsafe: str) -> None:
    world.say()
    owe(world, **{name: unsafe})
    world.store.deliver_pending_hooks()
    world.say()
    world.runtime.finalize(KEY)
    assert unsafe not in [session_id for _, session_id in world.boundaries]


def test_a_save_of_what_was_read_before_it_was_told_lets_it_be_told_no_more(owing: World) -> None:
    entry = owing.store.get(KEY)
    assert entry is not None
    owing.store.deliver_pending_hooks()
    entry.display_name = "changed"
    owing.store.save(entry)
    owing.store.deliver_pending_hooks()
    assert len(owing.boundaries) == 2
