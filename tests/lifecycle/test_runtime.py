"""One turn of an agent, from the message to the reply, and its stored results."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from session_core import (
    AgentCache,
    Busy,
    Hooks,
    InvalidInput,
    NotFound,
    SessionDB,
    SessionRuntime,
    SessionStore,
    get_current_session_id,
    get_session_env,
)
from session_core.lifecycle.agent_turn import AgentTurn
from tests.homes import make_hermes_database
from tests.lifecycle.runtimes import (
    IDLE,
    World,
    aecho,
    as_async,
    echo,
    handled,
    rotate,
)
from tests.routing.chats import KEY, chat, count_writes, pop_written_rows


class UnclosableAgent:
    """An agent with a `close` that raises."""

    def __call__(self, run: AgentTurn, message: Any) -> str:
        """Reply with a text."""
        return echo(run, message)

    def close(self) -> None:
        """Raise an error."""
        raise OSError


# Parts of a runtime


@pytest.mark.requirement("runtime:turn")
def test_runtime_uses_given_empty_cache(world: World) -> None:
    cache: AgentCache[Any] = AgentCache(world.db)
    runtime = SessionRuntime(world.store, world.build, cache=cache)
    runtime.handle(chat(), "hello")
    assert len(cache) == 1


def test_runtime_without_database_is_refused(home_path: Path) -> None:
    with pytest.raises(NotFound):
        SessionRuntime(SessionStore(home_path), echo)


def test_runtime_accepts_file_store_with_database(home_path: Path, tmp_path: Path) -> None:
    with SessionDB(home_path / "state.db") as db, SessionStore(tmp_path / "sessions") as store:
        runtime = SessionRuntime(store, lambda _: echo, db=db)
        reply = runtime.handle(chat(), "hello")
        assert db.message_count(reply.session_id) == 2


def test_runtime_cache_and_hooks_share_report(home_path: Path) -> None:
    reported: list[str] = []
    with SessionDB(home_path / "state.db") as db, SessionStore(home_path, db=db) as store:
        runtime = SessionRuntime(
            store, lambda _: UnclosableAgent(), report=lambda what, _: reported.append(what)
        )
        runtime.hooks.add("on_session_end", lambda: 1 / 0, "broken")
        runtime.handle(chat(), "hello")
        runtime.cache.clear()
    assert reported == [
        "hook on_session_end of broken raised: ZeroDivisionError",
        f"the clean-up of the agent of {KEY} failed",
    ]


def test_runtime_uses_hooks_of_store(world: World) -> None:
    assert SessionRuntime(world.store, world.build).hooks is world.hooks


def test_runtime_refuses_foreign_hooks(world: World) -> None:
    with pytest.raises(InvalidInput, match="same hooks"):
        SessionRuntime(world.store, world.build, hooks=Hooks(group=None))
    assert world.store.hooks is world.hooks


@pytest.mark.requirement("runtime:check")
def test_runtime_start_repairs_crash_leftovers(world: World, home_path: Path) -> None:
    old = world.say().session_id
    world.db.end_session(old, "compression")
    world.db.create_session("child", "telegram", parent_session_id=old)
    world.close()
    again = World(home_path)
    assert again.store.peek_session_id(KEY) == "child"
    again.close()


@pytest.mark.requirement("runtime:check")
def test_runtime_start_repairs_nothing_in_hermes_home(home_path: Path) -> None:
    make_hermes_database(home_path / "state.db")
    world = World(home_path)
    old = world.say().session_id
    world.db.end_session(old, "session_reset")
    world.close()
    again = World(home_path)
    assert again.store.peek_session_id(KEY) == old
    again.close()


@pytest.mark.requirement("runtime:check")
def test_runtime_start_reports_failing_check(
    home_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_: Any) -> list[str]:
        raise Busy("the write lock is held")

    monkeypatch.setattr(SessionStore, "repair_routes", busy)
    world = World(home_path)
    assert world.say().text == "echo hello"
    assert any("compared" in what for what in world.reported)
    world.close()


# One turn, in each manner


@pytest.mark.requirement("runtime:turn")
@pytest.mark.parametrize("how", ["handle", "ahandle"])
@pytest.mark.parametrize("agent", [echo, aecho], ids=["sync", "async"])
@pytest.mark.parametrize("build_async", [False, True], ids=["built", "built async"])
def test_runtime_answers_message(
    home_path: Path, how: str, agent: Callable[..., Any], build_async: bool
) -> None:
    def build(_: AgentTurn) -> Any:
        return agent

    world = World(home_path, build=as_async(build) if build_async else build)
    reply = handled(world, how)
    assert (reply.text, reply.session_key, reply.superseded, reply.failed) == (
        "echo hello",
        KEY,
        False,
        False,
    )
    assert reply.session_id == world.agree()
    contents = [row["content"] for row in world.db.get_messages(reply.session_id)]
    assert contents == ["hello", "echo hello"]
    world.close()


@pytest.mark.requirement("runtime:turn")
def test_runtime_keeps_agent_for_next_turn(world: World) -> None:
    for _ in range(3):
        world.say()
    assert len(world.built) == 1


def test_runtime_keeps_falsy_agent(home_path: Path) -> None:
    class Empty:
        def __len__(self) -> int:
            return 0

        def __call__(self, run: AgentTurn, message: Any) -> str:
            return echo(run, message)

    built = []
    world = World(home_path, build=lambda _: built.append(Empty()) or built[-1])
    assert [world.say().text for _ in range(2)] == ["echo hello"] * 2
    assert len(built) == 1
    world.close()


@pytest.mark.requirement("runtime:turn")
def test_runtime_rebuilds_agent_after_foreign_write(world: World, home_path: Path) -> None:
    session_id = world.say().session_id
    with SessionDB(home_path / "state.db") as other:
        other.append_message(session_id, "user", "from elsewhere")
    world.say()
    assert len(world.built) == 2


def test_runtime_rebuilds_agent_for_new_signature(home_path: Path) -> None:
    models = iter(["a", "a", "b"])
    world = World(home_path, signature=lambda _: next(models))
    for _ in range(3):
        world.say()
    assert len(world.built) == 2
    world.close()


@pytest.mark.requirement("runtime:model")
def test_runtime_rebuilds_agent_for_new_model(world: World) -> None:
    seen = []
    for override in (None, {"model": "opus"}, {"model": "opus"}, {"model": "haiku"}, None):
        world.say()
        world.store.set_model_override(KEY, override)
        world.say()
        seen.append(len(world.built))
    assert seen == [1, 2, 2, 3, 4]


def test_agent_reads_earlier_messages(world: World) -> None:
    world.say("first")
    world.agent = lambda run, _: str(len(run.history()))
    assert world.say().text == "2"


def test_append_many_is_noted_by_cache(world: World) -> None:
    def agent(run: AgentTurn, message: Any) -> str:
        run.append_many([{"role": "user", "content": message}, {"role": "assistant"}])
        return "done"

    world.agent = agent
    for _ in range(2):
        world.say()
    assert len(world.built) == 1


def test_history_returned_to_agent_is_copy(world: World) -> None:
    def agent(run: AgentTurn, message: Any) -> str:
        run.entry.origin = None
        run.entry.extra["mine"] = 1
        with pytest.raises(AttributeError):
            run.session_id = "another"  # type: ignore[misc]
        return echo(run, message)

    world.agent = agent
    row = world.db.get_session(world.say().session_id)
    entry = world.store.get(KEY)
    assert row is not None
    assert entry is not None
    assert (row["chat_id"], entry.extra) == ("42", {})


def test_raising_agent_leaves_runtime_usable(world: World) -> None:
    def broken(run: AgentTurn, _: Any) -> str:
        run.append("user", "half")
        raise RuntimeError("broken")

    world.agent = broken
    with pytest.raises(RuntimeError, match="broken"):
        world.say()
    assert world.runtime.running == []
    assert [
        arguments["completed"] for hook, arguments in world.told if hook == "on_session_end"
    ] == [False]
    world.agent = echo
    assert world.say().text == "echo hello"
    assert len(world.built) == 1


def test_raising_factory_is_called_again(home_path: Path) -> None:
    tries = []

    def build(_: AgentTurn) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("not yet")
        return echo

    world = World(home_path, build=build)
    with pytest.raises(RuntimeError, match="not yet"):
        world.say()
    assert world.say().text == "echo hello"
    world.close()


@pytest.mark.parametrize(
    ("made", "kind"), [(None, "None"), ("an agent", "type str"), (7, "type int")]
)
@pytest.mark.parametrize("how", ["handle", "ahandle"])
def test_factory_returning_no_agent_is_refused(
    home_path: Path, made: Any, kind: str, how: str
) -> None:
    world = World(home_path, build=lambda _: made)
    for _ in range(2):
        with pytest.raises(InvalidInput, match=f"build.*{kind}"):
            handled(world, how)
    assert (list(world.runtime.cache), world.runtime.running) == ([], [])
    session_id = world.store.peek_session_id(KEY)
    assert session_id is not None
    assert world.db.get_session(session_id) is None
    entry = world.store.get(KEY)
    assert entry is not None
    assert not world.store.has_active_turn(entry)
    world.close()


@pytest.mark.parametrize(
    "result", [7, b"bytes", ["text"], {"final_response": 7}, {"final_response": ["text"]}]
)
@pytest.mark.parametrize("how", ["handle", "ahandle"])
def test_invalid_agent_result_is_refused(world: World, result: Any, how: str) -> None:
    world.say()
    before = world.store.get(KEY)
    world.clock.advance(seconds=5)
    world.agent = lambda *_: result
    with pytest.raises(InvalidInput, match="got a value of type"):
        handled(world, how)
    after = world.store.get(KEY)
    assert before is not None
    assert after is not None
    assert (after.session_id, after.last_prompt_tokens) == (before.session_id, 0)
    assert not world.store.has_active_turn(after)
    ends = [arguments["completed"] for hook, arguments in world.told if hook == "on_session_end"]
    assert ends == [True, False]
    world.agent = echo
    assert handled(world, how).text == "echo hello"


# Lazily


@pytest.mark.requirement("runtime:lazy")
def test_session_is_stored_with_first_append(world: World) -> None:
    seen = []

    def agent(run: AgentTurn, message: Any) -> str:
        seen.append(world.db.get_session(run.session_id))
        return echo(run, message)

    world.agent = agent
    reply = world.say(user_id="7", chat_name="Ann")
    assert seen == [None]
    row = world.db.get_session(reply.session_id)
    assert row is not None
    names = ("source", "session_key", "chat_id", "user_id", "display_name")
    assert [row[name] for name in names] == ["telegram", KEY, "42", "7", "Ann"]


@pytest.mark.requirement("runtime:lazy")
def test_agent_without_append_stores_no_session(world: World) -> None:
    world.agent = lambda *_: "just talk"
    ids = {world.say().session_id for _ in range(3)}
    assert len(ids) == 1
    assert world.db.get_session(ids.pop()) is None
    assert world.names("start") == []


# The current session


@pytest.mark.requirement("runtime:current")
@pytest.mark.parametrize("how", ["handle", "ahandle"])
@pytest.mark.parametrize("is_async", [False, True])
def test_turn_sets_current_session(world: World, how: str, is_async: bool) -> None:
    seen: list[Any] = []

    def agent(run: AgentTurn, _: Any) -> str:
        seen.append(
            (
                get_current_session_id() == run.session_id == os.environ["HERMES_SESSION_ID"],
                get_session_env("HERMES_SESSION_KEY"),
                get_session_env("HERMES_SESSION_PLATFORM"),
                run.build_child_env()["HERMES_SESSION_CHAT_ID"],
            )
        )
        return "ok"

    world.agent = as_async(agent) if is_async else agent
    handled(world, how)
    assert seen == [(True, KEY, "telegram", "42")]
    assert get_session_env("HERMES_SESSION_KEY") == ""


@pytest.mark.requirement("runtime:current")
def test_turn_uses_context_of_message(world: World) -> None:
    seen = []
    names = ("HERMES_SESSION_USER_ID", "HERMES_SESSION_USER_NAME", "HERMES_SESSION_MESSAGE_ID")
    world.agent = lambda *_: seen.append([get_session_env(name) for name in names]) or "ok"
    group = {"chat_type": "group", "thread_id": "5"}
    world.say(**group, user_id="1", user_name="Ann", message_id="m1")
    world.say(**group, user_id="2", user_name="Bob", message_id="m2")
    assert seen == [["1", "Ann", "m1"], ["2", "Bob", "m2"]]


# Rotation


@pytest.mark.requirement("runtime:rotation")
@pytest.mark.parametrize("how", ["handle", "ahandle"])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("by", ["result", "follow"])
def test_rotated_session_is_followed_before_return(
    world: World, how: str, is_async: bool, by: str
) -> None:
    seen = []

    def agent(run: AgentTurn, message: Any) -> Any:
        run.append("user", message)
        child = rotate(run, "child")
        if by == "follow":
            run.follow(child)
            seen.append(get_current_session_id() == child)
            run.append("assistant", "there")
            return "done"
        return {"final_response": "done", "session_id": child, "api_calls": 1}

    world.hooks.add("on_session_end", lambda session_id: seen.append(str(session_id)))
    world.hooks.add("on_session_end", lambda: seen.append(get_current_session_id()))
    world.agent = as_async(agent) if is_async else agent
    reply = handled(world, how)
    assert reply.session_id == world.agree() == "child"
    assert seen == ([True] if by == "follow" else []) + ["child", "child"]
    assert os.environ["HERMES_SESSION_ID"] == "child"
    row = world.db.get_session("child")
    assert row is not None
    assert (row["session_key"], row["chat_id"]) == (KEY, "42")
    assert world.boundaries == []


@pytest.mark.requirement("runtime:rotation")
def test_agent_survives_rotation(world: World) -> None:
    world.say()
    world.agent = lambda run, _: {"session_id": rotate(run, "child"), "final_response": "x"}
    world.say()
    world.agent = echo
    assert world.say().session_id == "child"
    assert len(world.built) == 1


@pytest.mark.requirement("runtime:rotation")
def test_unchanged_session_writes_only_turn_marks(
    world: World,
) -> None:
    world.say()
    count_writes(world.db)
    world.agent = lambda run, _: {"session_id": run.session_id, "final_response": "x"}
    world.say()
    assert pop_written_rows(world.db) == [("UPDATE", KEY)] * 2
    entry = world.store.get(KEY)
    assert entry is not None
    assert entry.extra == {}


def test_turn_end_is_recorded(world: World) -> None:
    world.runtime.store.config = IDLE

    def agent(run: AgentTurn, _: Any) -> Any:
        world.clock.advance(minutes=5)
        return {"final_response": "x", "last_prompt_tokens": 123}

    world.agent = agent
    world.say()
    entry = world.store.get(KEY)
    assert entry is not None
    assert (entry.last_prompt_tokens, entry.updated_at) == (123, world.clock.time)


def test_reset_reason_is_given_to_first_turn(world: World) -> None:
    world.say()
    world.store.suspend_session(KEY)
    seen = []
    world.agent = lambda run, _: seen.append(run.entry.auto_reset_reason) or "ok"
    for _ in range(2):
        world.say()
    assert seen == ["suspended", None]


# Interruptions


@pytest.mark.parametrize(
    ("result", "pending"),
    [
        ({"final_response": "x"}, False),
        ({"failed": True, "error": "x"}, True),
        ({"final_response": "x", "partial": True}, True),
        ({"interrupted": True, "api_calls": 1}, True),
    ],
)
def test_only_successful_turn_clears_interruption(
    world: World, result: dict[str, Any], pending: bool
) -> None:
    world.say()
    world.store.mark_resume_pending(KEY)
    world.agent = lambda *_: result
    world.say()
    entry = world.store.get(KEY)
    assert entry is not None
    assert entry.resume_pending is pending


# Empty results


@pytest.mark.requirement("runtime:empty")
@pytest.mark.parametrize(
    ("result", "says"),
    [
        ({"final_response": "said", "failed": True}, "said"),
        ({"failed": True, "error": "maximum context length exceeded"}, "/compact"),
        ({"failed": True, "error": "upstream said 503"}, "upstream said 503"),
        ({"interrupted": True, "api_calls": 0}, "Send it again"),
        ({"interrupted": True, "api_calls": 2}, ""),
        ({"api_calls": 2, "partial": True, "error": "stopped here"}, "stopped here"),
        ({"api_calls": 2}, "no answer came"),
        ({"api_calls": 0}, "not processed"),
        ({"api_calls": 0, "partial": True}, ""),
        (None, "no answer came"),
        ("", "no answer came"),
    ],
    ids=[
        "1: what was said",
        "2: too large",
        "3: another failure",
        "4: interrupted before the work",
        "5: interrupted at work",
        "7: stopped at work",
        "8: work without an answer",
        "9: not processed",
        "10: a part of no work",
        "nothing told",
        "an empty text",
    ],
)
def test_empty_result_gets_actionable_reply(world: World, result: Any, says: str) -> None:
    world.agent = lambda *_: result
    text = world.say().text
    assert text == says if says in {"", "said"} else says in text


@pytest.mark.requirement("runtime:empty")
@pytest.mark.parametrize(("said", "advises"), [(50, False), (51, True)])
def test_long_history_refusal_is_size_error(world: World, said: int, advises: bool) -> None:
    def agent(run: AgentTurn, _: Any) -> Any:
        run.append_many([{"role": "user", "content": "x"}] * said)
        return {"failed": True, "error": "Error code: 400"}

    world.agent = agent
    reply = world.say()
    assert reply.failed
    assert ("/compact" in reply.text) is advises


@pytest.mark.requirement("runtime:empty")
def test_incompressible_session_is_reset(world: World) -> None:
    world.agent = lambda run, message: {
        "final_response": echo(run, message),
        "compression_exhausted": True,
    }
    reply = world.say()
    assert (reply.text, reply.superseded) == ("echo hello", False)
    new = world.store.get(KEY)
    assert new is not None
    assert new.is_fresh_reset
    assert world.boundaries == [("finalize", reply.session_id), ("reset", new.session_id)]
    assert world.ended(reply.session_id) == "session_reset"
