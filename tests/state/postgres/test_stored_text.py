"""Text as PostgreSQL stores it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core.state.postgres import stored_text
from session_core.state.postgres.session_db import PostgresDB
from session_core.types import RawText, RowImages


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


@pytest.mark.parametrize("value", [b"\x00\xff", RawText(b"\x00\xff"), "\x00\x1a"])
def test_restored_value_keeps_its_type(db: PostgresDB, value: object) -> None:
    db.create_session("s", "cli")
    columns = ("id", "session_id", "role", "content", "timestamp")
    db.rows.put_images([RowImages("messages", columns, ((1, "s", "user", value, 1.0),))])
    image, _ = db.rows.read_message_images("s", None, 1000)
    assert dict(zip(image.columns, image.rows[0], strict=True))["content"] == value
