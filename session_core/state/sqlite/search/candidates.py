"""Rows that may match: listed by an index, filtered, loaded and decoded.

The order of matches: how much of the query, how close together, how new, said by whom.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from session_core import _sqlite3
from session_core.state import search_text
from session_core.state.query import LeafMatcher
from session_core.state.snippet import TextFinder
from session_core.state.sqlite import sql_blocks
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.search.hermes import Lookup
from session_core.state.sqlite.search.index_plan import IndexPlan

SQL = sql_blocks.load_blocks("search")

MAX_CHARACTERS = 4_000_000
"""So much text is read for one block at most."""

_CHEAP_TEXT_FACTOR = 8
"""So much faster is it to decode an image, or to fold ASCII, than to fold and rank text."""

_MAX_SCANNED_ROWS = 20_000
MAX_SIEVED_ROWS = 100_000
_FILTER, _SIEVE = "/*filter*/ 1", "/*sieve*/ 1"

_MAX_SCATTERED_BYTES = 64_000_000
"""So many bytes of rows that lie apart are gone through at most."""

TextTest = Callable[[str], bool]


@dataclass(slots=True)
class Match:
    """A message that matches, with what ranking and showing it needs."""

    id: int
    session_id: str
    role: str
    at: float
    text: str
    """What a person would read."""
    shown: str
    """The same, folded."""
    folded: str
    """By what it is found: that, and what nobody is shown."""
    compacted: bool
    source: str
    title: str | None
    parent: str | None
    continued: bool
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class CandidateQuery:
    """One way to look: at which rows, by which index, and what must hold of their texts."""

    plan: IndexPlan
    test: TextTest
    needle: str = ""
    """What every folded text has that matches."""
    sieve: str = ""
    """What SQL can tell of rows that are read one by one; more may pass."""
    only: str = ""
    """A condition on the rows that are its own."""
    apart: str = ""
    """A condition on rows that lie scattered among others: its own, and perhaps some more."""
    values: dict[str, Any] = field(default_factory=dict)
    """What is bound in the conditions."""


@dataclass(slots=True)
class SearchTask:
    """A look at one home at one moment, through the filters of one search."""

    handle: Connection
    look: CandidateQuery
    filters: str
    values: dict[str, Any]
    low: int
    texts: dict[Any, Any]
    """What was read of rows that lie scattered, for all stages of one search."""
    per_session: bool
    passes: Callable[[Match], bool]

    def run_block(
        self, name: str, bounds: Mapping[str, Any], *, sieve: str = "", apart: bool = False
    ) -> _sqlite3.Cursor:
        """Run a block with the filters and the conditions of the look."""
        condition = self.look.apart if apart else self.look.only
        filters = f"{self.filters} AND ({condition})" if condition else self.filters
        statement = self.handle.expand_sql(SQL[name]).replace(_FILTER, filters)
        bound = {**self.values, **self.look.values, **bounds}
        return self.handle.connection.execute(statement.replace(_SIEVE, sieve or "1"), bound)

    @property
    def scan_limit(self) -> int:
        """How many rows are read one by one at most."""
        return MAX_SIEVED_ROWS if self.look.sieve else _MAX_SCANNED_ROWS


def decode_match(row: tuple[Any, ...]) -> Match:
    """Return a row of `list_rows` with its text decoded."""
    text, unshown = search_text.build_text_parts(row[4], row[5], row[6])
    shown = search_text.fold_text(text)
    return Match(
        id=row[0],
        session_id=row[1],
        role=row[2],
        at=row[3],
        text=text,
        shown=shown,
        folded=f"{shown}\n{search_text.fold_text(unshown)}" if unshown else shown,
        compacted=bool(row[7]),
        source=row[8],
        title=row[9],
        parent=row[10],
        continued=row[11] == "compression",
    )


def measure_weight(content: Any, text: str, *, ranked: bool = True) -> int:
    """Return how much text a row is to read, and to rank; what is dropped at once is cheap."""
    fast = text.isascii() and not ranked
    return max(
        len(text) // (_CHEAP_TEXT_FACTOR if fast else 1), len(content or "") // _CHEAP_TEXT_FACTOR
    )


def filter_ids(task: SearchTask, ids: list[int]) -> dict[int, str]:
    """Return those ids that pass the filters, newest first, with their sessions."""
    return dict(task.run_block("list_passing", {"ids": json.dumps(ids)}).fetchall())


def read_sizes(task: SearchTask, ids: list[int]) -> list[tuple[int, str, int | None]]:
    """Return those ids that pass the filters, with their sessions and their lengths."""
    return task.run_block("list_sizes", {"ids": json.dumps(ids)}).fetchall()


def load_matches(task: SearchTask, ids: list[int]) -> list[Match]:
    """Return messages by their ids, those that pass the filters, without asking what they match."""
    found: list[Match] = []
    characters = 0
    for row in iter_rows(task, ids):
        found.append(decode_match(row))
        characters += measure_weight(row[4], found[-1].text)
        if characters >= MAX_CHARACTERS:
            break
    return [match for match in found if task.passes(match)]


def make_id_bounds(low: int, below: int) -> dict[str, int]:
    """Return the bounds of a statement on ids, which may be as high as a number can be."""
    return {"low": low, "high": below - 1} if low < below else {"low": 1, "high": 0}


def list_lookup_ids(
    handle: Connection, lookups: Iterable[Lookup], low: int, below: int, count: int
) -> tuple[list[int], int, bool]:
    """Return ids that any lookup has, newest first, down to where all of them were asked."""
    found: list[int] = []
    floor, done = low, True
    for lookup in lookups:
        bounds = {"match": lookup.match, "count": count, **make_id_bounds(low, below)}
        ids = json.loads(handle.fetch_value(SQL[lookup.block], bounds))
        found = sorted({*found, *ids}, reverse=True) if found else ids
        if len(ids) == count:
            floor, done = max(floor, ids[-1]), False
    if found and found[-1] < floor:
        found = [one for one in found if one >= floor]
    return found, floor, done


def iter_rows(task: SearchTask, ids: list[int], sieve: str = "") -> Iterator[tuple[Any, ...]]:
    """Return rows by their ids, those that pass the filters, newest first."""
    return task.run_block("list_rows", {"ids": json.dumps(ids)}, sieve=sieve) if ids else iter(())


def scan_rows(task: SearchTask, low: int, below: int) -> Iterator[tuple[Any, ...]]:
    """Return the rows between two ids that pass the filters and the sieve, newest first."""
    return task.run_block("scan_rows", make_id_bounds(low, below), sieve=task.look.sieve)


def list_scattered(task: SearchTask, low: int, below: int) -> tuple[list[int], int]:
    """Return the ids of rows that lie apart, and down to where they are not too much to read."""
    found, size = [], 0
    for message_id, length in task.run_block("list_apart", make_id_bounds(low, below), apart=True):
        found.append(message_id)
        size += length or 0
        if size >= _MAX_SCATTERED_BYTES:
            return found, message_id
    return found, low


def read_scattered_texts(task: SearchTask, low: int, below: int) -> tuple[dict[int, str], int]:
    """Return the folded texts of such rows by id, and down to where they were read."""
    key = task.look.apart, low, below
    if key not in task.texts:
        task.texts[key] = _read_scattered_batch(task, *list_scattered(task, low, below))
    found: tuple[dict[int, str], int] = task.texts[key]
    return found


def _read_scattered_batch(
    task: SearchTask, ids: list[int], floor: int
) -> tuple[dict[int, str], int]:
    found, characters = {}, 0
    block = SQL["list_apart_texts"]
    for message_id, *row in task.handle.connection.execute(block, (json.dumps(ids),)):
        text = search_text.build_search_text(*row)
        found[message_id] = search_text.fold_text(text)
        characters += measure_weight(row[0], text, ranked=False)
        if characters >= MAX_CHARACTERS:
            return found, message_id
    return found, floor


def find_id_range(handle: Connection, session_id: str | None) -> tuple[int, int]:
    """Return from which id on and below which one the messages of a session, or all, are."""
    key = "extent", session_id
    found: tuple[int, int] | None = handle.seen.get(key)
    if found is None:
        block, bounds = (
            ("get_range", ()) if session_id is None else ("get_session_range", (session_id,))
        )
        first, last, *_ = handle.fetch_tuples(SQL[block], bounds)[0]
        found = handle.seen[key] = (0, 0) if first is None else (first, last + 1)
    return found


def find_highest_id(handle: Connection, low: int, below: int) -> int | None:
    """Return the highest id of a message between two, None if there is none."""
    found: int | None = handle.fetch_value(SQL["get_highest"], make_id_bounds(low, below))
    return found


def iter_session_texts(
    task: SearchTask, sessions: list[str], low: int, below: int
) -> Iterator[str]:
    """Yield the folded texts of sessions between two messages, newest first, some thousands."""
    bounds = {"sessions": json.dumps(sessions), **make_id_bounds(low, below)}
    characters = 0
    for row in task.run_block("scan_session", bounds):
        text = search_text.build_search_text(*row)
        yield search_text.fold_text(text)
        characters += measure_weight(row[0], text)
        if characters >= MAX_CHARACTERS:
            return


TYPICAL_LENGTH = 600
_RECENCY_LIFE_S = 45 * 86400
_RECENCY_WEIGHT = 0.35
_LITERAL_WEIGHT = 0.6
_NEARNESS_WEIGHT = 0.5
_ROLE_WEIGHTS = {"tool": -0.25, "system": -0.2, "session_meta": -0.3}
_NEARNESS_REACH = 60


def score_matches(
    matches: Sequence[Match], words: Sequence[LeafMatcher], literal: str, newest: float
) -> None:
    """Give every match its score; `literal` is what was typed, folded."""
    for match in matches:
        worth = _measure_frequency(match.folded, words)
        if literal and literal in match.folded:
            worth += _LITERAL_WEIGHT
        match.score = worth + score_context(match, words, newest)


def score_context(match: Match, words: Sequence[TextFinder], newest: float) -> float:
    """Return what a match is worth beside its words: their nearness, its age, who said it."""
    near = _NEARNESS_WEIGHT * _measure_nearness(match.folded, words) if len(words) > 1 else 0.0
    length = 0.15 * min(1.0, len(match.folded) / (10 * TYPICAL_LENGTH))
    age = max(0.0, newest - match.at)
    recent = _RECENCY_WEIGHT * math.exp(-age / _RECENCY_LIFE_S)
    return near + recent - length + _ROLE_WEIGHTS.get(match.role, 0.0) - 0.02 * match.compacted


def sort_matches(matches: Iterable[Match]) -> list[Match]:
    """Return the best first; of equals the newest."""
    return sorted(matches, key=lambda match: (-match.score, -match.id))


def _measure_frequency(folded: str, words: Sequence[LeafMatcher]) -> float:
    length = 0.4 + 0.6 * len(folded) / TYPICAL_LENGTH
    counts = [word.count_matches(folded) for word in words]
    parts = [0.5 + 0.5 * count / (count + length) for count in counts if count]
    return sum(parts) / len(words) if words else 0.0


def _measure_nearness(folded: str, words: Sequence[TextFinder]) -> float:
    """Return which part of the words stands near another one, by their first places."""
    places = sorted(at[0] for word in words if (at := word.find(folded)))
    steps = (places[place + 1] - places[place] for place in range(len(places) - 1))
    return sum(step <= _NEARNESS_REACH for step in steps) / (len(words) - 1)
