"""Plain questions: the messages with most of the words, and with rare words first.

Stop words are left out, and a word counts in its other forms too. The newest messages with a word
are listed, more of them if the word is rare, and messages in several lists are read. Each lookup is
bounded.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import nlargest
from itertools import combinations, islice

from session_core.state import relevance, search_text, sql_blocks
from session_core.state import terms as search_terms
from session_core.state.query import And, Node, Or
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.search import candidates, index_plan, match_blocks
from session_core.state.sqlite.search.candidates import CandidateQuery, Match, SearchTask
from session_core.state.sqlite.search.index_plan import IndexPlan
from session_core.state.sqlite.search.match_blocks import MatchBlock
from session_core.state.terms import SearchTerm, weigh_term
from session_core.types import TermCount

SQL = sql_blocks.load_blocks("search")

_LIST_ROWS = 4000
_TOTAL_LIST_ROWS = 30_000
_MAX_PROBED_TERMS = 5
_PROBE_ROWS = 100
_FILTERED, _MOST_FILTERED = 1000, 6000
_MAX_READ_ROWS = 200
_MAX_VERIFIED_ROWS = 1000
_MAX_TITLES = 500
# If a rare term leaves few sessions, longer lists are only read in these.
_MAX_LOCATED = 1000
_MAX_LOCATED_SESSIONS = 100


class _TermPostings:
    """The newest messages with a term, beginning with the messages above the index."""

    def __init__(
        self,
        task: SearchTask,
        term: SearchTerm,
        top: int,
        tail: dict[int, str],
        weight: float | None = None,
    ) -> None:
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
        self.looked_at = 0
        self._given_weight = weight
        self._task = task
        self._plan = index_plan.make_plan(task.handle, term.node, coded=False)
        self._top = top
        self.floor = max(task.low, min(top, self._plan.covered_to + 1))
        self.read_more_ids()

    def read_more_ids(self) -> None:
        """Read the next list of ids and estimate the weight of the term."""
        ids, self.floor, self.done = candidates.list_lookup_ids(
            self._task.handle, self._plan.lookups, self._task.low, self.floor, _LIST_ROWS
        )
        if self._plan.loose:
            ids = self._drop_unmatched(ids)
        self.ids.update(ids)
        self.newest = [*self.newest, *ids][:_MAX_READ_ROWS]
        self.looked_at = self._top - (self._task.low if self.done else self.floor)
        weight = self._given_weight
        self.weight = weigh_term(len(self.ids), self.looked_at) if weight is None else weight

    def _drop_unmatched(self, ids: list[int]) -> list[int]:
        """Drop messages without the term, among the newest that its words have found."""
        newest = ids[:_MAX_VERIFIED_ROWS]
        rows = self._task.handle.fetch_tuples(SQL["list_apart_texts"], (json.dumps(newest),))
        matching = {
            message_id
            for message_id, *columns in rows
            if self.term.compute_match_weight(
                search_text.fold_text(search_text.build_search_text(*columns))
            )
        }
        return [one for one in newest if one in matching] + ids[_MAX_VERIFIED_ROWS:]


def split_terms(handle: Connection, node: Node) -> tuple[SearchTerm, ...]:
    """Split a question into its words, without stop words unless only these are left."""
    # Cached for the snapshot: two stages of a search ask for the terms.
    key = ("terms", node)
    if key not in handle.seen:
        gram = index_plan.get_gram_length(handle)
        handle.seen[key] = search_terms.split_terms(
            node, gram, partial(index_plan.find_indexed, handle)
        )
    terms: tuple[SearchTerm, ...] = handle.seen[key]
    return terms


def build_any_query(terms: Sequence[SearchTerm]) -> Node:
    """Build the node that matches messages with any of the terms."""
    nodes = tuple(term.node for term in terms)
    return nodes[0] if len(nodes) == 1 else Or(nodes)


def count_terms(task: SearchTask, terms: Sequence[SearchTerm], top: int) -> dict[str, TermCount]:
    """Count the newest messages with each term."""
    tail = _load_texts_above(task, top)
    lists = [_TermPostings(task, term, top, tail) for term in terms]
    total = top - task.low
    return {one.term.text: TermCount(len(one.ids), one.looked_at, total) for one in lists}


def _list_postings(
    task: SearchTask,
    terms: Sequence[SearchTerm],
    top: int,
    tail: dict[int, str],
    weights: Mapping[str, float] | None,
) -> list[_TermPostings]:
    weights = weights or {}
    return [_TermPostings(task, term, top, tail, weights.get(term.text)) for term in terms]


def _load_texts_above(task: SearchTask, top: int) -> dict[int, str]:
    """Return by id the texts that the index lacks."""
    texts = {
        **match_blocks.load_changed_texts(task.handle),
        **(match_blocks.load_tail_texts(task) or {}),
    }
    return {number: text for number, text in texts.items() if task.low <= number < top}


def gather_best(
    task: SearchTask,
    terms: Sequence[SearchTerm],
    top: int,
    weights: Mapping[str, float] | None = None,
) -> MatchBlock:
    """Return the messages of the whole home with the most of the terms.

    `weights` are the weights of the terms, unless this home alone decides on them.
    """
    texts = match_blocks.load_tail_texts(task)
    tail = _load_texts_above(task, top)
    lists = _list_postings(task, terms, top, tail, weights)
    lists.sort(key=lambda postings: postings.weight, reverse=True)
    room = _TOTAL_LIST_ROWS - sum(len(postings.ids) for postings in lists)
    for postings in lists:
        while not postings.done and room > 0:
            postings.read_more_ids()
            room -= _LIST_ROWS
    scores = dict(_iter_scored(task, lists, top))
    added = dict(islice(_iter_passing(task, scores, lists), _MAX_READ_ROWS))
    matches = candidates.load_matches(task, list(added))
    # There are too many rows above the index to keep them: the newest are scanned.
    if texts is None:
        matches += _gather_newest(task, terms, top).matches
    left_out = _gather_unindexed(task, terms, top)
    matches = list({match.id: match for match in (*matches, *left_out.matches)}.values())
    for match in matches:
        match.score = _score_match(match, lists, added.get(match.id, 0.0))
    floor = max([left_out.floor, *(postings.floor for postings in lists if not postings.done)])
    best = nlargest(_MAX_READ_ROWS, matches, key=lambda match: (match.score, match.id))
    return MatchBlock(
        [match for match in best if match.score > 0],
        floor,
        done=floor <= task.low,
        found_terms=sum(bool(postings.ids) for postings in lists),
    )


def gather_conversations(
    task: SearchTask,
    terms: Sequence[SearchTerm],
    top: int,
    weights: Mapping[str, float] | None = None,
) -> MatchBlock:
    """Return messages of the sessions that have all terms in their messages or their title."""
    tail = _load_texts_above(task, top)
    lists = _list_postings(task, terms, top, tail, weights)
    lists.sort(key=lambda postings: len(postings.ids))
    floor = max([task.low, *(postings.floor for postings in lists if not postings.done)])
    passing: list[dict[int, str]] = []
    for postings in lists:
        ids = list(postings.ids)
        if passing and len(passing[0]) <= _MAX_LOCATED < len(ids):
            sessions = _list_sessions_with_all_terms(task, lists[: len(passing)], passing)
            if len(passing) > 1 and not sessions:
                return MatchBlock([], floor, done=floor <= task.low)
            if 0 < len(sessions) <= _MAX_LOCATED_SESSIONS:
                ids = _list_ids_within(task, postings, sessions)
        passing.append(candidates.filter_ids(task, ids))
    whole = _list_sessions_with_all_terms(task, lists, passing)
    scores: dict[int, float] = {}
    counted: Counter[str] = Counter()
    for postings, sessions_by_id in zip(lists, passing, strict=True):
        for message_id in (
            number for number, session in sessions_by_id.items() if session in whole
        ):
            scores[message_id] = scores.get(message_id, 0.0) + postings.weight
    chosen = []
    for message_id in sorted(scores, key=lambda number: (scores[number], number), reverse=True):
        session = next(sessions[message_id] for sessions in passing if message_id in sessions)
        counted[session] += 1
        if counted[session] <= match_blocks.MAX_SESSION_MATCHES:
            chosen.append(message_id)
    matches = candidates.load_matches(task, chosen[:_MAX_READ_ROWS])
    for match in matches:
        match.score = _score_match(match, lists, 0.0)
    return MatchBlock(matches, floor, done=floor <= task.low)


def _list_ids_within(
    task: SearchTask, postings: _TermPostings, sessions: Collection[str]
) -> list[int]:
    """Return the ids of messages with a term in these sessions."""
    bounds = (json.dumps(list(sessions)), min(postings.ids))
    rows = task.handle.fetch_tuples(SQL["list_ids_of_sessions"], bounds)
    return [message_id for (message_id,) in rows if message_id in postings.ids]


def _list_sessions_with_all_terms(
    task: SearchTask, lists: Sequence[_TermPostings], passing: Sequence[Mapping[int, str]]
) -> set[str]:
    """Return the sessions that have each term in a message or in the title."""
    sessions = [set(sessions_by_id.values()) for sessions_by_id in passing]
    counted = Counter(session for term_sessions in sessions for session in term_sessions)
    most = [session for session, _ in counted.most_common(_MAX_TITLES)]
    titles = dict(task.handle.fetch_tuples(SQL["list_titles"], (json.dumps(most),)))
    return {
        session
        for session in most
        if all(
            session in term_sessions
            or postings.term.compute_match_weight(_fold_title(titles.get(session)))
            for postings, term_sessions in zip(lists, sessions, strict=True)
        )
    }


def _fold_title(title: str | None) -> str:
    return search_text.fold_text(title or "")


def rank_matches(
    matches: list[Match], terms: Sequence[SearchTerm], literal: str, newest: float
) -> None:
    """Add the nearness of the words and the age to the score of each match."""
    # A message that repeats the question is not an answer.
    question = literal.rstrip("?")
    candidates.add_context_scores(matches, terms, newest)
    for match in matches:
        if question in match.folded:
            match.score /= 2


def _iter_scored(
    task: SearchTask, lists: list[_TermPostings], top: int
) -> Iterator[tuple[int, float]]:
    """Yield message ids with a score from the lists, beginning with the rarest terms."""
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
    """Yield groups of terms to look up together, if their lists are not complete."""
    if len(lists) > 1 and not all(postings.done for postings in lists):
        yield tuple(lists)
    # Long lists are cut, so a message with several common terms may be in none of them.
    for group in combinations(lists[:_MAX_PROBED_TERMS], 3):
        if len(lists) > len(group) and not all(postings.done for postings in group):
            yield group


def _iter_passing(
    task: SearchTask, scores: dict[int, float], lists: Sequence[_TermPostings]
) -> Iterator[tuple[int, float]]:
    """Yield (id, score from nearby messages) of ids that pass the filters, best first.

    If hits are conversations, yield a few messages of each session.
    """
    ranked = sorted(scores, key=lambda number: (scores[number], number), reverse=True)
    counted: Counter[str] = Counter()
    for start in range(0, min(len(ranked), _MOST_FILTERED), _FILTERED):
        rows = candidates.read_sizes(task, ranked[start : start + _FILTERED])
        added = _sum_near_terms(task, {row[0]: row[1] for row in rows}, lists)

        def score_row(row: tuple[int, str, int | None], added: dict[int, float] = added) -> float:
            own = relevance.discount_length(scores[row[0]], row[2] or 0)
            return own + added.get(row[0], 0.0)

        for message_id, session_id, _ in sorted(rows, key=score_row, reverse=True):
            counted[session_id] += 1
            if not task.per_session or counted[session_id] <= match_blocks.MAX_SESSION_MATCHES:
                yield message_id, added.get(message_id, 0.0)


def _sum_near_terms(
    task: SearchTask, sessions: dict[int, str], lists: Sequence[_TermPostings]
) -> dict[int, float]:
    """Return the score that near messages add to messages of these sessions."""
    postings = [(one.ids, one.weight) for one in lists]
    near_terms = list(relevance.iter_near_terms(sessions, postings))
    others = json.dumps([near_id for _, near_id, _ in near_terms if near_id not in sessions])
    until = task.values.get("until", math.inf)
    rows = task.handle.fetch_tuples(SQL["list_sessions_of"], (others, until))
    return relevance.sum_near_terms(near_terms, {**dict(rows), **sessions})


def _score_match(match: Match, lists: Iterable[_TermPostings], added: float) -> float:
    """Score a match. The words of its title count in part."""
    terms = [(postings.term, postings.weight) for postings in lists]
    return relevance.score_terms(match.folded, _fold_title(match.title), terms, added)


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
    def has_any_term(folded: str) -> bool:
        return any(term.compute_match_weight(folded) for term in terms)

    return match_blocks.gather_block(
        replace(task, query=CandidateQuery(plan, has_any_term, apart=apart), per_session=False), top
    )
