"""The expiry watcher: what has expired is finalized once, and nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from session_core import AgentCache, Busy, ExpiryWatcher
from session_core.settings import GatewayConfig, SessionResetPolicy
from tests.homes import hermes_database
from tests.lifecycle.runtimes import KEY, Gate, World, beside, until

IDLE = GatewayConfig(
    default_reset_policy=SessionResetPolicy(mode="idle", idle_minutes=60),
    session_store_max_age_days=90,
)


class Time:
    """The monotonic clock of a watcher and a cache."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time that the test has set."""
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def world(home_path: Path) -> Iterator[World]:
    world = World(home_path, config=IDLE)
    yield world
    world.close()


def watcher(world: World, **options: Any) -> ExpiryWatcher:
    return ExpiryWatcher(
        world.runtime, report=lambda what, _: world.reported.append(what), **options
    )


def of(name: Any) -> str:
    return f"agent:main:telegram:dm:{name}"


# What has expired


def test_what_has_expired_is_finalized_once_and_marked_in_both_places(world: World) -> None:
    session_id = world.say().session_id
    world.clock.advance(hours=2)
    watch = watcher(world)
    assert watch.tick() == [session_id]
    assert watch.tick() == []
    finalized = [given for hook, given in world.told if hook == "on_session_finalize"]
    expected = {"session_id": session_id, "platform": "telegram", "reason": "session_expired"}
    assert finalized == [expected]
    entry, row = world.store.get(KEY), world.db.get_session(session_id)
    assert entry is not None
    assert row is not None
    assert (entry.expiry_finalized, row["expiry_finalized"]) == (True, 1)
    assert row["end_reason"] == "session_reset"
    assert len(world.runtime.cache) == 0


def test_the_next_message_resets_what_was_finalized_and_finalizes_it_not_again(
    world: World,
) -> None:
    old = world.say().session_id
    world.clock.advance(hours=2)
    watcher(world).tick()
    new = world.say().session_id
    assert world.boundaries == [("finalize", old), ("reset", new)]
    entry = world.store.get(KEY)
    assert entry is not None
    assert not entry.expiry_finalized


def test_nor_after_a_start(world: World, home_path: Path) -> None:
    world.say()
    world.clock.advance(hours=2)
    watcher(world).tick()
    world.close()
    again = World(home_path, config=IDLE)
    again.clock.advance(hours=2)
    assert watcher(again).tick() == []
    new = again.say().session_id
    assert again.boundaries == [("reset", new)]
    again.close()


def test_what_has_not_expired_is_left_alone(world: World) -> None:
    world.say()
    world.clock.advance(minutes=60)
    before = world.store.get(KEY)
    assert watcher(world).tick() == []
    assert world.store.get(KEY) == before


def test_where_nothing_ever_resets_nothing_is_finalized(home_path: Path) -> None:
    world = World(home_path)
    world.say()
    world.clock.advance(days=80)
    assert watcher(world).tick() == []
    world.close()


def test_a_chat_with_a_process_at_work_is_not_finalized(world: World) -> None:
    world.say()
    world.clock.advance(hours=2)
    world.store._has_active_processes = lambda _: True
    assert watcher(world).tick() == []


def test_a_chat_in_the_middle_of_a_turn_is_not_finalized(world: World) -> None:
    gate = Gate()
    world.agent = gate
    with beside(world.say):
        gate.entered.wait(30)
        world.clock.advance(hours=2)
        assert watcher(world).tick() == []
        gate.opened.set()
    assert world.say().session_id == world.agree()
    assert world.boundaries == []


def test_a_session_that_gives_way_while_others_are_finalized_is_told_once(
    world: World,
) -> None:
    first = world.say(chat_id="a").session_id
    second = world.say(chat_id="b").session_id
    world.clock.advance(hours=2)
    replies = []

    def finalize(session_id: str) -> None:
        if session_id == first:
            replies.append(world.say(chat_id="b"))

    world.hooks.add("on_session_finalize", finalize)
    assert watcher(world).tick() == [first]
    assert world.names("finalize").count(("finalize", second)) == 1
    entry = world.store.get(of("b"))
    assert entry is not None
    assert (entry.session_id, entry.expiry_finalized) == (replies[0].session_id, False)


# What goes wrong


