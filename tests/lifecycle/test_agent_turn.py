"""The coroutines of a turn: they never block the loop, and cancellation returns at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from session_core import AsyncSessionDB, BlockingCallWarning, InvalidInput, get_current_session_id
from session_core.lifecycle.agent_turn import AgentTurn
from tests.lifecycle.runtimes import World, aecho, becomes, of, rotate, until
from tests.routing.chats import KEY, chat

pytestmark = pytest.mark.anyio
both_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])

CHATS = 200
TICKS = 200

HOLD = """
import sys
from tests.homes import connect
with connect(sys.argv[1]) as connection:
    connection.execute("BEGIN IMMEDIATE")
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def hold_lock_elsewhere(world: World) -> Iterator[subprocess.Popen[str]]:
    """Hold the write lock in another process until it gets a line or the block ends."""
    world.db.set_meta("made", "yes")  # there is no file before the first change
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(world.db.path)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        yield holder
    finally:
        holder.communicate("\n", timeout=60)


def release_lock(holder: subprocess.Popen[str]) -> None:
    """End the transaction of the other process."""
    assert holder.stdin is not None
    holder.stdin.write("\n")
    holder.stdin.flush()


def count_messages(world: World) -> int:
    """Return the number of messages in the sessions of all chats."""
    sessions = [entry.session_id for entry in world.store.load_entries().values()]
    return sum(map(world.db.message_count, sessions))


def list_workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "session_core worker"}


@pytest.mark.requirement("turns:loop")
@both_loops
async def test_run_coroutines_read_and_append(world: World) -> None:
    seen: list[Any] = []

    async def agent(run: AgentTurn, message: Any) -> str:
        first = await run.aappend("user", message, platform_message_id="m1")
        many = await run.aappend_many([{"role": "assistant", "content": "one"}])
        seen.append(many.before == first.after)
        seen.append(await run.ahistory() == run._db.get_messages_as_conversation(run.session_id))
        child = await anyio.to_thread.run_sync(rotate, run, "child")
        await run.afollow(child)
        seen.append(get_current_session_id())
        await run.aappend("user", "there")
        return "done"

    world.agent = agent
    reply = await world.runtime.ahandle(chat(), "hello")
    assert seen == [True, True, "child"]
    assert reply.session_id == world.agree() == "child"
    assert world.db.get_messages("child")[-1]["content"] == "there"


@pytest.mark.requirement("turns:loop")
@both_loops
async def test_blocking_run_calls_warn_once(world: World) -> None:
    async def agent(run: AgentTurn, message: Any) -> str:
        run.append("user", message)
        run.append_many([{"role": "assistant", "content": "noted"}])
        return str(len(run.history()))

    world.agent = agent
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            await world.runtime.ahandle(chat(), "hello")
    (warning,) = caught
    assert warning.category is BlockingCallWarning
    assert "await run.aappend instead" in str(warning.message)
    assert warning.filename == __file__


@both_loops
async def test_run_append_in_own_transaction_is_refused(world: World) -> None:
    async def agent(run: AgentTurn, message: Any) -> str:
        with world.db.transaction(), pytest.raises(InvalidInput, match=r"run\(step\)"):
            await run.aappend("user", message)
        return await aecho(run, message)

    world.agent = agent
    assert (await world.runtime.ahandle(chat(), "hello")).text == "echo hello"


@both_loops
async def test_run_coroutines_emit_no_warning(world: World) -> None:
    world.agent = aecho
    assert (await world.runtime.ahandle(chat(), "hello")).text == "echo hello"


@pytest.mark.requirement("turns:loop")
@both_loops
async def test_loop_runs_while_process_holds_lock(world: World) -> None:
    replies: list[str] = []

    async def turn(number: int) -> None:
        reply = await world.runtime.ahandle(chat(number), "hello")
        replies.append(reply.text)

    world.agent = aecho
    with hold_lock_elsewhere(world) as holder:
        async with anyio.create_task_group() as group:
            for number in range(CHATS):
                group.start_soon(turn, number)
            await becomes(lambda: bool(list_workers()))
            for _ in range(TICKS):
                await anyio.sleep(0.001)
            assert replies == []
            release_lock(holder)
    assert replies == ["echo hello"] * CHATS
    assert count_messages(world) == 2 * CHATS


@both_loops
async def test_agents_stay_on_free_loop(world: World) -> None:
    """Appends of running agents do not block the loop."""
    ready, go = [], anyio.Event()

    async def agent(run: AgentTurn, message: Any) -> str:
        ready.append(run)
        await go.wait()
        return await aecho(run, message)

    async def turn(number: int) -> None:
        await world.runtime.ahandle(chat(number), "hello")

    world.agent = agent
    async with anyio.create_task_group() as group:
        for number in range(CHATS):
            group.start_soon(turn, number)
        await becomes(lambda: len(ready) == CHATS)
        with hold_lock_elsewhere(world) as holder:
            go.set()
            for _ in range(TICKS):
                await anyio.sleep(0.001)
            assert count_messages(world) == 0
            release_lock(holder)
    assert count_messages(world) == 2 * CHATS


