"""A plain question: which messages have most of its words, and the rare ones rather.

Words that every text has are left out, and a word counts in its other forms too. The newest
messages that have a word are listed, more of them where the word is rare; what is in several lists
is read. Each lookup is bounded.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import chain, combinations, islice

from session_core.state import query, search_text
from session_core.state import query as queries
from session_core.state.query import And, Leaf, LeafMatcher, Node, Or, compile_leaf
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.search import candidates, index_plan, scan
from session_core.state.sqlite.search.candidates import CandidateQuery, Match, SearchTask
from session_core.state.sqlite.search.index_plan import IndexPlan
from session_core.state.sqlite.search.scan import MatchBlock

MAX_TERMS = 12
_LIST_ROWS = 4000
_TOTAL_LIST_ROWS = 30_000
_MAX_PROBED_TERMS = 5
_PROBE_ROWS = 100
_FILTERED, _MOST_FILTERED = 1000, 6000
_MAX_READ_ROWS = 200
_WORD_CHAR = rf"[^\W_{search_text.SPACELESS_CHARS}]"


@dataclass(frozen=True, slots=True)
class SearchTerm:
    """One word of a question, with its other forms."""

    node: Node
    word: LeafMatcher
    stem: str
    """What all forms begin with."""
    forms: re.Pattern[str] | None

    def compute_match_weight(self, folded: str) -> float:
        """Return how much of the term a text has: 1 as it was typed, less in another form."""
        if self.stem not in folded:
            return 0.0
        if self.word.find(folded):
            return 1.0
        return 0.9 if self.forms and self.forms.search(folded) else 0.0

    def find(self, folded: str, start: int = 0) -> tuple[int, int] | None:
        """Return where it, or another form of it, begins and ends."""
        found = self.word.find(folded, start)
        if found is None and self.forms and self.stem in folded:
            form = self.forms.search(folded, start)
            return None if form is None else form.span()
        return found


class _TermPostings:
    """The newest messages that have a term, those above the index first."""

    def __init__(self, task: SearchTask, term: SearchTerm, top: int, tail: dict[int, str]) -> None:
        self.term = term
        self.newest = [
            one for one, text in reversed(tail.items()) if term.compute_match_weight(text)
        ]
        self.ids = set(self.newest)
        self.weight = 0.0
        """What it is worth that a message has it."""
        self.done = False
        self._task = task
        self._plan = index_plan.make_plan(task.handle, term.node, coded=False)
        self._top = top
        self.floor = max(task.low, min(top, self._plan.covered_to + 1))
        self.read_more()

    def read_more(self) -> None:
        """List some more."""
        ids, self.floor, self.done = candidates.list_lookup_ids(
            self._task.handle, self._plan.lookups, self._task.low, self.floor, _LIST_ROWS
        )
        self.ids.update(ids)
        self.newest = [*self.newest, *ids][:_MAX_READ_ROWS]
        looked_at = self._top - (self._task.low if self.done else self.floor)
        share = (len(self.ids) + 0.5) / (max(looked_at, len(self.ids)) + 1)
        self.weight = 1 + 0.5 * -math.log(share)


def split_terms(handle: Connection, node: Node) -> tuple[SearchTerm, ...]:
    """Return the words of a question that mean something; all if none does."""
    gram = index_plan.get_gram_length(handle)
    typed = (query.split_pieces(leaf.text, gram) for leaf in queries.iter_leaves(node))
    pieces = list(dict.fromkeys(chain.from_iterable(typed)))
    telling = [piece for piece in pieces if not query.is_stop_word(piece)]
    return tuple(_make_term(handle, piece) for piece in (telling or pieces)[:MAX_TERMS])


def build_any_query(found_terms: Sequence[SearchTerm]) -> Node:
    """Return what any message has that has one of the terms."""
    nodes = tuple(term.node for term in found_terms)
    return nodes[0] if len(nodes) == 1 else Or(nodes)


def gather_best(task: SearchTask, found_terms: Sequence[SearchTerm], top: int) -> MatchBlock:
    """Return the messages that have the most of the terms, of the whole home."""
    texts = scan.load_tail_texts(task)
    known_texts = {**scan.load_changed_texts(task.handle), **(texts or {})}
    tail = {one: text for one, text in known_texts.items() if task.low <= one < top}
    lists = [_TermPostings(task, term, top, tail) for term in found_terms]
    lists.sort(key=lambda one: one.weight, reverse=True)
    room = _TOTAL_LIST_ROWS - sum(len(one.ids) for one in lists)
    for one in lists:
        while not one.done and room > 0:
            one.read_more()
            room -= _LIST_ROWS
    known = dict(_iter_scored(task, lists, top))
    matches = candidates.load_matches(
        task, list(islice(_iter_passing(task, known), _MAX_READ_ROWS))
    )
    if texts is None:
        matches += _gather_newest(task, found_terms, top).matches
    left_out = _gather_unindexed(task, found_terms, top)
    matches = list({match.id: match for match in (*matches, *left_out.matches)}.values())
    for match in matches:
        match.score = _score_text(match.folded, lists)
    floor = max([left_out.floor, *(one.floor for one in lists if not one.done)])
    best = nlargest(_MAX_READ_ROWS, matches, key=lambda match: (match.score, match.id))
    return MatchBlock([match for match in best if match.score > 0], floor, done=floor <= task.low)


def rank_matches(
    matches: list[Match], found_terms: Sequence[SearchTerm], literal: str, newest: float
) -> None:
    """Add to the score of each match how close together the words are and how new it is.

    A message that asks the same is no answer; `literal` is what was typed, folded.
    """
    asked = literal.rstrip("?")
    for match in matches:
        match.score += candidates.score_context(match, found_terms, newest)
        if asked in match.folded:
            match.score /= 2


def _iter_scored(
    task: SearchTask, lists: list[_TermPostings], top: int
) -> Iterator[tuple[int, float]]:
    """Yield messages and what they are worth, as far as the lists tell it; rarest terms first."""
    for one in lists:
        yield from ((message_id, one.weight) for message_id in one.newest)
    for some in _iter_probes(lists):
        together = index_plan.make_plan(
            task.handle, And(tuple(one.term.node for one in some)), coded=False
        )
        below = min(top, together.covered_to + 1)
        ids, _, _ = candidates.list_lookup_ids(
            task.handle, together.lookups, task.low, below, _PROBE_ROWS
        )
        worth = sum(one.weight for one in some)
        yield from ((message_id, worth) for message_id in ids)
    seen: set[int] = set()
    several: set[int] = set()
    for one in lists:
        several |= seen & one.ids
        seen |= one.ids
    weighed = [(one.ids, one.weight) for one in lists]
    for message_id in several:
        yield message_id, sum(weight for ids, weight in weighed if message_id in ids)


def _iter_probes(lists: list[_TermPostings]) -> Iterator[tuple[_TermPostings, ...]]:
    """Yield what is asked for together, since the lists by themselves do not tell it."""
    if len(lists) > 1 and not all(one.done for one in lists):
        yield tuple(lists)
    for some in combinations(lists[:_MAX_PROBED_TERMS], 3):
        if len(lists) > len(some) and not all(one.done for one in some):
            yield some


def _iter_passing(task: SearchTask, known: dict[int, float]) -> Iterator[int]:
    """Yield those that pass the filters, the best first, a few of each session."""
    ranked = sorted(known, key=lambda one: (known[one], one), reverse=True)
    counted: Counter[str] = Counter()
    for start in range(0, min(len(ranked), _MOST_FILTERED), _FILTERED):
        rows = candidates.read_sizes(task, ranked[start : start + _FILTERED])
        rows.sort(key=lambda row: _discount_length(known[row[0]], row[2] or 0), reverse=True)
        for message_id, session_id, _ in rows:
            counted[session_id] += 1
            if not task.per_session or counted[session_id] <= scan.MAX_SESSION_MATCHES:
                yield message_id


def _score_text(folded: str, lists: Iterable[_TermPostings]) -> float:
    """How much of the question is there."""
    return _discount_length(
        sum(one.term.compute_match_weight(folded) * one.weight for one in lists), len(folded)
    )


def _discount_length(worth: float, length: int) -> float:
    """Return what that is worth: in a long text words meet by chance."""
    return worth / (0.6 + 0.4 * length / candidates.TYPICAL_LENGTH)


def _gather_newest(task: SearchTask, found_terms: Sequence[SearchTerm], top: int) -> MatchBlock:
    """Return the newest messages that have any of the terms, where no index tells the best."""
    return _read_matches(task, replace(task.look.plan, lookups=()), found_terms, top)


def _gather_unindexed(task: SearchTask, found_terms: Sequence[SearchTerm], top: int) -> MatchBlock:
    """Return the newest messages that have any of the terms, of those that an index cuts short."""
    plan = index_plan.make_plan(task.handle, build_any_query(found_terms), coded=False)
    left_out = index_plan.find_unindexed_rows(task.handle, plan)
    if left_out is None:
        return MatchBlock(floor=task.low)
    return _read_matches(task, IndexPlan(), found_terms, top, apart=left_out.rows)


def _read_matches(
    task: SearchTask,
    plan: IndexPlan,
    found_terms: Sequence[SearchTerm],
    top: int,
    *,
    apart: str = "",
) -> MatchBlock:
    def test(folded: str) -> bool:
        return any(term.compute_match_weight(folded) for term in found_terms)

    return scan.gather_block(
        replace(task, look=CandidateQuery(plan, test, apart=apart), per_session=False), top
    )


def _make_term(handle: Connection, piece: str) -> SearchTerm:
    forms = query.list_word_forms(piece)
    typed = compile_leaf(Leaf(piece))
    if len(forms) == 1:
        return SearchTerm(typed.leaf, typed, typed.longest_piece, None)
    there = [form for form in forms[1:] if index_plan.is_indexed(handle, Leaf(form))]
    leaves = tuple(Leaf(form) for form in (piece, *there))
    pattern = re.compile(f"(?<!{_WORD_CHAR})(?:{'|'.join(forms)})(?!{_WORD_CHAR})")
    shortest = min(forms, key=len)
    stem = next(
        shortest[:end]
        for end in range(len(shortest), -1, -1)
        if all(form.startswith(shortest[:end]) for form in forms)
    )
    return SearchTerm(leaves[0] if len(leaves) == 1 else Or(leaves), typed, stem, pattern)
