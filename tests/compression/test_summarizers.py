"""Summarizer functions: sync and async, with a timeout, and the handling of their failures."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from session_core.compression import summarizers
from session_core.compression.ranges import Refusal
from session_core.compression.summarizers import FailureState, SummaryFailure
from session_core.event_loops import AsyncioLoop

BRIEF = object()


def test_summarizer_receives_brief_and_returns_text() -> None:
    given: list[object] = []

    def summarizer(brief: object) -> str:
        given.append(brief)
        return "text"

    assert summarizers.call_summarizer(summarizer, BRIEF, 10) == "text"
    assert given == [BRIEF]


async def _slow(brief: object) -> str:
    await asyncio.sleep(0)
    return "text"


def test_async_summarizer_runs_without_loop() -> None:
    assert summarizers.call_summarizer(_slow, BRIEF, 10) == "text"


def test_async_summarizer_runs_inside_loop() -> None:
    async def main() -> str | SummaryFailure:
        return await asyncio.to_thread(summarizers.call_summarizer, _slow, BRIEF, 10)

    async def blocking() -> str | SummaryFailure:
        return summarizers.call_summarizer(_slow, BRIEF, 10)

    assert asyncio.run(main()) == "text"
    assert asyncio.run(blocking()) == "text"


def test_async_summarizer_runs_on_given_loop() -> None:
    async def main() -> str | SummaryFailure:
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[str]()

        async def of_this_loop(_: object) -> str:
            assert asyncio.get_running_loop() is loop
            return await queue.get()

        task = asyncio.create_task(
            asyncio.to_thread(
                summarizers.call_summarizer, of_this_loop, BRIEF, 10, AsyncioLoop(loop)
            )
        )
        await queue.put("text")
        return await task

    assert asyncio.run(main()) == "text"


def test_hanging_summarizer_times_out() -> None:
    release = threading.Event()
    try:
        failure = summarizers.call_summarizer(lambda _: str(release.wait(60)), BRIEF, 0.05)
    finally:
        release.set()
    assert failure == SummaryFailure("timeout", "no summary within 0.05 s")


def test_hanging_async_summarizer_is_cancelled() -> None:
    cancelled = threading.Event()

    async def hang(brief: object) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return ""

    assert summarizers.call_summarizer(hang, BRIEF, 0.05) == SummaryFailure(
        "timeout", "no summary within 0.05 s"
    )
    assert cancelled.wait(10)


@pytest.mark.parametrize("result", [None, "", " \n", 7, ["text"]])
def test_non_text_summary_is_failure(result: Any) -> None:
    failure = summarizers.call_summarizer(lambda _: result, BRIEF, 10)
    assert failure == SummaryFailure("other", "the summarizer returned no text")


class APIConnectionError(Exception):
    """Named as in the clients of models."""


class AuthenticationError(Exception):
    """Named as in the clients of models."""


class StatusError(Exception):
    """An error with a status, as in the clients of models."""

    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(message)
        self.status_code = status


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("No LLM provider configured for this task"), "no_provider"),
        (TimeoutError(), "timeout"),
        (RuntimeError("Request timed out."), "timeout"),
        (StatusError(504), "timeout"),
        (StatusError(429, "slow down"), "timeout"),
        (StatusError(429, "You exceeded your current quota"), "quota"),
        (StatusError(402), "quota"),
        (StatusError(401), "authentication"),
        (StatusError(403), "authentication"),
        (AuthenticationError("nope"), "authentication"),
        (RuntimeError("Incorrect API key provided"), "authentication"),
        (json.JSONDecodeError("Expecting value", "", 0), "stream"),
        (RuntimeError("peer closed connection without sending complete message"), "stream"),
        (RuntimeError("incomplete chunked read"), "stream"),
        (ConnectionRefusedError(), "network"),
        (APIConnectionError("Connection error."), "network"),
        (OSError("Temporary failure in name resolution"), "network"),
        (ValueError("what?"), "other"),
        (SystemExit(2), "other"),
    ],
)
def test_error_kind_from_type_status_or_message(error: BaseException, kind: str) -> None:
    def summarizer(brief: object) -> str:
        raise error

    failure = summarizers.call_summarizer(summarizer, BRIEF, 10)
    assert isinstance(failure, SummaryFailure)
    assert (failure.kind, failure.error) == (kind, error)
    assert failure.is_aborting == (kind in ("authentication", "quota", "network"))


def test_failure_message_hides_keys() -> None:
    def summarizer(brief: object) -> str:
        raise ValueError("bad key sk-abcdefghijklmnopqrstuvwxyz012345, sorry\nand more")

    failure = summarizers.call_summarizer(summarizer, BRIEF, 10)
    assert isinstance(failure, SummaryFailure)
    assert failure.message == "ValueError: bad key …, sorry"


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("no_provider", 600),
        ("timeout", 60),
        ("stream", 30),
        ("network", 30),
        ("authentication", 60),
        ("quota", 60),
        ("other", 60),
    ],
)
def test_failure_kinds_have_own_cooldowns(kind: summarizers.FailureKind, seconds: float) -> None:
    state = summarizers.compute_failed_state(
        FailureState(streak=1), SummaryFailure(kind, "m"), 1000.0
    )
    assert state.cooldown_until == 1000.0 + seconds
    assert state.streak == 1


def test_consecutive_timeouts_lengthen_cooldown() -> None:
    timeout = SummaryFailure("timeout", "m")
    state = FailureState()
    waits = []
    for _ in range(4):
        state = summarizers.compute_failed_state(state, timeout, 0.0)
        waits.append(state.cooldown_until)
    assert waits == [60.0, 300.0, 900.0, 900.0]
    other = summarizers.compute_failed_state(state, SummaryFailure("other", "m"), 0.0)
    assert summarizers.compute_failed_state(other, timeout, 0.0).cooldown_until == 60.0


def test_cooldown_refuses_until_expired() -> None:
    state = FailureState(1060.0, "stream: x")
    assert summarizers.find_cooldown_reason(state, 1000.0) == Refusal(
        "cooldown", "summaries failed (stream: x); wait 60 s, or force it"
    )
    assert summarizers.find_cooldown_reason(state, 1060.0) is None


def test_two_consecutive_fallbacks_refuse_forever() -> None:
    assert summarizers.find_cooldown_reason(FailureState(streak=1), 0.0) is None
    refused = summarizers.find_cooldown_reason(FailureState(streak=2), 0.0)
    assert refused is not None
    assert refused.code == "ineffective"


def test_force_ignores_cooldown() -> None:
    assert summarizers.find_cooldown_reason(FailureState(2000.0, "x", 5), 0.0, force=True) is None


def test_failure_state_round_trips_through_row() -> None:
    state = FailureState(12.5, "other: x", 1)
    assert FailureState.from_row(state.to_columns()) == state
    assert FailureState.from_row({}) == FailureState()
