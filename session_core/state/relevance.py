"""The score of a matching message, from its text, age and role.

It uses no statistics of a store, so the scores of several stores can be compared.

The answer to a question rarely has all of its words: the user asked in some of them, and the title
has others. Such words count half, so a message with all words still comes first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from session_core.state.query import LeafMatcher
from session_core.state.search_text import TextFinder
from session_core.state.terms import SearchTerm

TYPICAL_LENGTH = 600
_RECENCY_LIFE_S = 45 * 86400
_RECENCY_WEIGHT = 0.35
_LITERAL_WEIGHT = 0.6
_NEARNESS_WEIGHT = 0.5
_ROLE_WEIGHTS = {"tool": -0.25, "system": -0.2, "session_meta": -0.3}
_NEARNESS_REACH = 60
_NEAR_BEST_SHARE = 0.53
_LEAST_HITS = 3

NEAR_WEIGHT = 0.5
TITLE_WEIGHT = 0.5
_NEAR_OFFSETS = (1, -1, 2, -2, 3, -3)
"""Distances between the ids of near messages: a question, its answer and the tools between them."""

Postings = Sequence[tuple[Collection[int], float]]
"""For each term, the ids of the messages that have it, and its weight."""

NearTerm = tuple[int, int, float]
"""A message id, the near id with a term that the message lacks, and the weight of the term."""


def score_words(folded: str, words: Sequence[LeafMatcher], literal: str) -> float:
    """Score the words in a folded text.

    `literal` is the folded query, which adds to the score if the text contains it.
    """
    score = _measure_frequency(folded, words)
    return score + _LITERAL_WEIGHT if literal and literal in folded else score


def score_context(
    folded: str,
    words: Sequence[TextFinder],
    *,
    role: str,
    age_s: float,
    compacted: bool,
) -> float:
    """Score a message by the distance of the words, its length, its age and its role."""
    nearness = _NEARNESS_WEIGHT * _measure_nearness(folded, words) if len(words) > 1 else 0.0
    length = 0.15 * min(1.0, len(folded) / (10 * TYPICAL_LENGTH))
    recency = _RECENCY_WEIGHT * math.exp(-max(0.0, age_s) / _RECENCY_LIFE_S)
    # Long, old and compacted messages rank lower, and so do messages of tools.
    return nearness + recency - length + _ROLE_WEIGHTS.get(role, 0.0) - 0.02 * compacted


def score_terms(
    folded: str, title: str, terms: Iterable[tuple[SearchTerm, float]], added: float
) -> float:
    """Score the words of a question in a folded text. Return 0 if it has none of them.

    `terms` are the words with their weights. `added` is the score that near messages add. Words
    that only the folded title has count in part.
    """
    own = titled = 0.0
    for term, weight in terms:
        share = term.compute_match_weight(folded)
        own += share * weight
        if title and not share:
            titled += term.compute_match_weight(title) * weight
    if not own:
        return 0.0
    return discount_length(own, len(folded)) + added + TITLE_WEIGHT * titled


def discount_length(score: float, length: int) -> float:
    """Reduce a score by the length of the text, since a long text has words by chance."""
    return score / (0.6 + 0.4 * length / TYPICAL_LENGTH)


def _measure_frequency(folded: str, words: Sequence[LeafMatcher]) -> float:
    length = 0.4 + 0.6 * len(folded) / TYPICAL_LENGTH
    counts = [word.count_matches(folded) for word in words]
    parts = [0.5 + 0.5 * count / (count + length) for count in counts if count]
    return sum(parts) / len(words) if words else 0.0


def _measure_nearness(folded: str, words: Sequence[TextFinder]) -> float:
    """Return the share of words whose first occurrences are close together."""
    places = sorted(bounds[0] for word in words if (bounds := word.find(folded)))
    gaps = (places[index + 1] - places[index] for index in range(len(places) - 1))
    return sum(gap <= _NEARNESS_REACH for gap in gaps) / (len(words) - 1)


def find_least_score(scores: Sequence[float]) -> float:
    """Return the lowest score of a hit worth showing, for `scores` from best to worst.

    Hits far below the best one only share common words with the query. The first three hits always
    stay.
    """
    if not scores:
        return 0.0
    return min(_NEAR_BEST_SHARE * scores[0], scores[:_LEAST_HITS][-1])


def iter_near_terms(message_ids: Iterable[int], postings: Postings) -> Iterator[NearTerm]:
    """Yield the terms missing from a message but present in a near id.

    The near id may belong to another session.
    """
    for message_id in message_ids:
        for ids, weight in postings:
            if message_id in ids:
                continue
            for offset in _NEAR_OFFSETS:
                if message_id + offset in ids:
                    yield message_id, message_id + offset, weight
                    break


def sum_near_terms(
    near_terms: Iterable[NearTerm], sessions: Mapping[int, object]
) -> dict[int, float]:
    """Return the score that near messages of the same session add to each message."""
    added: dict[int, float] = {}
    for message_id, near_id, weight in near_terms:
        session = sessions.get(message_id)
        if session is not None and sessions.get(near_id) == session:
            added[message_id] = added.get(message_id, 0.0) + NEAR_WEIGHT * weight
    return added
