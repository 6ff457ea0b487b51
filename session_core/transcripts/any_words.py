"""Scores of the messages that contain any words of a query.

Rare words weigh most.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from session_core.state import query, relevance, search_text
from session_core.state.query import And, Leaf, Node
from session_core.state.terms import SearchTerm, split_terms, weigh_term
from session_core.transcripts.index import Index
from session_core.transcripts.words import build_expression

_GRAM = 2
_LIST_ROWS = 4000
_MAX_TITLES = 500
_EXCLUDED_SQL = "SELECT rowid FROM words WHERE words MATCH ?"
_COUNT_SQL = "SELECT count(*) FROM messages WHERE id >= ?"
_FOUND_SQL = (
    "SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM words WHERE words MATCH value)"
)
_LIST_SQL = "SELECT rowid FROM words WHERE words MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?"


@dataclass(frozen=True, slots=True)
class TermPostings:
    """A word of a query, its weight, and the newest messages that contain it."""

    term: SearchTerm
    ids: frozenset[int]
    weight: float
    looked_at: int
    """The number of messages among which the ids were found."""
    total: int


def read_postings(
    index: Index, node: Node, top: int, weights: Mapping[str, float] | None = None
) -> list[TermPostings]:
    """Return the postings of the words of a query, with message ids below `top`.

    `weights` has weights of words that were computed over several stores.
    """

    def find_indexed(leaves: Sequence[Leaf]) -> set[Leaf]:
        expressions = [build_expression(leaf) for leaf in leaves]
        listed = json.dumps([one for one in expressions if one is not None])
        found = {expression for (expression,) in index.read(_FOUND_SQL, (listed,))}
        return {leaf for leaf, one in zip(leaves, expressions, strict=True) if one in found}

    total = index.read(_COUNT_SQL, (-(2**62),))[0][0]
    return [
        _read_term(index, term, top, total, (weights or {}).get(term.text))
        for term in split_terms(node, _GRAM, find_indexed)
    ]


def _read_term(
    index: Index, term: SearchTerm, top: int, total: int, weight: float | None
) -> TermPostings:
    expression = query.build_match_expression(term.node, build_expression)
    rows = [] if expression is None else index.read(_LIST_SQL, (expression, top, _LIST_ROWS))
    looked_at = total
    if len(rows) == _LIST_ROWS:
        # The list is cut: the share of the word is that among the newest messages.
        looked_at = index.read(_COUNT_SQL, (rows[-1][0],))[0][0]
    if weight is None:
        weight = weigh_term(len(rows), looked_at)
    return TermPostings(term, frozenset(row[0] for row in rows), weight, looked_at, total)


class AnyWordScores:
    """The scores of messages by their own words, the words of near messages, and the title."""

    def __init__(
        self, postings: Sequence[TermPostings], index: Index, excluded: Sequence[str | None]
    ) -> None:
        self.postings = postings
        self.own: dict[int, float] = {}
        self.added: dict[int, float] = {}
        for posting in postings:
            for message_id in posting.ids:
                self.own[message_id] = self.own.get(message_id, 0.0) + posting.weight
        for expression in filter(None, excluded):
            for (message_id,) in index.read(_EXCLUDED_SQL, (expression,)):
                self.own.pop(message_id, None)

    def list_best(self, count: int) -> list[int]:
        """Return the ids of the messages with the highest own scores, newest first if equal."""
        ranked = sorted(self.own, key=lambda number: (self.own[number], number), reverse=True)
        return ranked[:count]

    def add_near_terms(
        self, index: Index, sessions: dict[int, int], newest_ms: int | None = None
    ) -> None:
        """Add the weights of words that near messages contain to the scores.

        Near messages must belong to the same session and not be newer than `newest_ms`.
        """
        postings = [(posting.ids, posting.weight) for posting in self.postings]
        near_terms = list(relevance.iter_near_terms(sessions, postings))
        others = list({near_id for _, near_id, _ in near_terms} - sessions.keys())
        known = dict(sessions)
        for start in range(0, len(others), 500):
            part = others[start : start + 500]
            marks = ", ".join("?" * len(part))
            sql = f"SELECT id, session FROM messages WHERE id IN ({marks}) AND coalesce(at, 0) <= ?"  # noqa: S608 -- only question marks are inserted
            known |= dict(index.read(sql, (*part, 2**62 if newest_ms is None else newest_ms)))
        self.added = relevance.sum_near_terms(near_terms, known)

    def list_sessions_with_all_terms(self, index: Index, sessions: Mapping[int, int]) -> set[int]:
        """Return the sessions that contain each term in a message or in the title."""
        having = [
            {sessions[message_id] for message_id in posting.ids if message_id in sessions}
            for posting in self.postings
        ]
        counted = Counter(session for session_ids in having for session in session_ids)
        most = [session for session, _ in counted.most_common(_MAX_TITLES)]
        marks = ", ".join("?" * len(most))
        titles = dict(index.read(f"SELECT id, title FROM sessions WHERE id IN ({marks})", most))  # noqa: S608 -- only question marks are inserted
        return {
            session
            for session in most
            if all(
                session in session_ids
                or posting.term.compute_match_weight(_fold_title(titles[session]))
                for posting, session_ids in zip(self.postings, having, strict=True)
            )
        }

    def build_expression(self, message_id: int) -> str | None:
        """Return the FTS5 expression of the query words that a message contains."""
        nodes = tuple(posting.term.node for posting in self.postings if message_id in posting.ids)
        node = nodes[0] if len(nodes) == 1 else And(nodes)
        return query.build_match_expression(node, build_expression)

    def score(self, message_id: int, length: int) -> float:
        """Return the score of a message with `length` characters."""
        own = relevance.discount_length(self.own[message_id], length)
        return own + self.added.get(message_id, 0.0)

    def score_text(self, message_id: int, title: str | None, folded: str) -> float:
        """Return the score of a message by its folded text, its title and near messages."""
        terms = [(posting.term, posting.weight) for posting in self.postings]
        added = self.added.get(message_id, 0.0)
        return relevance.score_terms(folded, _fold_title(title), terms, added)


def _fold_title(title: str | None) -> str:
    return search_text.fold_text(title or "")
