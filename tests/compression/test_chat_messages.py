"""Text, calls and results of messages in both shapes, including malformed ones."""

from __future__ import annotations

from typing import Any

import pytest

from session_core.compression import chat_messages
from session_core.compression.chat_messages import MessageToolCall, MessageToolResult
from tests.compression.conversations import IMAGE, Shape, make_call_message, make_result_messages


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
def test_calls_are_read_in_both_shapes(shape: Shape) -> None:
    message = make_call_message(shape, ["a", "b"], "let me look", path="src/app.py")
    arguments = '{"path": "src/app.py"}'
    assert chat_messages.get_turn(message) == "assistant"
    assert chat_messages.list_calls(message) == [
        MessageToolCall(("a",), "read_file", arguments),
        MessageToolCall(("b",), "read_file", arguments),
    ]
    assert chat_messages.get_text(message) == "let me look"


def test_results_are_read_in_both_shapes() -> None:
    for message in make_result_messages("openai", [("a", "one")]):
        assert chat_messages.get_turn(message) == "tool"
        assert chat_messages.list_results(message) == [MessageToolResult("a", "read_file", "one")]
    for message in make_result_messages("anthropic", [("a", "one"), ("b", "two")]):
        assert chat_messages.get_turn(message) == "tool"
        assert chat_messages.list_results(message) == [
            MessageToolResult("a", None, "one"),
            MessageToolResult("b", None, "two"),
        ]


def test_user_message_with_results_stays_user_turn() -> None:
    (message,) = make_result_messages("anthropic", [("a", "one")])
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
def test_roles_map_to_turns(role: Any, turn: str) -> None:
    assert chat_messages.get_turn({"role": role, "content": "x"}) == turn


@pytest.mark.parametrize("content", [None, "", [], "text", {}, 7])
def test_user_message_is_user_turn(content: Any) -> None:
    assert chat_messages.get_turn({"role": "user", "content": content}) == "user"


def test_call_can_have_two_ids() -> None:
    call = {"id": "fc_1", "call_id": "call_1", "function": {"name": "f", "arguments": "{"}}
    message = {"role": "assistant", "tool_calls": [call]}
    assert chat_messages.list_calls(message) == [MessageToolCall(("call_1", "fc_1"), "f", "{")]


@pytest.mark.parametrize(
    "tool_calls", [None, "text", 7, [None, "x"], [[]], {}, [{"id": None}], [{"function": 3}]]
)
def test_malformed_calls_have_no_ids(tool_calls: Any) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": tool_calls}
    assert [call.ids for call in chat_messages.list_calls(message) if call.ids] == []


def test_calls_belong_to_assistant_only() -> None:
    message = {**make_call_message("openai", ["a"], None), "role": "user"}
    assert chat_messages.list_calls(message) == []


def test_arguments_become_json_text() -> None:
    call = {"id": "a", "function": {"name": "f", "arguments": {"path": "ä"}}}
    message = {"role": "assistant", "tool_calls": [call]}
    assert chat_messages.list_calls(message)[0].arguments == '{"path": "ä"}'


def test_result_can_lack_call_id() -> None:
    assert chat_messages.list_results({"role": "tool", "content": None}) == [
        MessageToolResult(None, None, "")
    ]
    assert chat_messages.list_results({"role": "tool", "tool_call_id": ""}) == [
        MessageToolResult(None, None, "")
    ]


def test_images_in_results_are_counted() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": [IMAGE, {"type": ["x"]}]}
    assert chat_messages.count_images({"role": "user", "content": [IMAGE, result, "text"]}) == 2
    assert chat_messages.count_images({"role": "user", "content": "text"}) == 0


def test_circular_arguments_become_text() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert chat_messages.to_json_text(circle) == "[[...]]"


def test_deeply_nested_content_has_no_text() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert chat_messages.to_json_text(deep) == ""
