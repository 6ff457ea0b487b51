"""Snippets: the part of a text that shows best why it matches a query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from session_core.state import search_text

SNIPPET_LENGTH = 200
_LEAD_LENGTH = 50
_MAX_PLACES = 40
_MAX_EXACT_LENGTH = 50_000
"""In a longer text the position of a character that folding moved is estimated."""


class TextFinder(Protocol):
    """A word or phrase that can be searched for in folded text."""

    def find(self, folded: str, start: int = 0) -> tuple[int, int] | None:
        """Return the bounds of the next match at or after `start`, or None."""


def cut_snippet(
    text: str, words: Iterable[TextFinder], literal: str = "", *, folded: str | None = None
) -> str:
    """Return about 200 characters around the place with the most words close together."""
    if len(text) <= SNIPPET_LENGTH:
        return " ".join(text.split())
    folded = search_text.fold_text(text) if folded is None else folded
    places = _find_places(folded, words, literal)
    best = max({at for at, _ in places}, key=lambda at: _score_window(at, places), default=0)
    start = _unfold_position(text, folded, best)
    begin = 0 if start <= _LEAD_LENGTH * 2 else _find_word_start(text, start - _LEAD_LENGTH)
    end = begin + SNIPPET_LENGTH
    piece = " ".join(text[begin : end + SNIPPET_LENGTH].split())[:SNIPPET_LENGTH].strip()
    return ("…" if begin else "") + piece + ("…" if end < len(text) else "")


def _find_places(folded: str, words: Iterable[TextFinder], literal: str) -> list[tuple[int, int]]:
    """Return the positions of the words, each with its number."""
    places: list[tuple[int, int]] = []
    for number, word in enumerate(words):
        bounds = word.find(folded)
        while bounds is not None and len(places) < _MAX_PLACES * (number + 1):
            places.append((bounds[0], number))
            bounds = word.find(folded, bounds[1])
    literal_at = folded.find(literal) if literal else -1
    if literal_at >= 0:
        # The literal query counts as three words.
        places += [(literal_at, -number) for number in range(1, 4)]
    return places


def _score_window(start: int, places: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the number of different words near a position; the earlier of two is better."""
    near = {number for at, number in places if start <= at < start + SNIPPET_LENGTH - _LEAD_LENGTH}
    return len(near), -start


def _unfold_position(text: str, folded: str, at: int) -> int:
    """Return the position in the text of a position in its folded form."""
    if len(text) == len(folded):
        return at
    if len(text) > _MAX_EXACT_LENGTH:
        return at * len(text) // max(1, len(folded))
    # Folding changes lengths, so the position is found by bisection over folded prefixes.
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if len(search_text.fold_text(text[:middle])) < at:
            low = middle + 1
        else:
            high = middle
    return low


def _find_word_start(text: str, at: int) -> int:
    """Return the beginning of the word at a position, if it is near."""
    for offset in range(20):
        if text[at - offset].isspace():
            return at - offset + 1
    return at
