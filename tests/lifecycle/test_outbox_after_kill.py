"""Pending hook calls of a killed process: the next process delivers them once, in order."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import Busy, ExpiryWatcher, Hooks, SessionDB, SessionStore
from session_core.routing.entries import PENDING_FIELD
from tests.cli.fork_server import ForkServer
from tests.homes import make_hermes_database
from tests.lifecycle.runtimes import IDLE, World, beside
from tests.routing.chats import KEY, Clock, chat, file_entries
from tests.thorough import take_main_kinds

ROOT = Path(__file__).parents[2]

Told = list[tuple[str, str]]
Kill = Callable[..., Told]

CHANGES = ("reset", "switch", "resume", "arrival")

_KILLED = """
import os, sys
from pathlib import Path
from session_core import ExpiryWatcher, Hooks
from tests.lifecycle.runtimes import IDLE, World
from tests.routing.chats import KEY, chat

home, way, where = sys.argv[1:]
world = World(Path(home), config=IDLE)
world.clock.advance(hours=2 if way in ("arrival", "expiry") else 0)

def die(*_, **__):
    os.kill(os.getpid(), 9)

def tell(hook, session_id):
    print(hook, session_id, flush=True)
    if where == hook:
        die()

for hook in ("finalize", "reset"):
    world.hooks.add(f"on_session_{hook}", lambda session_id, hook=hook: tell(hook, session_id))
if where == "before":
    Hooks.call_boundary = Hooks.call_once = die
elif where == "just before":
    world.store.outbox._begin_delivery = world.store.begin_end_delivery = die
{
    "reset": lambda: world.runtime.reset(KEY),
    "switch": lambda: world.runtime.switch(KEY, "target"),
    "resume": lambda: world.runtime.resume(KEY, "the target"),
    "arrival": lambda: world.store.get_or_create_session(chat()),
    "expiry": lambda: ExpiryWatcher(world.runtime).tick(),
}[way]()
"""


@pytest.fixture(params=take_main_kinds(["own", "hermes", "older"]))
def session_id(request: pytest.FixtureRequest, home_path: Path) -> str:
    """The session of a chat, with another session to move to."""
    if request.param != "own":
        make_hermes_database(home_path / "state.db", 22 if request.param == "hermes" else 17)
    world = World(home_path, config=IDLE)
    session_id = world.say().session_id
    world.db.create_session("target", "cli")
    world.db.set_session_title("target", "the target")
    world.close()
    return session_id


@pytest.fixture
def kill(forks: ForkServer, home_path: Path, session_id: str) -> Kill:
    """Start a process that changes the chat's session and is killed, and return its hook calls."""

    def kill(way: str, where: str) -> Told:
        result = forks.run_script(_KILLED, home_path, way, where)
        assert result.code == -9, result.err
        lines = (line.split() for line in result.out.splitlines())
        return [(hook, told_of) for hook, told_of in lines]

    return kill


@pytest.fixture
def start(home_path: Path) -> Iterator[Callable[[], World]]:
    """Start a process with a runtime on the home."""
    started: list[World] = []

    def start() -> World:
        started.append(World(home_path, config=IDLE))
        return started[-1]

    yield start
    for world in started:
        world.close()


@pytest.fixture
def open_bare_store(home_path: Path) -> Iterator[Callable[[], tuple[SessionStore, Told]]]:
    """Open stores without a runtime, each with a list of its hook calls."""
    opened: list[SessionDB] = []

    def make() -> tuple[SessionStore, Told]:
        opened.append(SessionDB(home_path / "state.db"))
        hook_calls: Told = []
        hooks = Hooks(group=None, report=lambda *_: None)
        for hook in ("finalize", "reset"):
            hooks.add(
                f"on_session_{hook}",
                lambda session_id, hook=hook: hook_calls.append((hook, session_id)),
            )
        store = SessionStore(
            home_path / "sessions", config=IDLE, db=opened[-1], hooks=hooks, now=Clock()
        )
        return store, hook_calls

    yield make
    for db in opened:
        db.close()


