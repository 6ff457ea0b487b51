"""The protocol by which one store takes part in a search over several stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from session_core.types import SearchEdge, SearchHit, SearchStep, TermCount

ALL_TIES, NO_TIES = 2**62, -(2**62)
"""Ties of an edge above all messages of its time, and of an edge below all of them."""

LAST_MS = 2**52
"""A time in milliseconds after all others."""


class RankedMatch(NamedTuple):
    """A match and its score.

    `make_hit` returns None if an earlier page has shown the match or a copy of it.
    """

    score: float
    at_ms: int
    identity: str
    make_hit: Callable[[], SearchHit | None]


class StoreBlock(Protocol):
    """The matches of one store after a place in time."""

    @property
    def end(self) -> SearchEdge | None:
        """The place at which the store has stopped reading, or None if nothing is left."""

    @property
    def is_costly(self) -> bool:
        """True if the block has used the read budget of one call."""

    def rank_matches(self, end: SearchEdge | None) -> Sequence[RankedMatch]:
        """Return the scored matches up to an edge.

        If hits are conversations, return one match for each conversation.
        """


class StoreSearch(Protocol):
    """One search in one store, in the snapshot that its caller has open."""

    @property
    def unread_at(self) -> float | None:
        """The time of the newest part of the store that the search cannot read, or None."""

    def list_terms(self) -> Sequence[str]:
        """Return the words of a question."""

    def count_terms(self) -> Mapping[str, TermCount]:
        """Count the messages with each word of a question."""

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Set the weights of the words of a question, instead of weights by this store alone."""

    def find_block(
        self, step: SearchStep, begin: SearchEdge | None, end: SearchEdge | None
    ) -> StoreBlock:
        """Return the matches of a step after the edge `begin`.

        `end` is the end of a block that was found before, if any.
        """

    def add_replies(self, hits: Sequence[SearchHit]) -> Sequence[SearchHit]:
        """Return the hits, with the id of the reply in hits of the user."""
