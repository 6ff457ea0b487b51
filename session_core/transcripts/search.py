"""Search: candidates from the index, newest first, and their text from the sources.

Plain words climb a ladder: all of them, then prefixes, then any. A step looks at windows of ids, so
its work is bounded, and the answer reports how far back it looked.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal, NamedTuple

from session_core.state import query as queries
from session_core.state import scoring, search_text
from session_core.state.query import And, Leaf, Node, Not, Or, compile_leaf
from session_core.state.snippet import cut_snippet
from session_core.transcripts.format import Message
from session_core.transcripts.index import Index
from session_core.transcripts.listing import Condition
from session_core.transcripts.parts import ROLE_MASK, ROLES
from session_core.transcripts.texts import Place
from session_core.transcripts.windows import WindowReader
from session_core.transcripts.words import build_expression, build_text
from session_core.types import SearchHit

Step = Literal["all", "prefix", "any", "substring", "text"]

WINDOW = 120
"""Candidates whose text is read and ranked together."""

_LOOKUP_ROWS = 10_000
_MAX_LOOKUPS = 5
_LIST_ROWS = 4000
_MAX_TERMS = 12
_SCAN_ROWS = 200
_SCAN_S = 0.1
_SUMMARY_WEIGHT = -0.2
_EXCLUDED = re.compile(r'(?:^|\s)-(?=[^\s\d"-])(\S+)')

_COLUMNS = (
    "m.id, m.session, m.number, m.place, m.length, m.at, m.flags, m.key, s.source_id,"
    " s.session_id, s.native_id, s.store, s.title, s.preview, s.compacted_to, s.active_at"
)


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


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A parsed search."""

    query: queries.Query
    node: Node | None
    conditions: Sequence[Condition]
    per_session: bool
    now: float

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
        leaves = list(queries.iter_leaves(self.node))
        if self.query.kind in ("literal", "empty"):
            return ["substring"]
        if self.query.kind == "words":
            return ["all", "prefix", "any"] if len(leaves) > 1 else ["all", "prefix"]
        return ["text" if self.query.kind == "text" else "all"]


def parse_search(text: str) -> tuple[queries.Query, Node | None]:
    """Return a parsed query, and its node with the words after a minus sign excluded."""
    excluded = [Leaf(word) for word in _EXCLUDED.findall(text) if search_text.split_words(word)]
    rest = _EXCLUDED.sub(" ", text).strip() if excluded else text
    query = queries.parse_query(rest or text)
    if not excluded or not rest or query.node is None:
        return query, query.node
    return query, And((query.node, *(Not(leaf) for leaf in excluded)))


class TranscriptSearch:
    """Runs searches on one index."""

    def __init__(self, index: Index, windows: WindowReader) -> None:
        self._index = index
        self._windows = windows

    def find_block(self, request: SearchRequest, step: Step, top: int) -> Block:
        """Return the hits of one step with ids below `top`."""
        if step == "substring":
            return self._scan(request, top)
        node = request.node
        if node is None:
            return Block()
        if step == "any":
            return self._find_any(request, node, top)
        if step == "prefix":
            node = queries.add_prefixes(node, except_for=queries.STOP_WORDS)
        expression = queries.build_match_expression(node, build_expression)
        if expression is None:
            return Block()
        rows, floor, floor_at = self._list_candidates(request, expression, top)
        candidates = self._drop_copies(request, rows, expression)
        seen = self._list_earlier_sessions(request, expression, top)
        kept = [candidate for candidate in candidates if candidate.session not in seen]
        return Block(self._rank(request, node, kept), floor, floor_at)

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
        self, request: SearchRequest, candidates: Sequence[Candidate], expression: str | None
    ) -> list[Candidate]:
        """Keep one of the copies that forks have: that of the earliest session that passes."""
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
                if any(self._is_match(expression, copy[0]) for copy in earlier):
                    continue
            kept.append(candidate)
        return kept

    def _is_match(self, expression: str | None, message_id: int) -> bool:
        """Return True if a message matches: an id that was forged must hide no other text."""
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
        leaves = list(queries.iter_leaves(node))
        useful = [leaf for leaf in leaves if not queries.is_stop_word(leaf.text.lower())] or leaves
        lists = [self._list_postings(leaf, top) for leaf in useful[:_MAX_TERMS]]
        total = max(1, self._index.read("SELECT count(*) FROM messages")[0][0])
        scores: dict[int, float] = {}
        weights = [1 - 0.5 * math.log((len(ids) + 0.5) / (total + 1)) for _, ids in lists]
        for (_, ids), weight in zip(lists, weights, strict=True):
            for message_id in ids:
                scores[message_id] = scores.get(message_id, 0.0) + weight
        best = sorted(scores, key=lambda number: (scores[number], number), reverse=True)
        candidates = self._load_candidates(request, best[: 20 * WINDOW])[:WINDOW]
        any_node = Or(tuple(leaf for leaf, _ in lists)) if len(lists) > 1 else lists[0][0]
        kept = self._drop_copies(request, candidates, None)
        return Block(self._rank(request, any_node, kept, scores))

    def _list_postings(self, leaf: Leaf, top: int) -> tuple[Leaf, list[int]]:
        """Return the newest messages with a word or one of its other forms."""
        forms = [Leaf(form) for form in queries.list_word_forms(leaf.text.lower())]
        expressions = [build_expression(form) for form in dict.fromkeys((leaf, *forms))]
        # Most of the forms are no words, and each would cost at every row of the others.
        exists = "SELECT 1 FROM words WHERE words MATCH ? LIMIT 1"
        present = [part for part in expressions if part and self._index.read(exists, (part,))]
        if not present:
            return leaf, []
        expression = " OR ".join(present)
        sql = (
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?"
        )
        return leaf, [row[0] for row in self._index.read(sql, (expression, top, _LIST_ROWS))]

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
            if len(found) >= WINDOW:
                break
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
                self._drop_copies(request, candidates, None)
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
        return block

    def _rank(
        self,
        request: SearchRequest,
        node: Node,
        candidates: Sequence[Candidate],
        scores: Mapping[int, float] | None = None,
    ) -> list[tuple[float, SearchHit]]:
        """Return the hits with their scores, the best first; one for each session if asked."""
        leaves = list(queries.iter_leaves(node))
        words = [compile_leaf(leaf) for leaf in leaves]
        literal = search_text.fold_text(request.query.text).rstrip("?")
        is_question = queries.is_question(request.query.text)
        scored = []
        for candidate, message, text in self._read_texts(candidates):
            folded = search_text.fold_text(text)
            if scores is None:
                score = scoring.score_words(folded, words, literal)
            else:
                score = scoring.discount_length(scores[candidate.id], len(folded))
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


def _score_context(
    candidate: Candidate,
    message: Message,
    folded: str,
    words: Sequence[queries.LeafMatcher],
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
        title=candidate.title or candidate.preview,
        source=candidate.store,
        compacted=candidate.number < candidate.compacted_to,
        score=score,
    )
