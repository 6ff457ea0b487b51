"""What a message says, calls and answers, in both shapes and where it is rubbish."""

from __future__ import annotations

from typing import Any

import pytest

from session_core.compression import chat_messages
from session_core.compression.chat_messages import MessageToolCall, MessageToolResult
from tests.compression.conversations import IMAGE, Shape, answered, called


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
def test_calls_are_read_in_both_shapes(shape: Shape) -> None:
    message = called(shape, ["a", "b"], "let me look", path="src/app.py")
    arguments = '{"path": "src/app.py"}'
    assert chat_messages.get_turn(message) == "assistant"
    assert chat_messages.list_calls(message) == [
        MessageToolCall(("a",), "read_file", arguments),
        MessageToolCall(("b",), "read_file", arguments),
    ]
    assert chat_messages.get_text(message) == "let me look"


def test_results_are_read_in_both_shapes() -> None:
    for message in answered("openai", [("a", "one")]):
        assert chat_messages.get_turn(message) == "tool"
        assert chat_messages.list_results(message) == [MessageToolResult("a", "read_file", "one")]
    for message in answered("anthropic", [("a", "one"), ("b", "two")]):
        assert chat_messages.get_turn(message) == "tool"
        assert chat_messages.list_results(message) == [
            MessageToolResult("a", None, "one"),
            MessageToolResult("b", None, "two"),
        ]


def test_a_user_message_of_results_and_words_is_one_of_the_user() -> None:
    (message,) = answered("anthropic", [("a", "one")])
    message["content"].append({"type": "text", "text": "and now the tests"})
    assert chat_messages.get_turn(message) == "user"
    assert chat_messages.list_results(message) == [MessageToolResult("a", None, "one")]


@pytest.mark.parametrize(
    ("role", "turn"),
    [
        ("system", "system"),
        ("developer", "system"),
        ("function", "tool"),
        ("session_meta", "other"),
        (None, "other"),
        (["user"], "other"),
    ],
)
def test_roles_are_turns(role: Any, turn: str) -> None:
    assert chat_messages.get_turn({"role": role, "content": "x"}) == turn


@pytest.mark.parametrize("content", [None, "", [], "text", {}, 7])
def test_a_user_message_without_results_is_one_of_the_user(content: Any) -> None:
    assert chat_messages.get_turn({"role": "user", "content": content}) == "user"


def test_a_call_may_have_two_ids() -> None:
    call = {"id": "fc_1", "call_id": "call_1", "function": {"name": "f", "arguments": "{"}}
    message = {"role": "assistant", "tool_calls": [call]}
    assert chat_messages.list_calls(message) == [MessageToolCall(("call_1", "fc_1"), "f", "{")]


@pytest.mark.parametrize(
    "tool_calls", [None, "text", 7, [None, "x"], [[]], {}, [{"id": None}], [{"function": 3}]]
)
def test_rubbish_calls_have_no_ids(tool_calls: Any) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": tool_calls}
    assert [call.ids for call in chat_messages.list_calls(message) if call.ids] == []


def test_only_the_assistant_calls() -> None:
    message = {**called("openai", ["a"], None), "role": "user"}
    assert chat_messages.list_calls(message) == []


def test_arguments_that_are_no_json_text_are_made_one() -> None:
    call = {"id": "a", "function": {"name": "f", "arguments": {"path": "ä"}}}
    message = {"role": "assistant", "tool_calls": [call]}
    assert chat_messages.list_calls(message)[0].arguments == '{"path": "ä"}'


def test_a_result_may_say_nothing_of_its_call() -> None:
    assert chat_messages.list_results({"role": "tool", "content": None}) == [
        MessageToolResult(None, None, "")
    ]
    assert chat_messages.list_results({"role": "tool", "tool_call_id": ""}) == [
        MessageToolResult(None, None, "")
    ]


def test_images_are_counted_in_results_too() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": [IMAGE, {"type": ["x"]}]}
    assert chat_messages.count_images({"role": "user", "content": [IMAGE, result, "text"]}) == 2
    assert chat_messages.count_images({"role": "user", "content": "text"}) == 0


def test_a_circle_is_written_somehow() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert chat_messages.to_json_text(circle) == "[[...]]"


def test_what_is_nested_too_deep_says_nothing() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert chat_messages.to_json_text(deep) == ""
