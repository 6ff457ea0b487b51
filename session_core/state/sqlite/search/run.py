"""One search on one moment of the database: stage by stage, block by block, a page of hits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from session_core.errors import InvalidInput
from session_core.state import cursors, search_text, snippet
from session_core.state import query as queries
from session_core.state.sqlite import sql_blocks
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.search import any_words, candidates, scan
from session_core.state.sqlite.search import request as search_request
from session_core.state.sqlite.search import stages as search_stages
from session_core.state.sqlite.search.candidates import Match, SearchTask
from session_core.state.sqlite.search.conversations import MatchConversations
from session_core.state.sqlite.search.request import SearchRequest
from session_core.state.sqlite.search.scan import MatchBlock
from session_core.state.sqlite.search.stages import SearchStage
from session_core.types import MatchMode, SearchHit, SearchResult

SQL = sql_blocks.load_blocks("search")

_MAX_BLOCKS = 6


@dataclass(frozen=True, slots=True)
class SearchPosition:
    """Where a search goes on: in which stage, below which message, after how many of a block."""

    stage: str
    top: int
    below: int
    skip: int = 0
    found: int = 0
    """Whether there was a hit already, so that nothing is loosened any more."""


class SearchRun:
    """One search on one moment of the database."""

    def __init__(self, handle: Connection, request: SearchRequest) -> None:
        self.handle = handle
        self.request = request
        self.query = queries.parse_query(request.query)
        self.filters, self.values = search_request.build_condition(handle, request)
        self.conversations = MatchConversations(handle, request)
        self._literal = search_text.fold_text(request.query.strip())
        self.low, self.top = candidates.find_id_range(handle, request.session)
        self._texts: dict[Any, Any] = {}
        self._best: set[int | str] | None = None

    def read_page(self, place: SearchPosition | None, limit: int) -> SearchResult:
        """Return a page of hits."""
        stages = search_stages.iter_stages(
            self.handle, self.query, self.request.query, self.request.mode
        )
        stage = next(stages, None) if place is None else _find_stage(stages, place.stage)
        top = self.top if place is None else place.top
        found = place is not None and bool(place.found)
        hits: list[SearchHit] = []
        matched: MatchMode = stage.matched if stage else "text"
        while stage is not None:
            here = place or SearchPosition(stage.name, top, top)
            page, following, back = self._read_stage_page(stage, here, limit - len(hits))
            hits, found, place = hits + page, found or bool(page), None
            matched = stage.matched if page or not hits else matched
            if following is not None and (found or not stage.adds):
                return self._make_result(hits, matched, back, replace(following, found=int(found)))
            if found and not stage.goes_on:
                return self._make_result(hits, matched, back, None)
            before, stage = following, next(stages, None)
            if stage is None:
                return self._make_result(hits, matched, back, before)
            if len(hits) == limit:
                return self._make_result(
                    hits, matched, back, SearchPosition(stage.name, top, top, found=1)
                )
        return self._make_result(hits, matched, None, None)

    def _make_result(
        self,
        hits: list[SearchHit],
        matched: MatchMode,
        back: float | None,
        place: SearchPosition | None,
    ) -> SearchResult:
        text = None
        if place is not None:
            position = [place.stage, place.top, place.below, place.skip, place.found]
            text = cursors.encode_cursor("search", self.request.scope, position)
        if self.query.kind == "text" and self.request.mode == "words":
            matched = "text"
        return SearchResult(hits, matched, back, text)

    def _read_stage_page(
        self, stage: SearchStage, place: SearchPosition, limit: int
    ) -> tuple[list[SearchHit], SearchPosition | None, float | None]:
        """Return hits of a stage, where it goes on, and how far back it looked."""
        hits: list[SearchHit] = []
        below, skip = place.below, place.skip
        back: float | None = None
        for _ in range(_MAX_BLOCKS):
            block = self._gather_block(stage, below, place.top)
            back = None if block.done else self.handle.fetch_value(SQL["get_time"], (block.floor,))
            ranked = self._rank_block(stage, block)
            here = replace(place, below=below)
            for number, match in enumerate(ranked[skip:], skip):
                if len(hits) == limit:
                    return hits, replace(place, below=below, skip=number), back
                hit = self._make_hit(stage, match, here)
                if hit is not None:
                    hits.append(hit)
            if block.done or stage.brief:
                return hits, None, back
            below, skip = block.floor, 0
            if len(hits) >= limit or block.read:
                break
        return hits, replace(place, below=below, skip=0), back

    def _make_task(self, stage: SearchStage) -> SearchTask:
        return SearchTask(
            self.handle,
            stage.look,
            self.filters,
            self.values,
            self.low,
            self._texts,
            per_session=self.request.per == "conversation" and self.request.session is None,
            passes=self.conversations.has_wanted_status,
        )

    def _gather_block(self, stage: SearchStage, below: int, top: int) -> MatchBlock:
        if stage.terms:
            return any_words.gather_best(self._make_task(stage), stage.terms, top)
        return scan.gather_block(self._make_task(stage), below)

    def _rank_block(self, stage: SearchStage, block: MatchBlock) -> list[Match]:
        newest = max((match.at for match in block.matches), default=0.0)
        if stage.terms:
            any_words.rank_matches(block.matches, stage.terms, self._literal, newest)
        else:
            candidates.score_matches(block.matches, stage.words, self._literal, newest)
        ranked = candidates.sort_matches(block.matches)
        return ranked if self.request.per == "message" else self.conversations.pick_best(ranked)

    def _make_hit(
        self, stage: SearchStage, match: Match, block: SearchPosition
    ) -> SearchHit | None:
        """Return what is shown of a match, None if it was shown already, or its copy is."""
        copy = self.conversations.find_later_copy(match)
        if self.request.per == "message" and copy is not None:
            return None
        if self._was_shown(stage, match, block):
            return None
        shown = copy or {}
        return SearchHit(
            session_id=shown.get("session_id", match.session_id),
            message_id=shown.get("id", match.id),
            role=match.role,
            at=match.at,
            snippet=snippet.cut_snippet(
                match.text, stage.terms or stage.words, self._literal, folded=match.shown
            ),
            title=self.conversations.find_title(match),
            source=self.conversations.find_source(match),
            compacted=bool(shown.get("compacted", match.compacted)),
        )

    def _was_shown(self, stage: SearchStage, match: Match, block: SearchPosition) -> bool:
        """Whether an earlier block or stage has shown this message or its conversation."""
        if stage.best is not None and self._get_identity(match) in self._list_shown(
            stage.best, block.top
        ):
            return True
        if self.request.per == "message":
            return False
        members = self.conversations.list_members(match)
        if any(self._has_match(before, members, self.low, block.top) for before in stage.before):
            return True
        return block.below < block.top and self._has_match(stage, members, block.below, block.top)

    def _has_match(self, stage: SearchStage, sessions: list[str], low: int, below: int) -> bool:
        """Whether sessions have a match of a stage between two messages."""
        texts = candidates.iter_session_texts(self._make_task(stage), sessions, low, below)
        return any(stage.look.test(text) for text in texts)

    def _get_identity(self, match: Match) -> int | str:
        return match.id if self.request.per == "message" else self.conversations.find_root(match)

    def _list_shown(self, best: SearchStage, top: int) -> set[int | str]:
        """Return what the stage of any words has shown, found again."""
        if self._best is None:
            block = self._gather_block(best, top, top)
            self._best = {self._get_identity(match) for match in block.matches}
        return self._best


def _find_stage(stages: Iterator[SearchStage], name: str) -> SearchStage:
    for stage in stages:
        if stage.name == name:
            return stage
    raise InvalidInput("a cursor of an earlier state of this home; search again without it")
