"""Condensed messages for a summarizer, which leave the originals unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from session_core.compression.chat_messages import MessageToolCall
from session_core.compression.rebuild import condense_messages, describe_call
from tests.compression.conversations import IMAGE, Shape, make_call_message, make_result_messages

LONG = "\n  first line\nsecond\n" + "x" * 979


def condense_results(shape: Shape, *results: str) -> list[Any]:
    """Return the condensed results of calls that all read the same file."""
    messages = []
    for at, text in enumerate(results):
        messages += [make_call_message(shape, [f"c{at}"], None, "src/app.py")]
        messages += make_result_messages(shape, [(f"c{at}", text)])
    contents = [message["content"] for message in condense_messages(messages)[1::2]]
    return contents if shape == "openai" else [content[0]["content"] for content in contents]


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
def test_long_and_repeated_results_are_shortened(shape: Shape) -> None:
    call = "read_file(path=src/app.py)"
    assert condense_results(shape, LONG, "short", LONG) == [
        f"[{call}: 1,000 characters, beginning: first line]",
        "short",
        f"[{call}: the same 1,000 characters as from {call} above]",
    ]


def test_results_over_200_characters_are_shortened() -> None:
    assert condense_results("openai", "x" * 200) == ["x" * 200]
    assert condense_results("openai", "x" * 201)[0].startswith(
        "[read_file(path=src/app.py): 201 characters"
    )


def test_result_shorter_than_description_is_kept() -> None:
    messages = [
        make_call_message("openai", ["a"], None, "p" * 90),
        *make_result_messages("openai", [("a", "x" * 210)]),
    ]
    assert condense_messages(messages)[1]["content"] == "x" * 210


def test_orphan_result_is_named_by_tool() -> None:
    stray = {"role": "tool", "tool_call_id": None, "tool_name": "grep", "content": LONG}
    nameless = {"role": "tool", "content": "y" + LONG}
    lines = [message["content"] for message in condense_messages([stray, nameless])]
    assert lines == [
        "[grep: 1,000 characters, beginning: first line]",
        "[tool: 1,001 characters, beginning: y]",
    ]


def test_images_become_placeholder() -> None:
    user = {"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE]}
    tool = {"role": "tool", "content": [{"type": "text", "text": LONG}, IMAGE]}
    small = {"role": "tool", "content": [IMAGE]}
    word = {"type": "text", "text": "[image]"}
    read_user, read_tool, read_small = condense_messages([user, tool, small])
    assert read_user["content"] == [{"type": "text", "text": "see"}, word]
    assert read_tool["content"] == "[tool: 1,000 characters, beginning: first line] [image]"
    assert read_small["content"] == [word]


def test_parts_without_text_become_kind() -> None:
    parts = [{"type": "document", "source": "x" * 9000}, "text", {}]
    (copy,) = condense_messages([{"role": "user", "content": parts}])
    assert copy["content"] == [{"type": "text", "text": "[document]"}, "text", {}]


def test_long_arguments_stay_json() -> None:
    given = {"path": "src/app.py", "content": "x" * 5000, "mode": 7}
    message = make_call_message("openai", ["a"], None)
    message["tool_calls"][0]["function"]["arguments"] = json.dumps(given)
    (copy,) = condense_messages([message])
    assert json.loads(copy["tool_calls"][0]["function"]["arguments"]) == {
        "path": "src/app.py",
        "content": "x" * 100 + "… (4,900 more characters)",
        "mode": 7,
    }


def test_long_tool_use_arguments_stay_mapping() -> None:
    message = make_call_message("anthropic", ["a"], "so", path="x" * 5000)
    (copy,) = condense_messages([message])
    use = copy["content"][1]
    assert use["input"] == {"path": "x" * 100 + "… (4,900 more characters)"}
    assert (use["id"], use["name"]) == ("a", "read_file")


@pytest.mark.parametrize(
    "given",
    [
        "{no json " + "x" * 5000,
        json.dumps(list(range(1000))),
        json.dumps({f"key{i}": [{"a": "x" * 90}] for i in range(50)}),
        json.dumps("x" * 5000),
    ],
)
def test_long_arguments_are_shortened(given: str) -> None:
    message = make_call_message("openai", ["a"], None)
    message["tool_calls"][0]["function"]["arguments"] = given
    (copy,) = condense_messages([message])
    assert len(copy["tool_calls"][0]["function"]["arguments"]) < 600


def test_deeply_nested_arguments_are_cut() -> None:
    deep = {"a": {"b": {"c": {"d": {"e": "x" * 5000}}}}}
    (copy,) = condense_messages(
        [{"role": "assistant", "tool_calls": [{"id": "a", "arguments": deep}]}]
    )
    text = '{"e": "' + "x" * 93 + "… (4,909 more characters)"
    assert copy["tool_calls"][0]["arguments"] == {"a": {"b": {"c": {"d": text}}}}


def test_condense_keeps_words_and_drops_fields() -> None:
    said = {"id": 4, "role": "assistant", "content": "x" * 9000, "timestamp": 1.5}
    row = {**said, "reasoning": "y" * 9000, "active": 1, "tool_calls": None}
    assert condense_messages([row]) == [said]


def test_call_description_is_short() -> None:
    long = json.dumps({"command": "make\n  test", "env": {"A": "b"}, "text": "x" * 500})
    assert describe_call(MessageToolCall((), "run", long)) == (
        'run(command=make test, env={"A": "b"}, text=' + "x" * 60 + "…)"
    )
    assert describe_call(MessageToolCall((), "", "no json")) == "tool(no json)"
