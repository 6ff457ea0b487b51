"""Whether a decoded text matches a query, how often, and where: the same for every engine.

Words are looked up with `in` first, which is a memory search, and by a pattern only where that
found something.
"""

from __future__ import annotations

import re
from functools import lru_cache

from session_core.state import searchable
from session_core.state.query import And, Leaf, Node, Not


class Word:
    """One leaf, ready to be looked for in folded text."""

    __slots__ = ("_after", "_before", "_pattern", "_whole", "leaf", "words")

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self.words = tuple(leaf.words)
        self._whole = max(self.words, key=len, default="\x00")
        self._pattern = re.compile(_pattern(self.words)) if len(self.words) > 1 else None
        self._before = bool(self.words) and not searchable.has_spaceless(self.words[0])
        self._after = bool(self.words) and not (
            leaf.prefix or searchable.has_spaceless(self.words[-1])
        )

    @property
    def longest(self) -> str:
        """A piece that is in every text that has the leaf."""
        return self._whole

    def find(self, folded: str, start: int = 0) -> tuple[int, int] | None:
        """Return where it begins and ends, at or after `start`, None if it is not there."""
        while (at := self._next(folded, start)) is not None:
            if not (self._before and at[0] and searchable.is_joined(folded[at[0] - 1])) and not (
                self._after and at[1] < len(folded) and searchable.is_joined(folded[at[1]])
            ):
                return at
            start = at[0] + 1
        return None

    def count(self, folded: str) -> int:
        """Return about how often it is there, 0 only if it is not."""
        return folded.count(self._whole) if self.find(folded) else 0

    def _next(self, folded: str, start: int) -> tuple[int, int] | None:
        if self._pattern is None:
            at = folded.find(self._whole, start)
            return None if at < 0 else (at, at + len(self._whole))
        if self._whole not in folded:
            return None
        found = self._pattern.search(folded, start)
        return None if found is None else found.span()


@lru_cache(maxsize=512)
def word(leaf: Leaf) -> Word:
    """Return a leaf, ready to be looked for."""
    return Word(leaf)


def matches(node: Node, folded: str) -> bool:
    """Whether folded text matches."""
    if isinstance(node, Leaf):
        return word(node).find(folded) is not None
    if isinstance(node, Not):
        return not matches(node.part, folded)
    if isinstance(node, And):
        return all(matches(part, folded) for part in node.parts)
    return any(matches(part, folded) for part in node.parts)


def needle(node: Node) -> str:
    """Return a piece that is in every text that matches; empty where there is none."""
    if isinstance(node, Leaf):
        return word(node).longest
    if isinstance(node, And):
        return max(map(needle, node.parts), key=len)
    return ""


def _pattern(words: tuple[str, ...]) -> str:
    """Return words in a row; between spaceless characters nothing need be."""
    lone = [searchable.has_spaceless(one) for one in words]
    pattern = ""
    for place, one in enumerate(words):
        if place:
            pattern += r"[\W_]*" if lone[place] or lone[place - 1] else r"[\W_]+"
        pattern += re.escape(one)
    return pattern
