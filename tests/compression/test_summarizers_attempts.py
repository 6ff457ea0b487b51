"""Summaries by a function of the caller: its request, its loop and its failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio

from session_core import AsyncCompressor
from session_core.compression import NotCompressed
from tests.compression.homes import LAST, Chat, append_more, refused, summarize_short
from tests.homes import connect


@pytest.mark.requirement("compression:callables")
def test_summarizer_receives_brief_and_messages(chat: Chat) -> None:
    given: list[Any] = []

    def note(request: Any) -> str:
        given.append(request)
        return "what was said"

    chat.compressor().compress(chat.session_id, note, keep_last=LAST)
    (request,) = given
    assert len(request.messages) == request.brief.messages
    results = [message["content"] for message in request.messages if message["role"] == "tool"]
    assert all(len(result) <= 400 for result in results)


@pytest.mark.requirement("compression:callables")
def test_summarizer_receives_earlier_summary_separately(chat: Chat) -> None:
    chat.compressor().compress(chat.session_id, lambda _: "first: port 5432", keep_last=LAST)
    append_more(chat)
    given: list[Any] = []
    chat.compressor().compress(
        chat.session_id, lambda request: given.append(request) or "both", keep_last=LAST
    )
    (request,) = given
    assert request.earlier == ("first: port 5432",)
    assert "5432" not in str(request.messages)
    assert len(request.messages) < request.brief.messages


@pytest.mark.requirement("compression:callables")
def test_async_summarizer_is_awaited(chat: Chat) -> None:
    async def summarize(_: object) -> str:
        return "what a coroutine says"

    chat.compressor().compress(chat.session_id, summarize, keep_last=LAST)
    assert any("what a coroutine says" in str(text) for text in chat.texts())


@pytest.mark.requirement("compression:callables")
def test_failed_summarizer_falls_back_to_extractive(chat: Chat) -> None:
    def fail(_: object) -> str:
        raise ValueError("bad")

    result = chat.compressor().compress(chat.session_id, fail, keep_last=LAST)
    row = chat.db.get_session(result.session_id)
    assert row is not None
    assert result.tokens_after < result.tokens_before
    assert row["compression_fallback_streak"] == 1
    assert row["compression_failure_cooldown_until"] == chat.clock.now + 60


@pytest.mark.requirement("compression:callables")
def test_network_failure_leaves_session_unchanged(chat: Chat) -> None:
    def fail(_: object) -> str:
        raise ConnectionError("refused")

    before = chat.texts()
    with refused("summary_network"):
        chat.compressor().compress(chat.session_id, fail, keep_last=LAST)
    assert chat.texts() == before
    with refused("cooldown"):
        chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    assert chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST, force=True)


@pytest.mark.requirement("compression:callables")
def test_failure_streak_continues_in_continuations(chat: Chat) -> None:
    def fail(_: object) -> str:
        raise ValueError("bad")

    for streak in (1, 2):
        result = chat.compressor().compress(
            chat.session_id, fail, shape="continuation", keep_last=LAST, force=True
        )
        row = chat.db.get_session(result.session_id)
        assert row is not None
        assert row["compression_fallback_streak"] == streak
        assert row["compression_failure_cooldown_until"] == chat.clock.now + 60
        append_more(chat)
    chat.clock.now += 61
    with refused("ineffective"):
        chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    result = chat.compressor().compress(
        chat.session_id, summarize_short, shape="continuation", keep_last=LAST, force=True
    )
    row = chat.db.get_session(result.session_id)
    assert row is not None
    assert not row["compression_fallback_streak"]


def test_cooldown_refuses_before_planning(chat: Chat) -> None:
    def fail(_: object) -> str:
        raise ConnectionError("refused")

    with refused("summary_network"):
        chat.compressor().compress(chat.session_id, fail, keep_last=LAST)
    with refused("cooldown"):
        # All messages are protected, which would refuse a plan.
        chat.compressor().compress(chat.session_id, summarize_short, keep_last=1000)


@pytest.mark.needs_files
@pytest.mark.parametrize("summary", ["[REDACTED]", "long " * 100_000])
def test_refused_compression_leaves_no_plan(chat: Chat, summary: str) -> None:
    with pytest.raises(NotCompressed):
        chat.compressor().compress(chat.session_id, lambda _: summary, keep_last=LAST)
    assert list_plan_states(chat) == ["closed"]


@pytest.mark.requirement("compression:callables")
def test_cooldown_survives_restart_and_ends(chat: Chat) -> None:
    def fail(_: object) -> str:
        raise ConnectionError("refused")

    with refused("summary_network"):
        chat.compressor().compress(chat.session_id, fail, keep_last=LAST)
    chat.clock.now += 31
    chat.compressor().compress(chat.session_id, summarize_short, keep_last=LAST)
    row = chat.db.get_session(chat.session_id)
    assert row is not None
    assert row["compression_failure_cooldown_until"] is None
    assert row["compression_failure_error"] is None


@pytest.mark.requirement("compression:callables")
@pytest.mark.anyio
async def test_async_summarizer_runs_on_callers_loop(chat: Chat) -> None:
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[str]()

    async def summarize(_: object) -> str:
        assert asyncio.get_running_loop() is loop
        return await queue.get()

    compressing = asyncio.ensure_future(
        AsyncCompressor(chat.compressor()).compress(chat.session_id, summarize, keep_last=LAST)
    )
    await queue.put("what the loop says")
    await compressing
    assert any("what the loop says" in str(text) for text in chat.texts())


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_async_summarizer_runs_in_trio(chat: Chat) -> None:
    token, send = trio.lowlevel.current_trio_token(), trio.open_memory_channel[str](1)

    async def summarize(_: object) -> str:
        assert trio.lowlevel.current_trio_token() is token
        return await send[1].receive()

    await send[0].send("what trio says")
    await AsyncCompressor(chat.compressor()).compress(chat.session_id, summarize, keep_last=LAST)
    assert any("what trio says" in str(text) for text in chat.texts())


def list_plan_states(chat: Chat) -> list[str]:
    with connect(chat.ledger._make_path()) as connection:
        return [state for (state,) in connection.execute("SELECT state FROM plans")]
