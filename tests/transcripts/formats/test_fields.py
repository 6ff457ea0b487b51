"""Fields of decoded JSON: a value of another type is as if it were not there."""

from __future__ import annotations

from typing import Any

import pytest

from session_core.transcripts.format import ToolCall
from session_core.transcripts.formats import fields

MOST = 2**53


@pytest.mark.parametrize(
    ("data", "record"),
    [(b'{"a": 1}', {"a": 1}), (b"[1]", None), (b'"text"', None), (b"{", None), (b"\xff", None)],
)
def test_only_object_is_record(data: bytes, record: Any):
    assert fields.decode_object(data) == record


@pytest.mark.parametrize("value", [None, "", 5, True, ["text"], {"text": 1}])
def test_value_of_other_type_is_missing(value: Any):
    record = {"key": value}
    assert fields.get_str(record, "key") is fields.get_name(record, "key") is None
    assert fields.get_dict({"key": [value]}, "key") == fields.get_dict({}, "key") == {}
    assert fields.get_dicts({"key": [value, {"a": 1}]}, "key")[-1:] == [{"a": 1}]
    assert fields.get_dicts({"key": "no list"}, "key") == []


def test_name_is_shorter_than_text():
    record = {"name": "x" * 4096, "text": "x" * 4097}
    assert fields.get_name(record, "name") == record["name"]
    assert fields.get_name(record, "text") is None
    assert fields.get_str(record, "text") == record["text"]


@pytest.mark.parametrize(
    ("value", "count"),
    [
        *((5, 5), ("12", 12), (2.0, 2), (MOST, MOST), ("9" * 15, 10**15 - 1)),
        *((MOST + 1, 0), ("9" * 16, 0), (-1, 0), ("-1", 0), (True, 0), (None, 0), ("many", 0)),
        *((float("nan"), 0), (float("inf"), 0), ([5], 0)),
    ],
)
def test_count_is_exact_or_zero(value: Any, count: int):
    assert fields.get_count({"key": value}, "key") == count


@pytest.mark.parametrize(
    ("value", "cost"),
    [(0.25, 0.25), (3, 3.0), (-0.5, 0.0), (True, 0.0), ("0.25", 0.0), (float("nan"), 0.0)],
)
def test_cost_is_number_of_dollars(value: Any, cost: float):
    assert fields.get_cost({"key": value}, "key") == cost
    assert fields.get_cost({}, "key") == 0.0


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("<a>one</a><a>two</a>", "one"),
        ("</a><a>one</a>", "one"),
        ("<a>one", None),
        ("one</a>", None),
    ],
)
def test_text_between_marks_needs_both(text: str, inner: str | None):
    assert fields.find_between(text, "<a>", "</a>") == inner


def test_newest_calls_name_their_results():
    state: dict[str, Any] = {}
    for number in range(40):
        fields.remember_calls(state, [ToolCall(f"c{number}", f"tool{number}", "{}")])
    fields.remember_calls(state, [ToolCall(None, "nameless", "{}")])
    assert len(state["tools"]) == 32
    assert fields.name_tool(state, "c39") == "tool39"
    assert fields.name_tool(state, "c8") == "tool8"
    assert fields.name_tool(state, "c7") is fields.name_tool(state, None) is None
    assert fields.name_tool({}, "c39") is None


def nest(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, ""),
        ({"a": ["é", 1]}, '{"a":["é",1]}'),
        (2**70, str(2**70)),
        (nest(300), "[" * 301 + "]" * 301),
    ],
)
def test_any_value_has_text(value: Any, text: str):
    assert fields.format_value(value) == text
