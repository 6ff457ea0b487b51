"""Cursors are opaque, belong to one list, and never lead to a wrong page."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core import InvalidInput
from session_core.state import cursors

POSITIONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    st.lists,
    max_leaves=5,
)


@given(POSITIONS, POSITIONS)
def test_cursor_decodes_to_position(scope: Any, position: Any) -> None:
    text = cursors.encode_cursor("list", scope, position)
    assert cursors.decode_cursor("list", scope, text) == position
    assert text.isascii()
    assert not set(text) & set("+/= \n")


def test_position_of_integers_is_short() -> None:
    position = ["all+", 2**62, -170_123, 10, 1]
    text = cursors.encode_cursor("search", {"query": "x" * 500}, position)
    assert cursors.decode_cursor("search", {"query": "x" * 500}, text) == position
    assert len(text) < 50


def test_cursor_ignores_order_of_scope() -> None:
    text = cursors.encode_cursor("list", {"a": 1, "b": 2}, 5)
    assert cursors.decode_cursor("list", {"b": 2, "a": 1}, text) == 5


@pytest.mark.parametrize(("kind", "scope"), [("search", "q"), ("list", "r"), ("list", ["q"])])
def test_cursor_of_another_list_is_invalid(kind: str, scope: Any) -> None:
    text = cursors.encode_cursor("list", "q", 5)
    with pytest.raises(InvalidInput, match="different query"):
        cursors.decode_cursor(kind, scope, text)


def alter_cursor(text: str, position: Any) -> str:
    other = cursors.encode_cursor("list", "q", position)
    return text[:8] + other[8:]


@pytest.mark.parametrize("position", [6, "x", None, [], [1, 2, 3], {"a": 1}])
def test_cursor_with_altered_position_is_invalid(position: Any) -> None:
    text = cursors.encode_cursor("list", "q", 5)
    assert cursors.decode_cursor("list", "q", alter_cursor(text, 5)) == 5
    with pytest.raises(InvalidInput):
        cursors.decode_cursor("list", "q", alter_cursor(text, position))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "not a cursor",
        "é",
        "A" * 20_000,
        base64.urlsafe_b64encode(b"{}").decode(),
        base64.urlsafe_b64encode(b"[1, 2]").decode(),
        base64.urlsafe_b64encode(b"[" * 5000).decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
        None,
        5,
        b"bytes",
    ],
)
def test_malformed_cursor_is_invalid(text: Any) -> None:
    with pytest.raises(InvalidInput):
        cursors.decode_cursor("list", "q", text)


@given(st.text(max_size=60))
def test_random_text_is_an_invalid_cursor(text: str) -> None:
    with pytest.raises(InvalidInput):
        cursors.decode_cursor("list", "q", text)
