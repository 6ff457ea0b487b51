"""Search: candidates from the index, newest first, and their text from the sources.

Plain words climb a ladder: all of them, then prefixes, then any. A step looks at windows of ids, so
its work is bounded, and the answer reports how far back it looked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal, NamedTuple

from session_core.state import query as queries
from session_core.state import scoring, search_text
from session_core.state.query import Node, compile_leaf
from session_core.state.scoring import find_least_score
from session_core.state.search_text import TextFinder, cut_snippet
from session_core.transcripts.any_words import AnyWordScores, read_postings
from session_core.transcripts.format import Message
from session_core.transcripts.index import Index
from session_core.transcripts.listing import Condition
from session_core.transcripts.parts import ROLE_MASK, ROLES, cut_line
from session_core.transcripts.texts import Place
from session_core.transcripts.windows import WindowReader
from session_core.transcripts.words import build_expression, build_text
from session_core.types import SearchHit, SearchOrder

Step = Literal["all", "conversation", "prefix", "any", "substring", "text"]

WINDOW = 120
"""Candidates whose text is read and ranked together."""

_LOOKUP_ROWS = 10_000
_MAX_LOOKUPS = 5
_MOST_LOADED = 1000
_LEAST_TERMS = 2
_SCAN_ROWS = 200
_SCAN_S = 0.1
_LABEL_LENGTH = 80
_REPLY_REACH = 4
"""How many messages of the assistant are read for a reply with text."""

_SUMMARY_WEIGHT = -0.2

_COLUMNS = (
    "m.id, m.session, m.number, m.place, m.length, m.at, m.flags, m.key, s.source_id,"
    " s.session_id, s.native_id, s.store, s.title, s.preview, s.compacted_to, s.active_at"
)


_AT_SQL = "coalesce(m.at, s.active_at)"


class Candidate(NamedTuple):
    """A message that the index lists."""

    id: int
    session: int
    number: int
    place: int
    length: int
    at: int | None
    flags: int
    key: int | None
    source_id: int
    session_id: str
    native_id: str
    store: str
    title: str | None
    preview: str | None
    compacted_to: int
    active_at: int

    @property
    def time(self) -> float:
        """The time of the message, or of its session if it has none."""
        return (self.active_at if self.at is None else self.at) / 1000


@dataclass(slots=True)
class Block:
    """The ranked hits of one window of ids, and where the next one begins."""

    hits: list[tuple[float, SearchHit]] = field(default_factory=list)
    floor: int | None = None
    """The lowest id that was looked at, or None if nothing is left below."""
    floor_at: float | None = None
    least_score: float = 0.0
    """Hits with a lower score were left out."""

    def sort_by_time(self, order: SearchOrder) -> None:
        """Sort the hits by their time if the order asks for it."""
        if order != "relevance":
            self.hits.sort(key=lambda item: item[1].at, reverse=order == "newest")


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A parsed search."""

    query: queries.Query
    conditions: Sequence[Condition]
    per_session: bool
    now: float
    order: SearchOrder = "relevance"

    @property
    def where(self) -> str:
        """The conditions in SQL."""
        return " AND ".join(condition.sql for condition in self.conditions) or "1"

    @property
    def values(self) -> list[Any]:
        """The values of the conditions."""
        return [value for condition in self.conditions for value in condition.values]

    @property
    def steps(self) -> list[Step]:
        """The steps of the ladder for this query."""
        leaves = list(queries.iter_leaves(self.query.node))
        if self.query.kind in ("literal", "empty"):
            return ["substring"]
        if self.query.kind == "words":
            # A message with all words of a question may only repeat it.
            if queries.is_question(self.query.text):
                return ["any"]
            several: list[Step] = ["all", "conversation", "prefix", "any"]
            return several if len(leaves) > 1 else ["all", "prefix"]
        return ["text" if self.query.kind == "text" else "all"]


