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
from session_core.state.query import Word
from session_core.state.snippet import Findable
from session_core.state.sqlite import sql_blocks
from session_core.state.sqlite.connection import Handle
from session_core.state.sqlite.search.hermes import Lookup
from session_core.state.sqlite.search.index_plan import Plan

SQL = sql_blocks.load("search")

CHARACTERS = 4_000_000
"""So much text is read for one block at most."""

_QUICK = 8
"""So much faster is it to decode an image, or to fold ASCII, than to fold and rank text."""

_SCANNED = 20_000
SIEVED = 100_000
_FILTER, _SIEVE = "/*filter*/ 1", "/*sieve*/ 1"

_SCATTERED = 64_000_000
"""So many bytes of rows that lie apart are gone through at most."""

Test = Callable[[str], bool]


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
class Look:
    """One way to look: at which rows, by which index, and what must hold of their texts."""

    plan: Plan
    test: Test
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
class Task:
    """A look at one home at one moment, through the filters of one search."""

    handle: Handle
    look: Look
    filters: str
    values: dict[str, Any]
    low: int
    texts: dict[Any, Any]
    """What was read of rows that lie scattered, for all stages of one search."""
    per_session: bool
    passes: Callable[[Match], bool]

    def run(
        self, name: str, bounds: Mapping[str, Any], *, sieve: str = "", apart: bool = False
    ) -> _sqlite3.Cursor:
        """Run a block with the filters and the conditions of the look."""
        condition = self.look.apart if apart else self.look.only
        filters = f"{self.filters} AND ({condition})" if condition else self.filters
        statement = self.handle.sql(SQL[name]).replace(_FILTER, filters)
        bound = {**self.values, **self.look.values, **bounds}
        return self.handle.connection.execute(statement.replace(_SIEVE, sieve or "1"), bound)

    @property
    def reach(self) -> int:
        """How many rows are read one by one at most."""
        return SIEVED if self.look.sieve else _SCANNED


def as_match(row: tuple[Any, ...]) -> Match:
    """Return a row of `list_rows` with its text decoded."""
    text, unshown = search_text.parts(row[4], row[5], row[6])
    shown = search_text.fold(text)
    return Match(
        id=row[0],
        session_id=row[1],
        role=row[2],
        at=row[3],
        text=text,
        shown=shown,
        folded=f"{shown}\n{search_text.fold(unshown)}" if unshown else shown,
        compacted=bool(row[7]),
        source=row[8],
        title=row[9],
        parent=row[10],
        continued=row[11] == "compression",
    )


