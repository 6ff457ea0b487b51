"""The sessions to which an agent may move its chat, and the refused ones."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import ExpiryWatcher, InvalidInput, NotFound, SessionError
from session_core.lifecycle.agent_turn import AgentTurn
from tests.lifecycle.runtimes import World, of, rotate
from tests.routing.chats import KEY


def follow_told_session(world: World, session_id: Any) -> str:
    """Let an agent name a session as its continuation, and return the session of the chat."""
    world.agent = lambda *_: {"final_response": "x", "session_id": session_id}
    assert world.say().text == "x"
    return world.agree()


@pytest.mark.requirement("runtime:followed")
@pytest.mark.parametrize("told", ["never_there", "../x", 5])
def test_invalid_session_is_reported_not_followed(world: World, told: Any) -> None:
    first = world.say().session_id
    assert follow_told_session(world, told) == first
    assert any("did not move" in what for what in world.reported)


@pytest.mark.requirement("runtime:followed")
def test_session_of_other_chat_is_not_followed(world: World) -> None:
    first, other = world.say().session_id, world.say(chat_id=43).session_id
    assert follow_told_session(world, other) == first


@pytest.mark.requirement("runtime:followed")
def test_keyless_session_of_other_chat_is_refused(world: World) -> None:
    first = world.say().session_id
    world.say(chat_id=43)
    world.db.create_session("bare", "telegram")
    entry = world.store.get(of(43))
    assert entry is not None
    entry.session_id = "bare"
    world.store.save(entry)
    assert follow_told_session(world, "bare") == first


@pytest.mark.requirement("runtime:followed")
def test_turn_with_refused_session_still_ends(world: World) -> None:
    world.say()
    follow_told_session(world, "never_there")
    entry = world.store.get(KEY)
    assert entry is not None
    assert not world.store.has_active_turn(entry)
    world.say()
    assert len(world.built) == 2  # an agent of another session is not asked again


@pytest.mark.requirement("runtime:followed")
def test_unrouted_session_and_own_session_are_followed(world: World) -> None:
    first = world.say().session_id
    world.db.create_session("fresh", "telegram")
    assert follow_told_session(world, "fresh") == "fresh"
    assert follow_told_session(world, first) == first


@pytest.mark.requirement("runtime:followed")
def test_chain_of_compressions_is_followed(world: World) -> None:
    def agent(run: AgentTurn, message: Any) -> Any:
        run.append("user", message)
        rotate(run, "child")
        world.db.end_session("child", "compression")
        world.db.create_session("grandchild", "telegram", parent_session_id="child")
        return {"final_response": "x", "session_id": "grandchild"}

    world.agent = agent
    world.say()
    assert world.agree() == "grandchild"


@pytest.mark.requirement("runtime:followed")
@pytest.mark.parametrize(
    ("session_id", "error"), [("never_there", NotFound), ("../x", InvalidInput)]
)
def test_agent_following_invalid_session_gets_error(
    world: World, session_id: str, error: type[SessionError]
) -> None:
    def agent(run: AgentTurn, message: Any) -> str:
        run.append("user", message)
        with pytest.raises(error):
            run.follow(session_id)
        return run.session_id

    world.agent = agent
    assert world.say().text == world.agree()


@pytest.mark.anyio
async def test_watcher_refuses_second_run(world: World) -> None:
    watch = ExpiryWatcher(world.runtime)
    watch.stop()
    await watch.run()
    with pytest.raises(InvalidInput, match="started before"):
        await watch.run()
