"""A turn that compresses its session: entry, file, context and cache agree afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from session_core import (
    AsyncCompressor,
    Compressor,
    Conflict,
    InvalidInput,
    Ledger,
    StateFolder,
    get_current_session_id,
    get_session_env,
)
from session_core.lifecycle.agent_turn import AgentTurn
from tests.lifecycle.runtimes import World, echo
from tests.routing.chats import KEY, chat

LONG = "a long story " * 100
SHAPES = ("in_place", "continuation")


@pytest.fixture
def compressor(world: World, tmp_path: Path) -> Iterator[Compressor]:
    folder = StateFolder(world.db.path, root=tmp_path / "state")
    with Ledger(folder) as ledger:
        yield Compressor(world.db, ledger, store=world.store, hooks=world.hooks)


def make_compressing_agent(compressor: Compressor, shape: Any) -> Any:
    """Return an agent that compresses its session during a turn and continues."""

    def agent(run: AgentTurn, message: Any) -> str:
        run.append("user", message)
        run.compress(compressor, lambda _: "what was said", shape=shape, keep_last=2)
        run.append("assistant", "short of it")
        return "short of it"

    return agent


def fill_long_chat(world: World) -> str:
    """Fill the session of a chat with messages and return its id."""
    for _ in range(6):
        world.say(LONG)
    return world.agree()


@pytest.mark.parametrize("shape", SHAPES)
def test_compressing_turn_leaves_consistent_session(
    world: World, compressor: Compressor, shape: Any
) -> None:
    old = fill_long_chat(world)
    world.agent = make_compressing_agent(compressor, shape)
    reply = world.say("and now?")
    assert (reply.text, reply.superseded) == ("short of it", False)
    assert (reply.session_id == old) is (shape == "in_place")
    assert world.agree() == reply.session_id
    assert (get_current_session_id(), get_session_env("HERMES_SESSION_ID")) != (old, None)
    rows = world.db.get_messages(reply.session_id)
    assert [row["content"] for row in rows[-2:]] == ["and now?", "short of it"]


@pytest.mark.parametrize("shape", SHAPES)
def test_compressing_agent_is_reused_next_turn(
    world: World, compressor: Compressor, shape: Any
) -> None:
    fill_long_chat(world)
    world.agent = make_compressing_agent(compressor, shape)
    world.say("and now?")
    world.agent = echo
    built = len(world.built)
    world.say("go on")
    assert len(world.built) == built


def test_agent_rebuilt_after_write_during_compression(world: World, compressor: Compressor) -> None:
    fill_long_chat(world)

    def agent(run: AgentTurn, message: Any) -> str:
        run.append("user", message)

        def disturbed(_: object) -> str:
            world.db.append_message(run.session_id, "user", "from elsewhere")
            return "what was said"

        run.compress(compressor, disturbed, shape="in_place", keep_last=2)
        return "done"

    world.agent = agent
    world.say("and now?")
    world.agent = echo
    built = len(world.built)
    world.say("go on")
    assert len(world.built) == built + 1


def test_superseded_run_compresses_nothing(world: World, compressor: Compressor) -> None:
    fill_long_chat(world)
    before = world.db.get_revision(world.agree())

    def agent(run: AgentTurn, message: Any) -> str:
        run.superseded = True
        with pytest.raises(Conflict, match="later message"):
            run.compress(compressor, keep_last=2)
        return "left alone"

    world.agent = agent
    world.say("and now?")
    assert world.db.get_revision(world.agree()) == before


def test_run_follows_session_after_compressor_error(world: World, compressor: Compressor) -> None:
    old = fill_long_chat(world)

    class Raising(Compressor):
        def compress(self, *args: Any, **options: Any) -> Any:
            compressor.compress(*args, **options)
            raise KeyboardInterrupt

    raising = Raising(world.db, compressor._ledger, store=world.store)

    def agent(run: AgentTurn, message: Any) -> str:
        with pytest.raises(KeyboardInterrupt):
            run.compress(raising, lambda _: "short", shape="continuation", keep_last=2)
        run.append("user", message)
        run.append("assistant", "done")
        return "done"

    world.agent = agent
    reply = world.say("and now?")
    assert reply.session_id != old
    assert world.store.peek_session_id(KEY) == reply.session_id
    assert world.db.get_messages(reply.session_id)[-1]["content"] == "done"


@pytest.mark.anyio
@pytest.mark.parametrize("face", [AsyncCompressor, lambda compressor: compressor])
async def test_async_agent_compression_does_not_block_loop(
    world: World, compressor: Compressor, face: Any
) -> None:
    await to_thread.run_sync(fill_long_chat, world)
    loop, said = asyncio.get_running_loop(), asyncio.Queue[str]()

    async def summarize(_: object) -> str:
        assert asyncio.get_running_loop() is loop
        return await said.get()

    async def agent(run: AgentTurn, message: Any) -> str:
        await run.aappend("user", message)
        loop.call_later(0, said.put_nowait, "what the loop says")
        await run.acompress(face(compressor), summarize, shape="continuation", keep_last=2)
        return "short of it"

    world.agent = agent
    reply = await world.runtime.ahandle(chat(42), "and now?")
    assert world.agree() == reply.session_id
    texts = [row["content"] for row in world.db.get_messages(reply.session_id)]
    assert any("what the loop says" in text for text in texts)


def test_sync_run_refuses_async_compressor(world: World, compressor: Compressor) -> None:
    fill_long_chat(world)

    def agent(run: AgentTurn, message: Any) -> str:
        with pytest.raises(InvalidInput, match="acompress"):
            run.compress(AsyncCompressor(compressor), keep_last=2)  # type: ignore[arg-type]
        return "left alone"

    world.agent = agent
    assert world.say("and now?").text == "left alone"


def test_message_after_undo_returns_to_original_session(
    world: World, compressor: Compressor
) -> None:
    old = fill_long_chat(world)
    result = compressor.compress(old, lambda _: "short", shape="continuation", keep_last=2)
    assert world.store.peek_session_id(KEY) == result.session_id
    compressor.undo(result.batch)
    assert world.say("back again").session_id == old


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_bare_compressor_uses_runtime_hooks(
    world: World, tmp_path: Path, shape: Any, kind: str
) -> None:
    old = fill_long_chat(world)
    called: list[dict[str, Any]] = []
    world.hooks.add("after_compression", lambda **arguments: called.append(arguments))
    with Ledger(StateFolder(world.db.path, root=tmp_path / "state")) as ledger:
        bare = Compressor(world.db, ledger)

        async def acompress(run: AgentTurn, message: Any) -> str:
            await run.aappend("user", message)
            await run.acompress(bare, lambda _: "what was said", shape=shape, keep_last=2)
            return "short of it"

        world.agent = acompress if kind == "async" else make_compressing_agent(bare, shape)
        reply = world.say("and now?")
        bare.close()
    (arguments,) = called
    names = ("session_id", "old_session_id", "in_place")
    assert [arguments[name] for name in names] == [reply.session_id, old, shape == "in_place"]
    assert world.agree() == reply.session_id


def test_compressor_with_store_uses_store_hooks(world: World, tmp_path: Path) -> None:
    old = fill_long_chat(world)
    called: list[dict[str, Any]] = []
    world.hooks.add("after_compression", lambda **arguments: called.append(arguments))
    with Ledger(StateFolder(world.db.path, root=tmp_path / "state")) as ledger:
        compressor = Compressor(world.db, ledger, store=world.store)
        compressor.compress(old, lambda _: "what was said", keep_last=2)
    assert len(called) == 1
