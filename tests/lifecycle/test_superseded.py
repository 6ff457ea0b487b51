"""Turns whose chat has gone on without them: they are answered, and nothing of them outlives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from session_core import Busy
from session_core.lifecycle.agent_turn import AgentTurn
from tests.lifecycle.runtimes import Gate, World, beside, echo, of, rotate, until
from tests.routing.chats import KEY, make_stored_entry, put_row

# What was reset takes nothing along


@pytest.mark.requirement("runtime:late")
@pytest.mark.parametrize("by", ["policy", "store", "runtime"])
def test_an_agent_of_a_session_that_was_never_stored_does_not_survive_its_reset(
    expiring: World, by: str
) -> None:
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
def test_an_agent_that_was_being_built_as_its_chat_was_reset_is_not_the_one_of_the_new_session(
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
def test_a_session_whose_first_message_is_stored_after_its_end_has_ended(
    world: World, verb: str
) -> None:
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


def test_an_earlier_message_that_a_hook_holds_up_supersedes_no_later_one(expiring: World) -> None:
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
def test_a_run_that_was_superseded_by_a_message_writes_nothing_back(world: World) -> None:
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
def test_a_run_whose_chat_was_reset_meanwhile_writes_nothing_back(world: World, verb: str) -> None:
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


def test_a_run_that_follows_where_the_chat_has_left_goes_on_for_itself(world: World) -> None:
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
def test_a_write_back_that_fails_is_reported_and_costs_no_reply(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: Any, **__: Any) -> None:
        raise Busy("the write lock is held")

    monkeypatch.setattr(world.store, "end_turn", busy)
    assert world.say().text == "echo hello"
    assert any("not stored" in what for what in world.reported)


def test_a_failure_whose_history_cannot_be_counted_is_answered_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_: str) -> int:
        raise Busy("the write lock is held")

    monkeypatch.setattr(world.db, "message_count", busy)
    world.agent = lambda *_: {"failed": True, "error": "boom"}
    assert "boom" in world.say().text


def test_a_route_that_is_stored_under_another_key_than_it_says_is_followed(world: World) -> None:
    world.db.create_session("s1", "telegram")
    put_row(world.db, world.folder, make_stored_entry("s1", key=of("another")))
    world.agent = lambda run, _: {"session_id": rotate(run, "child"), "final_response": "x"}
    reply = world.say()
    assert (reply.session_id, reply.session_key, reply.superseded) == ("child", KEY, False)
    assert world.store.peek_session_id(KEY) == "child"
    world.runtime.reset(KEY)
    assert len(world.runtime.cache) == 0


def test_what_a_superseded_run_appends_where_the_session_goes_on_does_not_end_that(
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


def test_a_turn_that_could_not_begin_is_not_noted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: str) -> None:
        raise RuntimeError("of the hooks")

    world.say()
    monkeypatch.setattr(world.hooks, "mark_reopened", fails)
    with pytest.raises(RuntimeError):
        world.say()
    entry = world.store.get(KEY)
    assert entry is not None
    assert not world.store.has_active_turn(entry)
