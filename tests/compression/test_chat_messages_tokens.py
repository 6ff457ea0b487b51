"""The token estimate: by script, for everything that is sent, without a download."""

from __future__ import annotations

from typing import Any

import pytest

from session_core.compression import chat_messages
from session_core.compression.chat_messages import (
    CALL_TOKENS,
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    estimate_tokens,
)
from tests.compression.conversations import IMAGE, make_call_message, make_result_messages


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("abcd", 1),
        ("abcde", 2),
        ("a" * 4000, 1000),
        ("你" * 1000, 1000),
        ("かな" * 500, 1000),
        ("ж" * 1000, 500),
        ("🙂" * 1000, 1500),
        ("abcd你好", 3),
    ],
)
def test_text_tokens_depend_on_script(text: str, count: int) -> None:
    assert chat_messages.estimate_text_tokens(text) == count


def test_lone_surrogate_is_counted() -> None:
    assert chat_messages.estimate_text_tokens("\ud83d") == 1


@pytest.mark.parametrize("content", [None, "", []])
def test_empty_message_has_minimum_cost(content: Any) -> None:
    assert estimate_tokens({"role": "user", "content": content}) == MESSAGE_TOKENS


def test_images_cost_flat_amount() -> None:
    content = [{"type": "text", "text": "a" * 40}, IMAGE, "a" * 40, {"type": "text", "text": 7}]
    assert estimate_tokens({"role": "user", "content": content[:3]}) == (
        MESSAGE_TOKENS + 10 + IMAGE_TOKENS + 10
    )
    assert (
        estimate_tokens({"role": "user", "content": content}) > MESSAGE_TOKENS + 20 + IMAGE_TOKENS
    )


def test_calls_cost_arguments_in_both_shapes() -> None:
    short, long = "a" * 10, "a" * 4010
    for shape in ("openai", "anthropic"):
        less, more = (
            estimate_tokens(make_call_message(shape, ["a"], None, path)) for path in (short, long)
        )
        assert less > MESSAGE_TOKENS + CALL_TOKENS
        assert more - less == 1000


def test_results_cost_text_in_both_shapes() -> None:
    (openai,) = make_result_messages("openai", [("a", "x" * 4000)])
    (anthropic,) = make_result_messages("anthropic", [("a", "x" * 4000)])
    assert estimate_tokens(openai) == MESSAGE_TOKENS + 1000
    assert estimate_tokens(anthropic) == MESSAGE_TOKENS + CALL_TOKENS + 1000


def test_replacement_content_is_counted() -> None:
    message = {"role": "user", "content": "short", "api_content": "x" * 4000}
    assert estimate_tokens(message) == MESSAGE_TOKENS + 1000


def test_replayed_reasoning_is_counted_once() -> None:
    thought = "x" * 400
    message = {"role": "assistant", "content": "", "reasoning": thought}
    assert estimate_tokens(message) == MESSAGE_TOKENS + 100
    assert (
        estimate_tokens({"role": "assistant", "reasoning_content": thought}) == MESSAGE_TOKENS + 100
    )
    assert estimate_tokens({**message, "reasoning_content": thought}) == MESSAGE_TOKENS + 100
    assert estimate_tokens({**message, "codex_reasoning_items": thought}) == MESSAGE_TOKENS + 200


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"content": 7},
        {"content": {"a": [1]}},
        {"content": [None, 3, {}, {"type": ["x"]}, {"type": "tool_use"}]},
        {"tool_calls": "text"},
        {"tool_calls": [None, {}, {"function": None}, {"function": {"arguments": {"a": 1}}}]},
    ],
)
def test_malformed_message_is_estimated(message: dict[str, Any]) -> None:
    assert estimate_tokens(message) >= MESSAGE_TOKENS
