"""Titles that are set before their session exists."""

from __future__ import annotations

from typing import Any

import pytest

from session_core import (
    Busy,
)
from tests.lifecycle.runtimes import (
    World,
    echo,
    rotate,
)
from tests.routing.chats import KEY


def test_title_is_set_on_existing_session(world: World) -> None:
    session_id = world.say().session_id
    world.runtime.set_title(KEY, "Trip")
    assert world.db.get_session_title(session_id) == "Trip"


@pytest.mark.requirement("runtime:titles")
def test_title_waits_for_first_successful_turn(world: World) -> None:
    world.runtime.set_title(KEY, "Trip")
    world.agent = lambda run, _: run.append("user", "x") and {"failed": True, "error": "e"}
    session_id = world.say().session_id
    assert world.db.get_session_title(session_id) is None
    world.agent = echo
    world.say()
    assert world.db.get_session_title(session_id) == "Trip"


def test_title_waits_while_session_has_no_row(world: World) -> None:
    world.runtime.set_title(KEY, "Trip")
    world.agent = lambda *_: "just talk"
    world.say()
    world.agent = echo
    session_id = world.say().session_id
    assert world.db.get_session_title(session_id) == "Trip"


@pytest.mark.requirement("runtime:titles")
@pytest.mark.parametrize("title", ["taken", "x" * 101])
def test_refused_title_is_dropped_and_reported(world: World, title: str) -> None:
    world.db.create_session("other", "cli")
    world.db.set_session_title("other", "taken")
    world.runtime.set_title(KEY, title)
    session_id = world.say().session_id
    world.db.set_session_title("other", None)
    world.say()
    assert world.db.get_session_title(session_id) is None
    assert len([what for what in world.reported if "refused" in what]) == 1


@pytest.mark.requirement("runtime:titles")
@pytest.mark.parametrize("error", [Busy("the write lock is held"), RuntimeError("gone")])
def test_title_is_retried_after_transient_fault(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    world.runtime.set_title(KEY, "Trip")
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> bool:
            raise error

        patch.setattr(world.db, "set_session_title", fail)
        session_id = world.say().session_id
        world.runtime.set_title(KEY, "Trip")
    assert len([what for what in world.reported if "not set yet" in what]) == 2
    assert world.db.get_session_title(session_id) is None
    world.say()
    assert world.db.get_session_title(session_id) == "Trip"


@pytest.mark.requirement("runtime:titles")
@pytest.mark.parametrize("verb", ["reset", "switch", "finalize"])
def test_title_is_not_moved_to_other_session(world: World, verb: str) -> None:
    world.agent = lambda *_: "just talk"
    world.say()
    world.runtime.set_title(KEY, "Trip")
    world.db.create_session("other", "cli")
    arguments = ["other"] if verb == "switch" else []
    getattr(world.runtime, verb)(KEY, *arguments)
    world.agent = echo
    assert world.db.get_session_title(world.say().session_id) is None


def test_title_follows_rotation(world: World) -> None:
    world.runtime.set_title(KEY, "Trip")
    world.agent = lambda run, _: {
        "final_response": "x",
        "session_id": rotate(run, "child") if run.append("user", "x") else None,
    }
    world.say()
    assert world.db.get_session_title("child") == "Trip"
