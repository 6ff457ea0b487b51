"""Whether a decoded text matches a query, how often, and where: the same for every engine.

What counts is what a word index counts: the folded words, one behind the other. They are looked up
with `in` first, which is a memory search, and gone through only where that found something.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from session_core.state import searchable
from session_core.state.query import And, Leaf, Node, Not


class Word:
    """One leaf, ready to be looked for in folded text."""

    __slots__ = ("_lone", "_longest", "leaf", "words")

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self.words = tuple(leaf.words) or ("\x00",)
        self._lone = [searchable.has_spaceless(one) for one in self.words]
        self._longest = max(self.words, key=len)

    @property
    def longest(self) -> str:
        """A piece that is in every text that has the leaf."""
        return self._longest

    def find(self, folded: str, start: int = 0) -> tuple[int, int] | None:
        """Return where it begins and ends, at or after `start`, None if it is not there."""
        if len(self.words) > 1 and self._longest not in folded:
            return None
        at = folded.find(self.words[0], start)
        while at >= 0:
            end = self._end(folded, at)
            if end is not None:
                return at, end
            at = folded.find(self.words[0], at + 1)
        return None

    def count(self, folded: str) -> int:
        """Return about how often it is there, 0 only if it is not."""
        return folded.count(self._longest) if self.find(folded) else 0

    def _end(self, folded: str, at: int) -> int | None:
        """Return where it ends if it begins there."""
        if not self._lone[0] and at and searchable.is_joined(folded[at - 1]):
            return None
        end = at + len(self.words[0])
        for place in range(1, len(self.words)):
            begin = _next(folded, end)
            apart = begin > end or self._lone[place] or self._lone[place - 1]
            if not apart or not folded.startswith(self.words[place], begin):
                return None
            end = begin + len(self.words[place])
        goes_on = end < len(folded) and searchable.is_joined(folded[end])
        return None if goes_on and not self._lone[-1] and not self.leaf.prefix else end


def _next(folded: str, at: int) -> int:
    """Return where the next word begins."""
    while at < len(folded) and searchable.is_between(folded[at]):
        at += 1
    return at


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


def begins(needle: str) -> Callable[[str], bool]:
    """Return a test whether a folded needle stands at the beginning of a word."""

    def test(folded: str) -> bool:
        at = folded.find(needle)
        while at > 0 and searchable.is_joined(folded[at - 1]):
            at = folded.find(needle, at + 1)
        return at >= 0

    return test