class TranscriptSearch:
    """Runs searches on one index."""

    def __init__(self, index: Index, windows: WindowReader) -> None:
        self._index = index
        self._windows = windows

    def find_block(self, request: SearchRequest, step: Step, top: int) -> Block:
        """Return the hits of one step with ids below `top`, the best first."""
        node = request.query.node
        if step == "substring" or node is None:
            return self._scan(request, top) if step == "substring" else Block()
        if step == "any":
            return self._find_any(request, node, top)
        if step == "conversation":
            return self._find_conversations(request, node, top)
        expression = _build_step_expression(node, step)
        return Block() if expression is None else self._find_words(request, node, expression, top)

    def find_in_order(
        self, request: SearchRequest, step: Step, after: tuple[int, int] | None, limit: int
    ) -> tuple[list[SearchHit], tuple[int, int] | None]:
        """Return a page of hits by time, and the time and id of its last one if more may follow.

        All matches are compared, because ids of the index only resemble the order of time.
        """
        node = request.query.node
        expression = None if node is None else _build_step_expression(node, step)
        if node is None or expression is None:
            return [], None
        falls = request.order == "newest"
        at = f"{'max' if falls else 'min'}({_AT_SQL})" if request.per_session else _AT_SQL
        sql = (
            f"SELECT {_COLUMNS}, {at} AS moment FROM words w"  # noqa: S608 -- fixed parts only
            " CROSS JOIN messages m ON m.id = w.rowid CROSS JOIN sessions s ON s.id = m.session"
            f" WHERE words MATCH ? AND {request.where}"
            f" GROUP BY {'m.session' if request.per_session else 'm.id'}"
            f" HAVING (moment, m.id) {'<' if falls else '>'} (?, ?)"
            f" ORDER BY moment {'DESC' if falls else 'ASC'}, m.id {'DESC' if falls else 'ASC'}"
            " LIMIT ?"
        )
        place = after or ((2**62, 0) if falls else (-(2**62), 0))
        rows = self._index.read(sql, (expression, *request.values, *place, limit))
        candidates = [Candidate(*row[:-1]) for row in rows]
        kept = self._drop_copies(request, candidates, lambda _: expression)
        block = Block(self._rank_words(request, node, kept))
        block.sort_by_time(request.order)
        hits = [hit for _, hit in block.hits]
        return hits, (rows[-1][-1], rows[-1][0]) if len(rows) == limit else None

    def _find_words(self, request: SearchRequest, node: Node, expression: str, top: int) -> Block:
        rows, floor, floor_at = self._list_candidates(request, expression, top)
        candidates = self._drop_copies(request, rows, lambda _: expression)
        seen = self._list_earlier_sessions(request, expression, top)
        kept = [candidate for candidate in candidates if candidate.session not in seen]
        return Block(self._rank_words(request, node, kept), floor, floor_at)

    def _rank_words(
        self, request: SearchRequest, node: Node, candidates: Sequence[Candidate]
    ) -> list[tuple[float, SearchHit]]:
        """Return the hits of messages that match a node."""
        words = [compile_leaf(leaf) for leaf in queries.iter_leaves(node)]
        literal = search_text.fold_text(request.query.text).rstrip("?")

        def score(candidate: Candidate, folded: str) -> float:  # noqa: ARG001 -- as _rank calls it
            return scoring.score_words(folded, words, literal)

        return self._rank(request, words, candidates, score)

    def add_replies(self, hits: Sequence[SearchHit]) -> list[SearchHit]:
        """Return the hits, those of the user with the reply to them."""
        return [
            replace(hit, reply_id=self._find_reply(hit)) if hit.role == "user" else hit
            for hit in hits
        ]

    def _find_reply(self, hit: SearchHit) -> int | None:
        """Return the number of the next message of the assistant with text, if it is near."""
        sql = (
            "SELECT m.number, m.place, m.length, m.key, s.source_id, s.native_id"  # noqa: S608 -- fixed parts only
            " FROM sessions s CROSS JOIN messages m ON m.session = s.id"
            " WHERE s.session_id = ? AND s.store = ? AND m.number > ?"
            f" AND m.flags & {ROLE_MASK} = {ROLES.index('assistant')} ORDER BY m.number LIMIT ?"
        )
        values = (hit.session_id, hit.source, hit.message_id, _REPLY_REACH)
        for *place, source_id, native_id in self._index.read(sql, values):
            messages = self._windows.read_texts(source_id, native_id, [Place(*place)])
            if any(message.text for message in messages.values()):
                return int(place[0])
        return None

    def _list_candidates(
        self, request: SearchRequest, expression: str, top: int
    ) -> tuple[list[Candidate], int | None, float | None]:
        """Return the newest candidates below an id that pass the filters, and the lowest id."""
        sql = (
            f"SELECT {_COLUMNS} FROM (SELECT rowid AS id FROM words WHERE words MATCH ? AND rowid < ?"  # noqa: S608, E501 -- fixed parts only
            " ORDER BY rowid DESC LIMIT ?) w CROSS JOIN messages m ON m.id = w.id"
            f" CROSS JOIN sessions s ON s.id = m.session WHERE {request.where} LIMIT ?"
        )
        found: list[Candidate] = []
        for _ in range(_MAX_LOOKUPS):
            room = WINDOW - len(found)
            values = (expression, top, _LOOKUP_ROWS, *request.values, room)
            rows = [Candidate(*row) for row in self._index.read(sql, values)]
            found += rows
            if len(rows) == room:
                return found, found[-1].id, found[-1].time
            below = (
                "SELECT min(id) FROM (SELECT rowid AS id FROM words WHERE words MATCH ?"
                " AND rowid < ? ORDER BY rowid DESC LIMIT ?) HAVING count(*) = ?"
            )
            rest = self._index.read(below, (expression, top, _LOOKUP_ROWS, _LOOKUP_ROWS))
            if not rest:
                return found, None, None
            top = rest[0][0]
        return found, top, self._get_time(top)

    def _get_time(self, message_id: int) -> float | None:
        sql = "SELECT max(at) FROM (SELECT at FROM messages WHERE id <= ? ORDER BY id DESC LIMIT 1)"
        at = self._index.read(sql, (message_id,))[0][0]
        return None if at is None else at / 1000

    def _drop_copies(
        self,
        request: SearchRequest,
        candidates: Sequence[Candidate],
        build_expression: Callable[[int], str | None],
    ) -> list[Candidate]:
        """Keep one of the copies that forks have: that of the earliest session that passes.

        A copy matches what the candidate matches, so an id that was forged hides no other text.
        """
        sql = (
            "SELECT m.id, m.session, coalesce(s.started_at, s.active_at) AS started, s.session_id"  # noqa: S608 -- fixed parts only
            " FROM messages m JOIN sessions s ON s.id = m.session"
            f" WHERE m.key = ? AND {request.where} ORDER BY started, s.session_id LIMIT 50"
        )
        kept = []
        for candidate in candidates:
            if candidate.key is not None:
                copies = self._index.read(sql, (candidate.key, *request.values))
                earlier = takewhile(lambda copy: copy[1] != candidate.session, copies)  # noqa: B023 -- used at once
                expression = build_expression(candidate.id)
                if any(self._is_match(expression, copy[0]) for copy in earlier):
                    continue
            kept.append(candidate)
        return kept

    def _is_match(self, expression: str | None, message_id: int) -> bool:
        """Return True if a message matches."""
        sql = "SELECT 1 FROM words WHERE words MATCH ? AND rowid = ?"
        return expression is None or bool(self._index.read(sql, (expression, message_id)))

    def _list_earlier_sessions(self, request: SearchRequest, expression: str, top: int) -> set[int]:
        """Return the sessions with a hit above the window, which an earlier page has shown."""
        if not request.per_session or top >= 2**62:
            return set()
        sql = (
            "SELECT DISTINCT m.session FROM words w CROSS JOIN messages m ON m.id = w.rowid"  # noqa: S608 -- fixed parts only
            f" CROSS JOIN sessions s ON s.id = m.session"
            f" WHERE words MATCH ? AND w.rowid >= ? AND {request.where}"
        )
        return {row[0] for row in self._index.read(sql, (expression, top, *request.values))}

    def _find_any(self, request: SearchRequest, node: Node, top: int) -> Block:
        """Return the messages with the most of the words, rare ones first."""
        scores = self._read_scores(request, node, top)
        candidates = self._load_candidates(request, scores.list_best(_MOST_LOADED))
        scores.add_near_terms(self._index, {one.id: one.session for one in candidates})
        candidates.sort(key=lambda one: -scores.score(one.id, one.length))
        kept = self._drop_copies(request, candidates[:WINDOW], scores.build_expression)

        hits = self._rank_any(request, scores, kept)
        # All matches of a single word are equal in their words.
        found = sum(bool(postings.ids) for postings in scores.postings)
        least = find_least_score([item[0] for item in hits]) if found > 1 else 0.0
        block = Block([item for item in hits if item[0] >= least], least_score=least)
        block.sort_by_time(request.order)
        return block

    def _read_scores(self, request: SearchRequest, node: Node, top: int) -> AnyWordScores:
        excluded = [build_expression(leaf) for leaf in request.query.excluded]
        return AnyWordScores(read_postings(self._index, node, top), self._index, excluded)

    def _rank_any(
        self, request: SearchRequest, scores: AnyWordScores, candidates: Sequence[Candidate]
    ) -> list[tuple[float, SearchHit]]:
        def score(candidate: Candidate, folded: str) -> float:
            title = scores.score_title(candidate.id, candidate.title)
            return scores.score(candidate.id, len(folded)) + title

        terms = [postings.term for postings in scores.postings]
        return self._rank(request, terms, candidates, score)

    def _find_conversations(self, request: SearchRequest, node: Node, top: int) -> Block:
        """Return messages of the sessions that have all words in their messages and title."""
        scores = self._read_scores(request, node, top)
        if len(scores.postings) < _LEAST_TERMS:
            return Block()
        sessions = self._find_sessions(request, list(scores.own))
        whole = scores.list_whole_sessions(self._index, sessions)
        chosen = [one for one in scores.list_best(len(scores.own)) if sessions.get(one) in whole]
        candidates = self._load_candidates(request, chosen[:_MOST_LOADED])[:WINDOW]
        kept = self._drop_copies(request, candidates, scores.build_expression)
        block = Block(self._rank_any(request, scores, kept))
        block.sort_by_time(request.order)
        return block

    def _find_sessions(self, request: SearchRequest, ids: Sequence[int]) -> dict[int, int]:
        """Return the sessions of the messages that pass the filters."""
        found: dict[int, int] = {}
        for start in range(0, len(ids), 500):
            part = ids[start : start + 500]
            sql = (
                "SELECT m.id, m.session FROM messages m JOIN sessions s ON s.id = m.session"  # noqa: S608 -- marks only
                f" WHERE m.id IN ({', '.join('?' * len(part))}) AND {request.where}"
            )
            found |= dict(self._index.read(sql, (*part, *request.values)))
        return found

    def _load_candidates(self, request: SearchRequest, ids: Sequence[int]) -> list[Candidate]:
        """Return the candidates with these ids that pass the filters, in this order."""
        found: dict[int, Candidate] = {}
        for start in range(0, len(ids), 500):
            part = ids[start : start + 500]
            sql = (
                f"SELECT {_COLUMNS} FROM messages m JOIN sessions s ON s.id = m.session"  # noqa: S608
                f" WHERE m.id IN ({', '.join('?' * len(part))}) AND {request.where}"
            )
            rows = self._index.read(sql, (*part, *request.values))
            found |= {row[0]: Candidate(*row) for row in rows}
        return [found[number] for number in ids if number in found]

    def _scan(self, request: SearchRequest, top: int) -> Block:
        """Search for the literal text, newest first, until the time limit."""
        literal = search_text.fold_text(request.query.text)
        until = time.monotonic() + _SCAN_S
        sql = (
            f"SELECT {_COLUMNS} FROM messages m CROSS JOIN sessions s ON s.id = m.session"  # noqa: S608
            f" WHERE m.id < ? AND {request.where} ORDER BY m.id DESC LIMIT ?"
        )
        block = Block()
        while literal and len(block.hits) < WINDOW:
            rows = self._index.read(sql, (top, *request.values, _SCAN_ROWS))
            candidates = [Candidate(*row) for row in rows]
            for candidate, message, text in self._read_texts(
                self._drop_copies(request, candidates, lambda _: None)
            ):
                folded = search_text.fold_text(text)
                if literal in folded:
                    snippet = cut_snippet(text, (), literal, folded=folded)
                    score = scoring.score_words(folded, (), literal)
                    score += _score_context(candidate, message, folded, (), request.now)
                    block.hits.append((score, _make_hit(candidate, snippet, score)))
            if len(rows) < _SCAN_ROWS:
                block.floor = block.floor_at = None
                break
            top = candidates[-1].id
            block.floor, block.floor_at = top, candidates[-1].time
            if time.monotonic() >= until:
                break
        block.hits.sort(key=lambda item: -item[0])
        if request.per_session:
            best = {item[1].session_id: item for item in reversed(block.hits)}
            block.hits = sorted(best.values(), key=lambda item: -item[0])
        block.sort_by_time(request.order)
        return block

    def _rank(
        self,
        request: SearchRequest,
        words: Sequence[TextFinder],
        candidates: Sequence[Candidate],
        score_text: Callable[[Candidate, str], float],
    ) -> list[tuple[float, SearchHit]]:
        """Return the hits with their scores, the best first; one for each session if asked."""
        literal = search_text.fold_text(request.query.text).rstrip("?")
        is_question = queries.is_question(request.query.text)
        scored = []
        for candidate, message, text in self._read_texts(candidates):
            folded = search_text.fold_text(text)
            score = score_text(candidate, folded)
            score += _score_context(candidate, message, folded, words, request.now)
            if is_question and literal in folded:
                score /= 2  # a message that repeats the question is not an answer
            scored.append((score, candidate, text, folded))
        scored.sort(key=lambda item: (-item[0], -item[1].id))
        hits, seen = [], set[int]()
        for score, candidate, text, folded in scored:
            if request.per_session and candidate.session in seen:
                continue
            seen.add(candidate.session)
            snippet = cut_snippet(text, words, literal, folded=folded)
            hits.append((score, _make_hit(candidate, snippet, score)))
        return hits

    def _read_texts(
        self, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Candidate, Message, str]]:
        """Yield candidates with their text; those whose source has changed are left out."""
        groups: dict[tuple[int, str], list[Candidate]] = {}
        for candidate in candidates:
            place = (candidate.source_id, candidate.native_id)
            groups.setdefault(place, []).append(candidate)
        for (source_id, native_id), group in groups.items():
            places = [Place(item.number, item.place, item.length, item.key) for item in group]
            messages = self._windows.read_texts(source_id, native_id, places)
            for candidate in group:
                message = messages.get(candidate.number)
                if message is not None:
                    yield candidate, message, build_text(message)


