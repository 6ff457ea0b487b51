"""The search of one home as a part of a search over several stores.

It finds the matches between two places in time. A home is searched in order of ids. A place in time
leads to an id by a fixed descent through the bits of the ids, which compares the times of some
forty messages. So every message lies on one side of each place, even if times are not in order, and
messages that are appended move no place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from session_core import _sqlite3
from session_core.state import query as queries
from session_core.state import search_text, sql_blocks
from session_core.state.sqlite import fts
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.search import any_words, candidates, hermes_indexes, match_blocks
from session_core.state.sqlite.search.candidates import CandidateQuery, Match
from session_core.state.sqlite.search.index_plan import IndexPlan
from session_core.state.sqlite.search.match_blocks import MatchBlock
from session_core.state.sqlite.search.request import SearchRequest
from session_core.state.sqlite.search.search import SearchPosition, SearchRun
from session_core.state.sqlite.search.stages import SearchStage
from session_core.state.sqlite.store import SqliteStore
from session_core.state.store_search import ALL_TIES, LAST_MS, NO_TIES, RankedMatch
from session_core.state.terms import SearchTerm
from session_core.types import SearchEdge, SearchHit, SearchStep, TermCount

SQL = sql_blocks.load_blocks("search")

T = TypeVar("T")

_TIME_SQL = "SELECT timestamp FROM messages WHERE id >= ? ORDER BY id LIMIT 64"
_MAX_TITLES = 100
_CLOCK_SLACK_MS = 1000


class TimeRangeSearch:
    """One search in one home, in the snapshot that its caller has open."""

    def __init__(self, store: SqliteStore, request: SearchRequest) -> None:
        self._store = store
        self._request = request
        self._run: TimeRangeRun | None = None
        self._weights: Mapping[str, float] | None = None
        self.unread_at: float | None = None
        # A read-only store cannot update the index, so a search reads the missing messages itself.
        if not store.read_only and store.read(fts.is_index_behind):
            store.update_search_index()

    def list_terms(self) -> Sequence[str]:
        """Return the words of a question."""
        return self.read(lambda run: [term.text for term in run.list_terms()])

    def count_terms(self) -> Mapping[str, TermCount]:
        """Count the messages with each word of a question."""
        return self.read(lambda run: run.count_terms())

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Set the weights of the words of a question."""
        self._weights = weights
        self._run = None

    def find_block(
        self, step: SearchStep, begin: SearchEdge | None, end: SearchEdge | None
    ) -> TimeRangeBlock:
        """Return the matches of a step after the edge `begin`."""
        return self.read(lambda run: run.find_block(self, step, begin, end))

    def add_replies(self, hits: Sequence[SearchHit]) -> Sequence[SearchHit]:
        """Return the hits, with the id of the reply in hits of the user."""
        return self.read(lambda run: run.add_replies(hits))

    def read(self, function: Callable[[TimeRangeRun], T]) -> T:
        """Call `function` with the search, without the index if it is damaged."""

        def search_snapshot(handle: Connection) -> T:
            try:
                return function(self._get_run(handle))
            except _sqlite3.load_library().DatabaseError:
                if handle.seen.get(hermes_indexes.INDEX_BROKEN_KEY):
                    raise
                handle.seen[hermes_indexes.INDEX_BROKEN_KEY] = True
                self._run = None
                return function(self._get_run(handle))

        return self._store.read(search_snapshot)

    def _get_run(self, handle: Connection) -> TimeRangeRun:
        if self._run is None or self._run.handle is not handle:
            self._run = TimeRangeRun(handle, self._request)
            self._run.weights = self._weights
        return self._run


@dataclass(slots=True)
class TimeRangeBlock:
    """The matches of one home after a place in time."""

    search: TimeRangeSearch
    position: SearchPosition
    end: SearchEdge | None
    is_costly: bool
    matches: list[tuple[SearchStage, list[Match]]] = field(default_factory=list)
    """The matches of each stage."""

    def rank_matches(self, end: SearchEdge | None) -> Sequence[RankedMatch]:
        """Return the scored matches up to an edge.

        If hits are conversations, return one match for each conversation.
        """
        return self.search.read(lambda run: run.rank_matches(self, end))


