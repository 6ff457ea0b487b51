"""The expiry watcher: expired sessions are finalized once, without blocking turns."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from session_core import AgentCache, Busy, ExpiryWatcher, InvalidInput
from session_core.config import GatewayConfig
from session_core.lifecycle.agent_turn import AgentTurn
from tests.cli.fork_server import ForkServer
from tests.homes import make_hermes_database
from tests.lifecycle.agents import Monotonic
from tests.lifecycle.runtimes import IDLE, Gate, World, beside, echo, of, until, watcher
from tests.routing.chats import KEY, chat

# Expired sessions


@pytest.mark.requirement("watcher:once")
def test_expired_session_is_finalized_and_marked_once(expiring: World) -> None:
    session_id = expiring.say().session_id
    expiring.clock.advance(hours=2)
    watch = watcher(expiring)
    assert watch.tick() == [session_id]
    assert watch.tick() == []
    finalized = [arguments for hook, arguments in expiring.told if hook == "on_session_finalize"]
    expected = {"session_id": session_id, "platform": "telegram", "reason": "session_expired"}
    assert finalized == [expected]
    entry, row = expiring.store.get(KEY), expiring.db.get_session(session_id)
    assert entry is not None
    assert row is not None
    assert (entry.expiry_finalized, row["expiry_finalized"]) == (True, 1)
    assert row["end_reason"] == "session_reset"
    assert len(expiring.runtime.cache) == 0


@pytest.mark.requirement("watcher:once")
def test_message_after_expiry_resets_without_second_finalize(
    expiring: World,
) -> None:
    old = expiring.say().session_id
    expiring.clock.advance(hours=2)
    watcher(expiring).tick()
    new = expiring.say().session_id
    assert expiring.boundaries == [("finalize", old), ("reset", new)]
    entry = expiring.store.get(KEY)
    assert entry is not None
    assert not entry.expiry_finalized


def test_restart_does_not_finalize_again(expiring: World, home_path: Path) -> None:
    expiring.say()
    expiring.clock.advance(hours=2)
    watcher(expiring).tick()
    expiring.close()
    again = World(home_path, config=IDLE)
    again.clock.advance(hours=2)
    assert watcher(again).tick() == []
    new = again.say().session_id
    assert again.boundaries == [("reset", new)]
    again.close()


def test_unexpired_session_is_left_alone(expiring: World) -> None:
    expiring.say()
    expiring.clock.advance(minutes=60)
    before = expiring.store.get(KEY)
    assert watcher(expiring).tick() == []
    assert expiring.store.get(KEY) == before


def test_policy_none_finalizes_nothing(home_path: Path) -> None:
    world = World(home_path)
    world.say()
    world.clock.advance(days=80)
    assert watcher(world).tick() == []
    world.close()


def test_chat_with_active_process_is_not_finalized(expiring: World) -> None:
    expiring.say()
    expiring.clock.advance(hours=2)
    expiring.store.settings.has_active_processes = lambda _: True
    assert watcher(expiring).tick() == []


@pytest.mark.requirement("watcher:once")
def test_chat_in_turn_is_not_finalized(expiring: World) -> None:
    gate = Gate()
    expiring.agent = gate
    with beside(expiring.say):
        gate.entered.wait(30)
        expiring.clock.advance(hours=2)
        assert watcher(expiring).tick() == []
        gate.opened.set()
    assert expiring.say().session_id == expiring.agree()
    assert expiring.boundaries == []


@pytest.mark.requirement("watcher:once")
def test_chat_in_foreign_turn_is_not_finalized(expiring: World, home_path: Path) -> None:
    other = World(home_path, config=IDLE)
    other.clock = other.store.settings.now = expiring.clock
    watch = watcher(other)

    def agent(run: AgentTurn, message: Any) -> str:
        expiring.clock.advance(hours=2)
        assert watch.tick() == []
        return echo(run, message)

    expiring.agent = agent
    session_id = expiring.say().session_id
    assert expiring.ended(session_id) is None
    expiring.agent = echo
    assert expiring.say().session_id == session_id
    assert expiring.boundaries == other.boundaries == []
    expiring.clock.advance(hours=2)
    assert watch.tick() == [session_id]
    other.close()


@pytest.mark.parametrize("outcome", ["raises", "is cancelled"])
def test_interrupted_turn_does_not_prevent_finalize(expiring: World, outcome: str) -> None:
    if outcome == "raises":
        expiring.agent = lambda *_: 1 / 0
        with pytest.raises(ZeroDivisionError):
            expiring.say()
    else:
        began = anyio.Event()

        async def hang(*_: Any) -> None:
            began.set()
            await anyio.sleep_forever()

        expiring.agent = hang

        async def cut() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(expiring.runtime.ahandle, chat(), "hello")
                await began.wait()
                tasks.cancel_scope.cancel()

        anyio.run(cut)
        until(lambda: not expiring.runtime.running)
    expiring.clock.advance(hours=2)
    assert len(watcher(expiring).tick()) == 1


@pytest.mark.requirement("watcher:once")
def test_concurrent_watchers_finalize_once(expiring: World, home_path: Path) -> None:
    session_id = expiring.say().session_id
    expiring.clock.advance(hours=2)
    others = [World(home_path, config=IDLE) for _ in range(4)]
    barrier = threading.Barrier(4)
    for other in others:
        other.clock.advance(hours=2)

    def tick(other: World) -> list[str]:
        barrier.wait(30)
        return watcher(other).tick()

    with beside(*(lambda other=other: tick(other) for other in others)) as results:
        pass
    assert sorted(results) == [[], [], [], [session_id]]
    assert sum(len(other.boundaries) for other in others) == 1
    for other in others:
        other.close()


@pytest.mark.requirement("watcher:once")
def test_claim_of_dead_process_is_taken_over(
    expiring: World, forks: ForkServer, home_path: Path
) -> None:
    session_id = expiring.say().session_id
    expiring.clock.advance(hours=2)
    code = """
