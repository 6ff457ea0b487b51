"""The search of transcripts in blocks of time, which other stores can be merged with.

The times of messages decide exactly, because index ids are only roughly ordered by time. The index
has the times of each block of ids, so that the newest blocks show how far back it is complete.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from session_core.state import query as queries
from session_core.state import relevance, search_text
from session_core.state.query import And, Node, Or, compile_leaf
from session_core.state.search_text import TextFinder, cut_snippet
from session_core.state.store_search import ALL_TIES, LAST_MS, NO_TIES, RankedMatch
from session_core.transcripts.any_words import AnyWordScores, TermPostings, read_postings
from session_core.transcripts.candidates import (
    COLUMNS,
    MOST_LOADED,
    WINDOW,
    Candidate,
    CandidateReader,
    SearchRequest,
    build_step_expression,
    make_hit,
    score_message,
)
from session_core.transcripts.format import Message
from session_core.transcripts.index import Index
from session_core.transcripts.listing import Condition
from session_core.transcripts.windows import WindowReader
from session_core.transcripts.words import build_expression
from session_core.types import SearchEdge, SearchHit, SearchStep, TermCount

_FIRST_ROWS = 4000
_GROWTH = 4
_MAX_ROWS = 300_000
"""The number of index rows that are searched for words per block."""

_SCAN_ROWS = 200
_SCAN_WORK = 8_000_000
"""The bytes of messages that one call scans, about 0.1 s. A cursor repeats the same scan."""

_ROW_WORK, _MAX_ROW_WORK = 1000, 65_536
"""The least and most bytes that a message counts. A document is read once for its messages."""

_SCAN_S = 1.0
"""The time limit of a scan if reading is slow. The same page may then end elsewhere."""

_MAX_EARLIER_TEXTS = 2000
_MAX_SESSION_MATCHES = 6
_MAX_TITLES = 100
_MAX_BEST = 200
_LEAST_TERMS = 2
_TOP = 2**62
_AT = "coalesce(m.at, 0)"
_ORDER_AT = "coalesce(m.at, s.started_at, 0)"
_BLOCKS_SQL = "SELECT first_id, last_id, coalesce(newest_at, 0), coalesce(oldest_at, 0) FROM blocks"


class _Block(NamedTuple):
    """A block of ids, and the newest and oldest time of its messages."""

    first: int
    last: int
    newest: int
    oldest: int


Scorer = Callable[[Candidate, str], float]
_Match = tuple[int, int, int]
"""The time, the id and the session of a message."""


@dataclass(slots=True)
class SearchBlock:
    """The matches of one search step between two edges."""

    search: TranscriptSearch
    step: SearchStep
    candidates: list[Candidate]
    begin: SearchEdge | None
    end: SearchEdge | None
    is_whole: bool = False
    """Whether the block has all matches of its step."""
    is_costly: bool = False
    expression: str | None = None
    words: Sequence[TextFinder] = ()
    scorer: Scorer | None = None
    build_expression: Callable[[int], str | None] = field(default=lambda _: None)

    def rank_matches(self, end: SearchEdge | None) -> Sequence[RankedMatch]:
        """Return the ranked matches up to an edge, one per conversation if requested."""
        return self.search.rank_block(self, end)


class TranscriptSearch(CandidateReader):
    """One search in the transcripts, in a snapshot that the caller has open."""

    def __init__(
        self,
        index: Index,
        windows: WindowReader,
        request: SearchRequest,
        unread_at: float | None = None,
    ) -> None:
        super().__init__(index, windows)
        self.unread_at = unread_at
        self._request = request
        self._weights: Mapping[str, float] | None = None
        self._blocks: list[_Block] | None = None
        self._best: set[int] | None = None
        self._postings: list[TermPostings] | None = None
        self._literal = request.literal

    def list_terms(self) -> Sequence[str]:
        """Return the words of the query."""
        return [posting.term.text for posting in self._read_postings()]

    def count_terms(self) -> Mapping[str, TermCount]:
        """Return how many messages contain each word of the query."""
        return {
            posting.term.text: TermCount(len(posting.ids), posting.looked_at, posting.total)
            for posting in self._read_postings()
        }

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Set the weights of the query words."""
        self._weights = weights

    def find_block(
        self, step: SearchStep, begin: SearchEdge | None, end: SearchEdge | None
    ) -> SearchBlock:
        """Find the matches of a step after the edge `begin`."""
        node = self._request.query.node
        block = SearchBlock(self, step, [], begin, None)
        if step == "substring":
            self._scan_texts(block, end)
        elif node is None or step == "inner":
            block.is_whole = True
        elif step in ("any", "conversation"):
            self._find_best_matches(block)
        elif step == "title":
            self._find_title_matches(block, node)
        else:
            self._find_word_matches(block, self._build_rest() if step == "rest" else node, end)
        return block

    def rank_block(self, block: SearchBlock, end: SearchEdge | None) -> list[RankedMatch]:
        """Return the ranked matches of a block up to an edge."""
        request, is_ascending = self._request, self._request.order == "oldest"
        kept = block.candidates
        if end is not None and not block.is_whole:
            kept = [item for item in kept if (self._make_edge(item) < end) == is_ascending]
        kept = self._drop_fork_copies(request, kept, block.build_expression)
        if block.step == "rest":
            best = self._list_shown_matches()
            kept = [candidate for candidate in kept if self._get_identity(candidate) not in best]
        if request.per_session and block.expression is not None and block.begin is not None:
            earlier = self._list_earlier(block.expression, block.begin, kept)
            kept = [candidate for candidate in kept if candidate.session not in earlier]
        return self._rank_candidates(block, kept)

    def _rank_candidates(
        self, block: SearchBlock, candidates: Sequence[Candidate]
    ) -> list[RankedMatch]:
        request = self._request
        ranked: list[tuple[float, Candidate, partial[SearchHit | None]]] = []
        for candidate, message, text in self._read_texts(candidates):
            folded = search_text.fold_text(text)
            if block.step == "substring" and self._literal not in folded:
                continue
            score = self._score_candidate(block, candidate, message, folded)
            hit = partial(self._make_hit, block, candidate, text, score)
            ranked.append((score, candidate, hit))
        if request.order == "relevance":
            ranked.sort(key=lambda item: -item[0])
        else:
            is_descending = request.order == "newest"
            ranked.sort(key=lambda item: self._make_edge(item[1]), reverse=is_descending)
        seen, matches = set[int](), []
        for score, candidate, hit in ranked:
            if request.per_session and candidate.session in seen:
                continue
            seen.add(candidate.session)
            identity = f"{candidate.session_id}/{candidate.number}"
            matches.append(RankedMatch(score, self._make_edge(candidate).at_ms, identity, hit))
        return matches

    def _score_candidate(
        self, block: SearchBlock, candidate: Candidate, message: Message, folded: str
    ) -> float:
        if block.scorer is not None:
            score = block.scorer(candidate, folded)
        else:
            whole = folded
            if block.step == "title":
                whole = f"{search_text.fold_text(candidate.title or '')}\n{folded}"
            words = [word for word in block.words if isinstance(word, queries.LeafMatcher)]
            score = relevance.score_words(whole, words, self._literal.rstrip("?"))
        score += score_message(candidate, message, folded, block.words, self._request.now)
        is_repetition = block.scorer is not None and self._literal.rstrip("?") in folded
        return score / 2 if is_repetition else score

    def _make_hit(
        self,
        block: SearchBlock,
        candidate: Candidate,
        text: str,
        score: float,
    ) -> SearchHit | None:
        """Return the hit of a match, or None if an earlier block has its conversation."""
        if block.step == "substring" and self._has_earlier_text(candidate, block.begin):
            return None
        snippet = cut_snippet(text, block.words, self._literal.rstrip("?"))
        return make_hit(candidate, snippet, score)

    def _make_edge(self, candidate: Candidate) -> SearchEdge:
        at = candidate.at
        if at is None and self._is_sorted_by_sql():
            at = candidate.started_at
        return SearchEdge(0 if at is None else at, candidate.id)

    def _is_sorted_by_sql(self) -> bool:
        """Return True if hits are requested in order of time, which SQL applies."""
        return self._request.order != "relevance"

    # Words: the newest blocks of ids first, until the matches are certainly the newest.

    def _find_word_matches(self, block: SearchBlock, node: Node, end: SearchEdge | None) -> None:
        expression = build_step_expression(node, block.step)
        if expression is None:
            return
        block.expression, block.build_expression = expression, lambda _: expression
        block.words = [compile_leaf(leaf) for leaf in queries.iter_leaves(node)]
        if self._is_sorted_by_sql():
            self._find_in_order(block, expression, end)
            return
        edges = self._build_edges(block.begin, end)
        sql = (
            f"SELECT {_AT}, m.id, m.session FROM words w CROSS JOIN messages m ON m.id = w.rowid"  # noqa: S608 -- values are parameters
            " CROSS JOIN sessions s ON s.id = m.session"
            f" WHERE words MATCH ? AND w.rowid BETWEEN ? AND ? AND {self._request.where}"
        )

        def find_matches(ranges: Sequence[tuple[int, int]], condition: Condition) -> list[_Match]:
            values = [*self._request.values, *condition.values]
            statement = f"{sql} AND {condition.sql}"
            return [
                row
                for first, last in ranges
                for row in self._index.read(statement, (expression, first, last, *values))
            ]

        matches: list[_Match] = []
        bound: int | None = None
        for ranges, bound in self._iter_ranges(block.begin, end):
            matches = self._limit_per_session([*matches, *find_matches(ranges, edges)])
            certain = 0 if bound is None else sum(at > bound for at, _, _ in matches)
            if end is None and certain >= WINDOW:
                break
        else:
            # The blocks that begin after the edge may have messages without a time.
            skipped = self._list_skipped(block.begin)
            matches += find_matches(skipped, edges.add_clause("m.at IS NULL"))
        self._limit_candidates(block, matches, bound, end)

    def _limit_per_session(self, matches: list[_Match]) -> list[_Match]:
        """Return the newest matches, only a few of each session for hits per conversation."""
        matches.sort(reverse=True)
        if not self._request.per_session:
            return matches
        counted = Counter[int]()
        kept = []
        for match in matches:
            counted[match[2]] += 1
            if counted[match[2]] <= _MAX_SESSION_MATCHES:
                kept.append(match)
        return kept

    def _limit_candidates(
        self, block: SearchBlock, matches: list[_Match], bound: int | None, end: SearchEdge | None
    ) -> None:
        """Load the candidates that are certainly the newest, and set the end of the block."""
        matches = self._limit_per_session(matches)
        if end is None:
            if bound is not None:
                block.end = SearchEdge(bound, ALL_TIES)
            if len(matches) > WINDOW:
                last = SearchEdge(*matches[WINDOW - 1][:2])
                block.end = last if block.end is None else max(last, block.end)
            matches = matches[:WINDOW]
        block.candidates = self._load_candidates(self._request, [match[1] for match in matches])

    def _iter_ranges(
        self, begin: SearchEdge | None, end: SearchEdge | None
    ) -> Iterator[tuple[list[tuple[int, int]], int | None]]:
        """Yield ranges of ids, newest first, each with the newest time of the rest."""
        wanted = sorted(
            (
                block
                for block in self._list_blocks()
                if (begin is None or block.oldest <= begin.at_ms)
                and (end is None or block.newest >= end.at_ms)
            ),
            key=lambda block: (-block.newest, -block.first),
        )
        number, rows, total = 0, _FIRST_ROWS, 0
        while number < len(wanted):
            start, count = number, 0
            while number < len(wanted) and count < rows:
                count += wanted[number].last - wanted[number].first + 1
                number += 1
            total += count
            rows *= _GROWTH
            bound = wanted[number].newest if number < len(wanted) else None
            yield _join_ranges(wanted[start:number]), bound
            is_before = bound is not None and (begin is None or bound < begin.at_ms)
            if end is None and is_before and total >= _MAX_ROWS:
                break

    def _list_blocks(self) -> list[_Block]:
        if self._blocks is None:
            self._blocks = [_Block(*row) for row in self._index.read(_BLOCKS_SQL)]
        return self._blocks

    def _list_skipped(self, begin: SearchEdge | None) -> list[tuple[int, int]]:
        if begin is None:
            return []
        return _join_ranges([block for block in self._list_blocks() if block.oldest > begin.at_ms])

    def _build_edges(
        self, begin: SearchEdge | None, end: SearchEdge | None, at: str = _AT
    ) -> Condition:
        """Return the condition that a message is between two edges."""
        low, high = (begin, end) if self._request.order == "oldest" else (end, begin)
        parts, values = ["1"], list[int]()
        for sign, edge in (("<", high), (">=", low)):
            if edge is not None:
                parts.append(f"({at}, m.id) {sign} (?, ?)")
                values += [max(-LAST_MS, min(edge.at_ms, LAST_MS)), edge.tie]
        return Condition(" AND ".join(parts), tuple(values))

    def _list_earlier(
        self, expression: str, begin: SearchEdge, candidates: Sequence[Candidate]
    ) -> set[int]:
        """Return the sessions of candidates that have a match before the block."""
        sessions = sorted({item.session for item in candidates})
        if self._is_sorted_by_sql() or not sessions:
            return set()
        before = self._build_edges(None, begin)
        marks = ", ".join("?" * len(sessions))
        sql = (
            "SELECT DISTINCT m.session FROM words w CROSS JOIN messages m ON m.id = w.rowid"  # noqa: S608 -- values are parameters
            " CROSS JOIN sessions s ON s.id = m.session"
            f" WHERE words MATCH ? AND w.rowid BETWEEN ? AND ? AND m.session IN ({marks})"
            f" AND {self._request.where} AND {before.sql}"
        )
        newer = _join_ranges([item for item in self._list_blocks() if item.newest >= begin.at_ms])
        values = (*sessions, *self._request.values, *before.values)
        return {
            row[0]
            for first, last in newer
            for row in self._index.read(sql, (expression, first, last, *values))
        }

    def _find_in_order(self, block: SearchBlock, expression: str, end: SearchEdge | None) -> None:
        """Find the next matches in order of time, comparing all matches."""
        request = self._request
        is_descending = request.order == "newest"
        begin = block.begin or SearchEdge(LAST_MS if is_descending else -LAST_MS, 0)
        choose = "max" if is_descending else "min"
        at = f"{choose}({_ORDER_AT})" if request.per_session else _ORDER_AT
        order = "DESC" if is_descending else "ASC"
        having = [f"(moment, m.id) {'<' if is_descending else '>='} (?, ?)"]
        values = [*begin]
        if end is not None:
            having.append(f"(moment, m.id) {'>=' if is_descending else '<'} (?, ?)")
            values += end
        sql = (
            f"SELECT {COLUMNS}, {at} AS moment FROM words w"  # noqa: S608 -- values are parameters
            " CROSS JOIN messages m ON m.id = w.rowid CROSS JOIN sessions s ON s.id = m.session"
            f" WHERE words MATCH ? AND {request.where}"
            f" GROUP BY {'m.session' if request.per_session else 'm.id'}"
            f" HAVING {' AND '.join(having)} ORDER BY moment {order}, m.id {order} LIMIT ?"
        )
        limit = WINDOW if end is None else -1
        rows = self._index.read(sql, (expression, *request.values, *values, limit))
        block.candidates = [Candidate(*row[:-1]) for row in rows]
        if len(rows) == limit:
            last = rows[-1]
            # The block has its last match: below the edge if it falls, above it if it rises.
            block.end = SearchEdge(last[-1], last[0] if is_descending else last[0] + 1)

    # Any words, and words of a conversation: the best messages of all.

    def _read_postings(self) -> list[TermPostings]:
        node = self._request.query.node
        if self._postings is None:
            self._postings = (
                [] if node is None else read_postings(self._index, node, _TOP, self._weights)
            )
        elif self._weights is not None:
            weights = self._weights
            self._postings = [
                replace(posting, weight=weights.get(posting.term.text, posting.weight))
                for posting in self._postings
            ]
        return self._postings

    def _find_best_matches(self, block: SearchBlock) -> None:
        block.is_whole = True
        request = self._request
        excluded = [build_expression(leaf) for leaf in request.query.excluded]
        scores = AnyWordScores(self._read_postings(), self._index, excluded)
        block.words = [item.term for item in scores.postings]
        block.build_expression = scores.build_expression
        if block.step == "conversation":
            if len(scores.postings) < _LEAST_TERMS:
                return
            sessions = self._find_sessions(request, list(scores.own))
            whole = scores.list_sessions_with_all_terms(self._index, sessions)
            listed = scores.list_best(len(scores.own))
            chosen = [number for number in listed if sessions.get(number) in whole]
        else:
            chosen = scores.list_best(MOST_LOADED)
        candidates = self._load_candidates(request, chosen[:MOST_LOADED])
        if block.step == "any":
            sessions = {item.id: item.session for item in candidates}
            scores.add_near_terms(self._index, sessions, request.newest_ms)
            candidates.sort(key=lambda item: -scores.score(item.id, item.length))
        block.candidates = candidates[:_MAX_BEST]

        def score_text(candidate: Candidate, folded: str) -> float:
            return scores.score_text(candidate.id, candidate.title, folded)

        block.scorer = score_text

    def _list_shown_matches(self) -> set[int]:
        """Return the matches that the step `any` has shown, as sessions or messages."""
        if self._best is None:
            block = SearchBlock(self, "any", [], None, None)
            self._find_best_matches(block)
            kept = self._drop_fork_copies(self._request, block.candidates, block.build_expression)
            self._best = {self._get_identity(candidate) for candidate in kept}
        return self._best

    def _get_identity(self, candidate: Candidate) -> int:
        return candidate.session if self._request.per_session else candidate.id

    def _build_rest(self) -> Node:
        """Return the node that matches messages with any of the words."""
        terms = tuple(posting.term.node for posting in self._read_postings())
        excluded = tuple(queries.Not(leaf) for leaf in self._request.query.excluded)
        any_term: Node = terms[0] if len(terms) == 1 else Or(terms)
        return And((any_term, *excluded)) if excluded else any_term

    def _find_title_matches(self, block: SearchBlock, node: Node) -> None:
        """Find the first messages of the newest sessions whose title has all words."""
        block.is_whole = True
        block.words = [compile_leaf(leaf) for leaf in queries.iter_leaves(node)]
        needle = queries.find_needle(node)
        pattern = f"%{needle}%" if needle.isascii() else "%"
        sql = "SELECT s.id, s.title FROM sessions s WHERE s.title LIKE ? ORDER BY s.active_at DESC"
        rows = self._index.read(f"{sql} LIMIT 5000", (pattern,))
        ids = [
            number
            for number, title in rows
            if queries.is_match(node, search_text.fold_text(str(title)))
        ][:_MAX_TITLES]
        first = (
            "SELECT (SELECT m.id FROM messages m JOIN sessions s ON s.id = m.session"  # noqa: S608 -- values are parameters
            f" WHERE m.session = ? AND {self._request.where} ORDER BY m.number LIMIT 1)"
        )
        first_ids = [
            self._index.read(first, (number, *self._request.values))[0][0] for number in ids
        ]
        chosen = [number for number in first_ids if number is not None]
        block.candidates = self._load_candidates(self._request, chosen)

    # Substrings: the texts of the newest blocks of ids, within a time.

    def _scan_texts(self, block: SearchBlock, end: SearchEdge | None) -> None:
        """Find the next matches in the texts, until enough are found or the budget is used."""
        if not self._literal.strip():
            return
        until, work = time.monotonic() + _SCAN_S, 0
        is_ascending = self._request.order == "oldest"
        for rows, bound in self._iter_scan(block.begin, end, is_ascending=is_ascending):
            can_stop = end is None and _is_nonempty(block.begin, bound, is_ascending=is_ascending)
            for start in range(0, len(rows), _SCAN_ROWS):
                part = rows[start : start + _SCAN_ROWS]
                block.candidates += self._filter_by_text(part)
                rest = rows[start + _SCAN_ROWS :][:1]
                work += sum(min(candidate.length, _MAX_ROW_WORK) + _ROW_WORK for candidate in part)
                is_over = work >= _SCAN_WORK or time.monotonic() >= until
                block.is_costly = can_stop and is_over
                if block.is_costly and rest:
                    block.end = self._find_scan_end(rest[0], bound, is_ascending=is_ascending)
                    return
            is_full = block.is_costly or len(block.candidates) >= WINDOW
            if can_stop and bound is not None and is_full:
                block.end = SearchEdge(bound, NO_TIES if is_ascending else ALL_TIES)
                return

    def _iter_scan(
        self, begin: SearchEdge | None, end: SearchEdge | None, *, is_ascending: bool
    ) -> Iterator[tuple[list[Candidate], int | None]]:
        """Yield the messages of blocks in order of time, each with the next block's time."""
        low, high = (begin, end) if is_ascending else (end, begin)
        wanted = [
            block
            for block in self._list_blocks()
            if (high is None or block.oldest <= high.at_ms)
            and (low is None or block.newest >= low.at_ms)
        ]
        wanted.sort(key=lambda block: block.oldest if is_ascending else -block.newest)
        edges = self._build_edges(begin, end)
        untimed, timed = edges.add_clause("m.at IS NULL"), edges
        if is_ascending and begin is None:
            # Messages without a time come before all others, wherever their block is.
            yield self._list_rows(_join_ranges(wanted), untimed, is_ascending=is_ascending), None
            timed = edges.add_clause("m.at IS NOT NULL")
        for number, block in enumerate(wanted):
            following = wanted[number + 1] if number + 1 < len(wanted) else None
            bound = following and (following.oldest if is_ascending else following.newest)
            ids = [(block.first, block.last)]
            yield self._list_rows(ids, timed, is_ascending=is_ascending), bound
        if not is_ascending and begin is not None:
            yield (
                self._list_rows(self._list_skipped(begin), untimed, is_ascending=is_ascending),
                None,
            )

    def _list_rows(
        self, ranges: Sequence[tuple[int, int]], condition: Condition, *, is_ascending: bool
    ) -> list[Candidate]:
        sql = (
            f"SELECT {COLUMNS} FROM messages m CROSS JOIN sessions s ON s.id = m.session"  # noqa: S608 -- values are parameters
            f" WHERE m.id BETWEEN ? AND ? AND {self._request.where} AND {condition.sql}"
        )
        values = (*self._request.values, *condition.values)
        rows = [
            Candidate(*row)
            for first, last in ranges
            for row in self._index.read(sql, (first, last, *values))
        ]
        return sorted(rows, key=self._make_edge, reverse=not is_ascending)

    def _find_scan_end(
        self, following: Candidate, bound: int | None, *, is_ascending: bool
    ) -> SearchEdge:
        """Return the edge before the first message that was not scanned."""
        place = self._make_edge(following)
        if is_ascending:
            return place if bound is None else min(place, SearchEdge(bound, NO_TIES))
        after = SearchEdge(place.at_ms, place.tie + 1)
        return after if bound is None else max(after, SearchEdge(bound, ALL_TIES))

    def _filter_by_text(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        texts = self._read_texts(candidates)
        return [item for item, _, text in texts if self._literal in search_text.fold_text(text)]

    def _has_earlier_text(self, candidate: Candidate, begin: SearchEdge | None) -> bool:
        """Return True if the session of a match also has the text before the block."""
        if begin is None or not self._request.per_session:
            return False
        before = self._build_edges(None, begin)
        sql = (
            f"SELECT {COLUMNS} FROM messages m CROSS JOIN sessions s ON s.id = m.session"  # noqa: S608 -- values are parameters
            f" WHERE m.session = ? AND {self._request.where} AND {before.sql}"
            " ORDER BY m.number DESC LIMIT ?"
        )
        values = (*self._request.values, *before.values, _MAX_EARLIER_TEXTS)
        rows = self._index.read(sql, (candidate.session, *values))
        return bool(self._filter_by_text([Candidate(*row) for row in rows]))


def _is_nonempty(begin: SearchEdge | None, bound: int | None, *, is_ascending: bool) -> bool:
    """Return True if a block that ends at `bound` is not empty."""
    if begin is None or bound is None:
        return True
    return bound > begin.at_ms if is_ascending else bound < begin.at_ms


def _join_ranges(blocks: Sequence[_Block]) -> list[tuple[int, int]]:
    """Return the ids of blocks as the fewest ranges."""
    ranges: list[tuple[int, int]] = []
    for block in sorted(blocks):
        if ranges and ranges[-1][1] + 1 >= block.first:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], block.last))
        else:
            ranges.append((block.first, block.last))
    return ranges
