"""Rows that may match: listed by an index, filtered, loaded and decoded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from session_core.state import searchable
from session_core.state.sqlite import blocks
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.search_plan import Lookup, Plan

SQL = blocks.load("search")

CHARACTERS = 4_000_000
"""So much text is read for one block at most."""

_SCANNED = 20_000
_SIEVED = 50_000
_FILTER = "/*filter*/ 1"

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
    per_session: bool = True
    passes: Callable[[Match], bool] = lambda _: True

    def sql(self, name: str) -> str:
        """Return a block with the conditions of this home and this search."""
        return self.handle.sql(SQL[name]).replace(_FILTER, self.condition)

    @property
    def reach(self) -> int:
        """How many rows are read one by one at most."""
        return _SIEVED if self.sieve else _SCANNED


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


def passing(task: Task, ids: list[int]) -> list[int]:
    """Return those ids that pass the filters, newest first."""
    if not ids:
        return []
    bounds = {**task.values, "ids": json.dumps(ids)}
    return [row[0] for row in task.handle.connection.execute(task.sql("list_passing"), bounds)]


def loaded(task: Task, ids: list[int]) -> list[Match]:
    """Return messages by their ids, those that pass the filters, without asking what they match."""
    found: list[Match] = []
    characters = 0
    for row in rows(task, ids):
        found.append(as_match(row))
        characters += len(found[-1].text)
        if characters >= CHARACTERS:
            break
    return [match for match in found if task.passes(match)]


def listed(
    handle: Handle, lookups: Iterable[Lookup], low: int, below: int, count: int
) -> tuple[list[int], int, bool]:
    """Return ids that any lookup has, newest first, down to where all of them were asked."""
    found: set[int] = set()
    floor, done = low, True
    for lookup in lookups:
        bounds = {"match": lookup.match, "below": below, "low": low, "count": count}
        ids = [row[0] for row in handle.connection.execute(SQL[lookup.block], bounds)]
        found.update(ids)
        if len(ids) == count:
            floor, done = max(floor, ids[-1]), False
    return sorted((one for one in found if one >= floor), reverse=True), floor, done


def rows(task: Task, ids: list[int]) -> Iterator[tuple[Any, ...]]:
    """Return rows by their ids, those that pass the filters, newest first."""
    if not ids:
        return iter(())
    return task.handle.connection.execute(
        task.sql("list_rows"), {**task.values, "ids": json.dumps(ids)}
    )


def session_texts(task: Task, sessions: list[str], low: int, below: int) -> Iterator[str]:
    """Yield the folded texts of sessions between two messages, newest first, some thousands."""
    bounds = {"sessions": json.dumps(sessions), "scan_low": low, "scan_below": below}
    characters = 0
    for row in task.handle.connection.execute(task.sql("scan_session"), task.values | bounds):
        text = searchable.of(*row)
        yield searchable.fold(text)
        characters += len(text)
        if characters >= CHARACTERS:
            return
