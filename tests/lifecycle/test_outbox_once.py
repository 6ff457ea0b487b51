"""Ends are reported once across restarts and processes, also if entries cannot be marked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import Busy, ExpiryWatcher
from session_core.hooks import dispatch
from session_core.ledger.hermes_delivery_marks import PersistentMarks
from tests.cli.fork_server import ForkServer
from tests.homes import make_hermes_database
from tests.lifecycle.runtimes import IDLE, Gate, World, beside
from tests.routing.chats import KEY

ROOT = Path(__file__).parents[2]


def watcher(world: World) -> ExpiryWatcher:
    return ExpiryWatcher(world.runtime, report=lambda what, _: world.reported.append(what))


Start = Callable[[], World]


@pytest.fixture(params=["own", "hermes"])
def start(request: pytest.FixtureRequest, home_path: Path) -> Iterator[Start]:
    """Start a process with a runtime on a home, two hours after its last message."""
    if request.param == "hermes":
        make_hermes_database(home_path / "state.db")
    started: list[World] = []

    def start() -> World:
        started.append(World(home_path, config=IDLE))
        started[-1].clock.advance(hours=2)
        return started[-1]

    yield start
    for world in started:
        world.close()


@pytest.fixture
def session_id(start: Start, home_path: Path) -> str:
    """A session that was last used two hours ago."""
    world = World(home_path, config=IDLE)
    session_id = world.say().session_id
    world.close()
    return session_id


def list_finalized(*worlds: World) -> list[str]:
    """Return the sessions with a reported end."""
    return [session_id for world in worlds for _, session_id in world.names("finalize")]


# Over restarts


@pytest.mark.requirement("hooks:once")
def test_delivered_expiry_is_not_repeated_after_restart(start: Start, session_id: str) -> None:
    first = start()
    assert watcher(first).tick() == [session_id]
    first.close()
    second = start()
    assert watcher(second).tick() == []
    assert list_finalized(first, second) == [session_id]


@pytest.mark.requirement("hooks:once")
def test_delivered_expiry_is_not_repeated_by_message(start: Start, session_id: str) -> None:
    first = start()
    watcher(first).tick()
    first.close()
    second = start()
    new = second.say().session_id
    assert second.boundaries == [("reset", new)]


@pytest.mark.requirement("hooks:once")
@pytest.mark.parametrize("then", ["a tick", "a message", "a close"])
def test_delivered_close_is_not_repeated_after_restart(
    start: Start, session_id: str, then: str
) -> None:
    first = start()
    first.runtime.finalize(KEY)
    first.close()
    second = start()
    if then == "a tick":
        watcher(second).tick()
    elif then == "a message":
        second.say()
    else:
        second.runtime.finalize(KEY)
    assert list_finalized(first, second) == [session_id]


@pytest.mark.requirement("hooks:again")
def test_session_continued_after_end_is_delivered_again(start: Start, session_id: str) -> None:
    first = start()
    first.runtime.finalize(KEY, "agent_close")
    second = start()
    second.clock.time = first.clock.time
    first.clock.advance(hours=-2)
    assert first.say().session_id == session_id
    assert watcher(second).tick() == [session_id]
    assert list_finalized(first, second) == [session_id] * 2


@pytest.mark.requirement("hooks:again")
def test_session_reopened_elsewhere_is_delivered_again(start: Start, session_id: str) -> None:
    """The memory of this process is outdated then."""
    first, second = start(), start()
    for world in (first, second):
        world.clock.advance(hours=-2)
    first.say(chat_id=43)
    for _ in range(2):
        first.runtime.reset(KEY)
        second.runtime.switch(KEY, session_id)
    first.runtime.reset(KEY)
    assert list_finalized(first) == [session_id] * 3
    resets = [new for hook, new in second.boundaries if hook == "reset"]
    assert resets == [session_id] * 2


# Processes at once


@pytest.mark.requirement("hooks:once")
def test_watchers_of_several_processes_deliver_end_once(start: Start, session_id: str) -> None:
    worlds = [start() for _ in range(4)]
    barrier = threading.Barrier(4)

    def tick(world: World) -> list[str]:
        barrier.wait(30)
        return watcher(world).tick()

    with beside(*(lambda world=world: tick(world) for world in worlds)) as results:
        pass
    assert sorted(results) == [[], [], [], [session_id]]
    assert list_finalized(*worlds) == [session_id]


@pytest.mark.requirement("hooks:once")
def test_racing_watcher_message_and_close_deliver_once(start: Start, session_id: str) -> None:
    worlds = [start() for _ in range(4)]
    barrier = threading.Barrier(4)
    ways: tuple[Callable[[World], Any], ...] = (
        lambda world: watcher(world).tick(),
        World.say,
        lambda world: world.runtime.finalize(KEY),
        lambda world: world.runtime.reset(KEY),
    )

    def go(number: int) -> None:
        barrier.wait(30)
        ways[number](worlds[number])

    with beside(*(lambda number=number: go(number) for number in range(4))):
        pass
    assert list_finalized(*worlds).count(session_id) == 1


@pytest.mark.requirement("hooks:once")
def test_end_interrupted_by_kill_counts_as_delivered(
    start: Start, session_id: str, forks: ForkServer, home_path: Path
) -> None:
    code = """
import os, sys
from pathlib import Path
from session_core import ExpiryWatcher
from tests.lifecycle.runtimes import IDLE, World

