"""Rows that may match: listed by an index, filtered, loaded and decoded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from session_core.state import searchable
from session_core.state.sqlite import blocks, index
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.search_hermes import Lookup
from session_core.state.sqlite.search_plan import Plan

SQL = blocks.load("search")

CHARACTERS = 4_000_000
"""So much text is read for one block at most."""

_QUICK = 8
"""So much faster is it to decode an image, or to fold ASCII, than to fold and rank text."""

_TAIL_ROWS = 20_000
_TAIL_CHARACTERS = 8_000_000
_TAIL = "search_tail"
_TOO_LONG = "search_tail_too_long"
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
    folded: str
    compacted: bool
    source: str
    title: str | None
    parent: str | None
    continued: bool
    score: float = 0.0


@dataclass(slots=True)
class Task:
    """One search of one home at one moment."""

    handle: Handle
    plan: Plan
    test: Test
    condition: str
    values: dict[str, Any]
    low: int = 0
    needle: str = ""
    """What every folded text has that matches."""
    sieve: str = ""
    """What SQL can tell of rows that are read one by one; more may pass."""
    apart: str = ""
    """A condition on rows that lie scattered among others, where those are its own."""
    texts: dict[Any, Any] = field(default_factory=dict)
    """What was read of such rows, for all stages of one search."""
    per_session: bool = True
    passes: Callable[[Match], bool] = lambda _: True

    def sql(self, name: str, sieve: str = "") -> str:
        """Return a block with the conditions of this home and this search."""
        return self._filled(name, self.condition).replace(_SIEVE, sieve or "1")

    def apart_sql(self, name: str) -> str:
        """Return a block with the conditions of this home on rows that lie scattered."""
        return self._filled(name, self.apart)

    def _filled(self, name: str, condition: str) -> str:
        return self.handle.sql(SQL[name]).replace(_FILTER, condition)

    @property
    def reach(self) -> int:
        """How many rows are read one by one at most."""
        return SIEVED if self.sieve else _SCANNED


def as_match(row: tuple[Any, ...]) -> Match:
    """Return a row of `list_rows` with its text decoded."""
    text = searchable.of(row[4], row[5], row[6])
    return Match(
        id=row[0],
        session_id=row[1],
        role=row[2],
        at=row[3],
        text=text,
        folded=searchable.fold(text),
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
    bounds = {**task.values, "ids": json.dumps(ids)}
    return dict(task.handle.values(task.sql("list_passing"), bounds))


def sizes(task: Task, ids: list[int]) -> list[tuple[int, str, int | None]]:
    """Return those ids that pass the filters, with their sessions and their lengths."""
    bounds = {**task.values, "ids": json.dumps(ids)}
    return task.handle.values(task.sql("list_sizes"), bounds)


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


def listed(
    handle: Handle, lookups: Iterable[Lookup], low: int, below: int, count: int
) -> tuple[list[int], int, bool]:
    """Return ids that any lookup has, newest first, down to where all of them were asked."""
    found: list[int] = []
    floor, done = low, True
    for lookup in lookups:
        bounds = {"match": lookup.match, "below": below, "low": low, "count": count}
        ids = json.loads(handle.value(SQL[lookup.block], bounds))
        found = sorted({*found, *ids}, reverse=True) if found else ids
        if len(ids) == count:
            floor, done = max(floor, ids[-1]), False
    if found and found[-1] < floor:
        found = [one for one in found if one >= floor]
    return found, floor, done


def rows(task: Task, ids: list[int], sieve: str = "") -> Iterator[tuple[Any, ...]]:
    """Return rows by their ids, those that pass the filters, newest first."""
    if not ids:
        return iter(())
    return task.handle.connection.execute(
        task.sql("list_rows", sieve), {**task.values, "ids": json.dumps(ids)}
    )


def scan(task: Task, low: int, below: int) -> Iterator[tuple[Any, ...]]:
    """Return the rows between two ids that pass the filters and the sieve, newest first."""
    bounds = {**task.values, "scan_low": low, "scan_below": below}
    return task.handle.connection.execute(task.sql("scan_rows", task.sieve), bounds)


def scattered(task: Task, low: int, below: int) -> tuple[list[int], int]:
    """Return the ids of rows that lie apart, and down to where they are not too much to read."""
    bounds = {**task.values, "scan_low": low, "scan_below": below}
    found, size = [], 0
    for message_id, length in task.handle.connection.execute(task.apart_sql("list_apart"), bounds):
        found.append(message_id)
        size += length or 0
        if size >= _SCATTERED:
            return found, message_id
    return found, low


def scattered_texts(task: Task, low: int, below: int) -> tuple[dict[int, str], int]:
    """Return the folded texts of such rows by id, and down to where they were read."""
    key = task.apart, low, below
    if key not in task.texts:
        task.texts[key] = _read_scattered(task, *scattered(task, low, below))
    found: tuple[dict[int, str], int] = task.texts[key]
    return found


def _read_scattered(task: Task, ids: list[int], floor: int) -> tuple[dict[int, str], int]:
    found, characters = {}, 0
    block = SQL["list_apart_texts"]
    for message_id, *row in task.handle.connection.execute(block, (json.dumps(ids),)):
        text = searchable.of(*row)
        found[message_id] = searchable.fold(text)
        characters += weight(row[0], text, ranked=False)
        if characters >= CHARACTERS:
            return found, message_id
    return found, floor


def session_range(handle: Handle, session_id: str) -> tuple[int, int]:
    """Return the first and the last message of a session, zeros if it has none."""
    key = "session_range", session_id
    found: tuple[int, int] | None = handle.seen.get(key)
    if found is None:
        first, last, _ = handle.values(SQL["get_session_range"], (session_id,))[0]
        found = handle.seen[key] = first or 0, last or 0
    return found


def session_texts(task: Task, sessions: list[str], low: int, below: int) -> Iterator[str]:
    """Yield the folded texts of sessions between two messages, newest first, some thousands."""
    bounds = {"sessions": json.dumps(sessions), "scan_low": low, "scan_below": below}
    characters = 0
    for row in task.handle.connection.execute(task.sql("scan_session"), task.values | bounds):
        text = searchable.of(*row)
        yield searchable.fold(text)
        characters += weight(row[0], text)
        if characters >= CHARACTERS:
            return


def tail_texts(task: Task) -> dict[int, str] | None:
    """Return the folded texts above the index by id, None if they are too many to keep.

    They are kept from one search to the next.
    """
    handle, low = task.handle, task.plan.covered_to + 1
    indexed = task.plan.covered_to or index.is_ours(handle)
    if not indexed or handle.kept.get(_TOO_LONG) == low:
        return None
    kept = _kept_tail(handle, low)
    above = max(next(reversed(kept), 0), low - 1)
    room = 0
    for row in index.tail(handle, above, _TAIL_ROWS + 1):
        if not room:
            room = _TAIL_CHARACTERS - sum(map(len, kept.values()))
        kept[row[0]] = searchable.fold(searchable.of(*row[1:]))
        room -= len(kept[row[0]])
        if len(kept) > _TAIL_ROWS or room <= 0:
            handle.kept[_TOO_LONG] = low
            return None
    # A writer may roll back, so it keeps nothing.
    if not handle.connection.total_changes:
        handle.kept[_TAIL] = low, kept
    return kept


def _kept_tail(handle: Handle, low: int) -> dict[int, str]:
    """Return what was read of it before, as far as it still holds.

    Where somebody else committed and there are now other rows than before among those read, some
    were brought back: all are read again.
    """
    kept: dict[int, str]
    kept_from, kept = handle.kept.pop(_TAIL, (low, {}))
    if kept_from > low or handle.connection.total_changes:
        return {}
    if kept_from < low:
        kept = {one: text for one, text in kept.items() if one >= low}
    if kept and not handle.seen.get(_TAIL):
        known = low, next(reversed(kept))
        if handle.value(SQL["count_between"], known) != len(kept):
            kept = {}
    handle.seen[_TAIL] = True
    return kept