class TimeRangeRun(SearchRun):
    """A search between two places in time."""

    def __init__(self, handle: Connection, request: SearchRequest) -> None:
        super().__init__(handle, request)
        self._steps: dict[str, Iterator[SearchStage]] = dict(self.iter_steps())
        self._stages: dict[str, list[SearchStage]] = {}
        self._times: dict[int, int | None] = {}

    def list_terms(self) -> Sequence[SearchTerm]:
        """Return the words of a question."""
        node = self.query.node
        return () if node is None else any_words.split_terms(self.handle, node)

    def count_terms(self) -> dict[str, TermCount]:
        """Count the messages with each word of a question."""
        terms = self.list_terms()
        for stage in self._list_stages("any"):
            return any_words.count_terms(self._make_task(stage), terms, self.top)
        return {}

    def find_block(
        self,
        search: TimeRangeSearch,
        step: SearchStep,
        begin: SearchEdge | None,
        end: SearchEdge | None,
    ) -> TimeRangeBlock:
        """Return the matches of a step after an edge, or all matches up to `end` if it is given."""
        is_ascending = self.request.order == "oldest"
        first = self.low if begin is None and is_ascending else self.find_id(begin)
        position = SearchPosition(step, self.top, first)
        block = TimeRangeBlock(search, position, None, is_costly=False)
        if step == "title":
            block.matches.append(self._gather_titles())
        reached: int | None = None
        for stage in self._list_stages(step):
            if stage.terms:
                whole = self._gather_block(stage, self.top, self.top)
                block.matches.append((stage, whole.matches))
                continue
            matches, stopped, is_costly = self._gather_range(stage, first, end)
            block.matches.append((stage, matches))
            block.is_costly = block.is_costly or is_costly
            if stopped is not None:
                pick = min if is_ascending else max
                reached = stopped if reached is None else pick(reached, stopped)
        if reached is not None:
            block.end = self.make_edge(reached)
        return block

    def _gather_titles(self) -> tuple[SearchStage, list[Match]]:
        """Return the first messages of the newest sessions that have all words in their title."""
        node = self.query.node
        words = tuple(queries.compile_leaf(leaf) for leaf in queries.iter_leaves(node))
        stage = SearchStage("title", "title", CandidateQuery(IndexPlan(), bool), words)
        if node is None:
            return stage, []
        needle = queries.find_needle(node)
        pattern = f"%{needle}%" if needle.isascii() else "%"
        session_ids = [
            session_id
            for session_id, title in self.handle.fetch_tuples(SQL["find_titles"], (pattern,))
            if queries.is_match(node, search_text.fold_text(str(title)))
        ]
        task = self._make_task(stage)
        bounds = {"sessions": json.dumps(session_ids[:_MAX_TITLES])}
        ids = [row[0] for row in task.run_statement("list_first_messages", bounds)]
        matches = candidates.load_matches(task, ids)
        for match in matches:
            # The words stand in the title, which is ranked as if it were a part of the message.
            match.folded = f"{search_text.fold_text(match.title or '')}\n{match.folded}"
        return stage, matches

    def rank_matches(self, block: TimeRangeBlock, end: SearchEdge | None) -> list[RankedMatch]:
        """Return the matches of a block up to an edge."""
        border = None if end is None else self.find_id(end)
        is_ascending = self.request.order == "oldest"
        ranked: list[tuple[SearchStage, Match]] = []
        for stage, matches in block.matches:
            kept = matches
            if border is not None and not (stage.terms or stage.name == "title"):
                kept = [match for match in matches if (match.id >= border) != is_ascending]
            ranked += ((stage, match) for match in self._rank_block(stage, MatchBlock(kept)))
        ranked = self._pick_best_of_stages(ranked)
        return [
            RankedMatch(
                match.score,
                math.floor(match.at * 1000),
                f"{match.session_id}/{match.id}",
                partial(self._make_hit_in_snapshot, block, stage, match),
            )
            for stage, match in ranked
        ]

    def _pick_best_of_stages(
        self, ranked: list[tuple[SearchStage, Match]]
    ) -> list[tuple[SearchStage, Match]]:
        """Return the best match of each conversation over all stages.

        If hits are messages, return all matches.
        """
        if self.request.per == "message":
            return ranked
        keys: dict[str, Callable[[Match], float]] = {
            "relevance": lambda match: -match.score,
            "newest": lambda match: -match.at,
            "oldest": lambda match: match.at,
        }
        key = keys[self.request.order]
        best: dict[str, tuple[SearchStage, Match]] = {}
        for stage, match in sorted(ranked, key=lambda pair: key(pair[1])):
            best.setdefault(self.conversations.find_root(match), (stage, match))
        return list(best.values())

    def add_replies(self, hits: Sequence[SearchHit]) -> list[SearchHit]:
        """Return the hits, with the id of the reply in hits of the user."""
        replies = self.find_replies(hit.message_id for hit in hits if hit.role == "user")
        return [replace(hit, reply_id=replies.get(hit.message_id)) for hit in hits]

    def find_id(self, edge: SearchEdge | None) -> int:
        """Return the lowest id that is not below an edge."""
        if edge is None or edge.at_ms >= LAST_MS:
            return self.top
        if edge.at_ms <= -LAST_MS:
            return self.low
        if edge.tie not in (ALL_TIES, NO_TIES):
            return edge.tie
        reached = 0
        for bit in range(max(self.top, 1).bit_length(), -1, -1):
            at_ms = self._get_time(reached | 1 << bit)
            if at_ms is not None and at_ms < edge.at_ms + (edge.tie == ALL_TIES):
                reached |= 1 << bit
        # The message that was reached is below the edge.
        return min(max(reached + 1, self.low), self.top)

    def make_edge(self, message_id: int) -> SearchEdge:
        """Return the edge that has the messages with smaller ids below it.

        Its time is the smallest time for which `find_id` returns at least `message_id`.
        """
        last = max(message_id - 1, 0)
        least, needed, reached = LAST_MS - 1, -LAST_MS + 1, 0
        for bit in range(max(self.top, 1).bit_length(), -1, -1):
            at_ms = self._get_time(reached | 1 << bit)
            through = max(needed, LAST_MS - 1 if at_ms is None else at_ms)
            if last >> bit & 1:
                reached, needed = reached | 1 << bit, through
            else:
                least = min(least, through)
        return SearchEdge(min(least, needed), message_id)

    def _get_time(self, message_id: int) -> int | None:
        """Return the time of the first message from an id on, in milliseconds.

        A message with a time in the future was written with a wrong clock, so its time is ignored.
        """
        if message_id not in self._times:
            latest = (self.request.moment or 0) * 1000 + _CLOCK_SLACK_MS
            rows = self.handle.iter_rows(_TIME_SQL, (message_id,))
            times = (row[0] for row in rows if isinstance(row[0], (int, float)))
            ms = (math.floor(time * 1000) for time in times if abs(time) < LAST_MS / 1000 - 1)
            self._times[message_id] = next((time for time in ms if time <= latest), None)
        return self._times[message_id]

    def _gather_range(
        self, stage: SearchStage, first: int, end: SearchEdge | None
    ) -> tuple[list[Match], int | None, bool]:
        """Return the matches of a block, the id at which it stops, and whether it was costly."""
        task = self._make_task(stage)
        border = None if end is None else self.find_id(end)
        matches: list[Match] = []
        at = first
        if self.request.order == "oldest":
            top = self.top if border is None else border
            while at < top:
                block = match_blocks.gather_oldest(task, at, top)
                matches += block.matches
                at = block.floor
                if border is None and not block.done:
                    return matches, at, block.read
            return matches, None, False
        task = task if border is None else replace(task, low=max(border, self.low))
        while True:
            block = match_blocks.gather_block(task, at)
            matches += block.matches
            if block.done or (border is not None and block.floor <= border):
                return matches, None, False
            if border is None:
                return matches, block.floor, block.read
            at = block.floor

    def _list_stages(self, step: str) -> Sequence[SearchStage]:
        """Return the stages of a step, which are planned only then."""
        if step not in self._stages:
            self._stages[step] = list(self._steps.get(step, ()))
        return self._stages[step]

    def _make_hit_in_snapshot(
        self, block: TimeRangeBlock, stage: SearchStage, match: Match
    ) -> SearchHit | None:
        def make_hit(_: object) -> SearchHit | None:
            pick = self.pick_match(stage, match, block.position)
            return None if pick is None else self.make_hit(pick)

        return block.search.read(make_hit)

    def _was_shown(self, stage: SearchStage, match: Match, position: SearchPosition) -> bool:
        """Return True if a match was shown before.

        An earlier block may have shown the conversation, or the stage of the best messages the
        message.
        """
        if stage.best is not None and self._get_identity(match) in self._list_shown(
            stage.best, position.top
        ):
            return True
        if self.request.per == "message" or stage.terms:
            return False
        is_ascending = self.request.order == "oldest"
        low, top = (self.low, position.below) if is_ascending else (position.below, position.top)
        members = self.conversations.list_members(match) if low < top else []
        group = self._list_stages(position.stage)
        return low < top and any(self._has_match(one, members, low, top) for one in group)
