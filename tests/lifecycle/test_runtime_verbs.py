"""Reset, switch, finalize and shutdown: what each leaves behind, and what the hooks are told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from session_core import Busy, Denied, Hooks, NotFound, current_session_id, get_session_env
from session_core.lifecycle.run import Run
from session_core.settings import GatewayConfig, SessionResetPolicy
from tests.lifecycle.runtimes import KEY, Gate, World, beside, chat, echo, rotate, until
from tests.routing.chats import file_entries

IDLE = GatewayConfig(default_reset_policy=SessionResetPolicy(mode="idle", idle_minutes=60))


@pytest.fixture
def world(home_path: Path) -> Iterator[World]:
    world = World(home_path)
    yield world
    world.close()


@pytest.fixture
def expiring(home_path: Path) -> Iterator[World]:
    """A world in which sessions expire after an hour."""
    world = World(home_path, config=IDLE)
    yield world
    world.close()


# Hooks of turns


def test_a_session_starts_once_and_each_of_its_turns_ends_once(world: World) -> None:
    session_id = world.say().session_id
    world.say()
    assert world.names() == [("start", session_id), ("end", session_id), ("end", session_id)]


def test_a_session_that_is_there_already_does_not_start(world: World, home_path: Path) -> None:
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
def test_the_end_of_a_turn_tells_how_it_went(
    world: World, result: Any, completed: bool, interrupted: bool
) -> None:
    world.agent = lambda *_: result
    reply = world.say()
    given = {"completed": completed, "interrupted": interrupted}
    assert world.told[-1] == (
        "on_session_end",
        {"session_id": reply.session_id, "platform": "telegram", **given},
    )


# Reset


def test_a_reset_tells_the_old_id_strictly_before_the_new(world: World) -> None:
    old = world.say().session_id
    text = world.runtime.reset(KEY)
    new = world.agree()
    assert world.boundaries == [("finalize", old), ("reset", new)]
    both = {"reason": "new_session", "old_session_id": old, "new_session_id": new}
    assert [given for hook, given in world.told[-2:]] == [
        {"session_id": old, "platform": "telegram", **both},
        {"session_id": new, "platform": "telegram", **both},
    ]
    assert "Session reset" in text
    assert new in text
    assert (world.ended(old), world.say().session_id) == ("session_reset", new)
    assert len(world.built) == 2


def test_a_reset_of_a_chat_that_has_not_begun_says_new_session(world: World) -> None:
    assert "New session" in world.runtime.reset(KEY)
    assert world.told == []


def raising(**_: Any) -> None:
    raise RuntimeError("broken")


def exiting(**_: Any) -> None:
    raise SystemExit


async def raising_later(**_: Any) -> None:
    await asyncio.sleep(0)
    raise RuntimeError("broken")


@pytest.mark.parametrize("hook", ["on_session_finalize", "on_session_reset"])
@pytest.mark.parametrize("broken", [raising, exiting, raising_later])
def test_a_broken_hook_keeps_no_reset_from_its_answer(
    world: World, hook: str, broken: Callable[..., Any]
) -> None:
    old = world.say().session_id
    world.hooks.add(hook, broken, "broken")
    assert "Session reset" in world.runtime.reset(KEY)
    assert world.boundaries == [("finalize", old), ("reset", world.agree())]
    assert any("broken" in what for what in world.reported)


def test_a_slow_hook_keeps_no_reset_from_its_answer(world: World) -> None:
    world.say()
    never = threading.Event()
    world.hooks.timeout_s = 0.02
    world.hooks.add("on_session_finalize", lambda: never.wait(30), "slow")
    assert "Session reset" in world.runtime.reset(KEY)
    assert [hook for hook, _ in world.boundaries] == ["finalize", "reset"]
    assert any("slow" in what for what in world.reported)
    never.set()


def test_a_dispatcher_that_fails_keeps_no_reset_from_its_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = world.say().session_id

    def fail(*_: Any) -> None:
        raise RuntimeError("no dispatcher")

    monkeypatch.setattr(Hooks, "implementations", fail)
    assert "Session reset" in world.runtime.reset(KEY)
    assert world.agree() != old
    assert any("dispatcher" in what for what in world.reported)


def test_an_async_hook_is_waited_for(world: World) -> None:
    world.say()
    order: list[str] = []

    async def finalize(session_id: str) -> None:
        await asyncio.sleep(0)
        order.append("finalized")

    world.hooks.add("on_session_finalize", finalize)
    world.hooks.add("on_session_reset", lambda: order.append("reset"))
    world.runtime.reset(KEY)
    assert order == ["finalized", "reset"]


def test_an_automatic_reset_tells_the_old_id_before_the_new_session_starts(
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


def test_a_switch_goes_to_the_tip_and_reuses_the_agent(world: World) -> None:
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


def test_a_switch_there_and_back_tells_each_boundary_once(world: World) -> None:
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


def test_a_switch_to_nowhere_or_of_nobody_is_not_found(world: World) -> None:
    world.db.create_session("other", "cli")
    with pytest.raises(NotFound):
        world.runtime.switch(KEY, "other")
    world.say()
    with pytest.raises(NotFound):
        world.runtime.switch(KEY, "nowhere")
    assert world.boundaries == []


# Finalize


def test_a_finalize_ends_the_session_of_a_chat_once(world: World) -> None:
    session_id = world.say().session_id
    for _ in range(2):
        assert world.runtime.finalize(KEY, "closed") == session_id
    assert world.names("finalize") == [("finalize", session_id)]
    given = {"session_id": session_id, "platform": "telegram", "reason": "closed"}
    assert world.told[-1][1] == given
    assert world.ended(session_id) == "closed"
    assert len(world.runtime.cache) == 0


def test_after_a_finalize_the_next_message_begins_afresh_and_finalizes_nothing_again(
    world: World,
) -> None:
    old = world.say().session_id
    world.runtime.finalize(KEY)
    new = world.say().session_id
    assert new != old
    assert world.boundaries == [("finalize", old)]


def test_a_finalize_aims_at_the_session_in_which_the_agent_is_by_now(world: World) -> None:
    gate = Gate()

    def agent(run: Run, message: Any) -> Any:
        run.append("user", message)
        run.follow(rotate(run, "child"))
        return gate(run, message)

    world.agent = agent
    with beside(world.say):
        gate.entered.wait(30)
        assert world.runtime.finalize(KEY) == "child"
        gate.opened.set()
    assert world.ended("child") == "closed"


def test_a_run_whose_session_was_finalized_meanwhile_writes_nothing_back(world: World) -> None:
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


def test_a_finalize_without_an_agent_or_a_route_falls_back_to_the_key(world: World) -> None:
    world.db.create_session("s1", "tui")
    assert world.runtime.finalize("s1", "tui_close") == "s1"
    assert world.ended("s1") == "tui_close"
    assert world.told[-1][1] == {"session_id": "s1", "platform": "tui", "reason": "tui_close"}


@pytest.mark.parametrize("source", ["telegram", "discord", "a_plugin"])
def test_a_viewer_that_closes_leaves_the_session_of_a_chat_platform(
    world: World, source: str
) -> None:
    world.db.create_session("s1", source)
    assert world.runtime.finalize("s1", viewer=True) is None
    assert (world.ended("s1"), world.told) == (None, [])


@pytest.mark.parametrize(
    "source",
    ["tui", "cli", "webui", "desktop", "cron", "subagent", "test", "local", "acp", "webhook",
     "api_server", "msgraph_webhook"],
)  # fmt: skip
def test_a_viewer_that_closes_ends_a_session_of_its_own(world: World, source: str) -> None:
    world.db.create_session("s1", source)
    assert world.runtime.finalize("s1", "tui_close", viewer=True) == "s1"
    assert world.ended("s1") == "tui_close"


# Shutdown


def test_a_shutdown_with_nobody_at_work_cuts_nobody_off(world: World) -> None:
    session_id = world.say().session_id
    assert world.runtime.shutdown() == []
    assert world.boundaries == []
    assert world.ended(session_id) is None
    assert len(world.runtime.cache) == 0


def test_a_shutdown_leaves_a_true_mirror(world: World) -> None:
    world.say()
    world.store.suspend_session(KEY)
    world.runtime.shutdown()
    assert world.store._copies._timer is None
    assert file_entries(world.folder)[KEY]["suspended"]


def test_a_shutdown_takes_no_more_messages(world: World) -> None:
    world.runtime.shutdown()
    with pytest.raises(Denied, match="shutting down"):
        world.say()
    assert world.store.entries() == {}


def test_a_message_that_was_taken_as_a_shutdown_came_is_refused_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the question and the work the shutdown has looked who is at work."""
    real = world.store.get_or_create_session

    def arrive(source: Any) -> Any:
        entry = real(source)
        world.runtime.shutdown()
        return entry

    monkeypatch.setattr(world.store, "get_or_create_session", arrive)
    with pytest.raises(Denied):
        world.say()
    assert world.runtime.running == []
    assert world.built == []