def test_a_broken_hook_is_no_failure(world: World) -> None:
    session_id = world.say().session_id
    world.clock.advance(hours=2)
    world.hooks.add("on_session_finalize", lambda: 1 / 0)
    assert watcher(world).tick() == [session_id]


def test_a_failing_finalize_is_tried_three_times_and_then_marked_with_its_model(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = world.say().session_id
    world.store.set_model_override(KEY, {"model": "m"})
    world.clock.advance(hours=2)
    tries = []

    def fail(key: str) -> bool:
        tries.append(key)
        raise RuntimeError("clean-up is broken")

    monkeypatch.setattr(world.runtime.cache, "evict", fail)
    watch = watcher(world)
    assert [watch.tick() for _ in range(4)] == [[], [], [session_id], []]
    assert len(tries) == 3
    entry = world.store.get(KEY)
    assert entry is not None
    assert (entry.expiry_finalized, entry.model_override) == (True, {"model": "m"})
    assert world.names("finalize") == [("finalize", session_id)]


def test_a_finalize_that_works_the_second_time_forgets_the_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = world.say().session_id
    world.clock.advance(hours=2)
    watch = watcher(world)
    with monkeypatch.context() as patch:
        patch.setattr(world.runtime.cache, "evict", lambda _: 1 / 0)
        assert watch.tick() == []
    assert watch.tick() == [session_id]
    assert watch._failures == {}


def test_an_entry_that_cannot_be_marked_keeps_no_other_from_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.say(chat_id="bad")
    good = world.say(chat_id="good").session_id
    world.clock.advance(hours=2)
    real = world.store.set_expiry_finalized

    def mark(entry: Any, **options: Any) -> bool:
        if entry.key == of("bad"):
            raise Busy("the write lock is held")
        return real(entry, **options)

    monkeypatch.setattr(world.store, "set_expiry_finalized", mark)
    watch = watcher(world)
    assert [watch.tick() for _ in range(5)] == [[good], [], [], [], []]
    entry = world.store.get(of("good"))
    assert entry is not None
    assert entry.expiry_finalized


# Idle agents


def cached(home: Path, time: Time, config: GatewayConfig | None = IDLE) -> World:
    world = World(home, config=config)
    world.runtime.cache = AgentCache(world.db, idle_s=3600, clock=time)
    return world


def test_an_idle_agent_of_a_session_that_never_expires_is_evicted(
    home_path: Path, time: Time
) -> None:
    world = cached(home_path, time, None)
    world.say()
    time.now = 3601
    watcher(world).tick()
    assert len(world.runtime.cache) == 0
    assert world.boundaries == []
    world.close()


def test_an_idle_agent_of_a_session_that_will_expire_stays_until_then(
    home_path: Path, time: Time
) -> None:
    world = cached(home_path, time)
    session_id = world.say().session_id
    time.now = 3601
    watch = watcher(world)
    watch.tick()
    assert len(world.runtime.cache) == 1
    world.clock.advance(hours=2)
    assert watch.tick() == [session_id]
    assert len(world.runtime.cache) == 0
    world.close()


def test_an_idle_agent_of_a_chat_without_a_route_is_evicted(home_path: Path, time: Time) -> None:
    world = cached(home_path, time)
    world.say()
    world.store.remove(world.store.entries())
    time.now = 3601
    watcher(world).tick()
    assert len(world.runtime.cache) == 0
    world.close()


# Pruning


def test_the_first_tick_prunes_and_then_one_an_hour(world: World, time: Time) -> None:
    def grow_old(name: str) -> None:
        world.say(chat_id=name)
        world.clock.advance(days=91)

    watch = watcher(world, clock=time)
    left = []
    for name, at in (("a", 0.0), ("b", 3599.0), ("c", 3600.0)):
        grow_old(name)
        time.now = at
        watch.tick()
        left.append([key[-1] for key in world.store.entries()])
    assert left == [[], ["b"], []]


def test_a_prune_keeps_the_sessions(world: World) -> None:
    session_id = world.say().session_id
    world.clock.advance(days=91)
    watcher(world).tick()
    assert world.store.entries() == {}
    assert world.db.message_count(session_id) == 2


@pytest.mark.parametrize("days", [0, -1])
def test_a_prune_that_is_turned_off_removes_nothing(home_path: Path, days: int) -> None:
    world = World(home_path, config=GatewayConfig(session_store_max_age_days=days))
    world.say()
    world.clock.advance(days=9999)
    watcher(world).tick()
    assert list(world.store.entries()) == [KEY]
    world.close()


def test_on_a_hermes_home_nothing_is_removed_marked_or_ended(home_path: Path) -> None:
    hermes_database(home_path / "state.db")
    world = World(home_path, config=IDLE)
    session_id = world.say().session_id
    world.clock.advance(days=9999)
    before = world.store.get(KEY)
    watch = watcher(world)
    assert watch.tick() == [session_id]
    assert watch.tick() == []
    assert world.store.get(KEY) == before
    row = world.db.get_session(session_id)
    assert row is not None
    assert (row["expiry_finalized"], row["end_reason"]) == (0, None)
    assert world.names("finalize") == [("finalize", session_id)]
    world.close()


# The task


def run_with(watch: ExpiryWatcher, do: Any) -> None:
    """Run a watcher while something is done beside it; the watcher has to end by itself."""

    async def both() -> None:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(watch.run)
                await do()

    anyio.run(both)


async def becomes(condition: Any) -> None:
    """Wait until something is true that no loop tells of."""
    while not condition():  # noqa: ASYNC110 -- it is said in a thread
        await anyio.sleep(0.001)


def test_it_ticks_again_and_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watcher(world, interval_s=0.001, start_delay_s=0)
    ticks: list[str] = []
    monkeypatch.setattr(watch, "tick", lambda: ticks.append(threading.current_thread().name))

    async def do() -> None:
        await becomes(lambda: len(ticks) >= 3)
        watch.stop()

    run_with(watch, do)
    assert threading.main_thread().name not in ticks


def test_it_waits_before_its_first_tick(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watcher(world, start_delay_s=3600)
    ticks: list[int] = []
    monkeypatch.setattr(watch, "tick", lambda: ticks.append(1))

    async def do() -> None:
        await anyio.sleep(0.01)
        watch.stop()

    run_with(watch, do)
    assert ticks == []


def test_it_stops_at_once_from_another_thread(world: World) -> None:
    watch = watcher(world, interval_s=3600, start_delay_s=3600)

    async def do() -> None:
        await anyio.sleep(0.01)
        threading.Thread(target=watch.stop).start()

    run_with(watch, do)


def test_it_stops_at_once_in_the_middle_of_a_tick(world: World) -> None:
    for name in ("a", "b"):
        world.say(chat_id=name)
    world.clock.advance(hours=2)
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        opened.wait(30)

    world.hooks.timeout_s = 30
    world.hooks.add("on_session_finalize", hang)
    watch = watcher(world, start_delay_s=0)

    async def do() -> None:
        await becomes(entered.is_set)
        watch.stop()

    async def both() -> None:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(do)
                await watch.run()
            assert not opened.is_set()
            opened.set()

    anyio.run(both)
    until(lambda: not any(thread.name == "AnyIO worker thread" for thread in threading.enumerate()))
    assert len(world.names("finalize")) == 1


def test_it_ends_with_its_task(world: World) -> None:
    watch = watcher(world, start_delay_s=3600)

    async def both() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(watch.run)
            await anyio.sleep(0.01)
            group.cancel_scope.cancel()

    anyio.run(both)
    until(lambda: not any(t.name == "off the loop" for t in threading.enumerate()))


def test_a_tick_that_fails_is_reported_and_the_next_comes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watcher(world, interval_s=0.001, start_delay_s=0)
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(1)
        raise RuntimeError("broken")

    monkeypatch.setattr(watch, "tick", tick)

    async def do() -> None:
        await becomes(lambda: len(ticks) >= 2)
        watch.stop()

    run_with(watch, do)
    assert any("tick" in what for what in world.reported)


def test_the_loop_goes_on_while_a_tick_hangs(world: World) -> None:
    world.say()
    world.clock.advance(hours=2)
    entered, opened = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        opened.wait(30)

    world.hooks.timeout_s = 30
    world.hooks.add("on_session_finalize", hang)
    watch = watcher(world, start_delay_s=0)
    steps = []

    async def do() -> None:
        await becomes(entered.is_set)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
            steps.append(1)
        opened.set()
        await becomes(lambda: bool(world.names("finalize")))
        watch.stop()

    run_with(watch, do)
    assert len(steps) == 5
