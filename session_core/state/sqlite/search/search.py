"""Full-text search over all messages of a home.

BM25 over a whole index costs in proportion to the matches, so relevance is judged among the newest
matches only, in blocks, and the cursor continues with the next block. Plain words without a match
are loosened in steps: all words, words as prefixes, any of them ranked by how many match.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from session_core import _sqlite3
from session_core.errors import InvalidInput
from session_core.state import content, cursors, relevance, search_text, sql_blocks, validation
from session_core.state import query as queries
from session_core.state.sqlite import fts
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.search import any_words, candidates, hermes_indexes, match_blocks
from session_core.state.sqlite.search import request as search_request
from session_core.state.sqlite.search import stages as search_stages
from session_core.state.sqlite.search.candidates import Match, SearchTask
from session_core.state.sqlite.search.match_blocks import MatchBlock
from session_core.state.sqlite.search.match_conversations import MatchConversations
from session_core.state.sqlite.search.request import SearchRequest
from session_core.state.sqlite.search.stages import SearchStage
from session_core.state.sqlite.store import SqliteStore
from session_core.types import MatchMode, SearchHit, SearchResult, SearchStep

SQL = sql_blocks.load_blocks("search")

MAX_HITS = 100
_MAX_BLOCKS = 6
_REPLY_REACH = 300
"""The distance in ids up to which the reply to a message is searched for."""

_CURSOR_FIELD_TYPES = (str, int, int, int, int)
_MALFORMED_CURSOR = "malformed cursor; pass next_cursor of the previous page unchanged"


def make_request(query: str, **arguments: Any) -> SearchRequest:
    """Check the arguments of a search and return them as a request.

    Raises:
        InvalidInput: an argument has an unknown value.
    """
    validation.check_text("query", query, needed=True)
    for name in ("session", "tool"):
        validation.check_text(name, arguments[name])
    for name in ("since", "until", "moment"):
        validation.check_number(name, arguments[name])
    for name in ("source", "exclude_source", "roles"):
        arguments[name] = validation.parse_texts(name, arguments[name])
    arguments["project"] = validation.parse_folders("project", arguments["project"])
    text = content.clean_text(query[: queries.MAX_QUERY_LENGTH])
    request = SearchRequest(text, **arguments)
    request.check()
    return request


def search_messages(
    store: SqliteStore, request: SearchRequest, cursor: str | None, limit: int
) -> SearchResult:
    """Return a page of hits, after updating the index if that is possible.

    Raises:
        InvalidInput: the cursor belongs to another search.
        NotFound: the session does not exist.
    """
    position = None if cursor is None else _decode_cursor(request, cursor)
    max_hits = min(limit, MAX_HITS)

    def search_snapshot(handle: Connection) -> SearchResult:
        return _run_search(handle, request, position, max_hits)

    def search_unless_behind(handle: Connection) -> SearchResult | None:
        return None if fts.is_index_behind(handle) else search_snapshot(handle)

    # A read-only store cannot update the index, so it answers at once.
    result = store.read(search_snapshot if store.read_only else search_unless_behind)
    # The index is updated in a write transaction, then the search runs again.
    if result is None:
        store.update_search_index()
        result = store.read(search_snapshot)
    return result


def _run_search(
    handle: Connection, request: SearchRequest, position: SearchPosition | None, max_hits: int
) -> SearchResult:
    """Search by the index, or without it if the index is damaged."""
    try:
        return SearchRun(handle, request).read_page(position, max_hits)
    except _sqlite3.load_library().DatabaseError:
        if handle.seen.get(hermes_indexes.INDEX_BROKEN_KEY):
            raise
        handle.seen[hermes_indexes.INDEX_BROKEN_KEY] = True
        return SearchRun(handle, request).read_page(position, max_hits)


def _decode_cursor(request: SearchRequest, cursor: str) -> SearchPosition:
    fields = cursors.decode_cursor("search", request.scope, cursor)
    if not isinstance(fields, list) or len(fields) != len(_CURSOR_FIELD_TYPES):
        raise InvalidInput(_MALFORMED_CURSOR)
    if not all(
        isinstance(value, kind) for value, kind in zip(fields, _CURSOR_FIELD_TYPES, strict=True)
    ):
        raise InvalidInput(_MALFORMED_CURSOR)
    # A number of a forged cursor may not fit the integers of SQLite.
    if not all(fts.MIN_ID <= number <= fts.MAX_ID + 1 for number in fields[1:]):
        raise InvalidInput(_MALFORMED_CURSOR)
    position = SearchPosition(*fields)
    if position.skip < 0:
        raise InvalidInput(_MALFORMED_CURSOR)
    return position


@dataclass(frozen=True, slots=True)
class SearchPosition:
    """The position of a search: stage, message id, and the number of hits of a block to skip."""

    stage: str
    top: int
    below: int
    skip: int = 0
    found: int = 0
    """1 if there was a hit, which stops the loosening."""


class PickedMatch(NamedTuple):
    """A match to show, with the row that shows it: its own, or its later copy."""

    stage: SearchStage
    match: Match
    session_id: str
    message_id: int
    compacted: bool


class SearchRun:
    """One search in one snapshot of the database."""

    def __init__(self, handle: Connection, request: SearchRequest) -> None:
        self.handle = handle
        self.request = request
        self.query = queries.parse_query(request.query)
        self.filters, self.values = search_request.build_condition(handle, request)
        self.conversations = MatchConversations(handle, request)
        self._literal = search_text.fold_text(self.query.text or request.query.strip())
        self._excluded = [queries.compile_leaf(leaf) for leaf in self.query.excluded]
        self.low, self.top = candidates.find_id_range(handle, request.session)
        self._texts: dict[Any, Any] = {}
        self.weights: Mapping[str, float] | None = None
        """The weights of words, or None if this home alone decides on them."""
        self._best: set[int | str] | None = None
        self._least_score = 0.0
        self._has_far_matches = False

    def iter_steps(self) -> Iterator[tuple[SearchStep, Iterator[SearchStage]]]:
        """Yield the steps of the query, from strict to loose, each with its stages."""
        request = self.request
        return search_stages.iter_steps(self.handle, self.query, request.query, request.mode)

    def read_page(self, position: SearchPosition | None, limit: int) -> SearchResult:
        """Return a page of hits."""
        stages = chain.from_iterable(stages for _, stages in self.iter_steps())
        stage = next(stages, None) if position is None else _find_stage(stages, position.stage)
        top = self.top if position is None else position.top
        has_hits = position is not None and bool(position.found)
        picks: list[PickedMatch] = []
        matched: MatchMode = stage.matched if stage else "text"
        while stage is not None:
            stage_position = position or self._make_first_position(stage, top)
            page, next_position, oldest_at = self._read_stage_page(
                stage, stage_position, limit - len(picks)
            )
            picks, has_hits, position = picks + page, has_hits or bool(page), None
            matched = stage.matched if page or not picks else matched
            if next_position is not None and (has_hits or not stage.adds):
                return self._make_result(
                    picks, matched, oldest_at, replace(next_position, found=int(has_hits))
                )
            # Matches far below the best were dropped, and the next stage adds weaker matches.
            if has_hits and (not stage.goes_on or self._has_far_matches):
                return self._make_result(picks, matched, oldest_at, None)
            # The stage is exhausted, or only adds to others: continue with the next one.
            last_position, stage = next_position, next(stages, None)
            if stage is None:
                return self._make_result(picks, matched, oldest_at, last_position)
            if len(picks) == limit:
                first_position = replace(self._make_first_position(stage, top), found=1)
                return self._make_result(picks, matched, oldest_at, first_position)
        return self._make_result(picks, matched, None, None)

    def _make_first_position(self, stage: SearchStage, top: int) -> SearchPosition:
        # The oldest matches come from blocks that rise from the lowest id.
        return SearchPosition(stage.name, top, self.low if self._is_ascending(stage) else top)

    def _is_ascending(self, stage: SearchStage) -> bool:
        return self.request.order == "oldest" and not stage.terms

    def _make_result(
        self,
        picks: list[PickedMatch],
        matched: MatchMode,
        oldest_at: float | None,
        position: SearchPosition | None,
    ) -> SearchResult:
        cursor = None
        if position is not None:
            fields = [
                position.stage,
                position.top,
                position.below,
                position.skip,
                position.found,
            ]
            cursor = cursors.encode_cursor("search", self.request.scope, fields)
        if self.query.kind == "text" and self.request.mode == "words":
            matched = "text"
        replies = self.find_replies(pick.message_id for pick in picks if pick.match.role == "user")
        hits = [self.make_hit(pick, replies.get(pick.message_id)) for pick in picks]
        return SearchResult(hits, matched, oldest_at, cursor, self._least_score)

    def find_replies(self, user_message_ids: Iterable[int]) -> dict[int, int | None]:
        """Return the id of the reply to each of these messages of the user, if it has one."""
        ids = list(user_message_ids)
        if not ids:
            return {}
        bounds = {"ids": json.dumps(ids), "reach": _REPLY_REACH}
        block = self.handle.expand_sql(SQL["find_replies"])
        return dict(self.handle.fetch_tuples(block, bounds))

    def _read_stage_page(
        self, stage: SearchStage, position: SearchPosition, limit: int
    ) -> tuple[list[PickedMatch], SearchPosition | None, float | None]:
        """Return picks of a stage, the position after them, and the oldest time searched."""
        picks: list[PickedMatch] = []
        below, skip = position.below, position.skip
        oldest_at: float | None = None
        for _ in range(_MAX_BLOCKS):
            block = self._gather_block(stage, below, position.top)
            if not block.done and not self._is_ascending(stage):
                oldest_at = self.handle.fetch_value(SQL["get_time"], (block.floor,))
            else:
                oldest_at = None
            ranked = self._rank_block(stage, block)
            block_position = replace(position, below=below)
            for number, match in enumerate(ranked[skip:], skip):
                if len(picks) == limit:
                    return picks, replace(position, below=below, skip=number), oldest_at
                pick = self.pick_match(stage, match, block_position)
                if pick is not None:
                    picks.append(pick)
            if block.done or stage.brief:
                return picks, None, oldest_at
            below, skip = block.floor, 0
            if len(picks) >= limit or block.read:
                break
        return picks, replace(position, below=below, skip=0), oldest_at

    def _is_wanted(self, match: Match) -> bool:
        # The step of any words knows only the words to find.
        excluded = (word.find(match.folded) for word in self._excluded)
        return self.conversations.has_wanted_status(match) and not any(excluded)

    def _make_task(self, stage: SearchStage) -> SearchTask:
        return SearchTask(
            self.handle,
            stage.query,
            self.filters,
            self.values,
            self.low,
            self._texts,
            per_session=self.request.per == "conversation"
            and self.request.session is None
            and not self._is_ascending(stage),
            passes=self._is_wanted if self._excluded else self.conversations.has_wanted_status,
        )

    def _gather_block(self, stage: SearchStage, below: int, top: int) -> MatchBlock:
        if stage.adds_up:
            task = self._make_task(stage)
            return any_words.gather_conversations(task, stage.terms, top, self.weights)
        if stage.terms:
            return any_words.gather_best(self._make_task(stage), stage.terms, top, self.weights)
        if self._is_ascending(stage):
            return match_blocks.gather_oldest(self._make_task(stage), below, top)
        return match_blocks.gather_block(self._make_task(stage), below)

    def _rank_block(self, stage: SearchStage, block: MatchBlock) -> list[Match]:
        newest = self.request.moment
        if newest is None:
            newest = max((match.at for match in block.matches), default=0.0)
        if stage.terms:
            any_words.rank_matches(block.matches, stage.terms, self._literal, newest)
        else:
            candidates.score_matches(block.matches, stage.words, self._literal, newest)
        ranked = candidates.sort_matches(block.matches)
        if block.found_terms > 1:  # all matches of a single word are equal in their words
            ranked = self._drop_low_scored_matches(ranked)
        if self.request.order != "relevance":
            ranked.sort(key=lambda match: match.id, reverse=self.request.order == "newest")
        return self._pick_best(ranked)

    def _drop_low_scored_matches(self, ranked: list[Match]) -> list[Match]:
        """Return the matches with scores near the best one, and store the lowest score allowed."""
        scores = [match.score for match in self._pick_best(ranked)]
        self._least_score = relevance.find_least_score(scores)
        near = [match for match in ranked if match.score >= self._least_score]
        self._has_far_matches = len(near) < len(ranked)
        return near

    def _pick_best(self, ranked: list[Match]) -> list[Match]:
        return ranked if self.request.per == "message" else self.conversations.pick_best(ranked)

    def pick_match(
        self, stage: SearchStage, match: Match, block: SearchPosition
    ) -> PickedMatch | None:
        """Return a match to show, or None if it or its copy was shown before."""
        copy = self.conversations.find_later_copy(match)
        if self.request.per == "message" and copy is not None:
            return None
        if self._was_shown(stage, match, block):
            return None
        if copy is None:
            return PickedMatch(stage, match, match.session_id, match.id, match.compacted)
        return PickedMatch(stage, match, copy["session_id"], copy["id"], bool(copy["compacted"]))

    def make_hit(self, pick: PickedMatch, reply_id: int | None = None) -> SearchHit:
        """Build the hit of a match."""
        stage, match, session_id, message_id, compacted = pick
        words = stage.terms or stage.words
        return SearchHit(
            session_id,
            message_id,
            match.role,
            match.at,
            search_text.cut_snippet(match.text, words, self._literal, folded=match.shown),
            self.conversations.find_title(match),
            self.conversations.find_source(match),
            compacted,
            match.score,
            reply_id,
        )

    def _was_shown(self, stage: SearchStage, match: Match, block: SearchPosition) -> bool:
        """Return True if an earlier block or stage showed the message or its conversation."""
        if stage.best is not None and self._get_identity(match) in self._list_shown(
            stage.best, block.top
        ):
            return True
        if self.request.per == "message":
            return False
        is_ascending = self._is_ascending(stage)
        if not (stage.before or is_ascending or block.below < block.top):
            return False
        members = self.conversations.list_members(match)
        if any(self._has_match(before, members, self.low, block.top) for before in stage.before):
            return True
        if is_ascending:
            return self._has_match(stage, members, self.low, block.below)
        return block.below < block.top and self._has_match(stage, members, block.below, block.top)

    def _has_match(self, stage: SearchStage, sessions: list[str], low: int, below: int) -> bool:
        """Return True if sessions have a match of a stage between two ids."""
        texts = candidates.iter_session_texts(self._make_task(stage), sessions, low, below)
        return any(stage.query.test(text) for text in texts)

    def _get_identity(self, match: Match) -> int | str:
        return match.id if self.request.per == "message" else self.conversations.find_root(match)

    def _list_shown(self, best: SearchStage, top: int) -> set[int | str]:
        """Return the identities that the stage of any words has shown, after searching again."""
        if self._best is None:
            block = self._gather_block(best, top, top)
            self._best = {self._get_identity(match) for match in block.matches}
        return self._best


def _find_stage(stages: Iterator[SearchStage], name: str) -> SearchStage:
    for stage in stages:
        if stage.name == name:
            return stage
    raise InvalidInput("cursor belongs to an earlier state of this home; search again without it")