def _build_step_expression(node: Node, step: Step) -> str | None:
    if step == "prefix":
        node = queries.add_prefixes(node, except_for=queries.STOP_WORDS)
    return queries.build_match_expression(node, build_expression)


def _score_context(
    candidate: Candidate,
    message: Message,
    folded: str,
    words: Sequence[TextFinder],
    now: float,
) -> float:
    """Return the score of a message apart from its words; a summary repeats what others state."""
    score = scoring.score_context(
        folded,
        words,
        role=ROLES[candidate.flags & ROLE_MASK],
        age_s=now - candidate.time,
        compacted=candidate.number < candidate.compacted_to,
    )
    return score + _SUMMARY_WEIGHT * message.is_summary


def _make_hit(candidate: Candidate, snippet: str, score: float) -> SearchHit:
    return SearchHit(
        session_id=candidate.session_id,
        message_id=candidate.number,
        role=ROLES[candidate.flags & ROLE_MASK],
        at=candidate.time,
        snippet=snippet,
        title=candidate.title or make_label(candidate.preview),
        source=candidate.store,
        compacted=candidate.number < candidate.compacted_to,
        score=score,
    )


def make_label(preview: str | None) -> str | None:
    """Return the first prompt as a label of its session."""
    return None if preview is None else cut_line(preview, _LABEL_LENGTH)
