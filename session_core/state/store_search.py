"""What each store offers to a search over several stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from session_core.types import SearchEdge, SearchHit, SearchStep, TermCount

ALL_TIES, NO_TIES = 2**62, -(2**62)
"""Ties of an edge that has all messages, or none, of its time below it."""

LAST_MS = 2**52
"""A time in milliseconds after all others."""


class RankedMatch(NamedTuple):
    """A match with what ranks it; `make_hit` returns None for one that a copy or page has shown."""

    score: float
    at_ms: int
    identity: str
    make_hit: Callable[[], SearchHit | None]


class StoreBlock(Protocol):
    """The matches of one store from a place in time on."""

    @property
    def end(self) -> SearchEdge | None:
        """Where the store has stopped looking, or None if nothing is left."""

    @property
    def is_costly(self) -> bool:
        """Whether the block has used the work of one call."""

    def rank_matches(self, end: SearchEdge | None) -> Sequence[RankedMatch]:
        """Return the matches up to an edge, one for each conversation if asked."""


class StoreSearch(Protocol):
    """One search in one store; it reads in the snapshot that its caller has open."""

    @property
    def unread_at(self) -> float | None:
        """The time of the newest part that the search does not see at all, or None."""

    def list_terms(self) -> Sequence[str]:
        """Return the words of a question."""

    def count_terms(self) -> Mapping[str, TermCount]:
        """Return how many messages have each word of a question."""

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Weigh the words of a question like this, not by the messages of this store."""

    def find_block(
        self, step: SearchStep, begin: SearchEdge | None, end: SearchEdge | None
    ) -> StoreBlock:
        """Return the matches of a step after an edge; `end` is that of a block found before."""

    def add_replies(self, hits: Sequence[SearchHit]) -> Sequence[SearchHit]:
        """Return the hits, those of the user with the reply to them."""