def weight(content: Any, text: str, *, ranked: bool = True) -> int:
    """Return how much text a row is to read, and to rank; what is dropped at once is cheap."""
    fast = text.isascii() and not ranked
    return max(len(text) // (_QUICK if fast else 1), len(content or "") // _QUICK)


def passing(task: Task, ids: list[int]) -> dict[int, str]:
    """Return those ids that pass the filters, newest first, with their sessions."""
    return dict(task.run("list_passing", {"ids": json.dumps(ids)}).fetchall())


def sizes(task: Task, ids: list[int]) -> list[tuple[int, str, int | None]]:
    """Return those ids that pass the filters, with their sessions and their lengths."""
    return task.run("list_sizes", {"ids": json.dumps(ids)}).fetchall()


def loaded(task: Task, ids: list[int]) -> list[Match]:
    """Return messages by their ids, those that pass the filters, without asking what they match."""
    found: list[Match] = []
    characters = 0
    for row in rows(task, ids):
        found.append(as_match(row))
        characters += weight(row[4], found[-1].text)
        if characters >= CHARACTERS:
            break
    return [match for match in found if task.passes(match)]


def between(low: int, below: int) -> dict[str, int]:
    """Return the bounds of a statement on ids, which may be as high as a number can be."""
    return {"low": low, "high": below - 1} if low < below else {"low": 1, "high": 0}


def listed(
    handle: Handle, lookups: Iterable[Lookup], low: int, below: int, count: int
) -> tuple[list[int], int, bool]:
    """Return ids that any lookup has, newest first, down to where all of them were asked."""
    found: list[int] = []
    floor, done = low, True
    for lookup in lookups:
        bounds = {"match": lookup.match, "count": count, **between(low, below)}
        ids = json.loads(handle.value(SQL[lookup.block], bounds))
        found = sorted({*found, *ids}, reverse=True) if found else ids
        if len(ids) == count:
            floor, done = max(floor, ids[-1]), False
    if found and found[-1] < floor:
        found = [one for one in found if one >= floor]
    return found, floor, done


def rows(task: Task, ids: list[int], sieve: str = "") -> Iterator[tuple[Any, ...]]:
    """Return rows by their ids, those that pass the filters, newest first."""
    return task.run("list_rows", {"ids": json.dumps(ids)}, sieve=sieve) if ids else iter(())


def scan(task: Task, low: int, below: int) -> Iterator[tuple[Any, ...]]:
    """Return the rows between two ids that pass the filters and the sieve, newest first."""
    return task.run("scan_rows", between(low, below), sieve=task.look.sieve)


def scattered(task: Task, low: int, below: int) -> tuple[list[int], int]:
    """Return the ids of rows that lie apart, and down to where they are not too much to read."""
    found, size = [], 0
    for message_id, length in task.run("list_apart", between(low, below), apart=True):
        found.append(message_id)
        size += length or 0
        if size >= _SCATTERED:
            return found, message_id
    return found, low


def scattered_texts(task: Task, low: int, below: int) -> tuple[dict[int, str], int]:
    """Return the folded texts of such rows by id, and down to where they were read."""
    key = task.look.apart, low, below
    if key not in task.texts:
        task.texts[key] = _read_scattered(task, *scattered(task, low, below))
    found: tuple[dict[int, str], int] = task.texts[key]
    return found


def _read_scattered(task: Task, ids: list[int], floor: int) -> tuple[dict[int, str], int]:
    found, characters = {}, 0
    block = SQL["list_apart_texts"]
    for message_id, *row in task.handle.connection.execute(block, (json.dumps(ids),)):
        text = search_text.of(*row)
        found[message_id] = search_text.fold(text)
        characters += weight(row[0], text, ranked=False)
        if characters >= CHARACTERS:
            return found, message_id
    return found, floor


def extent(handle: Handle, session_id: str | None) -> tuple[int, int]:
    """Return from which id on and below which one the messages of a session, or all, are."""
    key = "extent", session_id
    found: tuple[int, int] | None = handle.seen.get(key)
    if found is None:
        block, bounds = (
            ("get_range", ()) if session_id is None else ("get_session_range", (session_id,))
        )
        first, last, *_ = handle.values(SQL[block], bounds)[0]
        found = handle.seen[key] = (0, 0) if first is None else (first, last + 1)
    return found


def highest(handle: Handle, low: int, below: int) -> int | None:
    """Return the highest id of a message between two, None if there is none."""
    found: int | None = handle.value(SQL["get_highest"], between(low, below))
    return found


def session_texts(task: Task, sessions: list[str], low: int, below: int) -> Iterator[str]:
    """Yield the folded texts of sessions between two messages, newest first, some thousands."""
    bounds = {"sessions": json.dumps(sessions), **between(low, below)}
    characters = 0
    for row in task.run("scan_session", bounds):
        text = search_text.of(*row)
        yield search_text.fold(text)
        characters += weight(row[0], text)
        if characters >= CHARACTERS:
            return


USUAL_LENGTH = 600
_LIFE_S = 45 * 86400
_RECENT = 0.35
_LITERAL = 0.6
_NEAR = 0.5
_ROLES = {"tool": -0.25, "system": -0.2, "session_meta": -0.3}
_REACH = 60


def score(matches: Sequence[Match], words: Sequence[Word], literal: str, newest: float) -> None:
    """Give every match its score; `literal` is what was typed, folded."""
    for match in matches:
        worth = _frequency(match.folded, words)
        if literal and literal in match.folded:
            worth += _LITERAL
        match.score = worth + beside(match, words, newest)


def beside(match: Match, words: Sequence[Findable], newest: float) -> float:
    """Return what a match is worth beside its words: their nearness, its age, who said it."""
    near = _NEAR * _nearness(match.folded, words) if len(words) > 1 else 0.0
    length = 0.15 * min(1.0, len(match.folded) / (10 * USUAL_LENGTH))
    age = max(0.0, newest - match.at)
    recent = _RECENT * math.exp(-age / _LIFE_S)
    return near + recent - length + _ROLES.get(match.role, 0.0) - 0.02 * match.compacted


def ordered(matches: Iterable[Match]) -> list[Match]:
    """Return the best first; of equals the newest."""
    return sorted(matches, key=lambda match: (-match.score, -match.id))


def _frequency(folded: str, words: Sequence[Word]) -> float:
    length = 0.4 + 0.6 * len(folded) / USUAL_LENGTH
    counts = [word.count(folded) for word in words]
    parts = [0.5 + 0.5 * count / (count + length) for count in counts if count]
    return sum(parts) / len(words) if words else 0.0


def _nearness(folded: str, words: Sequence[Findable]) -> float:
    """Return which part of the words stands near another one, by their first places."""
    places = sorted(at[0] for word in words if (at := word.find(folded)))
    steps = (places[place + 1] - places[place] for place in range(len(places) - 1))
    return sum(step <= _REACH for step in steps) / (len(words) - 1)
