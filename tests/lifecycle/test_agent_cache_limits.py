"""Limits of the agent cache: number of agents, idle time, running agents and clean-up."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from session_core import InvalidInput
from session_core.lifecycle.agent_cache import AgentCache
from tests.lifecycle.agents import Agent, Monotonic, how


def fill_cache(cache: AgentCache[Agent], *keys: str) -> list[Agent]:
    return [cache.get_or_build(key, "sig", None, Agent) for key in keys]


@pytest.mark.parametrize("limits", [{"max_entries": -1}, {"max_entries": "3"}])
def test_agent_cache_refuses_invalid_limits(limits: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a number >= 0, got"):
        AgentCache[Agent](**limits)


# -- how many ----------------------------------------------------------------------------------


@pytest.mark.requirement("cache:limits")
def test_agent_cache_evicts_and_closes_oldest_agent() -> None:
    cache: AgentCache[Agent] = AgentCache(max_entries=2)
    first, _ = fill_cache(cache, "a", "b")
    fill_cache(cache, "c")
    assert list(cache) == ["b", "c"]
    assert first.closed.wait(5)


def test_agent_cache_lookup_counts_as_use() -> None:
    cache: AgentCache[Agent] = AgentCache(max_entries=2)
    fill_cache(cache, "a", "b", "a", "c")
    assert list(cache) == ["a", "c"]


def test_agent_cache_default_limits() -> None:
    cache: AgentCache[Agent] = AgentCache()
    fill_cache(cache, *map(str, range(130)))
    assert (len(cache), cache.idle_s) == (128, 3600.0)


@pytest.mark.requirement("cache:limits")
def test_agent_cache_keeps_agent_in_turn() -> None:
    cache: AgentCache[Agent] = AgentCache(max_entries=1, idle_s=-1.0)
    with cache.claim("a", "sig", None) as turn:
        running = turn.keep_agent(Agent())
        fill_cache(cache, "b", "c")
        assert list(cache) == ["a", "c"]
        assert cache.sweep() == ["c"]
        assert turn.agent is running
    assert not running.closed.is_set()


def test_agent_cache_exceeds_bound_while_agents_run() -> None:
    cache: AgentCache[Agent] = AgentCache(max_entries=1)
    with cache.claim("a", "sig", None) as first:
        agent = first.keep_agent(Agent())
        with cache.claim("b", "sig", None) as second:
            second.keep_agent(Agent())
            assert list(cache) == ["a", "b"]
        assert list(cache) == ["a", "b"]
        cache.max_entries = 0
    assert list(cache) == ["a"]
    assert not agent.closed.is_set()


@pytest.mark.requirement("cache:limits")
@pytest.mark.parametrize("kind", ["set", "question"])
def test_agent_cache_keeps_running_agents(kind: str) -> None:
    at_work = {"a", "b"}
    running: Any = at_work if kind == "set" else at_work.__contains__
    cache: AgentCache[Agent] = AgentCache(max_entries=1, idle_s=-1.0, running=running)
    fill_cache(cache, "a", "b", "c")
    assert sorted(cache) == ["a", "b", "c"]
    assert cache.sweep() == ["c"]
    at_work.clear()
    assert sorted(cache.sweep()) == ["a", "b"]


def test_agent_cache_failed_running_check_means_running() -> None:
    reported = []

    def running(key: str) -> bool:
        raise LookupError(key)

    cache: AgentCache[Agent] = AgentCache(
        max_entries=1, running=running, report=lambda what, _: reported.append(what)
    )
    fill_cache(cache, "a", "b")
    assert (sorted(cache), set(reported)) == (
        ["a", "b"],
        {"checking whether the agent of a is running failed"},
    )


def test_agent_entering_turn_during_check_is_kept() -> None:
    turns: list[Any] = []

    def running(key: str) -> bool:
        turns.append(cache.begin_turn(key))
        turns[-1].__enter__()
        return False

    cache: AgentCache[Agent] = AgentCache(idle_s=-1.0, running=running)
    fill_cache(cache, "a")
    assert cache.sweep() == []
    assert len(turns) == 1
    turns[0].__exit__(None, None, None)


def test_agent_cache_keeps_agent_used_during_check() -> None:
    clock = Monotonic(1000.0)

    def running(key: str) -> bool:
        clock.now += 1
        how(cache, key, "sig", None)
        return False

    cache: AgentCache[Agent] = AgentCache(idle_s=-1.0, running=running, clock=clock)
    fill_cache(cache, "a")
    assert cache.sweep() == []


# -- how long ----------------------------------------------------------------------------------


@pytest.mark.requirement("cache:limits")
def test_agent_cache_sweep_evicts_idle_agents() -> None:
    clock = Monotonic(1000.0)
    cache: AgentCache[Agent] = AgentCache(idle_s=3600, clock=clock)
    old, _ = fill_cache(cache, "old", "new")
    clock.now += 3600
    assert cache.sweep() == []
    fill_cache(cache, "new")
    clock.now += 1
    assert cache.sweep() == ["old"]
    assert old.closed.is_set()
    assert list(cache) == ["new"]


def test_agent_cache_turn_end_counts_as_use() -> None:
    clock = Monotonic(1000.0)
    cache: AgentCache[Agent] = AgentCache(idle_s=3600, clock=clock)
    with cache.claim("a", "sig", None) as turn:
        turn.keep_agent(Agent())
        clock.now += 5000
    assert cache.sweep() == []


def test_agent_cache_sweep_spares_kept_keys() -> None:
    cache: AgentCache[Agent] = AgentCache(idle_s=-1.0)
    fill_cache(cache, "a", "b")
    assert cache.sweep(keep=lambda key: key == "a") == ["b"]


def test_sweep_with_failing_keep_evicts_nothing() -> None:
    def keep(key: str) -> bool:
        if key == "b":
            raise LookupError
        return False

    cache: AgentCache[Agent] = AgentCache(idle_s=-1.0)
    agents = fill_cache(cache, "a", "b")
    with pytest.raises(LookupError):
        cache.sweep(keep)
    assert list(cache) == ["a", "b"]
    assert not any(agent.closed.is_set() for agent in agents)


# -- clean-up ----------------------------------------------------------------------------------


def test_agent_cache_evict_closes_and_reports_presence() -> None:
    cache: AgentCache[Agent] = AgentCache()
    (agent,) = fill_cache(cache, "a")
    assert cache.evict("a")
    assert agent.closed.is_set()
    assert not cache.evict("a")


def test_agent_cache_clear_closes_every_agent() -> None:
    cache: AgentCache[Agent] = AgentCache()
    agents = fill_cache(cache, "a", "b", "c")
    cache.clear()
    assert all(agent.closed.is_set() for agent in agents)
    assert len(cache) == 0


def test_agent_cache_closes_evicted_agent_after_turn() -> None:
    cache: AgentCache[Agent] = AgentCache()
    (agent,) = fill_cache(cache, "a")
    with cache.begin_turn("a") as turn:
        assert cache.evict("a")
        assert "a" not in cache
        assert turn.agent is agent
        assert not agent.closed.is_set()
    assert agent.closed.wait(5)


def test_agent_cache_closes_agent_ending_during_check() -> None:
    at_work: list[Any] = []

    def running(_: str) -> bool:
        if at_work:
            at_work.pop().__exit__(None, None, None)
        return False

    cache: AgentCache[Agent] = AgentCache(running=running)
    agent, other = fill_cache(cache, "a", "b")
    turn = cache.begin_turn("a")
    turn.__enter__()
    fill_cache(cache, "b")
    at_work.append(turn)
    cache.clear()
    assert other.closed.is_set()
    assert agent.closed.wait(5)


def test_agent_cache_evict_spares_given_session() -> None:
    cache: AgentCache[Agent] = AgentCache()
    agent = cache.get_or_build("a", "sig", "s1", Agent)
    assert not cache.evict("a", unless="s1")
    assert cache.evict("a", unless="s2")
    assert agent.closed.is_set()


def test_agent_cache_closes_replaced_running_agent_later() -> None:
    at_work = {"a"}
    cache: AgentCache[Agent] = AgentCache(running=at_work)
    (old,) = fill_cache(cache, "a")
    assert how(cache, "a", "another model", None) == "signature"
    cache.sweep()
    assert not old.closed.is_set()
    at_work.clear()
    cache.sweep()
    assert old.closed.is_set()


def test_agent_cache_reports_failing_clean_up() -> None:
    reported: list[tuple[str, BaseException | None]] = []

    def clean_up(key: str, agent: Any) -> None:
        if key == "a":
            raise OSError(key)
        agent.close()

    cache: AgentCache[Agent] = AgentCache(
        clean_up=clean_up, report=lambda what, error: reported.append((what, error))
    )
    _, second = fill_cache(cache, "a", "b")
    cache.clear()
    assert len(cache) == 0
    assert second.closed.is_set()
    assert [(what, type(error)) for what, error in reported] == [
        ("the clean-up of the agent of a failed", OSError)
    ]


def test_agent_cache_reports_hanging_clean_up(gate: threading.Event) -> None:
    reported = []
    cache: AgentCache[Agent] = AgentCache(
        clean_up=lambda *_: gate.wait(),
        clean_up_s=0.05,
        report=lambda what, _: reported.append(what),
    )
    fill_cache(cache, "a")
    assert cache.evict("a")
    assert reported == ["the clean-up of an agent did not end in time"]


def test_agent_cache_lookup_ignores_running_clean_up(gate: threading.Event) -> None:
    cache: AgentCache[Agent] = AgentCache(max_entries=1, clean_up=lambda *_: gate.wait())
    fill_cache(cache, "a", "b", "c")
    assert how(cache, "c", "another model", None) == "signature"


@pytest.mark.requirement("cache:limits")
def test_agent_cache_clean_up_may_use_cache() -> None:
    def clean_up(key: str, agent: object) -> None:
        how(cache, f"successor of {key}", "sig", None)

    cache: AgentCache[Agent] = AgentCache(clean_up=clean_up)
    fill_cache(cache, "a")
    cache.evict("a")
    assert list(cache) == ["successor of a"]


def test_agent_cache_awaits_async_close() -> None:
    class AsyncAgent:
        closed = False

        async def close(self) -> None:
            await asyncio.sleep(0)
            self.closed = True

    cache: AgentCache[AsyncAgent] = AgentCache()
    agent = cache.get_or_build("a", "sig", None, AsyncAgent)
    cache.evict("a")
    assert agent.closed


def test_agent_cache_accepts_agent_without_close() -> None:
    reported = []
    cache: AgentCache[object] = AgentCache(report=lambda what, _: reported.append(what))
    cache.get_or_build("a", "sig", None, object)
    assert cache.evict("a")
    assert reported == []
