"""Plain questions: the messages with most of the words, and with the rare ones first.

Stop words are left out, and a word counts in its other forms too. The newest messages with a word
are listed, more of them if the word is rare, and messages in several lists are read. Each lookup is
bounded.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import chain, combinations, islice

from session_core.state import query as queries
from session_core.state import scoring, search_text
from session_core.state.query import And, Leaf, LeafMatcher, Node, Or, compile_leaf
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.search import blocks, candidates, index_plan
from session_core.state.sqlite.search.blocks import MatchBlock
from session_core.state.sqlite.search.candidates import CandidateQuery, Match, SearchTask
from session_core.state.sqlite.search.index_plan import IndexPlan

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
    """The common beginning of all forms."""
    forms: re.Pattern[str] | None

    def compute_match_weight(self, folded: str) -> float:
        """Return 1 if a text has the word as typed, less for another form, 0 if it has neither."""
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


class _TermPostings:
    """The newest messages with a term, those above the index first."""

    def __init__(self, task: SearchTask, term: SearchTerm, top: int, tail: dict[int, str]) -> None:
        self.term = term
        self.newest = [
            message_id
            for message_id, text in reversed(tail.items())
            if term.compute_match_weight(text)
        ]
        self.ids = set(self.newest)
        self.weight = 0.0
        """The score of a message that has the term."""
        self.done = False
        self._task = task
        self._plan = index_plan.make_plan(task.handle, term.node, coded=False)
        self._top = top
        self.floor = max(task.low, min(top, self._plan.covered_to + 1))
        self.read_more()

    def read_more(self) -> None:
        """Read the next list of ids and estimate the weight of the term."""
        ids, self.floor, self.done = candidates.list_lookup_ids(
            self._task.handle, self._plan.lookups, self._task.low, self.floor, _LIST_ROWS
        )
        self.ids.update(ids)
        self.newest = [*self.newest, *ids][:_MAX_READ_ROWS]
        looked_at = self._top - (self._task.low if self.done else self.floor)
        # The weight is the inverse document share, as in BM25, estimated from the rows seen.
        share = (len(self.ids) + 0.5) / (max(looked_at, len(self.ids)) + 1)
        self.weight = 1 + 0.5 * -math.log(share)


def split_terms(handle: Connection, node: Node) -> tuple[SearchTerm, ...]:
    """Return the words of a question without stop words; all words if only stop words are left."""
    gram = index_plan.get_gram_length(handle)
    pieces_by_leaf = (queries.split_pieces(leaf.text, gram) for leaf in queries.iter_leaves(node))
    pieces = list(dict.fromkeys(chain.from_iterable(pieces_by_leaf)))
    significant = [piece for piece in pieces if not queries.is_stop_word(piece)]
    return tuple(_make_term(handle, piece) for piece in (significant or pieces)[:MAX_TERMS])


def build_any_query(terms: Sequence[SearchTerm]) -> Node:
    """Return the node that matches messages with any of the terms."""
    nodes = tuple(term.node for term in terms)
    return nodes[0] if len(nodes) == 1 else Or(nodes)


def gather_best(task: SearchTask, terms: Sequence[SearchTerm], top: int) -> MatchBlock:
    """Return the messages of the whole home with the most of the terms."""
    texts = blocks.load_tail_texts(task)
    texts_by_id = {**blocks.load_changed_texts(task.handle), **(texts or {})}
    tail = {number: text for number, text in texts_by_id.items() if task.low <= number < top}
    lists = [_TermPostings(task, term, top, tail) for term in terms]
    lists.sort(key=lambda postings: postings.weight, reverse=True)
    room = _TOTAL_LIST_ROWS - sum(len(postings.ids) for postings in lists)
    for postings in lists:
        while not postings.done and room > 0:
            postings.read_more()
            room -= _LIST_ROWS
    scores = dict(_iter_scored(task, lists, top))
    matches = candidates.load_matches(
        task, list(islice(_iter_passing(task, scores), _MAX_READ_ROWS))
    )
    # There are too many rows above the index to keep them: the newest are scanned.
    if texts is None:
        matches += _gather_newest(task, terms, top).matches
    left_out = _gather_unindexed(task, terms, top)
    matches = list({match.id: match for match in (*matches, *left_out.matches)}.values())
    for match in matches:
        match.score = _score_text(match.folded, lists)
    floor = max([left_out.floor, *(postings.floor for postings in lists if not postings.done)])
    best = nlargest(_MAX_READ_ROWS, matches, key=lambda match: (match.score, match.id))
    return MatchBlock([match for match in best if match.score > 0], floor, done=floor <= task.low)


def rank_matches(
    matches: list[Match], terms: Sequence[SearchTerm], literal: str, newest: float
) -> None:
    """Add the nearness of the words and the age to the score of each match."""
    # A message that repeats the question is not an answer.
    asked = literal.rstrip("?")
    for match in matches:
        match.score += candidates.score_context(match, terms, newest)
        if asked in match.folded:
            match.score /= 2


def _iter_scored(
    task: SearchTask, lists: list[_TermPostings], top: int
) -> Iterator[tuple[int, float]]:
    """Yield messages with the score that the lists give, rarest terms first."""
    for postings in lists:
        yield from ((message_id, postings.weight) for message_id in postings.newest)
    for group in _iter_probes(lists):
        joint_plan = index_plan.make_plan(
            task.handle, And(tuple(postings.term.node for postings in group)), coded=False
        )
        below = min(top, joint_plan.covered_to + 1)
        ids, _, _ = candidates.list_lookup_ids(
            task.handle, joint_plan.lookups, task.low, below, _PROBE_ROWS
        )
        score = sum(postings.weight for postings in group)
        yield from ((message_id, score) for message_id in ids)
    seen: set[int] = set()
    shared: set[int] = set()
    for postings in lists:
        shared |= seen & postings.ids
        seen |= postings.ids
    weighed = [(postings.ids, postings.weight) for postings in lists]
    for message_id in shared:
        yield message_id, sum(weight for ids, weight in weighed if message_id in ids)


def _iter_probes(lists: list[_TermPostings]) -> Iterator[tuple[_TermPostings, ...]]:
    """Yield terms to look up together, if their lists are not complete."""
    if len(lists) > 1 and not all(postings.done for postings in lists):
        yield tuple(lists)
    # Long lists are cut, so a message with several common terms may be in none of them.
    for group in combinations(lists[:_MAX_PROBED_TERMS], 3):
        if len(lists) > len(group) and not all(postings.done for postings in group):
            yield group


def _iter_passing(task: SearchTask, scores: dict[int, float]) -> Iterator[int]:
    """Yield ids that pass the filters, the best first, a few of each session."""
    ranked = sorted(scores, key=lambda number: (scores[number], number), reverse=True)
    counted: Counter[str] = Counter()
    for start in range(0, min(len(ranked), _MOST_FILTERED), _FILTERED):
        rows = candidates.read_sizes(task, ranked[start : start + _FILTERED])
        rows.sort(
            key=lambda row: scoring.discount_length(scores[row[0]], row[2] or 0), reverse=True
        )
        for message_id, session_id, _ in rows:
            counted[session_id] += 1
            if not task.per_session or counted[session_id] <= blocks.MAX_SESSION_MATCHES:
                yield message_id


def _score_text(folded: str, lists: Iterable[_TermPostings]) -> float:
    """Return the score of a text."""
    return scoring.discount_length(
        sum(postings.term.compute_match_weight(folded) * postings.weight for postings in lists),
        len(folded),
    )


def _gather_newest(task: SearchTask, terms: Sequence[SearchTerm], top: int) -> MatchBlock:
    """Return the newest messages with any of the terms, for homes without an index."""
    return _read_matches(task, replace(task.query.plan, lookups=()), terms, top)


def _gather_unindexed(task: SearchTask, terms: Sequence[SearchTerm], top: int) -> MatchBlock:
    """Return the newest messages with any of the terms among partly indexed rows."""
    plan = index_plan.make_plan(task.handle, build_any_query(terms), coded=False)
    left_out = index_plan.find_unindexed_rows(task.handle, plan)
    if left_out is None:
        return MatchBlock(floor=task.low)
    return _read_matches(task, IndexPlan(), terms, top, apart=left_out.rows)


def _read_matches(
    task: SearchTask,
    plan: IndexPlan,
    terms: Sequence[SearchTerm],
    top: int,
    *,
    apart: str = "",
) -> MatchBlock:
    def test(folded: str) -> bool:
        return any(term.compute_match_weight(folded) for term in terms)

    return blocks.gather_block(
        replace(task, query=CandidateQuery(plan, test, apart=apart), per_session=False), top
    )


def _make_term(handle: Connection, piece: str) -> SearchTerm:
    forms = queries.list_word_forms(piece)
    word = compile_leaf(Leaf(piece))
    if len(forms) == 1:
        return SearchTerm(word.leaf, word, word.longest_piece, None)
    indexed_forms = [form for form in forms[1:] if index_plan.is_indexed(handle, Leaf(form))]
    leaves = tuple(Leaf(form) for form in (piece, *indexed_forms))
    pattern = re.compile(f"(?<!{_WORD_CHAR})(?:{'|'.join(forms)})(?!{_WORD_CHAR})")
    shortest = min(forms, key=len)
    stem = next(
        shortest[:end]
        for end in range(len(shortest), -1, -1)
        if all(form.startswith(shortest[:end]) for form in forms)
    )
    return SearchTerm(leaves[0] if len(leaves) == 1 else Or(leaves), word, stem, pattern)
