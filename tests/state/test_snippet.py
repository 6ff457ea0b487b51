"""Snippets: the part of a text with the most words, cut to a line."""

from __future__ import annotations

import pytest

from session_core.state.query import Leaf, LeafMatcher
from session_core.state.snippet import SNIPPET_LENGTH, cut_snippet

FILLER = "lorem ipsum dolor sit amet " * 40


def find(*words: str) -> list[LeafMatcher]:
    return [LeafMatcher(Leaf(word)) for word in words]


def test_short_text_is_whole_line():
    assert cut_snippet("one\n\n  two\tthree ", find("two")) == "one two three"


def test_snippet_shows_most_words_together():
    text = f"{FILLER}the ferry {FILLER}a timetable {FILLER}the ferry timetable {FILLER}"
    snippet = cut_snippet(text, find("ferry", "timetable"))
    assert "the ferry timetable" in snippet
    assert (snippet[0], snippet[-1]) == ("…", "…")
    assert len(snippet) <= SNIPPET_LENGTH + 2


def test_first_of_equal_places_is_shown():
    text = f"{FILLER}first ferry {FILLER}second ferry {FILLER}"
    assert "first ferry" in cut_snippet(text, find("ferry"))


def test_literal_query_outweighs_two_words():
    text = f"{FILLER}port and ferry here {FILLER}the ticket-77 {FILLER}"
    assert "port and ferry" in cut_snippet(text, find("ferry", "port"))
    assert "ticket-77" in cut_snippet(text, find("ferry", "port"), "ticket-7")


def test_snippet_begins_with_whole_word():
    words = " ".join(f"word{number:04}" for number in range(200))
    first, *_ = cut_snippet(words, find("word0150")).removeprefix("…").split()
    assert first in words.split()


def test_text_without_match_shows_its_begin():
    snippet = cut_snippet(FILLER, find("ferry"))
    assert snippet.startswith("lorem ipsum")
    assert snippet.endswith("…")


@pytest.mark.parametrize("sign", ["ﬃ", "e\u0301", "\u200b", "ẞ"])
def test_folded_characters_shift_no_snippet(sign: str):
    text = f"{(sign + ' ') * 2000}the ferry leaves {FILLER}"
    assert "the ferry leaves" in cut_snippet(text, find("ferry"))


def test_snippet_of_very_long_text_has_word():
    text = f"{'ﬁ ' * 20_000}{'ferry ' * 60}{'ﬁ ' * 20_000}"
    assert "ferry ferry" in cut_snippet(text, find("ferry"))