world = World(Path(sys.argv[1]), config=IDLE)
world.clock.advance(hours=2)
if sys.argv[2] == "killed":
    world.hooks.timeout_s = 30
    world.hooks.add("on_session_finalize", lambda: os.kill(os.getpid(), 9))
print(ExpiryWatcher(world.runtime).tick(), world.boundaries)
"""

    def ran(how: str) -> tuple[int, str]:
        result = forks.run_script(code, home_path, how)
        return result.code, result.out.strip()

    assert ran("killed") == (-9, "")
    assert ran("whole") == (0, f"['{session_id}'] []")
    assert ran("whole") == (0, "[] []")


# Failures


@pytest.mark.requirement("hooks:once")
def test_end_with_failed_mark_is_recorded_later(
    start: Start, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = start()
    watch = watcher(world)

    def busy(*_: Any, **__: Any) -> bool:
        raise Busy("the write lock is held")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "set_expiry_finalized", busy)
        assert watch.tick() == []
    assert watch.tick() == [session_id]
    assert list_finalized(world) == [session_id]


@pytest.mark.requirement("hooks:again")
def test_session_reused_after_failed_mark_delivers_again(
    start: Start, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, other = start(), start()

    def busy(*_: Any, **__: Any) -> bool:
        raise Busy("the write lock is held")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "set_expiry_finalized", busy)
        watcher(world).tick()
    other.clock.advance(hours=-2, seconds=1)
    assert other.say().session_id == session_id
    assert watcher(world).tick() == [session_id]
    assert list_finalized(world) == [session_id] * 2


@pytest.mark.requirement("hooks:again")
def test_end_refused_during_turn_is_delivered_later(start: Start, session_id: str) -> None:
    world, other = start(), start()
    other.clock.advance(hours=-2, seconds=1)
    name = world.hooks.add("on_session_finalize", lambda: other.say() and None)
    watcher(world).tick()
    world.hooks.remove(name)
    assert other.store.peek_session_id(KEY) == session_id
    assert watcher(world).tick() == [session_id]
    assert list_finalized(world) == [session_id] * 2


@pytest.mark.requirement("hooks:once")
@pytest.mark.parametrize("way", ["expired", "closed", "shut down"])
def test_end_is_delivered_once_without_process_memory(
    start: Start, session_id: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored mark decides: a process with very many chats has forgotten most ends."""
    monkeypatch.setattr(dispatch, "_MAX_REMEMBERED", 0)
    world = start()
    if way == "expired":
        watcher(world).tick()
    elif way == "closed":
        world.runtime.finalize(KEY)
    else:
        world.clock.advance(hours=-2)
        gate = Gate()
        world.agent = gate
        with beside(world.say):
            gate.entered.wait(30)
            world.runtime.shutdown()
            gate.opened.set()
    world.runtime.finalize(KEY)
    watcher(world).tick()
    world.runtime.reset(KEY)
    assert list_finalized(world) == [session_id]


# Where it is kept


@pytest.fixture
def hermes(home_path: Path) -> Iterator[World]:
    """A runtime on a Hermes home with an expired session."""
    make_hermes_database(home_path / "state.db")
    world = World(home_path, config=IDLE)
    world.say()
    world.clock.advance(hours=2)
    yield world
    world.close()


@pytest.mark.requirement("hooks:marks")
def test_unwritable_state_folder_delivers_once_and_reports(
    hermes: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "no_folder").write_text("")
    monkeypatch.setenv("MCP_SESSIONS_STATE", str(tmp_path / "no_folder"))
    world = World(hermes.folder.parent, config=IDLE)
    world.clock.advance(hours=2)
    assert len(watcher(world).tick()) == 1
    assert watcher(world).tick() == []
    world.say()
    assert len(list_finalized(world)) == 1
    assert any("in this process only" in what for what in world.reported)
    world.close()


@pytest.mark.requirement("hooks:marks")
def test_reading_home_creates_no_state_folder(
    hermes: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hermes.clock.advance(hours=-2)
    monkeypatch.setenv("MCP_SESSIONS_STATE", str(tmp_path / "state"))
    world = World(hermes.folder.parent, config=IDLE)
    assert watcher(world).tick() == []
    world.say()
    assert not (tmp_path / "state").exists()
    world.close()


@pytest.mark.requirement("hooks:marks")
def test_prune_removes_marks_of_chatless_sessions(
    hermes: World,
) -> None:
    watch = watcher(hermes)
    watch.tick()
    marks = hermes.store.marks
    assert isinstance(marks, PersistentMarks)
    session_id = str(hermes.store.peek_session_id(KEY))
    marks._clock = lambda: 1e12
    hermes.store.forget_stale_marks()
    assert marks.get(session_id)["told"]
    hermes.say()
    hermes.store.forget_stale_marks()
    assert marks.get(session_id) == {}


@pytest.mark.requirement("hooks:marks")
def test_two_route_folders_keep_separate_marks(hermes: World) -> None:
    watcher(hermes).tick()
    marks = hermes.store.marks
    assert isinstance(marks, PersistentMarks)
    other = PersistentMarks(marks._folder, "another folder", clock=lambda: 1e12)
    other.keep_only([])
    entry = hermes.store.get(KEY)
    assert entry is not None
    assert hermes.store.is_end_delivered(entry)
    other.close()
