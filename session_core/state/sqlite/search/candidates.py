"""Candidate rows of a search: listed by an index, filtered, loaded and decoded, then ranked.

The order of matches depends on the number of matching words, the distance between them, the age of
the message and its role.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from session_core.state import relevance, search_text, sql_blocks
from session_core.state.query import LeafMatcher
from session_core.state.search_text import TextFinder
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.search.hermes_indexes import Lookup
from session_core.state.sqlite.search.index_plan import IndexPlan

SQL = sql_blocks.load_blocks("search")

MAX_CHARACTERS = 4_000_000
"""The maximum text to read for one block, in characters."""

_CHEAP_TEXT_FACTOR = 8
"""The factor by which decoding an image or folding ASCII is faster than ranking text."""

_MAX_SCANNED_ROWS = 20_000
MAX_SIEVED_ROWS = 100_000
_FILTER, _SIEVE = "/*filter*/ 1", "/*sieve*/ 1"

_MAX_SCATTERED_BYTES = 64_000_000
"""The maximum size of scattered rows to read, in bytes."""

TextTest = Callable[[str], bool]


@dataclass(slots=True)
class Match:
    """A matching message, with the data for ranking and display."""

    id: int
    session_id: str
    role: str
    at: float
    text: str
    """The readable text."""
    shown: str
    """The readable text, folded."""
    folded: str
    """The whole searchable text, folded. It includes text that is not shown."""
    compacted: bool
    source: str
    title: str | None
    parent: str | None
    continued: bool
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class CandidateQuery:
    """A set of rows, the index lookups for them, and the test of their texts."""

    plan: IndexPlan
    test: TextTest
    needle: str = ""
    """A piece that every matching text contains, folded."""
    sieve: str = ""
    """A condition for rows that are read one by one. It may pass rows that do not match."""
    only: str = ""
    """A condition on the rows of this query."""
    apart: str = ""
    """A condition on scattered rows that includes all rows of this query."""
    values: dict[str, Any] = field(default_factory=dict)
    """The values of the conditions."""


@dataclass(slots=True)
class SearchTask:
    """One candidate query on one snapshot, with the filters of the search."""

    handle: Connection
    query: CandidateQuery
    filters: str
    values: dict[str, Any]
    low: int
    texts: dict[Any, Any]
    """The texts of scattered rows, shared by all stages of one search."""
    per_session: bool
    passes: Callable[[Match], bool]

    def run_statement(
        self, name: str, bounds: Mapping[str, Any], *, sieve: str = "", apart: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        """Run a statement with the filters and the conditions of the query."""
        condition = self.query.apart if apart else self.query.only
        filters = f"{self.filters} AND ({condition})" if condition else self.filters
        statement = self.handle.expand_sql(SQL[name]).replace(_FILTER, filters)
        bound = {**self.values, **self.query.values, **bounds}
        return self.handle.iter_rows(statement.replace(_SIEVE, sieve or "1 = 1"), bound)

    @property
    def scan_limit(self) -> int:
        """The maximum number of rows to read one by one."""
        return MAX_SIEVED_ROWS if self.query.sieve else _MAX_SCANNED_ROWS


def decode_match(row: tuple[Any, ...]) -> Match:
    """Build a match from a row of `list_rows`."""
    text, hidden = search_text.build_text_parts(row[4], row[5], row[6])
    shown = search_text.fold_text(text)
    return Match(
        id=row[0],
        session_id=row[1],
        role=row[2],
        at=row[3],
        text=text,
        shown=shown,
        folded=f"{shown}\n{search_text.fold_text(hidden)}" if hidden else shown,
        compacted=bool(row[7]),
        source=row[8],
        title=row[9],
        parent=row[10],
        continued=row[11] == "compression",
    )


def measure_weight(content: Any, text: str, *, ranked: bool = True) -> int:
    """Return the cost of reading and ranking a row, in characters."""
    is_cheap = text.isascii() and not ranked
    return max(
        len(text) // (_CHEAP_TEXT_FACTOR if is_cheap else 1),
        len(content or "") // _CHEAP_TEXT_FACTOR,
    )


def filter_ids(task: SearchTask, ids: list[int]) -> dict[int, str]:
    """Return the ids that pass the filters, newest first, with their sessions."""
    return dict(task.run_statement("list_passing", {"ids": json.dumps(ids)}))


def read_sizes(task: SearchTask, ids: list[int]) -> list[tuple[int, str, int | None]]:
    """Return the ids that pass the filters, with their sessions and lengths."""
    return list(task.run_statement("list_sizes", {"ids": json.dumps(ids)}))


def load_matches(task: SearchTask, ids: list[int]) -> list[Match]:
    """Load messages by id if they pass the filters, without testing their text."""
    matches: list[Match] = []
    characters = 0
    for row in iter_rows(task, ids):
        matches.append(decode_match(row))
        characters += measure_weight(row[4], matches[-1].text)
        if characters >= MAX_CHARACTERS:
            break
    return [match for match in matches if task.passes(match)]


def make_id_bounds(low: int, below: int) -> dict[str, int]:
    """Return inclusive bounds for SQL.

    `below` may exceed the largest integer.
    """
    return {"low": low, "high": below - 1} if low < below else {"low": 1, "high": 0}


def list_lookup_ids(
    handle: Connection, lookups: Iterable[Lookup], low: int, below: int, count: int
) -> tuple[list[int], int, bool]:
    """Return the ids of any lookup, newest first.

    Also return the id down to which the list is complete, and True if no lookup has more ids.
    """
    merged: list[int] = []
    floor, done = low, True
    for lookup in lookups:
        bounds = {"match": lookup.match, "count": count, **make_id_bounds(low, below)}
        ids = json.loads(handle.fetch_value(SQL[lookup.block], bounds))
        merged = sorted({*merged, *ids}, reverse=True) if merged else ids
        # A full list may have more ids below its last one, so the union is complete only down to
        # it.
        if len(ids) == count:
            floor, done = max(floor, ids[-1]), False
    if merged and merged[-1] < floor:
        merged = [message_id for message_id in merged if message_id >= floor]
    return merged, floor, done


def iter_rows(task: SearchTask, ids: list[int], sieve: str = "") -> Iterator[tuple[Any, ...]]:
    """Return the rows with these ids that pass the filters, newest first."""
    return (
        task.run_statement("list_rows", {"ids": json.dumps(ids)}, sieve=sieve) if ids else iter(())
    )


def scan_rows(task: SearchTask, low: int, below: int) -> Iterator[tuple[Any, ...]]:
    """Return the rows between two ids that pass the filters and the sieve, newest first."""
    return task.run_statement("scan_rows", make_id_bounds(low, below), sieve=task.query.sieve)


def list_scattered(task: SearchTask, low: int, below: int) -> tuple[list[int], int]:
    """Return the ids of scattered rows, and the id down to which they fit the limit."""
    ids, size = [], 0
    for message_id, length in task.run_statement(
        "list_apart", make_id_bounds(low, below), apart=True
    ):
        ids.append(message_id)
        size += length or 0
        if size >= _MAX_SCATTERED_BYTES:
            return ids, message_id
    return ids, low


def read_scattered_texts(task: SearchTask, low: int, below: int) -> tuple[dict[int, str], int]:
    """Return the folded texts of scattered rows, and the id down to which they were read."""
    key = task.query.apart, low, below
    if key not in task.texts:
        task.texts[key] = _read_scattered_batch(task, *list_scattered(task, low, below))
    result: tuple[dict[int, str], int] = task.texts[key]
    return result


def _read_scattered_batch(
    task: SearchTask, ids: list[int], floor: int
) -> tuple[dict[int, str], int]:
    texts, characters = {}, 0
    block = SQL["list_apart_texts"]
    for message_id, *row in task.handle.iter_rows(block, (json.dumps(ids),)):
        text = search_text.build_search_text(*row)
        texts[message_id] = search_text.fold_text(text)
        characters += measure_weight(row[0], text, ranked=False)
        if characters >= MAX_CHARACTERS:
            return texts, message_id
    return texts, floor


def find_id_range(handle: Connection, session_id: str | None) -> tuple[int, int]:
    """Return the first message id of a session (or of all), and the last plus one."""
    key = "extent", session_id
    id_range: tuple[int, int] | None = handle.seen.get(key)
    if id_range is None:
        block, bounds = (
            ("get_range", ()) if session_id is None else ("get_session_range", (session_id,))
        )
        first, last, *_ = handle.fetch_tuples(SQL[block], bounds)[0]
        id_range = handle.seen[key] = (0, 0) if first is None else (first, last + 1)
    return id_range


def find_highest_id(handle: Connection, low: int, below: int) -> int | None:
    """Return the highest message id in a range, or None if it is empty."""
    message_id: int | None = handle.fetch_value(SQL["get_highest"], make_id_bounds(low, below))
    return message_id


def iter_session_texts(
    task: SearchTask, sessions: list[str], low: int, below: int
) -> Iterator[str]:
    """Yield the folded texts of sessions in a range of ids, newest first, within a limit."""
    bounds = {"sessions": json.dumps(sessions), **make_id_bounds(low, below)}
    characters = 0
    for row in task.run_statement("scan_session", bounds):
        text = search_text.build_search_text(*row)
        yield search_text.fold_text(text)
        characters += measure_weight(row[0], text)
        if characters >= MAX_CHARACTERS:
            return


def score_matches(
    matches: Sequence[Match], words: Sequence[LeafMatcher], literal: str, newest: float
) -> None:
    """Set the score of each match.

    `literal` is the folded query.
    """
    for match in matches:
        match.score = relevance.score_words(match.folded, words, literal)
    add_context_scores(matches, words, newest)


def add_context_scores(
    matches: Iterable[Match], words: Sequence[TextFinder], newest: float
) -> None:
    """Add to the score of each match what it gets apart from its words."""
    for match in matches:
        match.score += relevance.score_context(
            match.folded,
            words,
            role=match.role,
            age_s=newest - match.at,
            compacted=match.compacted,
        )


def sort_matches(matches: Iterable[Match]) -> list[Match]:
    """Sort matches by score, and matches with equal scores newest first."""
    return sorted(matches, key=lambda match: (-match.score, -match.id))
