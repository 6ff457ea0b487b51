"""Async turns: the loop is never blocked, and a cancelled caller leaves nothing open."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio
from anyio import to_thread

from session_core import InvalidInput
from session_core.lifecycle.agent_turn import AgentTurn
from tests.lifecycle.runtimes import HOOKS, Gate, World, aecho, as_async, becomes, echo, until
from tests.routing.chats import KEY, chat


@pytest.mark.requirement("runtime:loop")
def test_sync_agent_does_not_block_loop(world: World) -> None:
    gate = Gate()
    world.agent = gate

    async def both() -> str:
        replies = []
        async with anyio.create_task_group() as group:

            async def turn() -> None:
                replies.append(await world.runtime.ahandle(chat(), "hello"))

            group.start_soon(turn)
            await becomes(gate.entered.is_set)
            gate.opened.set()
        return replies[0].text

    assert anyio.run(both) == "echo hello"


@pytest.mark.requirement("hooks:loop")
def test_async_hook_runs_on_awaiting_loop(world: World) -> None:
    loops: list[Any] = []

    async def hook() -> None:
        loops.append(asyncio.get_running_loop())

    for name in HOOKS:
        world.hooks.add(name, hook)

    async def turns() -> Any:
        await world.runtime.ahandle(chat(), "hello")
        await world.runtime.areset(KEY)
        return asyncio.get_running_loop()

    loop = asyncio.run(turns())
    assert loops == [loop] * 4
    assert world.reported == []


def test_async_hooks_run_under_trio(world: World) -> None:
    runs: list[Any] = []

    async def hook() -> None:
        await trio.lowlevel.checkpoint()
        runs.append(trio.lowlevel.current_trio_token())

    for name in HOOKS:
        world.hooks.add(name, hook)
    world.agent = aecho

    async def turns() -> Any:
        await world.runtime.ahandle(chat(), "hello")
        await world.runtime.areset(KEY)
        return trio.lowlevel.current_trio_token()

    token = anyio.run(turns, backend="trio")
    assert runs == [token] * 4
    assert world.reported == []


def test_hanging_async_hook_under_trio_is_abandoned(world: World) -> None:
    cancelled: list[bool] = []

    async def hook() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(True)

    world.hooks.timeout_s = 0.05
    world.hooks.add("on_session_end", hook)
    world.agent = aecho

    async def turn() -> str:
        reply = await world.runtime.ahandle(chat(), "hello")
        await becomes(lambda: bool(cancelled))
        return reply.text

    assert anyio.run(turn, backend="trio") == "echo hello"
    assert len(world.reported) == 1


def test_failing_hook_under_trio_is_harmless(world: World) -> None:
    async def hook() -> None:
        await trio.lowlevel.checkpoint()
        raise SystemExit

    world.hooks.add("on_session_end", hook)
    world.agent = aecho

    async def turn() -> str:
        return (await world.runtime.ahandle(chat(), "hello")).text

    assert anyio.run(turn, backend="trio") == "echo hello"
    assert len(world.reported) == 1


@pytest.mark.requirement("hooks:loop")
def test_sync_verb_does_not_await_async_hook(
    world: World,
) -> None:
    loops: list[Any] = []

    async def hook() -> None:
        loops.append(asyncio.get_running_loop())

    world.hooks.add("on_session_reset", hook)

    async def agent(run: AgentTurn, _: Any) -> str:
        return world.runtime.reset(run.session_key)

    world.agent = agent

    async def turn() -> Any:
        await world.runtime.ahandle(chat(), "hello")
        return asyncio.get_running_loop()

    loop = asyncio.run(turn())
    assert (len(loops), loop in loops, world.reported) == (1, False, [])


def test_every_blocking_verb_has_async_twin(world: World) -> None:
    world.db.create_session("other", "telegram")

    async def verbs() -> None:
        runtime = world.runtime
        old = (await runtime.ahandle(chat(), "hello")).session_id
        assert "Session reset" in await runtime.areset(KEY)
        assert (await runtime.aswitch(KEY, "other")).session_id == "other"
        assert (await runtime.aresume(KEY, old)).session_id == old
        assert await runtime.afinalize(KEY) == old
        assert await runtime.ashutdown(drain_s=1) == []

    anyio.run(verbs)


def test_cancelled_turn_is_no_longer_active(world: World) -> None:
    async def cut() -> None:
        event = anyio.Event()

        async def agent(_run: AgentTurn, _message: Any) -> None:
            event.set()
            await anyio.sleep_forever()

        world.agent = agent
        async with anyio.create_task_group() as group:
            group.start_soon(world.runtime.ahandle, chat(), "hello")
            await event.wait()
            group.cancel_scope.cancel()

    anyio.run(cut)
    until(lambda: world.runtime.running == [])


@pytest.mark.requirement("runtime:loop")
def test_cancelled_sync_agent_stays_active_until_end(
    home_path: Path,
) -> None:
    closed: list[bool] = []
    gate = Gate()

    class Agent:
        def __call__(self, run: AgentTurn, message: Any) -> Any:
            return gate(run, message)

        def close(self) -> None:
            closed.append(gate.opened.is_set())

    world = World(home_path, build=lambda _: Agent())

    async def cut() -> None:
        task = asyncio.create_task(world.runtime.ahandle(chat(), "hello"))
        await becomes(gate.entered.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert world.runtime.running == [KEY]
        await to_thread.run_sync(world.runtime.reset, KEY)
        gate.opened.set()

    asyncio.run(cut())
    until(lambda: world.runtime.running == [])
    world.runtime.cache.clear()
    assert (closed, world.runtime.running) == ([True], [])
    assert len(world.names("end")) == 1
    world.close()


@pytest.mark.requirement("runtime:loop")
@pytest.mark.parametrize("natively", [True, False])
@pytest.mark.parametrize("steps", range(0, 12, 2))
def test_cancelled_turn_never_blocks_later_turn(
    home_path: Path, natively: bool, steps: int
) -> None:
    world = World(home_path, build=lambda _: aecho)

    async def step() -> None:
        """Block a thread, as each step of a turn does."""
        await to_thread.run_sync(lambda: None)

    async def cut() -> None:
        task = asyncio.create_task(world.runtime.ahandle(chat(), "cut"))
        for _ in range(steps):
            await step()
        task.cancel()
        await asyncio.wait({task})

    async def cut_by_a_scope() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(world.runtime.ahandle, chat(), "cut")
            for _ in range(steps):
                await step()
            group.cancel_scope.cancel()

    async def both() -> None:
        await (cut() if natively else cut_by_a_scope())
        await becomes(lambda: world.runtime.running == [])
        with anyio.fail_after(30):
            reply = await world.runtime.ahandle(chat(), "hello")
        assert (reply.text, reply.superseded) == ("echo hello", False)

    anyio.run(both)
    world.close()


@pytest.mark.requirement("runtime:loop")
def test_slow_hook_of_failed_turn_spares_loop(world: World, gate: threading.Event) -> None:
    entered = threading.Event()

    def slow() -> None:
        entered.set()
        gate.wait(30)

    async def broken(_run: AgentTurn, _message: Any) -> None:
        raise LookupError

    world.hooks.add("on_session_end", slow)
    world.agent = broken

    async def both() -> None:
        task = asyncio.create_task(world.runtime.ahandle(chat(), "hello"))
        await becomes(entered.is_set)
        gate.set()
        with pytest.raises(LookupError):
            await task

    asyncio.run(both())
    assert world.reported == []
    assert [
        arguments["completed"] for hook, arguments in world.told if hook == "on_session_end"
    ] == [False]


@pytest.mark.requirement("runtime:loop")
def test_messages_waiting_for_build_use_no_thread(
    home_path: Path,
) -> None:
    gate = threading.Event()

    def build(_: AgentTurn) -> Any:
        gate.wait(30)
        return echo

    world = World(home_path, build=build)
    world.runtime.cache._build_s = 5

    async def many() -> list[str]:
        to_thread.current_default_thread_limiter().total_tokens = 1
        tasks = [asyncio.create_task(world.runtime.ahandle(chat(), turn)) for turn in range(4)]
        await becomes(lambda: KEY in world.runtime.cache)
        gate.set()
        return sorted(reply.text for reply in await asyncio.gather(*tasks))

    assert asyncio.run(many()) == [f"echo {turn}" for turn in range(4)]
    world.close()


def test_sync_agent_may_raise_stop_iteration(world: World) -> None:
    def broken(*_: Any) -> Any:
        return next(iter(()))

    world.agent = broken

    async def turn() -> None:
        with anyio.fail_after(30):
            await world.runtime.ahandle(chat(), "hello")

    with pytest.raises(RuntimeError, match="StopIteration"):
        anyio.run(turn)


def test_handle_in_loop_explains_async_agent_refusal(
    world: World,
) -> None:
    world.agent = as_async(echo)

    async def turn() -> None:
        await anyio.lowlevel.checkpoint()
        world.say()

    with pytest.raises(InvalidInput, match="ahandle"):
        anyio.run(turn)


def test_turn_of_closed_loop_ends_silently(world: World) -> None:
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def agent(_run: AgentTurn, _message: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    world.agent = agent
    turn = world.runtime.ahandle(chat(), "hello")
    task = loop.create_task(turn)

    async def begun() -> None:
        await becomes(started.is_set)

    loop.run_until_complete(begun())
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    turn.close()
    until(lambda: world.runtime.running == [])