def gates(world: World, *names: str) -> dict[str, Gate]:
    """Return a gate for each chat; the agent of a chat waits at its own."""
    found = {name: Gate() for name in names}
    world.agent = lambda run, message: found[message](run, message)
    return found


def calls(world: World, *names: str) -> list[Callable[[], Any]]:
    return [lambda name=name: world.say(name, name) for name in names]


def of(name: str) -> str:
    return f"agent:main:telegram:dm:{name}"


def test_a_shutdown_finalizes_each_agent_at_work_once_and_leaves_a_mark(world: World) -> None:
    waiting = gates(world, "a", "b")
    with beside(*calls(world, "a", "b")) as replies:
        for gate in waiting.values():
            gate.entered.wait(30)
        ids = {world.store.peek_session_id(of(name)) for name in "ab"}
        cut_off = world.runtime.shutdown()
        assert sorted(cut_off) == [of("a"), of("b")]
        world.runtime.shutdown()
        for gate in waiting.values():
            gate.opened.set()
    finalized = [given for hook, given in world.told if hook == "on_session_finalize"]
    assert {given["session_id"] for given in finalized} == ids
    assert [given["reason"] for given in finalized] == ["shutdown", "shutdown"]
    assert all(reply.superseded for reply in replies)
    for name in "ab":
        entry = world.store.get(of(name))
        assert entry is not None
        assert (entry.resume_pending, entry.resume_reason) == (True, "shutdown_timeout")