def list_pending(home: Path) -> list[Any]:
    """Return the pending hook calls in the route of the chat."""
    with SessionDB(home / "state.db") as db:
        entry = SessionStore(home / "sessions", db=db).get(KEY)
    assert entry is not None
    return entry.extra.get(PENDING_FIELD, [])


# Kills, and delivery by the next process


@pytest.mark.requirement("hooks:killed")
@pytest.mark.parametrize("where", ["before", "just before", "finalize", "reset"])
@pytest.mark.parametrize("way", CHANGES)
def test_stored_change_is_delivered_once_after_kill(
    kill: Kill, start: Any, session_id: str, way: str, where: str
) -> None:
    before = kill(way, where)
    world = start()
    new = world.store.peek_session_id(KEY)
    assert new != session_id
    expected = [("finalize", session_id), ("reset", new)]
    assert before + world.boundaries == expected
    assert len(before) == {"finalize": 1, "reset": 2}.get(where, 0)
    assert start().boundaries == []


@pytest.mark.requirement("hooks:killed")
@pytest.mark.parametrize("where", ["before", "just before", "finalize"])
def test_expiry_is_delivered_once_after_kill(
    kill: Kill, start: Any, session_id: str, where: str
) -> None:
    before = kill("expiry", where)
    worlds = [start(), start()]
    for world in worlds:
        world.clock.advance(hours=2)
    assert [ExpiryWatcher(world.runtime).tick() for world in worlds] == [[session_id], []]
    hook_calls = [before, *(world.boundaries for world in worlds)]
    assert [event for events in hook_calls for event in events] == [("finalize", session_id)]
    assert bool(before) == (where == "finalize")


@pytest.mark.requirement("hooks:killed")
@pytest.mark.parametrize("by", ["a tick", "a message", "a reset", "a switch"])
def test_first_process_delivers_pending_hooks_first(
    kill: Kill, open_bare_store: Any, session_id: str, home_path: Path, by: str
) -> None:
    kill("reset", "before")
    store, hook_calls = open_bare_store()
    second = store.peek_session_id(KEY)
    ways: dict[str, Callable[[], Any]] = {
        "a tick": store.deliver_pending_hooks,
        "a message": lambda: store.get_or_create_session(chat()),
        "a reset": lambda: store.reset_session(KEY),
        "a switch": lambda: store.switch_session(KEY, "target"),
    }
    ways[by]()
    third = store.peek_session_id(KEY)
    expected = [("finalize", session_id), ("reset", second)]
    if third != second:
        expected += [("finalize", second), ("reset", third)]
    assert hook_calls == expected
    assert list_pending(home_path) == []


@pytest.mark.requirement("hooks:killed")
def test_concurrent_starts_deliver_pending_hooks_once(
    kill: Kill, open_bare_store: Any, session_id: str
) -> None:
    kill("reset", "just before")
    stores = [open_bare_store() for _ in range(4)]
    barrier = threading.Barrier(4)

    def tell(store: SessionStore) -> None:
        barrier.wait(30)
        store.deliver_pending_hooks()

    with beside(*(lambda store=store: tell(store) for store, _ in stores)) as results:
        pass
    assert results == [None] * 4
    hook_calls = [event for _, events in stores for event in events]
    assert hook_calls == [("finalize", session_id), ("reset", stores[0][0].peek_session_id(KEY))]


def test_pending_hooks_of_two_processes_keep_order(
    kill: Kill, start: Any, session_id: str, home_path: Path
) -> None:
    kill("reset", "before")
    owed = list_pending(home_path)
    with SessionDB(home_path / "state.db") as db:
        SessionStore(home_path / "sessions", db=db).reset_session(KEY)
    assert list_pending(home_path) == owed
    second = owed[0]["new_session_id"]
    assert start().boundaries == [("finalize", session_id), ("reset", second)]


