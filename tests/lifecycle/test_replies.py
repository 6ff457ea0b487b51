"""What a person is told where a turn ended without a word, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from session_core.lifecycle.replies import normalize_empty_agent_response


def reply(response: str | None = "", history_len: int = 0, **agent_result: Any) -> str:
    return normalize_empty_agent_response(agent_result, response, history_len=history_len)


def failure(error: Any, history_len: int = 0) -> str:
    return reply(failed=True, error=error, history_len=history_len)


def is_too_large(text: str) -> bool:
    return "context window" in text and "/compact" in text and "/reset" in text


# 1. the agent said something


@pytest.mark.requirement("replies:table")
@pytest.mark.parametrize("result", [{}, {"failed": True, "error": "token"}, {"interrupted": True}])
def test_what_the_agent_said_is_not_changed(result: dict[str, Any]) -> None:
    assert reply("an answer", **result) == "an answer"


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
def test_an_error_of_size_says_what_makes_the_session_smaller(error: str) -> None:
    assert is_too_large(failure(error))


def test_an_error_of_size_is_one_in_any_case() -> None:
    assert is_too_large(failure("CONTEXT LENGTH EXCEEDED"))


@pytest.mark.requirement("replies:table")
def test_a_bad_request_with_a_long_history_is_one_of_size() -> None:
    assert is_too_large(failure("Error code: 400", history_len=51))


def test_a_bad_request_with_a_short_history_is_a_failure() -> None:
    assert "Error code: 400" in failure("Error code: 400", history_len=50)


def test_a_number_that_only_contains_that_of_a_bad_request_is_none() -> None:
    assert "took 4000 ms" in failure("took 4000 ms", history_len=51)


# 3. another failure


@pytest.mark.requirement("replies:table")
def test_another_failure_says_what_it_was_and_how_to_go_on() -> None:
    text = failure("the provider is down")
    assert "the provider is down" in text
    assert "/reset" in text
    assert not is_too_large(text)


def test_a_long_error_is_cut() -> None:
    text = failure("x" * 301)
    assert "x" * 300 in text
    assert "x" * 301 not in text


@pytest.mark.parametrize("result", [{}, {"error": None}, {"error": ""}])
def test_a_failure_without_an_error_is_one_too(result: dict[str, Any]) -> None:
    assert "unknown error" in reply(failed=True, **result)


def test_an_error_may_be_an_exception() -> None:
    assert "no route" in failure(OSError("no route"))


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
def test_an_error_that_only_sounds_like_size_says_what_it_was(error: str) -> None:
    assert error in failure(error, history_len=51)


def test_an_error_of_size_is_one_beside_a_limit_of_rate() -> None:
    assert is_too_large(failure("429 Request too large on tokens per minute: limit 30000"))


def test_a_failure_comes_before_an_interruption() -> None:
    assert "boom" in reply(failed=True, error="boom", interrupted=True, api_calls=1, partial=True)


# 4. and 5. interrupted


@pytest.mark.requirement("replies:table")
@pytest.mark.parametrize("calls", [{}, {"api_calls": 0}, {"api_calls": None}])
def test_an_interruption_before_the_work_asks_for_the_message_again(calls: dict[str, Any]) -> None:
    assert "Send it again" in reply(interrupted=True, **calls)


@pytest.mark.requirement("replies:table")
@pytest.mark.parametrize("response", ["", None])
def test_an_interruption_at_work_is_silent(response: str | None) -> None:
    assert reply(response, interrupted=True, api_calls=3, partial=True, error="boom") == ""


# 6. only thought

HIDDEN = "Response remained incomplete after 3 continuation attempts"


@pytest.mark.requirement("replies:table")
@pytest.mark.parametrize("said", [{}, {"final_response": None}, {"final_response": HIDDEN}])
def test_a_turn_that_only_thought_is_silent(said: dict[str, Any]) -> None:
    assert reply(api_calls=3, partial=True, error=HIDDEN, **said) == ""


def test_a_turn_that_said_something_else_did_not_only_think() -> None:
    assert HIDDEN in reply(api_calls=3, partial=True, error=HIDDEN, final_response="hi")


# 7. stopped at work


@pytest.mark.requirement("replies:table")
def test_a_turn_that_stopped_says_why() -> None:
    text = reply(api_calls=1, partial=True, error="the tool is gone")
    assert "the tool is gone" in text
    assert "Try again" in text


def test_a_long_reason_is_cut() -> None:
    text = reply(api_calls=1, partial=True, error="x" * 201)
    assert "x" * 200 in text
    assert "x" * 201 not in text


def test_a_turn_that_stopped_without_a_reason_says_that() -> None:
    assert "stopped" in reply(api_calls=1, partial=True)


# 8. work without an answer


@pytest.mark.requirement("replies:table")
def test_work_without_an_answer_asks_for_the_message_again() -> None:
    text = reply(api_calls=2)
    assert "no answer" in text
    assert "again" in text


def test_calls_are_counted_whatever_they_are() -> None:
    assert reply(api_calls="2") == reply(api_calls=2) != reply(api_calls="many")


# 9. and 10. no work


@pytest.mark.requirement("replies:table")
@pytest.mark.parametrize("calls", [{}, {"api_calls": 0}, {"api_calls": None}])
def test_a_message_that_was_not_processed_is_asked_for_again(calls: dict[str, Any]) -> None:
    text = reply(None, **calls)
    assert "not processed" in text
    assert "Send it again" in text


@pytest.mark.requirement("replies:table")
@pytest.mark.parametrize("response", ["", None])
def test_a_part_of_no_work_is_silent(response: str | None) -> None:
    assert reply(response, api_calls=0, partial=True) == ""
