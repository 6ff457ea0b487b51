"""Scores of words that a message lacks and a near message or the title has.

The answer to a question rarely has all of its words: the user asked in some of them, and the title
has others. Such words count half, so a message with all words still comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

NEAR_WEIGHT = 0.5
TITLE_WEIGHT = 0.5
_OFFSETS = (1, -1, 2, -2, 3, -3)
"""Distances between the ids of near messages: a question, its answer and the tools between them."""

Postings = Sequence[tuple[Collection[int], float]]
"""For each term, the ids of the messages that have it, and its weight."""

NearTerm = tuple[int, int, float]
"""A message id, the near id with a term that the message lacks, and the weight of the term."""


def iter_near_terms(message_ids: Iterable[int], postings: Postings) -> Iterator[NearTerm]:
    """Yield the terms missing from a message but present in a near id.

    The near id may belong to another session.
    """
    for message_id in message_ids:
        for ids, weight in postings:
            if message_id in ids:
                continue
            for offset in _OFFSETS:
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
