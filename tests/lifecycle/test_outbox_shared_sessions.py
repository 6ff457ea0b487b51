"""The end of a session that several chats share is reported once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from session_core import ExpiryWatcher
from tests.homes import make_hermes_database
from tests.lifecycle.runtimes import IDLE, World, beside, of
from tests.routing.chats import KEY, OTHER
from tests.thorough import take_main_kinds

Start = Callable[[], World]


@pytest.fixture(params=take_main_kinds(["own", "hermes", "older"]))
def start(request: pytest.FixtureRequest, home_path: Path) -> Iterator[Start]:
    """Start a process with a runtime on a home."""
    if request.param != "own":
        make_hermes_database(home_path / "state.db", 22 if request.param == "hermes" else 17)
    started: list[World] = []

    def start() -> World:
        started.append(World(home_path, config=IDLE))
        return started[-1]

    yield start
    for world in started:
        world.close()


@pytest.fixture
def session_id(start: Start) -> str:
    """A session that two chats share."""
    world = start()
    session_id = world.say().session_id
    world.clock.advance(seconds=1)
    world.say(chat_id=43)
    world.runtime.switch(of(43), session_id)
    return session_id


def count_ends(session_id: str, *worlds: World) -> int:
    """Return how often the end of a session was reported."""
    return sum(world.names("finalize").count(("finalize", session_id)) for world in worlds)


def test_second_chat_leaving_fires_no_second_end(start: Start, session_id: str) -> None:
    first, second = start(), start()
    first.runtime.reset(KEY)
    second.runtime.reset(OTHER)
    assert count_ends(session_id, first, second) == 1
    assert [hook for hook, _ in second.boundaries] == ["reset"]


@pytest.mark.parametrize("start", ["own", "hermes"], indirect=True)
def test_chats_leaving_in_same_step_end_once(start: Start, session_id: str) -> None:
    world = start()
    with world.store.transaction(KEY, OTHER):
        world.store.reset_session(KEY)
        world.store.reset_session(OTHER)
    assert count_ends(session_id, world) == 1
    assert [hook for hook, _ in world.boundaries] == ["finalize", "reset", "reset"]


def test_watcher_fires_no_second_end(start: Start, session_id: str) -> None:
    first, second = start(), start()
    first.runtime.reset(KEY)
    second.clock.advance(hours=2)
    ExpiryWatcher(second.runtime).tick()
    second.say(chat_id=43)
    assert count_ends(session_id, first, second) == 1


def test_rejoined_session_end_fires_again(start: Start, session_id: str) -> None:
    first, second = start(), start()
    first.runtime.reset(KEY)
    first.runtime.switch(KEY, session_id)
    second.runtime.reset(OTHER)
    assert count_ends(session_id, first, second) == 2


@pytest.mark.parametrize("start", ["own", "hermes"], indirect=True)
def test_chats_leaving_concurrently_end_once(start: Start, session_id: str) -> None:
    worlds = [start(), start()]
    barrier = threading.Barrier(2)

    def reset(world: World, key: str) -> None:
        barrier.wait(30)
        world.runtime.reset(key)

    calls = [
        lambda world=world, key=key: reset(world, key)
        for world, key in zip(worlds, (KEY, OTHER), strict=True)
    ]
    with beside(*calls) as results:
        pass
    assert results == [None, None]
    assert count_ends(session_id, *worlds) == 1


def test_close_delivers_unstarted_claim_of_other_process(start: Start, session_id: str) -> None:
    world, other = start(), start()
    assert other.store.claim_end(KEY, session_id)
    world.runtime.finalize(KEY)
    assert not other.store.begin_end_delivery(KEY, session_id)
    assert count_ends(session_id, world) == 1


def test_close_leaves_started_delivery_to_other_process(start: Start, session_id: str) -> None:
    world, other = start(), start()
    assert other.store.claim_end(KEY, session_id)
    assert other.store.begin_end_delivery(KEY, session_id)
    world.runtime.finalize(KEY)
    assert count_ends(session_id, world) == 0


# Each chat has a clock of its own


@pytest.fixture
def session_used_elsewhere(start: Start, session_id: str) -> str:
    """A shared session that one chat has not used for longer than its policy allows."""
    world = start()
    world.clock.advance(minutes=55)
    world.say(chat_id=43)
    return session_id


@pytest.mark.requirement("chats:own-clock")
def test_chat_keeps_session_expired_for_other_chat(
    start: Start, session_used_elsewhere: str
) -> None:
    world = start()
    world.clock.advance(minutes=65)
    ExpiryWatcher(world.runtime).tick()
    assert world.say().session_id != session_used_elsewhere
    assert world.store.find_route_state(world.store.load_entries()[OTHER]) == "active"
    assert world.say(chat_id=43).session_id == session_used_elsewhere


@pytest.mark.requirement("chats:own-clock")
def test_message_keeps_session_expired_for_other_chat(
    start: Start, session_used_elsewhere: str
) -> None:
    world = start()
    world.clock.advance(minutes=65)
    world.say()
    assert world.ended(session_used_elsewhere) == "idle"
    assert world.say(chat_id=43).session_id == session_used_elsewhere
    assert world.ended(session_used_elsewhere) is None


@pytest.mark.requirement("chats:own-clock")
def test_requested_reset_starts_new_shared_session(
    start: Start, session_used_elsewhere: str
) -> None:
    world = start()
    world.runtime.reset(KEY)
    assert world.say(chat_id=43).session_id != session_used_elsewhere


@pytest.mark.requirement("chats:own-clock")
def test_own_expiry_starts_new_shared_session(start: Start, session_used_elsewhere: str) -> None:
    world = start()
    world.clock.advance(minutes=65)
    world.say()
    world.clock.advance(minutes=60)
    assert world.say(chat_id=43).session_id != session_used_elsewhere
