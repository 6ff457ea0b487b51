"""JSON and times of transcripts that other programs wrote, damaged or hostile ones too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from session_core.transcripts.decoding import clean_text, decode_json, parse_time


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": [1, null, "\xc3\xa9"]}', {"a": [1, None, "é"]}),
        (b'{"a": "cut \xff"}', {"a": "cut \ufffd"}),
        (b'["half \\ud83d"]', ["half \ufffd\ufffd\ufffd"]),
        (b'{"\\udc00": {"deep": ["\\ud83d\\ude80"]}}', {"\ufffd\ufffd\ufffd": {"deep": ["🚀"]}}),
        (b'[18446744073709551616, "\\ud83d"]', [2**64, "\ufffd\ufffd\ufffd"]),
    ],
)
def test_damaged_text_becomes_replacement_characters(data: bytes, value: Any):
    assert decode_json(data) == value


@pytest.mark.parametrize("data", [b"", b"{", b"no json", b'{"a": 1} more', b"\xff"])
def test_other_text_is_refused(data: bytes):
    with pytest.raises(ValueError, match=r".+"):
        decode_json(data)


def test_endless_nesting_is_refused():
    with pytest.raises(ValueError, match="nested too deeply"):
        decode_json(b"[" * 100_000)


def test_cleaned_text_can_be_encoded():
    assert clean_text("a\ud83db\udc00 🚀").encode().decode() == clean_text("a\ud83db\udc00 🚀")
    assert clean_text("plain é 🚀") == "plain é 🚀"


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ("2025-10-09T08:53:20Z", 1_760_000_000.0),
        ("2025-10-09T08:53:20.250z", 1_760_000_000.25),
        ("2025-10-09T10:53:20+02:00", 1_760_000_000.0),
        ("2025-10-09T08:53:20", 1_760_000_000.0),
        (1_760_000_000, 1_760_000_000.0),
        (1_760_000_000_250, 1_760_000_000.25),
        (100_000_000_000, 100_000_000_000.0),
        (100_000_000_001, 100_000_000.001),
        (0, 0.0),
    ],
)
def test_time_is_read_in_every_form(value: Any, at: float):
    assert parse_time(value) == at


@pytest.mark.parametrize(
    "value",
    [None, True, -1, 1e300, float("nan"), float("inf"), 10**400, "", "Z", "soon", "25:00", [5], {}],
)
def test_invalid_time_is_none(value: Any):
    assert parse_time(value) is None


@pytest.fixture
def far_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose local time is not UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC+7")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_zone")
def test_time_without_zone_is_utc():
    assert parse_time("2025-10-09T08:53:20") == 1_760_000_000.0
