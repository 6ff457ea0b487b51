"""Superseded turns: they get a reply and change nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import Busy
from session_core.lifecycle.agent_turn import AgentTurn
from tests.lifecycle.runtimes import Gate, World, beside, echo, of, rotate, until
from tests.routing.chats import KEY, make_stored_entry, put_row

# Resets


@pytest.mark.requirement("runtime:late")
@pytest.mark.parametrize("by", ["policy", "store", "runtime"])
def test_unstored_session_agent_is_dropped_by_reset(expiring: World, by: str) -> None:
    expiring.agent = lambda *_: "just talk"
    expiring.say()
    if by == "policy":
        expiring.clock.advance(hours=2)
    elif by == "store":
        expiring.store.reset_session(KEY)
    else:
        expiring.runtime.reset(KEY)
    for _ in range(2):
        expiring.say()
    assert len(expiring.built) == 2


@pytest.mark.requirement("runtime:late")
def test_agent_built_during_reset_is_not_reused(
    home_path: Path,
) -> None:
    building = Gate(lambda *_: lambda *_: "just talk")
    world = World(home_path, build=lambda run: building(run, None))
    with beside(world.say):
        building.entered.wait(30)
        world.runtime.reset(KEY)
        building.opened.set()
    building.entered.clear()
    world.say()
    assert building.entered.is_set()
    world.close()


@pytest.mark.requirement("runtime:late")
@pytest.mark.parametrize("verb", ["runtime.reset", "store.reset_session", "runtime.finalize"])
def test_first_message_after_end_leaves_session_ended(world: World, verb: str) -> None:
    gate = Gate()
    world.agent = gate
    owner, _, name = verb.partition(".")
    with beside(world.say) as replies:
        gate.entered.wait(30)
        getattr(getattr(world, owner), name)(KEY)
        gate.opened.set()
    old = replies[0].session_id
    assert world.db.message_count(old) == 2
    assert world.ended(old) == ("closed" if name == "finalize" else "session_reset")
    world.agent = echo
    assert world.say().session_id != old
    assert world.names("finalize") == [("finalize", old)]


# Superseded


def test_delayed_message_does_not_supersede_later_message(expiring: World) -> None:
    hook, later = Gate(lambda *_: None), Gate()
    expiring.say("before")
    expiring.clock.advance(hours=2)
    expiring.hooks.timeout_s = 30
    expiring.hooks.add("on_session_finalize", lambda session_id: hook(session_id, ""))
    expiring.agent = lambda run, message: later(run, message) if message == "later" else "done"
    with beside(lambda: expiring.say("earlier")) as first:
        hook.entered.wait(30)
        with beside(lambda: expiring.say("later")) as second:
            later.entered.wait(30)
            hook.opened.set()
            until(lambda: bool(first[0]))
            later.opened.set()
    assert (first[0].superseded, second[0].superseded) == (True, False)


@pytest.mark.requirement("runtime:superseded")
def test_superseded_run_writes_nothing_back(world: World) -> None:
    gate = Gate(lambda run, _: {"final_response": "late", "session_id": rotate(run, "child")})
    world.say()
    first = world.agree()
    world.agent = gate
    with beside(world.say) as replies:
        gate.entered.wait(30)
        world.agent = lambda *_: "quick"
        quick = world.say()
        gate.opened.set()
    late = replies[0]
    assert (quick.text, quick.superseded) == ("quick", False)
    assert (late.text, late.superseded) == ("late", True)
    assert world.store.peek_session_id(KEY) == first


@pytest.mark.requirement("runtime:superseded")
@pytest.mark.parametrize("verb", ["runtime", "store"])
def test_run_of_reset_chat_writes_nothing_back(world: World, verb: str) -> None:
    gate = Gate(
        lambda run, _: {
            "final_response": "late",
            "session_id": rotate(run, "child"),
            "last_prompt_tokens": 99,
            "compression_exhausted": True,
        }
    )
    world.say()
    world.agent = gate
    with beside(world.say) as replies:
        gate.entered.wait(30)
        if verb == "runtime":
            world.runtime.reset(KEY)
        else:
            world.store.reset_session(KEY)
        new = world.store.get(KEY)
        gate.opened.set()
    assert (replies[0].text, replies[0].superseded) == ("late", True)
    assert world.store.get(KEY) == new
    assert len(world.names("reset")) == 1


def test_run_following_left_session_changes_no_route(world: World) -> None:
    def agent(run: AgentTurn, message: Any) -> str:
        run.append("user", message)
        child = rotate(run, "child")
        world.store.reset_session(KEY)
        run.follow(child)
        run.append("assistant", "still here")
        return run.session_id

    world.agent = agent
    reply = world.say()
    assert (reply.text, reply.superseded) == ("child", True)
    assert world.store.peek_session_id(KEY) != "child"


@pytest.mark.requirement("runtime:superseded")
def test_failing_write_back_is_reported_with_reply(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: Any, **__: Any) -> None:
        raise Busy("the write lock is held")

    monkeypatch.setattr(world.store.turns, "end_turn", busy)
    assert world.say().text == "echo hello"
    assert any("not stored" in what for what in world.reported)


def test_failure_with_uncountable_history_is_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_: str) -> int:
        raise Busy("the write lock is held")

    monkeypatch.setattr(world.db, "message_count", busy)
    world.agent = lambda *_: {"failed": True, "error": "boom"}
    assert "boom" in world.say().text


def test_route_with_mismatched_key_is_followed(world: World) -> None:
    world.db.create_session("s1", "telegram")
    put_row(world.db, world.folder, make_stored_entry("s1", key=of("another")))
    world.agent = lambda run, _: {"session_id": rotate(run, "child"), "final_response": "x"}
    reply = world.say()
    assert (reply.session_id, reply.session_key, reply.superseded) == ("child", KEY, False)
    assert world.store.peek_session_id(KEY) == "child"
    world.runtime.reset(KEY)
    assert len(world.runtime.cache) == 0


def test_superseded_append_does_not_end_continuation(
    world: World,
) -> None:
    def agent(run: AgentTurn, message: Any) -> str:
        run.append("user", message)
        world.db.end_session(run.session_id, "compression")
        world.db.create_session("child", "telegram", parent_session_id=run.session_id)
        run.superseded = True
        run.follow("child")
        run.append("assistant", "late")
        return "late"

    world.agent = agent
    world.say()
    assert world.ended("child") is None


def test_failed_turn_start_is_not_recorded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: str) -> None:
        raise RuntimeError("of the hooks")

    world.say()
    monkeypatch.setattr(world.hooks, "mark_reopened", fails)
    with pytest.raises(RuntimeError):
        world.say()
    entry = world.store.get(KEY)
    assert entry is not None
    assert not world.store.has_active_turn(entry)
