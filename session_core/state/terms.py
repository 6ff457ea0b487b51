"""The words of a question with their other forms and weights."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain

from session_core.state import query as queries
from session_core.state import search_text
from session_core.state.query import Leaf, LeafMatcher, Node, Or, compile_leaf

_MAX_TERMS = 12
_WORD_CHAR = rf"[^\W_{search_text.SPACELESS_CHARS}]"


@dataclass(frozen=True, slots=True)
class SearchTerm:
    """One word of a question, with its other forms."""

    node: Node
    word: LeafMatcher
    stem: str
    """The common beginning of all forms."""
    forms: re.Pattern[str] | None

    @property
    def text(self) -> str:
        """The word as typed."""
        return self.word.leaf.text

    def compute_match_weight(self, folded: str) -> float:
        """Return 1 if a text has the word as typed, 0.9 for another form, else 0."""
        if self.stem not in folded:
            return 0.0
        if self.word.find(folded):
            return 1.0
        return 0.9 if self.forms and self.forms.search(folded) else 0.0

    def find(self, folded: str, start: int = 0) -> tuple[int, int] | None:
        """Return the bounds of the next occurrence of the word or another form of it."""
        bounds = self.word.find(folded, start)
        if bounds is None and self.forms and self.stem in folded:
            form = self.forms.search(folded, start)
            return None if form is None else form.span()
        return bounds


def split_terms(
    node: Node, gram: int, find_indexed: Callable[[Sequence[Leaf]], Collection[Leaf]]
) -> tuple[SearchTerm, ...]:
    """Split a question into its words, without stop words unless only these are left.

    Text in scripts without spaces is cut into pieces of `gram` characters. `find_indexed` returns
    the words that an index has.
    """
    pieces_by_leaf = (queries.split_pieces(leaf.text, gram) for leaf in queries.iter_leaves(node))
    pieces = list(dict.fromkeys(chain.from_iterable(pieces_by_leaf)))
    significant = [piece for piece in pieces if not queries.is_stop_word(piece)]
    return tuple(_make_term(piece, find_indexed) for piece in (significant or pieces)[:_MAX_TERMS])


def weigh_term(count: int, looked_at: int) -> float:
    """Return the weight of a term that `count` of `looked_at` messages have."""
    # The weight is the inverse document share, as in BM25, estimated from the rows seen.
    return 1 - 0.5 * math.log((count + 0.5) / (max(looked_at, count) + 1))


def _make_term(
    piece: str, find_indexed: Callable[[Sequence[Leaf]], Collection[Leaf]]
) -> SearchTerm:
    forms = queries.list_word_forms(piece)
    word = compile_leaf(Leaf(piece))
    if len(forms) == 1:
        return SearchTerm(word.leaf, word, word.longest_piece, None)
    others = [Leaf(form) for form in forms[1:]]
    indexed = find_indexed(others)
    leaves = (Leaf(piece), *(leaf for leaf in others if leaf in indexed))
    pattern = re.compile(f"(?<!{_WORD_CHAR})(?:{'|'.join(forms)})(?!{_WORD_CHAR})")
    shortest = min(forms, key=len)
    stem = next(
        shortest[:end]
        for end in range(len(shortest), -1, -1)
        if all(form.startswith(shortest[:end]) for form in forms)
    )
    return SearchTerm(leaves[0] if len(leaves) == 1 else Or(leaves), word, stem, pattern)