def test_a_shutdown_marks_before_it_waits_and_clears_what_finished_in_time(world: World) -> None:
    waiting = gates(world, "quick", "slow")
    marked: list[Any] = []

    def finish(run: Run, message: Any) -> str:
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
    with beside(*calls(world, "quick", "slow")) as replies:
        for gate in waiting.values():
            gate.entered.wait(30)
        cut_off = world.runtime.shutdown(drain_s=0.02)
        waiting["slow"].opened.set()
    assert cut_off == [of("slow")]
    assert marked == ["shutdown_timeout"]
    assert [reply.superseded for reply in replies] == [False, True]
    pending = {key: entry.resume_pending for key, entry in world.store.entries().items()}
    assert pending == {of("quick"): False, of("slow"): True}
    assert [name for name, _ in world.boundaries] == ["finalize"]


def test_a_shutdown_that_waits_goes_on_as_soon_as_the_last_has_finished(world: World) -> None:
    waiting = gates(world, "a")
    with beside(*calls(world, "a")):
        waiting["a"].entered.wait(30)
        threading.Timer(0.01, waiting["a"].opened.set).start()
        assert world.runtime.shutdown(drain_s=60) == []


def test_a_mark_that_came_after_the_turn_had_ended_is_taken_back(world: World) -> None:
    waiting = gates(world, "a")
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


def test_a_mark_that_fails_keeps_no_shutdown_from_its_end(world: World) -> None:
    waiting = gates(world, "a")

    def busy(*_: Any) -> bool:
        raise Busy("the write lock is held")

    with beside(*calls(world, "a")):
        waiting["a"].entered.wait(30)
        world.store.mark_resume_pending = busy
        assert world.runtime.shutdown() == [of("a")]
        waiting["a"].opened.set()
    assert [name for name, _ in world.boundaries] == ["finalize"]
    assert any("marked" in what for what in world.reported)


