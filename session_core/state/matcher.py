"""Whether a decoded text matches a query, how often, and where: the same for every engine.

What counts is what a word index counts: the folded words, one behind the other. They are looked up
with `in` first, which is a memory search, and gone through only where that found something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from session_core.state import searchable
from session_core.state.query import And, Leaf, Node, Not


class Word:
    """One leaf, ready to be looked for in folded text."""

    __slots__ = ("_again", "_lone", "_longest", "leaf", "words")

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self.words = tuple(leaf.words) or ("\x00",)
        self._lone = [searchable.has_spaceless(one) for one in self.words]
        self._longest = max(self.words, key=len)
        self._again = _again(self.words)

    @property
    def longest(self) -> str:
        """A piece that is in every text that has the leaf."""
        return self._longest

    def find(self, folded: str, start: int = 0) -> tuple[int, int] | None:
        """Return where it begins and ends, at or after `start`, None if it is not there."""
        if len(self.words) == 1:
            return self._find_one(folded, start)
        if self._longest not in folded:
            return None
        at, begins = start, list[int]()
        while True:
            if not begins:
                at = self._begin(folded, at)
                if at < 0:
                    return None
            place = len(begins)
            end = self._end(folded, at, place)
            if end is not None:
                begins.append(at)
                if len(begins) == len(self.words):
                    return begins[0], end
                at = _next(folded, end)
            elif begins:
                # No word of the text is read twice: it may go on as a later beginning.
                del begins[: place - self._again[place]]
            else:
                at += 1

    def _find_one(self, folded: str, at: int) -> tuple[int, int] | None:
        """Return the same where it has one word, as most have."""
        while (at := self._begin(folded, at)) >= 0:
            end = self._end(folded, at, 0)
            if end is not None:
                return at, end
            at += 1
        return None

    def count(self, folded: str) -> int:
        """Return about how often it is there, 0 only if it is not."""
        return folded.count(self._longest) if self.find(folded) else 0

    def _begin(self, folded: str, at: int) -> int:
        """Return where its first word may begin, -1 if nowhere."""
        at = folded.find(self.words[0], at)
        while at > 0 and not self._lone[0] and searchable.is_joined(folded[at - 1]):
            at = folded.find(self.words[0], at + 1)
        return at

    def _end(self, folded: str, at: int, place: int) -> int | None:
        """Return where that one of its words ends if it begins there."""
        if not folded.startswith(self.words[place], at):
            return None
        end = at + len(self.words[place])
        if self._lone[place] or (self.leaf.prefix and place == len(self.words) - 1):
            return end
        return None if end < len(folded) and searchable.is_joined(folded[end]) else end


def _next(folded: str, at: int) -> int:
    """Return where the next word begins."""
    while at < len(folded) and searchable.is_between(folded[at]):
        at += 1
    return at


def _again(words: Sequence[str]) -> list[int]:
    """Return, for so many first words, how many of their last ones are its first ones again."""
    found = [0] * len(words)
    for count in range(2, len(words)):
        shared = found[count - 1]
        while shared and words[shared] != words[count - 1]:
            shared = found[shared]
        found[count] = shared + (words[shared] == words[count - 1])
    return found


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