import os, sys
from pathlib import Path
from session_core import ExpiryWatcher
from tests.lifecycle.runtimes import IDLE, World

world = World(Path(sys.argv[1]), config=IDLE)
world.clock.advance(hours=2)
world.hooks.timeout_s = 30
world.store.begin_end_delivery = lambda *_: os._exit(7)
ExpiryWatcher(world.runtime).tick()
"""
    assert forks.run_script(code, home_path).code == 7
    entry = expiring.store.get(KEY)
    assert entry is not None
    assert (entry.expiry_finalized, list(entry.extra)) == (
        False,
        ["expiry_claim", "expiry_claimed_at"],
    )
    assert watcher(expiring).tick() == [session_id]
    assert expiring.boundaries == [("finalize", session_id)]


@pytest.mark.requirement("watcher:once")
def test_session_revived_during_finalize_is_unmarked(
    expiring: World,
) -> None:
    session_id = expiring.say().session_id
    expiring.clock.advance(hours=2)
    name = expiring.hooks.add(
        "on_session_finalize", lambda: expiring.store.update_session(KEY) and None
    )
    watch = watcher(expiring)
    watch.tick()
    entry = expiring.store.get(KEY)
    assert entry is not None
    assert (entry.expiry_finalized, expiring.ended(session_id)) == (False, None)
    assert expiring.say().session_id == session_id
    expiring.hooks.remove(name)
    expiring.clock.advance(hours=2)
    assert watch.tick() == [session_id]
    assert expiring.boundaries == [("finalize", session_id)] * 2


def test_session_replaced_during_tick_is_finalized_once(
    expiring: World,
) -> None:
    first = expiring.say(chat_id="a").session_id
    second = expiring.say(chat_id="b").session_id
    expiring.clock.advance(hours=2)
    replies = []

    def finalize(session_id: str) -> None:
        if session_id == first:
            replies.append(expiring.say(chat_id="b"))

    expiring.hooks.add("on_session_finalize", finalize)
    assert watcher(expiring).tick() == [first]
    assert expiring.names("finalize").count(("finalize", second)) == 1
    entry = expiring.store.get(of("b"))
    assert entry is not None
    assert (entry.session_id, entry.expiry_finalized) == (replies[0].session_id, False)


# Failures


def test_broken_hook_does_not_fail_finalize(expiring: World) -> None:
    session_id = expiring.say().session_id
    expiring.clock.advance(hours=2)
    expiring.hooks.add("on_session_finalize", lambda: 1 / 0)
    assert watcher(expiring).tick() == [session_id]


@pytest.mark.requirement("watcher:tries")
def test_failing_finalize_is_marked_after_three_tries(
    expiring: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = expiring.say().session_id
    expiring.store.set_model_override(KEY, {"model": "m"})
    expiring.clock.advance(hours=2)
    tries = []

    def fail(key: str) -> bool:
        tries.append(key)
        raise RuntimeError("clean-up is broken")

    monkeypatch.setattr(expiring.runtime.cache, "evict", fail)
    watch = watcher(expiring)
    assert [watch.tick() for _ in range(4)] == [[], [], [session_id], []]
    assert len(tries) == 3
    entry = expiring.store.get(KEY)
    assert entry is not None
    assert (entry.expiry_finalized, entry.model_override) == (True, {"model": "m"})
    assert expiring.names("finalize") == [("finalize", session_id)]


def test_successful_retry_clears_failure_count(
    expiring: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = expiring.say().session_id
    expiring.clock.advance(hours=2)
    watch = watcher(expiring)
    with monkeypatch.context() as patch:
        patch.setattr(expiring.runtime.cache, "evict", lambda _: 1 / 0)
        assert watch.tick() == []
    assert watch.tick() == [session_id]
    assert watch._failures == {}


@pytest.mark.requirement("watcher:tries")
def test_unmarkable_entry_does_not_block_other_chats(
    expiring: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    expiring.say(chat_id="bad")
    good = expiring.say(chat_id="good").session_id
    expiring.clock.advance(hours=2)
    real = expiring.store.set_expiry_finalized

    def mark(entry: Any, **options: Any) -> bool:
        if entry.key == of("bad"):
            raise Busy("the write lock is held")
        return real(entry, **options)

    monkeypatch.setattr(expiring.store, "set_expiry_finalized", mark)
    watch = watcher(expiring)
    assert [watch.tick() for _ in range(5)] == [[good], [], [], [], []]
    entry = expiring.store.get(of("good"))
    assert entry is not None
    assert entry.expiry_finalized


@pytest.mark.requirement("watcher:tries")
def test_unreadable_entry_does_not_block_other_chats(
    expiring: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    expiring.say(chat_id="bad")
    good = expiring.say(chat_id="good").session_id
    expiring.clock.advance(hours=2)
    real = expiring.store.get

    def get(key: str) -> Any:
        if key == of("bad"):
            raise Busy("the write lock is held")
        return real(key)

    monkeypatch.setattr(expiring.store, "get", get)
    assert watcher(expiring).tick() == [good]
    assert any("bad" in what for what in expiring.reported)


# Idle agents


def list_cached_keys(
    home: Path, monotonic: Monotonic, config: GatewayConfig | None = IDLE
) -> World:
    world = World(home, config=config)
    world.runtime.cache = AgentCache(world.db, idle_s=3600, clock=monotonic)
    return world


@pytest.mark.requirement("watcher:idle")
def test_idle_agent_of_unexpiring_session_is_evicted(home_path: Path, monotonic: Monotonic) -> None:
    world = list_cached_keys(home_path, monotonic, None)
    world.say()
    monotonic.now = 3601
    watcher(world).tick()
    assert len(world.runtime.cache) == 0
    assert world.boundaries == []
    world.close()


@pytest.mark.requirement("watcher:idle")
def test_idle_agent_of_expiring_session_stays(home_path: Path, monotonic: Monotonic) -> None:
    world = list_cached_keys(home_path, monotonic)
    session_id = world.say().session_id
    monotonic.now = 3601
    watch = watcher(world)
    watch.tick()
    assert len(world.runtime.cache) == 1
    world.clock.advance(hours=2)
    assert watch.tick() == [session_id]
    assert len(world.runtime.cache) == 0
    world.close()


def test_idle_agent_without_route_is_evicted(home_path: Path, monotonic: Monotonic) -> None:
    world = list_cached_keys(home_path, monotonic)
    world.say()
    world.store.remove(world.store.load_entries())
    monotonic.now = 3601
    watcher(world).tick()
    assert len(world.runtime.cache) == 0
    world.close()


# Pruning


@pytest.mark.requirement("watcher:prune")
def test_watcher_prunes_first_and_then_hourly(expiring: World, monotonic: Monotonic) -> None:
    def grow_old(name: str) -> None:
        expiring.say(chat_id=name)
        expiring.clock.advance(days=91)

    watch = watcher(expiring, clock=monotonic)
    remaining = []
    for name, at in (("a", 0.0), ("b", 3599.0), ("c", 3600.0)):
        grow_old(name)
        monotonic.now = at
        watch.tick()
        remaining.append([key[-1] for key in expiring.store.load_entries()])
    assert remaining == [[], ["b"], []]


def test_failure_of_left_session_allows_prune(
    expiring: World, monotonic: Monotonic, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = watcher(expiring, clock=monotonic)
    expiring.say()
    expiring.clock.advance(hours=2)

    def busy(_: Any) -> bool:
        raise Busy("the write lock is held")

    with monkeypatch.context() as patch:
        patch.setattr(expiring.store, "claim_expiry", busy)
        assert watch.tick() == []
    expiring.say()
    expiring.say(chat_id="old")
    expiring.clock.advance(days=100)
    expiring.say()
    watch.tick()
    assert list(expiring.store.load_entries()) == [KEY]


def test_prune_of_routes_keeps_sessions(expiring: World) -> None:
    session_id = expiring.say().session_id
    expiring.clock.advance(days=91)
    watcher(expiring).tick()
    assert expiring.store.load_entries() == {}
    assert expiring.db.message_count(session_id) == 2


@pytest.mark.parametrize("days", [0, -1])
def test_disabled_prune_removes_nothing(home_path: Path, days: int) -> None:
    world = World(home_path, config=GatewayConfig(session_store_max_age_days=days))
    world.say()
    world.clock.advance(days=9999)
    watcher(world).tick()
    assert list(world.store.load_entries()) == [KEY]
    world.close()


@pytest.mark.requirement("watcher:hermes")
def test_watcher_changes_nothing_in_hermes_home(home_path: Path) -> None:
    make_hermes_database(home_path / "state.db")
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


@pytest.mark.parametrize("times", [{"interval_s": -1}, {"start_delay_s": float("nan")}])
def test_watcher_refuses_invalid_times(world: World, times: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="must be a number >= 0, got"):
        ExpiryWatcher(world.runtime, **times)
