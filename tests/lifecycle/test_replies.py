"""Replies for turns that end without text, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from session_core.lifecycle.replies import normalize_empty_agent_response


def build_reply(response: str | None = "", history_len: int = 0, **agent_result: Any) -> str:
    return normalize_empty_agent_response(agent_result, response, history_len=history_len)


def build_failure_reply(error: Any, history_len: int = 0) -> str:
    return build_reply(failed=True, error=error, history_len=history_len)


def is_too_large(text: str) -> bool:
    return "context window" in text and "/compact" in text and "/reset" in text


# 1. the agent said something


@pytest.mark.requirement("replies:table")
@pytest.mark.parametrize("result", [{}, {"failed": True, "error": "token"}, {"interrupted": True}])
def test_reply_keeps_agent_text(result: dict[str, Any]) -> None:
    assert build_reply("an answer", **result) == "an answer"


# 2. the session is too large


@pytest.mark.requirement("replies:table")
@pytest.mark.parametrize(
    "error",
    [
        "maximum context length is 8192 tokens",
        "token limit reached",
        "Request too large",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input exceeds the limit",
        "413 payload refused",
        "context_length_exceeded",
    ],
)
def test_size_error_reply_suggests_compacting(error: str) -> None:
    assert is_too_large(build_failure_reply(error))


def test_size_error_is_detected_in_any_case() -> None:
    assert is_too_large(build_failure_reply("CONTEXT LENGTH EXCEEDED"))


@pytest.mark.requirement("replies:table")
def test_bad_request_after_long_history_means_size() -> None:
    assert is_too_large(build_failure_reply("Error code: 400", history_len=51))


def test_bad_request_after_short_history_is_failure() -> None:
    assert "Error code: 400" in build_failure_reply("Error code: 400", history_len=50)


def test_number_containing_400_is_not_bad_request() -> None:
    assert "took 4000 ms" in build_failure_reply("took 4000 ms", history_len=51)


# 3. another failure


@pytest.mark.requirement("replies:table")
def test_other_failure_reply_shows_error() -> None:
    text = build_failure_reply("the provider is down")
    assert "the provider is down" in text
    assert "/reset" in text
    assert not is_too_large(text)


def test_long_error_is_truncated() -> None:
    text = build_failure_reply("x" * 301)
    assert "x" * 300 in text
    assert "x" * 301 not in text


@pytest.mark.parametrize("result", [{}, {"error": None}, {"error": ""}])
def test_failure_without_error_gets_reply(result: dict[str, Any]) -> None:
    assert "unknown error" in build_reply(failed=True, **result)


def test_failure_error_may_be_exception() -> None:
    assert "no route" in build_failure_reply(OSError("no route"))


@pytest.mark.parametrize(
    "error",
    [
        "invalid auth token",
        "401 Unauthorized: the token is not valid",
        "token has been revoked",
        "Rate limit exceeded, 429 too many tokens per minute",
        "You exceeded your current quota",
        "context deadline exceeded",
        "max retries exceeded with url",
        "maximum recursion depth exceeded",
        "Unexpected token < in JSON at position 0",
        "SSL context is broken",
    ],
)
def test_unrelated_error_is_not_size_error(error: str) -> None:
    assert error in build_failure_reply(error, history_len=51)


def test_size_error_wins_over_rate_limit() -> None:
    assert is_too_large(
        build_failure_reply("429 Request too large on tokens per minute: limit 30000")
    )


def test_failure_takes_precedence_over_interruption() -> None:
    assert "boom" in build_reply(
        failed=True, error="boom", interrupted=True, api_calls=1, partial=True
    )


# 4. and 5. interrupted


@pytest.mark.requirement("replies:table")
@pytest.mark.parametrize("calls", [{}, {"api_calls": 0}, {"api_calls": None}])
def test_interruption_before_work_asks_to_resend(calls: dict[str, Any]) -> None:
    assert "Send it again" in build_reply(interrupted=True, **calls)


@pytest.mark.requirement("replies:table")
@pytest.mark.parametrize("response", ["", None])
def test_interruption_during_work_is_silent(response: str | None) -> None:
    assert build_reply(response, interrupted=True, api_calls=3, partial=True, error="boom") == ""


# 6. only thought

HIDDEN = "Response remained incomplete after 3 continuation attempts"


@pytest.mark.requirement("replies:table")
@pytest.mark.parametrize("said", [{}, {"final_response": None}, {"final_response": HIDDEN}])
def test_reasoning_only_turn_is_silent(said: dict[str, Any]) -> None:
    assert build_reply(api_calls=3, partial=True, error=HIDDEN, **said) == ""


def test_turn_with_other_text_is_not_silent() -> None:
    assert HIDDEN in build_reply(api_calls=3, partial=True, error=HIDDEN, final_response="hi")


# 7. stopped at work


@pytest.mark.requirement("replies:table")
def test_stopped_turn_reply_shows_reason() -> None:
    text = build_reply(api_calls=1, partial=True, error="the tool is gone")
    assert "the tool is gone" in text
    assert "Try again" in text


def test_long_stop_reason_is_truncated() -> None:
    text = build_reply(api_calls=1, partial=True, error="x" * 201)
    assert "x" * 200 in text
    assert "x" * 201 not in text


def test_stopped_turn_without_reason_gets_reply() -> None:
    assert "stopped" in build_reply(api_calls=1, partial=True)


# 8. work without an answer


@pytest.mark.requirement("replies:table")
def test_work_without_answer_asks_to_resend() -> None:
    text = build_reply(api_calls=2)
    assert "no answer" in text
    assert "again" in text


def test_call_count_accepts_any_value() -> None:
    assert build_reply(api_calls="2") == build_reply(api_calls=2) != build_reply(api_calls="many")


# 9. and 10. no work


@pytest.mark.requirement("replies:table")
@pytest.mark.parametrize("calls", [{}, {"api_calls": 0}, {"api_calls": None}])
def test_unprocessed_message_asks_to_resend(calls: dict[str, Any]) -> None:
    text = build_reply(None, **calls)
    assert "not processed" in text
    assert "Send it again" in text


@pytest.mark.requirement("replies:table")
@pytest.mark.parametrize("response", ["", None])
def test_partial_turn_without_work_is_silent(response: str | None) -> None:
    assert build_reply(response, api_calls=0, partial=True) == ""
