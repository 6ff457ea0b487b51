"""One search over several stores, with one step, one score and one cursor for all of them.

A page comes from a block: the matches of all stores between two places in time. Each store reports
how far back it has looked, the block ends at the latest of these places, and its matches are ranked
together. The cursor holds the bounds of the block and the last hit, so its pages neither repeat nor
lose a hit, whatever is appended meanwhile.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import islice
from typing import NamedTuple, TypeVar

from session_core.errors import InvalidInput, NotFound, SessionError
from session_core.state import query as queries
from session_core.state.relevance import find_least_score
from session_core.state.store_search import (
    ALL_TIES,
    LAST_MS,
    NO_TIES,
    RankedMatch,
    StoreBlock,
    StoreSearch,
)
from session_core.state.terms import weigh_term
from session_core.types import (
    MatchMode,
    SearchEdge,
    SearchHit,
    SearchMode,
    SearchOrder,
    SearchStep,
)

T = TypeVar("T")

STEPS: tuple[SearchStep, ...] = (
    *("all", "conversation", "title", "inner", "prefix", "any", "rest", "substring"),
)
_MATCHED: Mapping[SearchStep, MatchMode] = {"inner": "all", "rest": "any"}
_WEIGHED: Sequence[SearchStep] = ("conversation", "any", "rest")
"""Steps whose scores depend on how rare words are."""

_MAX_BLOCKS = 6
_SCORE_UNIT = 1e7
"""Scores are compared as integers, so that a cursor can hold one."""

_WEIGHT_UNIT = 25
"""Weights are below 10, and a byte each in a cursor."""

_PACKED = 7
_IDENTITY_MASK = 0xFFFFFFF


class _Edge(NamedTuple):
    """A sort position in the order of all stores.

    Equal times are ordered by the number of the store.
    """

    at_ms: int
    store: int
    tie: int

    def find_in_store(self, store: int) -> SearchEdge:
        """Return the same place as an edge of one store."""
        if store == self.store:
            return SearchEdge(self.at_ms, self.tie)
        return SearchEdge(self.at_ms, NO_TIES if store < self.store else ALL_TIES)

    @property
    def order(self) -> tuple[int, int, int]:
        """The key that sorts edges, the latest first."""
        return (-self.at_ms, self.store, -self.tie)


class _Rank(NamedTuple):
    """The place of a hit in its block."""

    value: int
    identity: int


@dataclass(frozen=True, slots=True)
class MergedPosition:
    """The position at which the next page begins."""

    step: SearchStep
    has_hits: bool = False
    """Whether an earlier page had hits, so that no looser step follows."""
    newest_ms: int = 0
    """The time of the first page in milliseconds. Later messages are left out of all pages."""
    begin: _Edge | None = None
    end: _Edge | None = None
    after: _Rank | None = None
    """The last hit that was shown of the block, or None if no store has read the block."""
    weights: tuple[int, ...] = ()

    def encode(self, moment_ms: int) -> str:
        """Encode the position as a short hexadecimal text.

        Times are stored relative to `moment_ms` or to the beginning of the block.
        """
        begin_ms = moment_ms if self.begin is None else self.begin.at_ms
        parts = [self.begin is not None, self.end is not None, self.after is not None]
        head = STEPS.index(self.step)
        for flag in (self.has_hits, *parts):
            head = head * 2 + flag
        numbers = [
            *(head, len(self.weights), self.newest_ms - moment_ms),
            *_pack_edge(self.begin, moment_ms),
            *_pack_edge(self.end, begin_ms),
            *(self.after or ()),
            *_pack_weights(self.weights),
        ]
        text = f"{_join_numbers(numbers):x}"
        return text if len(text) % 2 == 0 else f"0{text}"

    @classmethod
    def decode(cls, text: str, moment_ms: int) -> MergedPosition:
        """Decode the position of a text that `encode` returned.

        Raises:
            InvalidInput: it is malformed.
        """
        try:
            numbers = iter(_split_numbers(int(text, 16)))
            head, count, newest = islice(numbers, 3)
            has_hits, has_begin, has_end, has_after = (
                bool(head >> bit & 1) for bit in (3, 2, 1, 0)
            )
            begin = _unpack_edge(islice(numbers, 3), moment_ms) if has_begin else None
            end_ms = moment_ms if begin is None else begin.at_ms
            end = _unpack_edge(islice(numbers, 3), end_ms) if has_end else None
            after = _Rank(*islice(numbers, 2)) if has_after else None
            weights = tuple(_unpack_weights(numbers, count))
            return cls(STEPS[head >> 4], has_hits, moment_ms + newest, begin, end, after, weights)
        except (ValueError, TypeError, IndexError, OverflowError, RuntimeError) as error:
            raise InvalidInput(
                "malformed cursor; pass next_cursor of the previous page unchanged"
            ) from error


def _join_numbers(numbers: Iterable[int]) -> int:
    """Pack numbers into one integer, each with its sign and its length in bits."""
    joined = 1
    for number in numbers:
        size = abs(number).bit_length()
        joined = (joined << 7 | size << 1 | (number < 0)) << size | abs(number)
    return joined


def _split_numbers(joined: int) -> list[int]:
    """Unpack the numbers of `_join_numbers`."""
    bits, numbers, at = f"{joined:b}", list[int](), 1
    while at + 7 <= len(bits):
        size, is_negative = int(bits[at : at + 6], 2), bits[at + 6] == "1"
        number = int(bits[at + 7 : at + 7 + size] or "0", 2)
        numbers.append(-number if is_negative else number)
        at += 7 + size
    return numbers


def _pack_weights(weights: Sequence[int]) -> list[int]:
    """Pack seven weights into each number."""
    parts = [weights[start : start + _PACKED] for start in range(0, len(weights), _PACKED)]
    return [int.from_bytes(bytes(part), "big") for part in parts]


def _unpack_weights(numbers: Iterator[int], count: int) -> Iterator[int]:
    for start in range(0, count, _PACKED):
        yield from next(numbers).to_bytes(min(_PACKED, count - start), "big")


def _pack_edge(edge: _Edge | None, base_ms: int) -> list[int]:
    """Return an edge as three small numbers.

    `NO_TIES` and `ALL_TIES`, which are large, become 0 and 1.
    """
    if edge is None:
        return []
    tie = {NO_TIES: 0, ALL_TIES: 1}.get(edge.tie, edge.tie + 2 if edge.tie >= 0 else edge.tie)
    return [base_ms - edge.at_ms, edge.store, tie]


def _unpack_edge(numbers: Iterable[int], base_ms: int) -> _Edge:
    behind, store, packed = numbers
    tie = {0: NO_TIES, 1: ALL_TIES}.get(packed, packed - 2 if packed >= 0 else packed)
    return _Edge(base_ms - behind, store, tie)


@dataclass(frozen=True, slots=True)
class MergedHit:
    """A hit, the number of its store, and the position after it.

    The position is None after the last hit.
    """

    hit: SearchHit
    store: int
    position: MergedPosition | None


@dataclass(frozen=True, slots=True)
class MergedResult:
    """A page of hits, and the position that continues an empty page."""

    hits: list[MergedHit]
    matched: MatchMode
    searched_back_to: float | None = None
    position: MergedPosition | None = None


@dataclass(slots=True)
class _Page:
    """A page that is being filled."""

    limit: int
    newest_ms: int
    is_first: bool
    hits: list[tuple[MergedHit, MergedPosition]] = field(default_factory=list)
    step: SearchStep = "all"
    matched: SearchStep | None = None
    searched_to: _Edge | None = None


def list_search_steps(query_text: str, mode: SearchMode) -> list[SearchStep]:
    """Return the steps of a query, from strict to loose."""
    query = queries.parse_query(query_text)
    if mode == "substring" or query.kind == "literal":
        return ["substring"]
    if query.node is None:
        return []
    if query.kind == "syntax":
        return ["all"]
    if query.kind == "text":
        return ["all", "inner", "prefix", "any", "rest"]
    # A message with all words of a question may only repeat it.
    if queries.is_question(query.text):
        return ["any", "rest"]
    return ["all", "conversation", "title", "inner", "prefix", "any", "rest"]


class MergedSearch:
    """Searches several stores as if they were one.

    `newest_ms` is the time of their snapshots.
    """

    def __init__(
        self,
        stores: Sequence[StoreSearch | None],
        query_text: str,
        *,
        mode: SearchMode = "words",
        order: SearchOrder = "relevance",
        newest_ms: int,
    ) -> None:
        self._stores = dict(enumerate(stores))
        self.failures: dict[int, SessionError] = {}
        """The errors of the stores that were left out, by the number of the store."""
        self._order = order
        self._newest_ms = newest_ms
        self._steps = list_search_steps(query_text, mode)
        self._matched: MatchMode | None = None
        if mode == "words" and queries.parse_query(query_text).kind in ("text", "literal"):
            self._matched = "text"
        self._found_terms = 0
        self._weights: tuple[int, ...] = ()

    def read_page(self, position: MergedPosition | None, limit: int) -> MergedResult:
        """Return the next hits of all stores.

        Raises:
            InvalidInput: the position belongs to another search.
        """
        page = _Page(limit, self._newest_ms, is_first=position is None)
        if position is not None:
            page.newest_ms = position.newest_ms
            if position.step not in self._steps:
                raise InvalidInput("cursor belongs to a different query; search again without it")
        rest: MergedPosition | None = position
        has_hits = position is not None and position.has_hits
        first = 0 if position is None else self._steps.index(position.step)
        for step in self._steps[first:]:
            page.step = step
            rest, is_near = self._read_step(page, rest or MergedPosition(step, has_hits))
            has_hits = has_hits or bool(page.hits)
            # After the best hits of a question only hits that are as near may follow.
            if rest is not None or (has_hits and not (step == "any" and is_near)):
                break
        return self._make_result(page, rest)

    def _make_result(self, page: _Page, rest: MergedPosition | None) -> MergedResult:
        """Return the page, with the next position in each of its hits."""
        hits = [
            replace(hit, position=self._complete_position(position, page))
            for hit, position in page.hits
        ]
        last = None if rest is None else self._complete_position(rest, page)
        if hits:
            hits[-1] = replace(hits[-1], position=last)
        step = page.matched or page.step
        searched = page.searched_to
        is_known = searched is not None and self._order != "oldest" and last is not None
        stores = [store for store in self._stores.values() if store is not None]
        times = [store.unread_at for store in stores if store.unread_at is not None]
        if searched is not None and is_known:
            times.append(searched.at_ms / 1000)
        return MergedResult(
            hits,
            self._matched or _MATCHED.get(step, step),  # type: ignore[arg-type]
            max(times, default=None),
            last,
        )

    def _complete_position(self, position: MergedPosition, page: _Page) -> MergedPosition:
        has_hits = position.has_hits or bool(page.hits)
        weights = self._weights if position.step in _WEIGHED else ()
        return replace(position, has_hits=has_hits, newest_ms=page.newest_ms, weights=weights)

    def _read_step(
        self, page: _Page, position: MergedPosition
    ) -> tuple[MergedPosition | None, bool]:
        """Add hits of a step to the page.

        Return the next position, and whether no low-scoring hit was dropped.
        """
        if position.step in _WEIGHED:
            self._weigh_terms(position.weights)
        begin, end, after, is_near = position.begin, position.end, position.after, True
        if after is not None and end is None:
            # The block held all remaining matches. Messages that came since must not cut it short.
            end = _Edge(LAST_MS if self._order == "oldest" else -LAST_MS, 0, NO_TIES)
        for _ in range(_MAX_BLOCKS):
            blocks = self._find_blocks(position.step, begin, end)
            if after is None:
                end = self._find_end(blocks)
            ranked, least = self._rank_blocks(position.step, blocks, end, page)
            is_near = is_near and least is None
            is_open = end is None or abs(end.at_ms) == LAST_MS
            block_position = replace(position, begin=begin, end=None if is_open else end)
            page.searched_to = block_position.end
            if self._add_hits(page, ranked, block_position, after):
                return page.hits[-1][1], is_near
            if is_open:
                return None, is_near
            begin, end, after = end, None, None
            if any(block.is_costly for block in blocks.values()):
                break
        return replace(position, begin=begin, end=None, after=None), is_near

    def _find_blocks(
        self, step: SearchStep, begin: _Edge | None, end: _Edge | None
    ) -> dict[int, StoreBlock]:
        """Return the block of each store by the number of the store."""
        return self._query_stores(
            lambda number, store: store.find_block(
                step, begin and begin.find_in_store(number), end and end.find_in_store(number)
            )
        )

    def _query_stores(self, call: Callable[[int, StoreSearch], T]) -> dict[int, T]:
        """Call each store and return the results by the number of the store.

        A store that raises is recorded in `failures` and left out from then on.
        """
        answers: dict[int, T] = {}
        for number, store in self._stores.items():
            if store is not None:
                try:
                    answers[number] = call(number, store)
                except (InvalidInput, NotFound):
                    raise
                except SessionError as error:
                    self.failures[number] = error
        for number in self.failures:
            self._stores[number] = None
        if self.failures and not answers:
            raise next(iter(self.failures.values()))
        return answers

    def _find_end(self, blocks: Mapping[int, StoreBlock]) -> _Edge | None:
        """Return the first place at which a store has stopped reading."""
        edges = [
            _Edge(block.end.at_ms, number, block.end.tie)
            for number, block in blocks.items()
            if block.end is not None
        ]
        pick = max if self._order == "oldest" else min
        return pick(edges, key=lambda edge: edge.order, default=None)

    def _rank_blocks(
        self, step: SearchStep, blocks: Mapping[int, StoreBlock], end: _Edge | None, page: _Page
    ) -> tuple[Iterator[tuple[_Rank, int, RankedMatch]], float | None]:
        """Return the matches of all stores, best first.

        Also return the score below which matches were dropped, or None.
        """
        lists = self._query_stores(
            lambda number, _: blocks[number].rank_matches(end and end.find_in_store(number))
        )
        for match in (match for matches in lists.values() for match in matches):
            if page.is_first and not page.hits:
                page.newest_ms = max(page.newest_ms, match.at_ms)
        least = None
        if step == "any" and self._found_terms > 1:
            every = (match.score for matches in lists.values() for match in matches)
            scores = sorted(every, reverse=True)
            least = find_least_score(scores)
            lists = {
                number: [match for match in matches if match.score >= least]
                for number, matches in lists.items()
            }
            least = least if scores and scores[-1] < least else None
        ranked = (
            sorted((self._make_rank(number, match), number, match) for match in matches)
            for number, matches in lists.items()
        )
        return merge(*ranked, key=lambda entry: entry[:2]), least

    def _make_rank(self, store: int, match: RankedMatch) -> _Rank:
        """Return the rank of a match: its score or time, then a number that never changes."""
        values = {
            "relevance": -round(match.score * _SCORE_UNIT),
            "newest": -match.at_ms,
            "oldest": match.at_ms,
        }
        identity = zlib.crc32(f"{store}/{match.identity}".encode()) & _IDENTITY_MASK
        return _Rank(values[self._order], identity)

    def _add_hits(
        self,
        page: _Page,
        ranked: Iterator[tuple[_Rank, int, RankedMatch]],
        block_position: MergedPosition,
        after: _Rank | None,
    ) -> bool:
        """Add the hits of a block after the rank `after`.

        Return True if the page is full and a hit is left.
        """
        for rank, store, match in ranked:
            if after is not None and rank <= after:
                continue
            hit = match.make_hit()
            if hit is None:
                continue
            if len(page.hits) >= page.limit:
                return True
            page.matched = page.matched or block_position.step
            page.hits.append((MergedHit(hit, store, None), replace(block_position, after=rank)))
        return False

    def _weigh_terms(self, stored: tuple[int, ...]) -> None:
        """Weigh words by their share of the messages of all stores."""
        if self._weights:
            return
        listed = self._query_stores(lambda _, store: store.list_terms())
        terms = sorted({term for store_terms in listed.values() for term in store_terms})
        if len(stored) == len(terms) + 1:
            *weights, self._found_terms = stored
        else:
            weights = self._compute_term_weights(terms)
        self._weights = (*weights, self._found_terms)
        by_term = {term: weight / _WEIGHT_UNIT for term, weight in zip(terms, weights, strict=True)}
        self._query_stores(lambda _, store: store.set_weights(by_term))

    def add_replies(self, store: int, hits: Sequence[SearchHit]) -> Sequence[SearchHit]:
        """Return the hits of a store, with the id of the reply in hits of the user."""
        search = self._stores[store]
        return hits if search is None or not hits else search.add_replies(hits)

    def _compute_term_weights(self, terms: Sequence[str]) -> list[int]:
        """Return the weight of each term, and store the number of terms that occur."""
        counted = self._query_stores(lambda _, store: store.count_terms()).values()
        weights = []
        self._found_terms = 0
        for term in terms:
            counts = [counts[term] for counts in counted if term in counts]
            total = sum(one.total for one in counts)
            # Long lists are cut, so the share among the messages that were read stands for all.
            having = sum(one.found * one.total / max(one.looked_at, one.found, 1) for one in counts)
            self._found_terms += having > 0
            weight = round(weigh_term(math.ceil(having), total) * _WEIGHT_UNIT)
            weights.append(max(0, min(weight, 255)))
        return weights
