"""Encoding and decoding of content and JSON columns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core import InvalidInput
from session_core.state import content

FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.lists(VALUES) | st.dictionaries(st.text(), VALUES))
def test_content_list_or_mapping_reads_as_stored(value: Any) -> None:
    stored = content.encode_content(value)
    assert isinstance(stored, str)
    assert stored.startswith("\x00json:")
    assert stored.isascii()
    assert content.decode_content(stored) == value


@given(st.text() | st.none() | st.binary())
def test_content_text_is_stored_unchanged(value: Any) -> None:
    assert content.encode_content(value) == value


@given(st.integers() | st.booleans() | FINITE)
def test_content_number_keeps_type(value: Any) -> None:
    stored = content.encode_content(value)
    assert isinstance(stored, str)
    assert content.decode_content(stored) == value
    assert type(content.decode_content(stored)) is type(value)


@pytest.mark.parametrize(
    "stored", ["plain", "", None, b"\x00json:[1]", "\x00json:", "\x00json:{", "\x00json", 5, 1.5]
)
def test_content_without_marker_stays_unchanged(stored: Any) -> None:
    assert content.decode_content(stored) == stored


def test_deeply_nested_json_stays_text() -> None:
    deep = "[" * 200_000 + "]" * 200_000
    assert content.decode_content(content.JSON_MARKER + deep) == content.JSON_MARKER + deep
    assert content.decode_json(deep) is None
    with pytest.raises(ValueError, match="too deep"):
        content.load_json(deep)


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (r'["\ud83d"]', ["\ufffd"]),
        (r'["\uD83D"]', ["\ufffd"]),
        (r'{"\udc00": [{"a": "x\ud800y"}]}', {"\ufffd": [{"a": "x\ufffdy"}]}),
        (r'["\ud83d\ude80"]', ["🚀"]),
    ],
)
def test_escaped_lone_surrogate_is_replaced(stored: str, read: Any) -> None:
    assert content.decode_content(content.JSON_MARKER + stored) == read
    assert content.decode_json(stored) == read


def test_lone_surrogate_in_text_is_replaced() -> None:
    assert content.encode_content("a\ud83db") == "a\ufffdb"
    assert content.encode_json("a\ud83db") == "a\ufffdb"
    assert content.clean_text("🚀 whole") == "🚀 whole"


@pytest.mark.parametrize("value", [{1, 2}, [object()], {"a": b"raw"}, {(1, 2): 3}, object()])
def test_non_json_content_is_invalid(value: Any) -> None:
    with pytest.raises(InvalidInput):
        content.encode_content(value)
    with pytest.raises(InvalidInput):
        content.encode_json(value)


def test_recursive_list_is_invalid() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidInput):
        content.encode_content(endless)


@pytest.mark.parametrize("nothing", [None, [], {}])
def test_empty_json_column_is_null(nothing: Any) -> None:
    assert content.encode_json(nothing) is None


@pytest.mark.parametrize("nothing", [None, "", "{", "nope", 5, b"\xff"])
def test_broken_json_column_reads_as_none(nothing: Any) -> None:
    assert content.decode_json(nothing) in (None, 5)


def test_json_column_stores_text_unchanged() -> None:
    assert content.encode_json('[{"id": 1}]') == '[{"id": 1}]'
    assert content.decode_json(content.encode_json([{"id": 1}])) == [{"id": 1}]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, ""),
        ("x", "x"),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        (5, "5"),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "b"}}], "a"),
        (
            [{"type": "input_text", "text": "a"}, "b", {"type": "output_text", "text": "c"}],
            "a\nb\nc",
        ),
        ([{"text": "a"}, {"text": 5}, None, 7], "a"),
        ({"type": "text", "text": "a"}, "a"),
        ({"type": "tool_result", "content": [{"type": "text", "text": "a"}]}, "a"),
        ({"type": "image"}, ""),
    ],
)
def test_plain_text_joins_readable_parts(given: Any, text: str) -> None:
    assert content.extract_plain_text(given) == text


@pytest.mark.parametrize(("depth", "text"), [(content.MAX_DEPTH, "a"), (300, ""), (5000, "")])
def test_plain_text_stops_at_maximum_depth(depth: int, text: str) -> None:
    deep: Any = "a"
    for _ in range(depth):
        deep = {"type": "tool_result", "content": [deep]}
    assert content.extract_plain_text(deep) == text


def test_content_marker_matches_stored_format() -> None:
    assert content.encode_content(["é"]) == "\x00json:" + json.dumps(["é"])
