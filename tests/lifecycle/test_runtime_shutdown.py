"""Shutdown: turns that it waits for, turns that it interrupts, and their stored results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from session_core import Busy, Denied, InvalidInput
from session_core.lifecycle.agent_turn import AgentTurn
from tests.lifecycle.runtimes import Gate, World, becomes, beside, echo, of, until
from tests.routing.chats import KEY, chat, file_entries


def test_idle_shutdown_interrupts_no_turn(world: World) -> None:
    session_id = world.say().session_id
    assert world.runtime.shutdown() == []
    assert world.boundaries == []
    assert world.ended(session_id) is None
    assert len(world.runtime.cache) == 0


def test_shutdown_leaves_current_mirror(world: World) -> None:
    world.say()
    world.store.suspend_session(KEY)
    world.runtime.shutdown()
    assert world.store.backend._later._timer is None
    assert file_entries(world.folder)[KEY]["suspended"]


def test_shutdown_refuses_new_messages(world: World) -> None:
    world.runtime.shutdown()
    with pytest.raises(Denied, match="shutting down"):
        world.say()
    assert world.store.load_entries() == {}


@pytest.mark.requirement("runtime:shutdown")
def test_message_racing_shutdown_is_refused_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shutdown lists active turns between the check and the registration of the turn."""
    real = world.store.router.route_message

    def arrive(source: Any, **options: Any) -> Any:
        entry = real(source, **options)
        world.runtime.shutdown()
        return entry

    monkeypatch.setattr(world.store.router, "route_message", arrive)
    with pytest.raises(Denied):
        world.say()
    assert world.runtime.running == []
    assert world.built == []
    assert not world.store.has_active_turn(world.store.get(KEY))


def make_gates(world: World, *names: str) -> dict[str, Gate]:
    """Return a gate for each chat, at which its agent waits."""
    gates = {name: Gate() for name in names}
    world.agent = lambda run, message: gates[message](run, message)
    return gates


def list_calls(world: World, *names: str) -> list[Callable[[], Any]]:
    return [lambda name=name: world.say(name, name) for name in names]


@pytest.mark.requirement("runtime:shutdown")
def test_shutdown_finalizes_and_marks_active_agents_once(world: World) -> None:
    waiting = make_gates(world, "a", "b")
    with beside(*list_calls(world, "a", "b")) as replies:
        for gate in waiting.values():
            gate.entered.wait(30)
        ids = {world.store.peek_session_id(of(name)) for name in "ab"}
        cut_off = world.runtime.shutdown()
        assert sorted(cut_off) == [of("a"), of("b")]
        world.runtime.shutdown()
        for gate in waiting.values():
            gate.opened.set()
    expected = [{"session_id": id_, "platform": "telegram", "reason": "shutdown"} for id_ in ids]
    finalized = [hook_calls for hook, hook_calls in world.told if hook == "on_session_finalize"]
    assert sorted(finalized, key=str) == sorted(expected, key=str)
    assert all(reply.superseded for reply in replies)
    for name in "ab":
        entry = world.store.get(of(name))
        assert entry is not None
        assert (entry.resume_pending, entry.resume_reason) == (True, "shutdown_timeout")


def test_interrupted_turn_ends_once_before_session(world: World) -> None:
    waiting = make_gates(world, "a")
    with beside(*list_calls(world, "a")) as replies:
        waiting["a"].entered.wait(30)
        world.runtime.shutdown()
        waiting["a"].opened.set()
    session_id = replies[0].session_id
    # Its agent stores its first message after that; the next process goes on with the session.
    hook_calls = [("end", session_id), ("finalize", session_id), ("start", session_id)]
    assert world.names() == hook_calls
    assert (world.told[0][1]["completed"], world.told[0][1]["interrupted"]) == (False, True)


@pytest.mark.requirement("runtime:shutdown")
def test_shutdown_marks_before_waiting_and_clears_finished(world: World) -> None:
    waiting = make_gates(world, "quick", "slow")
    marked: list[Any] = []

    def finish(run: AgentTurn, message: Any) -> str:
        entry = world.store.get(run.session_key)
        marked.append(entry.resume_reason if entry else None)
        return echo(run, message)

    waiting["quick"].then = finish
    real = world.store.mark_resume_pending

    def mark(key: str, reason: str) -> bool:
        done = real(key, reason)
        if key == of("quick"):
            waiting["quick"].opened.set()
            until(lambda: key not in world.runtime.running)
        return done

    world.store.mark_resume_pending = mark
    with beside(*list_calls(world, "quick", "slow")) as replies:
        for gate in waiting.values():
            gate.entered.wait(30)
        cut_off = world.runtime.shutdown(drain_s=0.02)
        waiting["slow"].opened.set()
    assert cut_off == [of("slow")]
    assert marked == ["shutdown_timeout"]
    assert [reply.superseded for reply in replies] == [False, True]
    pending = {key: entry.resume_pending for key, entry in world.store.load_entries().items()}
    assert pending == {of("quick"): False, of("slow"): True}
    assert [name for name, _ in world.boundaries] == ["finalize"]


