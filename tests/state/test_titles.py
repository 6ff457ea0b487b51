"""Valid titles and the numbering of their lineage."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session_core import InvalidInput
from session_core.state import titles

REMOVED = [
    *range(0x09),
    0x0B,
    0x0C,
    *range(0x0E, 0x20),
    0x7F,
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x206A),
    0xFEFF,
    0xFFFC,
    *range(0xFFF9, 0xFFFC),
]


@pytest.mark.parametrize("code", REMOVED, ids=hex)
def test_title_loses_control_characters(code: int) -> None:
    assert titles.clean_title(f"a{chr(code)}b") == "ab"


@pytest.mark.parametrize("code", [9, 10, 13, 32, 0xA0, 0x2003, 0x202F, 0x3000], ids=hex)
def test_title_whitespace_becomes_single_space(code: int) -> None:
    assert titles.clean_title(f" a{chr(code)}{chr(code)} b{chr(code)}") == "a b"


@given(st.text(st.characters(codec=None), max_size=150))
def test_title_cleaning_is_idempotent(title: str) -> None:
    try:
        cleaned = titles.clean_title(title)
    except InvalidInput:
        return
    assert titles.clean_title(cleaned) == cleaned
    if cleaned is not None:
        assert 1 <= len(cleaned) <= titles.MAX_TITLE_LENGTH
        assert cleaned == cleaned.strip()
        cleaned.encode()
        assert not any(ord(char) in REMOVED for char in cleaned)
        assert not any(unicodedata.category(char) == "Cs" for char in cleaned)


@pytest.mark.parametrize("length", [99, 100])
def test_title_has_up_to_100_characters(length: int) -> None:
    assert titles.clean_title("é" * length) == "é" * length


def test_title_length_is_checked_after_cleaning() -> None:
    assert titles.clean_title("\u200b" * 200 + "x") == "x"
    with pytest.raises(InvalidInput, match="101"):
        titles.clean_title("x" * 101 + " " * 50)


@given(st.lists(st.integers(1, 60), max_size=20), st.text("ab #2", min_size=1, max_size=100))
def test_following_title_is_free_in_lineage(numbers: list[int], title: str) -> None:
    base = titles.strip_number(titles.clean_title(title) or "a")
    titles_in_use = {base if number == 1 else f"{base} #{number}" for number in numbers}
    following = titles.choose_next_title(base, titles_in_use)
    assert following not in titles_in_use
    assert len(following) <= titles.MAX_TITLE_LENGTH
    assert base.startswith(titles.strip_number(following))


def test_title_suffix_is_trailing_number() -> None:
    stems = {
        "Trip #2": "Trip",
        "Trip #2 #3": "Trip #2",
        "Trip#2": "Trip#2",
        "Trip (2)": "Trip (2)",
        "Trip #": "Trip #",
        "Trip #2b": "Trip #2b",
    }
    assert {title: titles.strip_number(title) for title in stems} == stems