# One delivery among processes


@pytest.mark.requirement("hooks:killed")
def test_pending_hooks_of_living_process_are_left(
    start: Any, open_bare_store: Any, session_id: str
) -> None:
    world = start()
    inside: list[Told] = []

    def look() -> None:
        store, hook_calls = open_bare_store()
        store.deliver_pending_hooks()
        inside.append(hook_calls)

    world.hooks.add("on_session_finalize", look)
    world.runtime.reset(KEY)
    assert inside == [[]]
    assert world.boundaries == [
        ("finalize", session_id),
        ("reset", world.store.peek_session_id(KEY)),
    ]


def test_delivered_hooks_leave_no_trace_in_route(
    start: Any, session_id: str, home_path: Path
) -> None:
    world = start()
    world.runtime.reset(KEY)
    assert list_pending(home_path) == []
    world.close()
    assert PENDING_FIELD not in json.dumps(file_entries(home_path / "sessions"))


def test_route_without_listeners_records_no_hooks(
    open_bare_store: Any, session_id: str, home_path: Path
) -> None:
    store, _ = open_bare_store()
    for name in store.hooks.list_names():
        store.hooks.remove(name)
    store.outbox._begin_delivery = None
    store.reset_session(KEY)
    assert list_pending(home_path) == []


# Failures


@pytest.mark.requirement("hooks:killed")
def test_unrecordable_start_is_still_delivered(
    start: Any, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = start()

    def busy(*_: Any) -> None:
        raise Busy("the write lock is held")

    monkeypatch.setattr("session_core.routing.outbox.record_finalize_begun", busy)
    monkeypatch.setattr("session_core.routing.outbox.record_reset_begun", busy)
    world.runtime.reset(KEY)
    assert world.boundaries == [
        ("finalize", session_id),
        ("reset", world.store.peek_session_id(KEY)),
    ]
    assert any("may be repeated" in message for message in world.reported)


def test_unclaimable_hooks_wait_for_next_start(
    kill: Kill, start: Any, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill("reset", "before")

    def busy(*_: Any, **__: Any) -> None:
        raise Busy("the write lock is held")

    with monkeypatch.context() as patch:
        patch.setattr("session_core.routing.outbox.transfer_pending_boundary", busy)
        first = start()
        assert ExpiryWatcher(first.runtime, report=lambda *_: None).tick() == []
        assert first.boundaries == []
        assert any("delivered later" in what for what in first.reported)
    assert len(start().boundaries) == 2


@pytest.mark.parametrize("stored", [3, {"id": "x"}, ["x"], [{"id": "x"}], [{"id": 3}]])
def test_unreadable_pending_hooks_are_ignored(
    start: Any, open_bare_store: Any, session_id: str, stored: Any
) -> None:
    store, _ = open_bare_store()
    entry = store.get(KEY)
    entry.extra[PENDING_FIELD] = stored
    store.save(entry)
    assert start().boundaries == []


def test_route_removed_before_reset_delivery_is_delivered(start: Any, session_id: str) -> None:
    world = start()
    began = world.store.outbox._begin_delivery

    def begins(key: str, owed: Any, hook: str) -> bool:
        world.store.remove(world.store.load_entries())
        hook_calls: bool = began(key, owed, hook)
        return hook_calls

    world.store.outbox._begin_delivery = begins
    world.runtime.reset(KEY)
    assert [hook for hook, _ in world.boundaries] == ["finalize", "reset"]


def test_start_check_keeps_route_with_pending_hooks(
    kill: Kill, open_bare_store: Any, session_id: str
) -> None:
    kill("reset", "before")
    store, _ = open_bare_store()
    new = store.peek_session_id(KEY)
    store.db.create_session(new, "telegram")
    store.db.end_session(new, "session_reset")
    assert store.repair_routes() == []
    store.deliver_pending_hooks()
    assert store.repair_routes() == [KEY]
