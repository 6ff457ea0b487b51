"""Sessions that another process compresses during a turn: no message is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB, get_current_session_id
from session_core.lifecycle.agent_turn import AgentTurn
from tests.lifecycle.runtimes import Gate, World, beside, echo, rotate, until
from tests.routing.chats import KEY


def said(world: World, session_id: str) -> list[Any]:
    """Return the message texts of a session."""
    return [row["content"] for row in world.db.get_messages(session_id)]


def compress_elsewhere(home: Path, session_id: str, child: str = "child") -> None:
    """Compress a session in another process."""
    with SessionDB(home / "state.db") as other:
        other.end_session(session_id, "compression")
        other.create_session(child, "telegram", parent_session_id=session_id)
        other.append_message(child, "user", "a summary")


# Writers after our own rotation


@pytest.mark.requirement("runtime:foreign")
@pytest.mark.parametrize("by", ["result", "follow"])
def test_foreign_write_after_rotation_is_noticed(world: World, home_path: Path, by: str) -> None:
    def agent(run: AgentTurn, _: Any) -> Any:
        child = rotate(run, "child")
        if by == "follow":
            run.follow(child)
            return "there"
        return {"session_id": child, "final_response": "there"}

    world.say()
    world.agent = agent
    world.say()
    with SessionDB(home_path / "state.db") as other:
        other.append_message("child", "user", "from outside")
    world.agent = echo
    world.say()
    assert len(world.built) == 2


@pytest.mark.requirement("runtime:foreign")
def test_foreign_write_before_first_append_is_noticed(world: World, home_path: Path) -> None:
    def agent(run: AgentTurn, _: Any) -> str:
        run.follow(rotate(run, "child"))
        with SessionDB(home_path / "state.db") as other:
            other.append_message("child", "user", "from outside")
        run.append("assistant", "ours")
        return "ours"

    world.say()
    world.agent = agent
    world.say()
    world.agent = echo
    world.say()
    assert len(world.built) == 2


# Agents at work during a rotation


@pytest.mark.requirement("runtime:elsewhere")
def test_later_message_follows_concurrent_rotation(
    world: World,
) -> None:
    first, later = Gate(), Gate()
    first.then = lambda run, _: {"final_response": "A", "session_id": rotate(run, "child")}
    gates = {"A": first, "B": later}
    world.say("before")
    world.agent = lambda run, message: gates[message](run, message)
    with beside(lambda: world.say("A"), lambda: first.entered.wait(30) and world.say("B")) as got:
        later.entered.wait(30)
        first.opened.set()
        until(lambda: len(world.runtime._finisher.active_runs.list_runs(KEY)) == 1)
        later.opened.set()
    assert (got[0].superseded, got[1].superseded) == (True, False)
    assert got[1].session_id == world.agree() == "child"
    assert said(world, "child") == ["a summary", "B", "echo B"]


@pytest.mark.requirement("runtime:elsewhere")
def test_superseded_run_appends_to_continuation(
    world: World,
) -> None:
    first = Gate()
    world.say("before")

    def later(run: AgentTurn, message: Any) -> Any:
        run.append("user", message)
        return {"final_response": "B", "session_id": rotate(run, "child")}

    world.agent = lambda run, message: (first if message == "A" else later)(run, message)
    with beside(lambda: world.say("A")) as got:
        first.entered.wait(30)
        assert world.say("B").session_id == "child"
        first.opened.set()
    assert (got[0].superseded, world.agree()) == (True, "child")
    assert said(world, "child") == ["a summary", "A", "echo A"]
    assert world.ended("child") is None


@pytest.mark.requirement("runtime:elsewhere")
def test_turn_follows_compression_by_other_process(world: World, home_path: Path) -> None:
    def agent(run: AgentTurn, message: Any) -> str:
        run.append("user", message)
        compress_elsewhere(home_path, run.session_id)
        run.append("assistant", "answer")
        return f"{run.session_id} {get_current_session_id()}"

    world.agent = agent
    reply = world.say()
    assert (reply.text, reply.session_id) == ("child child", "child")
    assert world.store.peek_session_id(KEY) == "child"
    assert said(world, "child") == ["a summary", "answer"]
    world.agent = echo
    world.say()
    assert len(world.built) == 2


@pytest.mark.requirement("runtime:elsewhere")
@pytest.mark.parametrize("told", [False, True], ids=["by text", "by the id of before"])
def test_turn_end_moves_route_to_foreign_continuation(
    world: World, home_path: Path, told: bool
) -> None:
    def agent(run: AgentTurn, message: Any) -> Any:
        run.append("user", message)
        old = run.session_id
        compress_elsewhere(home_path, old)
        return {"final_response": "x", "session_id": old} if told else "x"

    world.agent = agent
    reply = world.say()
    assert reply.session_id == world.store.peek_session_id(KEY) == "child"


# One agent, one turn


@pytest.mark.requirement("runtime:alone")
def test_agent_serves_single_turn_at_a_time(home_path: Path) -> None:
    gate = Gate()
    world = World(home_path)
    agents: list[Any] = []

    def build(run: AgentTurn) -> Any:
        def agent(run: AgentTurn, message: Any) -> Any:
            return gate(run, message) if message == "first" else echo(run, message)

        agents.append(agent)
        return agent

    world.runtime._build = build
    with beside(lambda: world.say("first")):
        gate.entered.wait(30)
        assert world.say("second").text == "echo second"
        gate.opened.set()
    assert len(agents) == 2
    world.say("third")
    assert len(agents) == 3  # the second agent does not know the later messages of the first
    world.say("fourth")
    assert len(agents) == 3
    world.close()
