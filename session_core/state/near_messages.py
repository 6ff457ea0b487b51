"""The words of a conversation that add up: those of near messages and of its title.

A question is rarely in the words of its answer alone: the user asked in some of them, and the title
has others. They count half, so that a message with all words still comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

NEAR_WEIGHT = 0.5
TITLE_WEIGHT = 0.5
_OFFSETS = (1, -1, 2, -2, 3, -3)
"""Where near messages stand: a question, its answer and the tools between them."""

Postings = Sequence[tuple[Collection[int], float]]
"""The ids of the messages that have a term, and the weight of the term, for each term."""

NearTerm = tuple[int, int, float]
"""A message, a near one with a term that the message lacks, and the weight of the term."""


def iter_near_terms(message_ids: Iterable[int], postings: Postings) -> Iterator[NearTerm]:
    """Yield the terms that messages lack and a near id has, perhaps of another session."""
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
    """Return what near messages of the same session add to the score of each message."""
    added: dict[int, float] = {}
    for message_id, near_id, weight in near_terms:
        session = sessions.get(message_id)
        if session is not None and sessions.get(near_id) == session:
            added[message_id] = added.get(message_id, 0.0) + NEAR_WEIGHT * weight
    return added
