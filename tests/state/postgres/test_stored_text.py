"""Text as PostgreSQL stores it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core.state.postgres import stored_text
from session_core.types import RawText


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\0\x1a01br")))
def test_any_text_is_read_back(text: str) -> None:
    stored = stored_text.encode_text(text)
    assert "\0" not in stored
    assert stored_text.decode_text(stored) == text


@given(st.text("a\0\x1a01br", max_size=6), st.text("a\0\x1a01br", max_size=6))
def test_different_texts_are_stored_differently(first: str, second: str) -> None:
    stored = [stored_text.encode_text(text) for text in (first, second)]
    assert (stored[0] == stored[1]) == (first == second)


@pytest.mark.parametrize("value", [b"", b"\x00\xff", b"text"])
def test_bytes_are_read_back(value: bytes) -> None:
    assert stored_text.decode_text(stored_text.encode_bytes(value)) == value
    raw = RawText(value)
    assert stored_text.decode_text(stored_text.encode_raw_text(raw)) == raw