@pytest.mark.requirement("turns:loop")
@both_loops
async def test_cancelled_turns_return_before_lock_is_free(world: World) -> None:
    world.agent = aecho
    before = list_workers()
    with hold_lock_elsewhere(world) as holder:
        for number in range(CHATS):
            with anyio.move_on_after(0):
                await world.runtime.ahandle(chat(number), "hello")
        with anyio.move_on_after(0.01) as scope:
            await world.runtime.ahandle(chat("late"), "hello")
        assert scope.cancelled_caught
        assert len(list_workers() - before) <= 32 + 16 + 8
        release_lock(holder)
    await becomes(lambda: not world.runtime.running)
    assert (await world.runtime.ahandle(chat(0), "hello")).text == "echo hello"
    assert world.reported == []


@pytest.mark.requirement("turns:loop")
async def test_asyncio_timeouts_leave_no_turn_open(world: World) -> None:
    begun: list[str] = []

    async def agent(run: AgentTurn, message: Any) -> str:
        begun.append(run.session_key)
        await run.aappend("user", message)
        return "done"

    world.agent = agent
    with hold_lock_elsewhere(world) as holder:
        turns = [
            asyncio.wait_for(world.runtime.ahandle(chat(number), "hello"), 0.05)
            for number in range(20)
        ]
        results = await asyncio.gather(*turns, return_exceptions=True)
        assert {type(result) for result in results} == {asyncio.TimeoutError}
        release_lock(holder)
    await becomes(lambda: not world.runtime.running)
    world.agent = aecho
    for number in range(20):
        assert (await world.runtime.ahandle(chat(number), "again")).text == "echo again"
        entry = world.store.get(of(number))
        assert entry is not None
        assert not world.store.has_active_turn(entry)


async def test_cancelled_append_is_stored(world: World) -> None:
    async def agent(run: AgentTurn, message: Any) -> str:
        with hold_lock_elsewhere(world) as holder:
            with anyio.move_on_after(0.2) as scope:
                await run.aappend("user", message)
            assert scope.cancelled_caught
            release_lock(holder)
        await run.aappend("assistant", "late")
        return "late"

    world.agent = agent
    reply = await world.runtime.ahandle(chat(), "hello")
    texts = [row["content"] for row in world.db.get_messages(reply.session_id)]
    assert texts == ["hello", "late"]
    assert world.agree() == reply.session_id


@pytest.mark.requirement("turns:loop")
def test_loops_in_forty_threads_share_database(world: World) -> None:
    db = AsyncSessionDB(world.db)
    barrier = threading.Barrier(40)
    replies: list[str] = []

    async def agent(run: AgentTurn, message: Any) -> str:
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(db.get_session, run.session_id)
                group.start_soon(partial(run.aappend, "user", message))
        return str(await db.message_count(run.session_id))

    world.agent = agent

    def turn(number: int) -> None:
        barrier.wait(30)
        replies.append(world.say(chat_id=number).text)

    threads = [threading.Thread(target=turn, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert replies == ["5"] * 40


def test_handle_in_trio_task_names_ahandle(world: World) -> None:
    world.agent = aecho

    async def turn() -> None:
        with pytest.raises(Exception, match="await `ahandle`"):
            world.say()

    anyio.run(turn, backend="trio")
    until(lambda: not world.runtime.running)
    assert world.store.peek_session_id(KEY) is not None


@pytest.mark.requirement("turns:loop")
@both_loops
async def test_shutdown_lets_cancelled_turns_end(world: World, gate: threading.Event) -> None:
    began, telling = anyio.Event(), threading.Event()

    async def agent(run: AgentTurn, message: Any) -> None:
        await run.aappend("user", message)
        began.set()
        await anyio.sleep_forever()

    def slow() -> None:
        telling.set()
        gate.wait(30)

    world.hooks.add("on_session_end", slow)
    world.agent = agent
    async with anyio.create_task_group() as group:
        group.start_soon(world.runtime.ahandle, chat(), "hello")
        await began.wait()
        group.cancel_scope.cancel()
    remaining: list[list[str]] = []
    await becomes(telling.is_set)
    async with anyio.create_task_group() as group:

        async def shut_down() -> None:
            remaining.append(await world.runtime.ashutdown())

        group.start_soon(shut_down)
        await becomes(lambda: world.runtime._finisher.active_runs._stopping)
        gate.set()
    assert remaining == [[]]
    assert world.names("finalize", "end") == [("end", world.agree())]
    entry = world.store.get(KEY)
    assert entry is not None
    assert not entry.resume_pending
