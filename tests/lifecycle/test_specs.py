"""Arguments of the hooks at each moment of a session's life, called by the runtime.

If a row differs from Hermes, the test name shows it, and DESIGN.md gives the reason.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from session_core import ExpiryWatcher
from session_core.lifecycle.agent_turn import AgentTurn
from tests.lifecycle.runtimes import Gate, World, beside
from tests.routing.chats import KEY


def told(world: World, hook: str) -> list[dict[str, Any]]:
    """Return the arguments of each call of a hook."""
    return [expected for name, expected in world.told if name == f"on_session_{hook}"]


@pytest.mark.requirement("hooks:moments")
def test_first_turn_starts_session(world: World) -> None:
    ids = [world.say().session_id for _ in range(2)]
    assert told(world, "start") == [{"session_id": ids[0], "platform": "telegram"}]


def test_creating_append_fires_session_start(world: World, home_path: Path) -> None:
    other = World(home_path)
    begun: list[str] = []

    def agent(run: AgentTurn, message: Any) -> str:
        if message == "first":  # both turns have begun before one of them stores anything
            begun.append(other.say("second").session_id)
        run.append("user", message)
        return "fine"

    world.agent = other.agent = agent
    session_id = world.say("first").session_id
    assert begun == [session_id]
    assert world.names("start") == []
    assert other.names("start") == [("start", session_id)]
    other.close()


@pytest.mark.parametrize("kept", [True, False])
def test_session_start_waits_for_commit(world: World, kept: bool) -> None:
    def agent(run: AgentTurn, message: Any) -> str:
        with suppress(ZeroDivisionError), world.db.transaction():
            run.append("user", message)
            assert told(world, "start") == []
            if not kept:
                raise ZeroDivisionError
        return "fine"

    world.agent = agent
    session_id = world.say().session_id
    hooks = ["start", "end"] if kept else ["end"]
    assert world.names() == [(hook, session_id) for hook in hooks]


def test_append_many_fires_session_start(world: World) -> None:
    def agent(run: AgentTurn, message: Any) -> str:
        told_before = len(told(world, "start"))
        run.append_many([])
        run.append_many([{"role": "user", "content": message}])
        run.append("assistant", "fine")
        assert (told_before, len(told(world, "start"))) == (0, 1)
        return "fine"

    world.agent = agent
    assert not world.say().failed


def test_session_start_includes_requested_model(world: World) -> None:
    world.say()
    world.runtime.reset(KEY)
    world.store.set_model_override(KEY, {"model": "opus"})
    new = world.say().session_id
    assert told(world, "start")[-1] == {
        "session_id": new,
        "platform": "telegram",
        "model": "opus",
    }


@pytest.mark.requirement("hooks:moments")
def test_turn_end_includes_ids_and_model(world: World) -> None:
    named = {"task_id": "t1", "turn_id": "u1", "model": "opus"}
    results: list[Any] = ["fine", {"final_response": "fine", **named}]
    world.agent = lambda *_: results.pop(0)
    expected = {"session_id": world.say().session_id, "platform": "telegram"}
    world.say()
    ended = {**expected, "completed": True, "interrupted": False}
    assert told(world, "end") == [ended, {**ended, **named}]


@pytest.mark.requirement("hooks:moments")
def test_close_during_turn_interrupts_then_finalizes(world: World) -> None:
    gate = Gate()
    world.agent = gate
    with beside(world.say) as replies:
        gate.entered.wait(30)
        world.runtime.finalize(KEY, "session_boundary")
        gate.opened.set()
    expected = {"session_id": replies[0].session_id, "platform": "telegram"}
    assert world.told == [
        ("on_session_end", {**expected, "completed": False, "interrupted": True}),
        ("on_session_finalize", {**expected, "reason": "session_boundary"}),
    ]


@pytest.mark.requirement("hooks:moments")
def test_close_between_turns_ends_no_turn(world: World) -> None:
    world.say()
    world.runtime.finalize(KEY)
    assert [name for name, _ in world.names()] == ["start", "end", "finalize"]


@pytest.mark.requirement("hooks:moments")
def test_runtime_reset_finalizes_before_reset(world: World) -> None:
    old = world.say().session_id
    seen = []
    world.hooks.add("on_session_finalize", lambda: seen.append(world.store.peek_session_id(KEY)))
    world.runtime.reset(KEY)
    new = world.agree()
    both = {"reason": "new_session", "old_session_id": old, "new_session_id": new}
    assert told(world, "finalize") == [{"session_id": old, "platform": "telegram", **both}]
    assert told(world, "reset") == [{"session_id": new, "platform": "telegram", **both}]
    assert world.boundaries == [("finalize", old), ("reset", new)]
    assert seen == [new]


@pytest.mark.requirement("hooks:moments")
def test_watcher_expiry_finalizes_with_reason(expiring: World) -> None:
    session_id = expiring.say().session_id
    expiring.clock.advance(hours=2)
    ExpiryWatcher(expiring.runtime).tick()
    expected = {"session_id": session_id, "platform": "telegram", "reason": "session_expired"}
    assert told(expiring, "finalize") == [expected]
    assert told(expiring, "reset") == []


@pytest.mark.requirement("hooks:moments")
def test_shutdown_finalizes_with_platform_of_chat(
    world: World,
) -> None:
    gates = {"a": Gate(), "b": Gate()}
    world.agent = lambda run, message: gates[message](run, message)
    with beside(*(lambda name=name: world.say(name, name) for name in gates)) as replies:
        for gate in gates.values():
            gate.entered.wait(30)
        world.runtime.shutdown()
        for gate in gates.values():
            gate.opened.set()
    finalized = {expected["session_id"]: expected for expected in told(world, "finalize")}
    assert finalized == {
        reply.session_id: {
            "session_id": reply.session_id,
            "platform": "telegram",
            "reason": "shutdown",
        }
        for reply in replies
    }


@pytest.mark.requirement("hooks:moments")
@pytest.mark.parametrize("reason", ["session_boundary", "shutdown"])
def test_cli_close_finalizes_with_given_reason(world: World, reason: str) -> None:
    world.db.create_session("s1", "cli")
    world.runtime.finalize("s1", reason)
    expected = {"session_id": "s1", "platform": "cli", "reason": reason}
    assert told(world, "finalize") == [expected]


@pytest.mark.requirement("hooks:moments")
def test_tui_close_finalizes_with_reason(world: World) -> None:
    world.db.create_session("s1", "tui")
    world.runtime.finalize("s1", viewer=True)
    assert told(world, "finalize") == [{"session_id": "s1", "platform": "tui", "reason": "closed"}]


def test_two_argument_hook_is_called_every_time(
    world: World,
) -> None:
    seen: list[tuple[str, str, str]] = []
    for hook in ("start", "end", "finalize", "reset"):
        world.hooks.add(
            f"on_session_{hook}",
            lambda session_id, platform, _hook=hook: seen.append((_hook, platform, session_id)),
        )
    old = world.say().session_id
    world.runtime.reset(KEY)
    new = world.runtime.finalize(KEY)
    moments = [("start", old), ("end", old), ("finalize", old), ("reset", new), ("finalize", new)]
    assert seen == [(name, "telegram", session_id) for name, session_id in moments]
