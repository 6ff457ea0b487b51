"""Concurrent turns: each sees its own session, and all stored copies agree afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from session_core import get_current_session_id, get_session_env
from session_core.lifecycle.agent_turn import AgentTurn
from tests.lifecycle.runtimes import World, beside, of, rotate
from tests.routing.chats import KEY, chat

CHATS, TURNS = 12, 4


@pytest.fixture
def rotating_world(world: World) -> Iterator[Callable[[int, int, Any], None]]:
    """A world with agents that rotate in each turn, and a check of their agreement."""
    wrong: list[Any] = []

    def agent(run: AgentTurn, turn: Any) -> Any:
        run.append("user", f"turn {turn}")
        child = rotate(run, f"{run.session_key.rpartition(':')[2]}_{turn}")
        return {"final_response": child, "session_id": child}

    def check(name: int, turn: int, reply: Any) -> None:
        entry = world.store.get(of(str(name)))
        cached = dict(world.runtime.cache.items())[of(str(name))][3]
        ids = (reply.session_id, entry.session_id if entry else None, cached)
        if ids != (f"{name}_{turn}",) * 3:
            wrong.append(ids)

    world.agent = agent
    yield check
    assert wrong == []
    world.store.close()
    for name in range(CHATS):
        assert world.agree(of(str(name))) == f"{name}_{TURNS - 1}"
    assert world.boundaries == []
    assert len(world.names("end")) == CHATS * TURNS


@pytest.mark.requirement("runtime:many")
def test_rotating_threads_stay_consistent(
    world: World, rotating_world: Callable[[int, int, Any], None]
) -> None:
    def work(name: int) -> None:
        for turn in range(TURNS):
            rotating_world(name, turn, world.say(turn, name))

    with beside(*(lambda name=name: work(name) for name in range(CHATS))) as results:
        pass
    assert results == [None] * CHATS


@pytest.mark.requirement("runtime:many")
def test_rotating_tasks_stay_consistent(
    world: World, rotating_world: Callable[[int, int, Any], None]
) -> None:
    async def task(name: int) -> None:
        for turn in range(TURNS):
            rotating_world(name, turn, await world.runtime.ahandle(chat(name), turn))

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            for name in range(CHATS):
                group.start_soon(task, name)

    anyio.run(all_of_them)


def test_concurrent_turns_see_own_session(world: World) -> None:
    barrier = threading.Barrier(8)
    wrong = []

    def agent(run: AgentTurn, _: Any) -> str:
        barrier.wait(30)
        seen = get_current_session_id(), get_session_env("HERMES_SESSION_KEY")
        if seen != (run.session_id, run.session_key):
            wrong.append(seen)
        if run.build_child_env()["HERMES_SESSION_ID"] != run.session_id:
            wrong.append(run)
        return "ok"

    world.agent = agent
    with beside(*(lambda name=name: world.say("x", name) for name in range(8))) as replies:
        pass
    assert wrong == []
    assert [reply.text for reply in replies] == ["ok"] * 8


@pytest.mark.requirement("runtime:many")
def test_concurrent_messages_and_resets_fire_boundaries_once(world: World) -> None:
    world.say()
    calls_ = [world.say] * 6 + [lambda: world.runtime.reset(KEY)] * 6
    with beside(*calls_) as results:
        pass
    assert not [result for result in results if isinstance(result, BaseException)]
    finalized = [id_ for hook, id_ in world.boundaries if hook == "finalize"]
    begun = [id_ for hook, id_ in world.boundaries if hook == "reset"]
    assert len(finalized) == len(set(finalized)) == len(begun) == len(set(begun)) == 6
    for session_id in set(finalized) & set(begun):
        order = [hook for hook, id_ in world.boundaries if id_ == session_id]
        assert sorted(order) == ["finalize", "reset"]
    world.store.close()
    assert world.agree() not in finalized