def test_shutdown_returns_after_last_turn_finishes(world: World) -> None:
    waiting = make_gates(world, "a")
    with beside(*list_calls(world, "a")):
        waiting["a"].entered.wait(30)
        threading.Timer(0.01, waiting["a"].opened.set).start()
        assert world.runtime.shutdown(drain_s=60) == []


def test_mark_set_after_turn_end_is_removed(world: World) -> None:
    waiting = make_gates(world, "a")
    real = world.store.mark_resume_pending

    def mark(key: str, reason: str) -> bool:
        waiting["a"].opened.set()
        thread.join(30)
        return real(key, reason)

    world.store.mark_resume_pending = mark
    thread = threading.Thread(target=world.say, args=("a", "a"))
    thread.start()
    waiting["a"].entered.wait(30)
    assert world.runtime.shutdown() == []
    entry = world.store.get(of("a"))
    assert entry is not None
    assert not entry.resume_pending


def test_failing_mark_does_not_prevent_shutdown(world: World) -> None:
    waiting = make_gates(world, "a")

    def busy(*_: Any) -> bool:
        raise Busy("the write lock is held")

    with beside(*list_calls(world, "a")):
        waiting["a"].entered.wait(30)
        world.store.mark_resume_pending = busy
        assert world.runtime.shutdown() == [of("a")]
        waiting["a"].opened.set()
    assert [name for name, _ in world.boundaries] == ["finalize"]
    assert any("marked" in what for what in world.reported)


def test_chat_moved_from_agent_session_is_unmarked(world: World) -> None:
    target = world.say().session_id
    world.runtime.reset(KEY)
    gate = Gate()
    world.agent = gate
    with beside(world.say):
        gate.entered.wait(30)
        world.runtime.switch(KEY, target)
        world.runtime.shutdown()
        gate.opened.set()
    entry = world.store.get(KEY)
    assert entry is not None
    assert (entry.session_id, entry.resume_pending) == (target, False)


@pytest.mark.requirement("runtime:shutdown")
def test_interrupted_chat_resumes_after_restart(world: World, home_path: Path) -> None:
    gate = Gate()

    def agent(run: AgentTurn, message: Any) -> Any:
        run.append("user", message)
        return gate(run, message)

    world.agent = agent
    with beside(world.say):
        gate.entered.wait(30)
        session_id = world.store.peek_session_id(KEY)
        world.runtime.shutdown()
        gate.opened.set()
    world.close()
    again = World(home_path)
    assert again.say().session_id == session_id
    entry = again.store.get(KEY)
    assert entry is not None
    assert not entry.resume_pending
    again.close()


@pytest.mark.requirement("runtime:close")
def test_shutdown_waits_for_async_agents(world: World) -> None:
    async def both() -> list[str]:
        entered, opened = anyio.Event(), anyio.Event()

        async def agent(*_: Any) -> str:
            entered.set()
            await opened.wait()
            return "done"

        world.agent = agent
        remaining: list[str] = []
        async with anyio.create_task_group() as group:
            group.start_soon(world.runtime.ahandle, chat(), "hello")
            await entered.wait()

            async def stop() -> None:
                remaining.extend(await world.runtime.ashutdown(drain_s=60))

            group.start_soon(stop)
            await becomes(lambda: world.store.get(KEY).resume_pending)
            opened.set()
        return remaining

    assert anyio.run(both) == []


@pytest.mark.requirement("runtime:close")
@pytest.mark.parametrize("verb", ["shutdown", "close", "__enter__"])
def test_blocking_shutdown_in_loop_is_refused(world: World, verb: str) -> None:
    async def block() -> None:
        await anyio.lowlevel.checkpoint()
        getattr(world.runtime, verb)()

    with pytest.raises(InvalidInput, match="async with" if verb == "__enter__" else "ashutdown"):
        anyio.run(block)
    assert world.say().text == "echo hello"


@pytest.mark.requirement("runtime:close")
@pytest.mark.parametrize("by", ["with", "async with"])
def test_runtime_context_manager_closes_runtime(world: World, by: str) -> None:
    async def run() -> None:
        async with world.runtime as runtime:
            await runtime.ahandle(chat(), "hello")

    if by == "with":
        with world.runtime as runtime:
            runtime.handle(chat(), "hello")
    else:
        anyio.run(run)
    with pytest.raises(Denied):
        world.say()
    assert world.db.message_count() == 2
    world.runtime.close()


def test_shutdown_cleans_up_agents(home_path: Path) -> None:
    closed = []

    class Agent:
        def __call__(self, run: AgentTurn, message: Any) -> str:
            return echo(run, message)

        def close(self) -> None:
            closed.append(self)

    world = World(home_path, build=lambda _: Agent())
    for name in range(3):
        world.say("x", name)
    world.runtime.shutdown()
    assert len(closed) == 3
    world.close()
