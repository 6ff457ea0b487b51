"""The piece of a text that shows best why it was found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from session_core.state import search_text

SNIPPET_LENGTH = 200
_LEAD_LENGTH = 50
_MAX_PLACES = 40
_MAX_EXACT_LENGTH = 50_000
"""In a longer text the place of a character that folding moved is only estimated."""


class TextFinder(Protocol):
    """What can be looked for in folded text."""

    def find(self, folded: str, start: int = 0) -> tuple[int, int] | None:
        """Return where it begins and ends, at or after `start`."""


def cut_snippet(
    text: str, words: Iterable[TextFinder], literal: str = "", *, folded: str | None = None
) -> str:
    """Return about 200 characters around the place where most words are close together."""
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
    """Return where which word is; the literal text counts as many."""
    found: list[tuple[int, int]] = []
    for number, word in enumerate(words):
        at = word.find(folded)
        while at is not None and len(found) < _MAX_PLACES * (number + 1):
            found.append((at[0], number))
            at = word.find(folded, at[1])
    whole = folded.find(literal) if literal else -1
    if whole >= 0:
        found += [(whole, -number) for number in range(1, 4)]
    return found


def _score_window(start: int, places: list[tuple[int, int]]) -> tuple[int, int]:
    """How many different words are near; the earlier of two places is better."""
    near = {number for at, number in places if start <= at < start + SNIPPET_LENGTH - _LEAD_LENGTH}
    return len(near), -start


def _unfold_position(text: str, folded: str, at: int) -> int:
    """Return where in the text the place of the folded text is."""
    if len(text) == len(folded):
        return at
    if len(text) > _MAX_EXACT_LENGTH:
        return at * len(text) // max(1, len(folded))
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if len(search_text.fold_text(text[:middle])) < at:
            low = middle + 1
        else:
            high = middle
    return low


def _find_word_start(text: str, at: int) -> int:
    """Return the beginning of the word at a place, if that is near."""
    for back in range(20):
        if text[at - back].isspace():
            return at - back + 1
    return at