def test_what_was_cut_off_goes_on_where_it_was(world: World, home_path: Path) -> None:
    gate = Gate()

    def agent(run: Run, message: Any) -> Any:
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


def test_the_agents_are_cleaned_up_by_a_shutdown(home_path: Path) -> None:
    closed = []

    class Agent:
        def __call__(self, run: Run, message: Any) -> str:
            return echo(run, message)

        def close(self) -> None:
            closed.append(self)

    world = World(home_path, build=lambda _: Agent())
    for name in range(3):
        world.say("x", name)
    world.runtime.shutdown()
    assert len(closed) == 3
    world.close()


# Many at once


CHATS, TURNS = 12, 4


@pytest.fixture
def rotating(world: World) -> Iterator[Callable[[int, int, Any], None]]:
    """A world whose agents rotate in each turn; the value checks that all agree after one."""
    wrong: list[Any] = []

    def agent(run: Run, turn: Any) -> Any:
        run.append("user", f"turn {turn}")
        child = rotate(run, f"{run.session_key.rpartition(':')[2]}_{turn}")
        return {"final_response": child, "session_id": child}

    def check(name: int, turn: int, reply: Any) -> None:
        entry = world.store.get(of(str(name)))
        cached = dict(world.runtime.cache.items())[of(str(name))][3]
        ids = (reply.session_id, entry.session_id if entry else None, cached)
        if ids != (f"{name}_{turn}",) * 3:
            wrong.append(ids)

    world.agent = agent
    yield check
    assert wrong == []
    world.store.close()
    for name in range(CHATS):
        assert world.agree(of(str(name))) == f"{name}_{TURNS - 1}"
    assert world.boundaries == []
    assert len(world.names("end")) == CHATS * TURNS


def test_many_threads_whose_sessions_rotate_agree_everywhere_each_time(
    world: World, rotating: Callable[[int, int, Any], None]
) -> None:
    def work(name: int) -> None:
        for turn in range(TURNS):
            rotating(name, turn, world.say(turn, name))

    with beside(*(lambda name=name: work(name) for name in range(CHATS))) as results:
        pass
    assert results == [None] * CHATS


def test_many_tasks_whose_sessions_rotate_agree_everywhere_each_time(
    world: World, rotating: Callable[[int, int, Any], None]
) -> None:
    async def task(name: int) -> None:
        for turn in range(TURNS):
            rotating(name, turn, await world.runtime.ahandle(chat(name), turn))

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            for name in range(CHATS):
                group.start_soon(task, name)

    anyio.run(all_of_them)


def test_each_of_many_turns_sees_its_own_session(world: World) -> None:
    barrier = threading.Barrier(8)
    wrong = []

    def agent(run: Run, _: Any) -> str:
        barrier.wait(30)
        seen = current_session_id(), get_session_env("HERMES_SESSION_KEY")
        if seen != (run.session_id, run.session_key):
            wrong.append(seen)
        if run.child_env()["HERMES_SESSION_ID"] != run.session_id:
            wrong.append(run)
        return "ok"

    world.agent = agent
    with beside(*(lambda name=name: world.say("x", name) for name in range(8))) as replies:
        pass
    assert wrong == []
    assert [reply.text for reply in replies] == ["ok"] * 8


def test_messages_and_resets_of_one_chat_at_once_tell_each_boundary_once(world: World) -> None:
    world.say()
    calls_ = [world.say] * 6 + [lambda: world.runtime.reset(KEY)] * 6
    with beside(*calls_) as results:
        pass
    assert not [result for result in results if isinstance(result, BaseException)]
    finalized = [id_ for hook, id_ in world.boundaries if hook == "finalize"]
    begun = [id_ for hook, id_ in world.boundaries if hook == "reset"]
    assert len(finalized) == len(set(finalized)) == len(begun) == len(set(begun)) == 6
    for session_id in set(finalized) & set(begun):
        order = [hook for hook, id_ in world.boundaries if id_ == session_id]
        assert sorted(order) == ["finalize", "reset"]
    world.store.close()
    assert world.agree() not in finalized
