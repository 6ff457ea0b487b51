"""Reset, switch, resume and finalize: stored results and hook calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from session_core import Busy, ExpiryWatcher, Hooks, InvalidInput, NotFound
from session_core.lifecycle.agent_turn import AgentTurn
from tests.homes import make_hermes_database
from tests.lifecycle.runtimes import IDLE, Gate, World, beside, rotate
from tests.routing.chats import KEY

# Hooks of turns


def test_session_starts_once_and_turns_end_once(world: World) -> None:
    session_id = world.say().session_id
    world.say()
    assert world.names() == [("start", session_id), ("end", session_id), ("end", session_id)]


def test_existing_session_fires_no_start(world: World, home_path: Path) -> None:
    world.say()
    world.close()
    again = World(home_path)
    again.say()
    assert again.names("start") == []
    again.close()


@pytest.mark.parametrize(
    ("result", "completed", "interrupted"),
    [
        ("fine", True, False),
        ({"failed": True}, False, False),
        ({"interrupted": True}, False, True),
    ],
)
def test_turn_end_reports_outcome(
    world: World, result: Any, completed: bool, interrupted: bool
) -> None:
    world.agent = lambda *_: result
    reply = world.say()
    expected = {"completed": completed, "interrupted": interrupted}
    assert world.told[-1] == (
        "on_session_end",
        {"session_id": reply.session_id, "platform": "telegram", **expected},
    )


def test_session_start_names_chat(world: World) -> None:
    session_id = world.say().session_id
    assert world.told[0] == (
        "on_session_start",
        {"session_id": session_id, "platform": "telegram"},
    )


# Reset


@pytest.mark.requirement("runtime:reset")
def test_reset_finalizes_old_id_before_new(world: World) -> None:
    old = world.say().session_id
    text = world.runtime.reset(KEY)
    new = world.agree()
    assert world.boundaries == [("finalize", old), ("reset", new)]
    both = {"reason": "new_session", "old_session_id": old, "new_session_id": new}
    assert [expected for hook, expected in world.told[-2:]] == [
        {"session_id": old, "platform": "telegram", **both},
        {"session_id": new, "platform": "telegram", **both},
    ]
    assert "Session reset" in text
    assert new in text
    assert (world.ended(old), world.say().session_id) == ("session_reset", new)
    assert len(world.built) == 2


@pytest.mark.requirement("runtime:reset")
def test_reset_of_new_chat_answers_new_session(world: World) -> None:
    assert "New session" in world.runtime.reset(KEY)
    assert world.told == []


def raise_error(**_: Any) -> None:
    raise RuntimeError("broken")


def exit_process(**_: Any) -> None:
    raise SystemExit


async def raise_later(**_: Any) -> None:
    await asyncio.sleep(0)
    raise RuntimeError("broken")


@pytest.mark.requirement("runtime:reset")
@pytest.mark.parametrize("hook", ["on_session_finalize", "on_session_reset"])
@pytest.mark.parametrize("broken", [raise_error, exit_process, raise_later])
def test_broken_hook_does_not_delay_reset(
    world: World, hook: str, broken: Callable[..., Any]
) -> None:
    old = world.say().session_id
    world.hooks.add(hook, broken, "broken")
    assert "Session reset" in world.runtime.reset(KEY)
    assert world.boundaries == [("finalize", old), ("reset", world.agree())]
    assert any("broken" in what for what in world.reported)


@pytest.mark.requirement("runtime:reset")
def test_slow_hook_does_not_delay_reset(world: World) -> None:
    world.say()
    never = threading.Event()
    world.hooks.timeout_s = 0.02
    world.hooks.add("on_session_finalize", lambda: never.wait(30), "slow")
    assert "Session reset" in world.runtime.reset(KEY)
    assert [hook for hook, _ in world.boundaries] == ["finalize", "reset"]
    assert any("slow" in what for what in world.reported)
    never.set()


@pytest.mark.requirement("runtime:reset")
def test_failing_dispatcher_does_not_delay_reset(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = world.say().session_id

    def fail(*_: Any) -> None:
        raise RuntimeError("no dispatcher")

    monkeypatch.setattr(Hooks, "list_implementations", fail)
    assert "Session reset" in world.runtime.reset(KEY)
    assert world.agree() != old
    assert any("dispatcher" in what for what in world.reported)


def test_reset_waits_for_async_hook(world: World) -> None:
    world.say()
    order: list[str] = []

    async def finalize(session_id: str) -> None:
        await asyncio.sleep(0)
        order.append("finalized")

    world.hooks.add("on_session_finalize", finalize)
    world.hooks.add("on_session_reset", lambda: order.append("reset"))
    world.runtime.reset(KEY)
    assert order == ["finalized", "reset"]


def test_automatic_reset_finalizes_before_start(
    expiring: World,
) -> None:
    old = expiring.say().session_id
    expiring.clock.advance(hours=2)
    new = expiring.say().session_id
    assert expiring.names() == [
        ("start", old),
        ("end", old),
        ("finalize", old),
        ("reset", new),
        ("start", new),
        ("end", new),
    ]
    assert expiring.told[2][1]["reason"] == "idle"


# Switch


@pytest.mark.requirement("runtime:switch")
def test_switch_goes_to_tip_with_new_agent(world: World) -> None:
    old = world.say().session_id
    world.db.create_session("root", "cli")
    world.db.end_session("root", "compression")
    world.db.create_session("tip", "cli", parent_session_id="root")
    world.db.end_session("tip", "cli_close")
    entry = world.runtime.switch(KEY, "root")
    assert entry.session_id == "tip" == world.store.peek_session_id(KEY)
    assert world.boundaries == [("finalize", old), ("reset", "tip")]
    assert (world.ended(old), world.ended("tip")) == ("session_switch", None)
    assert world.say().session_id == "tip" == world.agree()
    assert len(world.built) == 2


@pytest.mark.requirement("runtime:switch")
def test_switch_back_and_forth_fires_boundaries_once(world: World) -> None:
    old = world.say().session_id
    world.db.create_session("other", "cli")
    for target in ("other", old):
        world.runtime.switch(KEY, target)
        world.say()
    assert world.boundaries == [
        ("finalize", old),
        ("reset", "other"),
        ("finalize", "other"),
        ("reset", old),
    ]


def test_switch_to_unknown_session_is_not_found(world: World) -> None:
    world.db.create_session("other", "cli")
    with pytest.raises(NotFound):
        world.runtime.switch(KEY, "other")
    world.say()
    with pytest.raises(NotFound):
        world.runtime.switch(KEY, "nowhere")
    assert world.boundaries == []


# Resume


@pytest.mark.requirement("runtime:resume")
@pytest.mark.parametrize(
    "named", ["the_trip_of_may", "the_trip", "Trip"], ids=["id", "prefix", "title"]
)
def test_resume_continues_named_session(world: World, named: str) -> None:
    old = world.say().session_id
    world.db.create_session("the_trip_of_may", "cli")
    world.db.set_session_title("the_trip_of_may", "Trip")
    world.db.end_session("the_trip_of_may", "cli_close")
    assert world.runtime.resume(KEY, named).session_id == "the_trip_of_may"
    assert world.boundaries == [("finalize", old), ("reset", "the_trip_of_may")]
    assert world.ended("the_trip_of_may") is None
    assert world.say().session_id == "the_trip_of_may"


@pytest.mark.requirement("runtime:resume")
def test_resume_of_unknown_name_is_not_found(world: World) -> None:
    world.say()
    with pytest.raises(NotFound, match="its id or its title"):
        world.runtime.resume(KEY, "nowhere")
    assert world.boundaries == []


@pytest.mark.parametrize("named", ["", "  ", None, 7])
def test_resume_without_name_explains_names(world: World, named: Any) -> None:
    old = world.say().session_id
    with pytest.raises(InvalidInput, match="session must be"):
        world.runtime.resume(KEY, named)
    assert (world.boundaries, world.store.peek_session_id(KEY)) == ([], old)


# Finalize


@pytest.mark.requirement("runtime:once")
def test_finalize_by_other_process_is_not_repeated(world: World, home_path: Path) -> None:
    session_id = world.say().session_id
    world.runtime.finalize(KEY)
    other = World(home_path)
    assert other.runtime.finalize(KEY) == session_id
    assert other.boundaries == []
    other.close()


def test_session_with_closed_agent_is_finalized(world: World) -> None:
    session_id = world.say().session_id
    world.db.end_session(session_id, "agent_close")
    world.runtime.finalize(KEY)
    assert world.boundaries == [("finalize", session_id)]


def test_finalize_uses_tip_of_missed_compression(world: World) -> None:
    old = world.say().session_id
    world.db.end_session(old, "compression")
    world.db.create_session("child", "telegram", parent_session_id=old)
    assert world.runtime.finalize(KEY) == "child"
    assert world.ended("child") == "closed"


@pytest.mark.requirement("runtime:finalize")
def test_finalize_ends_session_once(world: World) -> None:
    session_id = world.say().session_id
    for _ in range(2):
        assert world.runtime.finalize(KEY, "closed") == session_id
    assert world.names("finalize") == [("finalize", session_id)]
    expected = {"session_id": session_id, "platform": "telegram", "reason": "closed"}
    assert world.told[-1][1] == expected
    assert world.ended(session_id) == "closed"
    assert len(world.runtime.cache) == 0


def test_message_after_finalize_starts_new_session(
    world: World,
) -> None:
    old = world.say().session_id
    world.runtime.finalize(KEY)
    new = world.say().session_id
    assert new != old
    assert world.boundaries == [("finalize", old)]


@pytest.mark.requirement("runtime:once")
@pytest.mark.parametrize("then", ["a tick", "a message", "a reset"])
def test_finalized_session_is_not_repeated_after_start(
    expiring: World, home_path: Path, then: str
) -> None:
    old = expiring.say().session_id
    expiring.runtime.finalize(KEY)
    expiring.close()
    again = World(home_path, config=IDLE)
    again.clock.advance(hours=2)
    if then == "a tick":
        assert ExpiryWatcher(again.runtime).tick() == []
    elif then == "a message":
        assert again.say().session_id != old
    else:
        again.runtime.reset(KEY)
    assert again.names("finalize") == []
    again.close()


def test_finalize_in_hermes_home_marks_no_route(home_path: Path) -> None:
    make_hermes_database(home_path / "state.db")
    world = World(home_path)
    session_id = world.say().session_id
    before = world.store.get(KEY)
    world.runtime.finalize(KEY)
    assert (world.store.get(KEY), world.ended(session_id)) == (before, "closed")
    world.close()


@pytest.mark.requirement("runtime:once")
def test_session_continued_after_finalize_finalizes_again(world: World) -> None:
    session_id = world.say().session_id
    world.runtime.finalize(KEY, "agent_close")
    assert world.say().session_id == session_id
    world.runtime.finalize(KEY)
    assert world.names("finalize") == [("finalize", session_id)] * 2


def test_finalize_with_failing_mark_is_reported(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: Any) -> None:
        raise Busy("the write lock is held")

    session_id = world.say().session_id
    monkeypatch.setattr(world.store, "set_end_delivered", busy)
    assert world.runtime.finalize(KEY) == session_id
    assert world.ended(session_id) == "closed"
    assert any("a second time" in what for what in world.reported)


@pytest.mark.requirement("runtime:once")
def test_close_during_turn_ends_turn_then_session(world: World) -> None:
    gate = Gate()
    world.agent = gate
    with beside(world.say) as replies:
        gate.entered.wait(30)
        world.runtime.finalize(KEY, "tui_close")
        gate.opened.set()
    session_id = replies[0].session_id
    expected = {"session_id": session_id, "platform": "telegram"}
    assert world.told == [
        ("on_session_end", {**expected, "completed": False, "interrupted": True}),
        ("on_session_finalize", {**expected, "reason": "tui_close"}),
    ]


@pytest.mark.requirement("runtime:finalize")
def test_finalize_uses_current_session_of_agent(world: World) -> None:
    gate = Gate()

    def agent(run: AgentTurn, message: Any) -> Any:
        run.append("user", message)
        run.follow(rotate(run, "child"))
        return gate(run, message)

    world.agent = agent
    with beside(world.say):
        gate.entered.wait(30)
        assert world.runtime.finalize(KEY) == "child"
        gate.opened.set()
    assert world.ended("child") == "closed"


def test_run_of_finalized_session_writes_nothing_back(world: World) -> None:
    world.say()
    gate = Gate(lambda run, _: {"final_response": "late", "session_id": rotate(run, "child")})
    world.agent = gate
    with beside(world.say) as replies:
        gate.entered.wait(30)
        world.runtime.finalize(KEY)
        before = world.store.get(KEY)
        world.clock.advance(seconds=1)
        gate.opened.set()
    assert (replies[0].text, replies[0].superseded) == ("late", True)
    assert world.store.get(KEY) == before


@pytest.mark.requirement("runtime:finalize")
def test_finalize_without_route_uses_session_key(world: World) -> None:
    world.db.create_session("s1", "tui")
    assert world.runtime.finalize("s1", "tui_close") == "s1"
    assert world.ended("s1") == "tui_close"
    assert world.told[-1][1] == {"session_id": "s1", "platform": "tui", "reason": "tui_close"}


@pytest.mark.requirement("runtime:finalize")
@pytest.mark.parametrize("source", ["telegram", "discord", "a_plugin"])
def test_viewer_close_keeps_chat_session(world: World, source: str) -> None:
    world.db.create_session("s1", source)
    assert world.runtime.finalize("s1", viewer=True) is None
    assert (world.ended("s1"), world.told) == (None, [])


@pytest.mark.requirement("runtime:finalize")
@pytest.mark.parametrize("where", ["at work", "routed", "nowhere"])
def test_viewer_close_keeps_unstored_chat_session(world: World, where: str) -> None:
    closed = []

    def agent(*_: Any) -> str:
        closed.append(world.runtime.finalize(KEY, viewer=True))
        return "just talk"

    world.agent = agent if where == "at work" else lambda *_: "just talk"
    if where != "nowhere":
        world.say()
    if where != "at work":
        closed.append(world.runtime.finalize(KEY, viewer=True))
    assert (closed, world.boundaries) == ([None], [])


@pytest.mark.requirement("runtime:finalize")
@pytest.mark.parametrize(
    "source",
    ["tui", "cli", "webui", "desktop", "cron", "subagent", "test", "local", "acp", "webhook",
     "api_server", "msgraph_webhook"],
)  # fmt: skip
def test_viewer_close_ends_viewer_session(world: World, source: str) -> None:
    world.db.create_session("s1", source)
    assert world.runtime.finalize("s1", "tui_close", viewer=True) == "s1"
    assert world.ended("s1") == "tui_close"
