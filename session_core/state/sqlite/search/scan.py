"""The texts above the index, which are read once and kept from one search to the next.

Blocks of matches, newest first, each within a bound of work.

A block depends on the database, the query and where it begins, and on nothing else, so that a
cursor can go on inside it. It ends when it has enough to rank, or when enough was looked at.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from session_core.state import search_text
from session_core.state.sqlite import fts, sql_blocks
from session_core.state.sqlite.connection import Handle
from session_core.state.sqlite.search.candidates import (
    CHARACTERS,
    SIEVED,
    Match,
    Task,
    as_match,
    highest,
    listed,
    passing,
    rows,
    scan,
    scattered,
    scattered_texts,
    weight,
)

SQL = sql_blocks.load("search")

_MOST_ROWS = 20_000
_MOST_CHARACTERS = 8_000_000
_TAIL = "search_tail"
_TOO_LONG = "search_tail_too_long"
_CHANGED = "search_changed"


def load_tail_texts(task: Task) -> dict[int, str] | None:
    """Return the folded texts above the index by id, None if they are too many to keep.

    They are kept from one search to the next.
    """
    handle, covered_to = task.handle, task.look.plan.covered_to
    low = covered_to + 1
    indexed = covered_to != fts.NOTHING or fts.is_ours(handle)
    if not indexed or handle.kept.get(_TOO_LONG) == low:
        return None
    kept = _kept(handle, low)
    above = next(reversed(kept), low - 1)
    room = 0
    for row in fts.tail(handle, above, _MOST_ROWS + 1):
        if not room:
            room = _MOST_CHARACTERS - sum(map(len, kept.values()))
        kept[row[0]] = search_text.fold(search_text.of(*row[1:]))
        room -= len(kept[row[0]])
        if len(kept) > _MOST_ROWS or room <= 0:
            handle.kept[_TOO_LONG] = low
            return None
    # A writer may roll back, so it keeps nothing.
    if not handle.connection.total_changes:
        handle.kept[_TAIL] = low, fts.change_number(handle), kept
    return kept


def changed(handle: Handle) -> dict[int, str]:
    """Return the folded texts of the messages of which the index has other words, by id."""
    if _CHANGED not in handle.seen:
        ids = json.dumps(fts.changed(handle) or ())
        rows = handle.connection.execute(SQL["list_apart_texts"], (ids,)).fetchall()
        handle.seen[_CHANGED] = {
            row[0]: search_text.fold(search_text.of(*row[1:])) for row in reversed(rows)
        }
    found: dict[int, str] = handle.seen[_CHANGED]
    return found


def _kept(handle: Handle, low: int) -> dict[int, str]:
    """Return what was read of it before, as far as it still holds.

    Where somebody else committed and there are now other rows than before among those read, some
    were brought back: all are read again. So they are if a text was changed, or may have been.
    """
    kept: dict[int, str]
    kept_from, number, kept = handle.kept.pop(_TAIL, (low, 0, {}))
    if kept_from > low or handle.connection.total_changes:
        return {}
    if not handle.seen.get(_TAIL) and not number == fts.change_number(handle) >= 0:
        kept = {}
    if kept_from < low:
        kept = {one: text for one, text in kept.items() if one >= low}
    if kept and not handle.seen.get(_TAIL):
        known = low, next(reversed(kept))
        if handle.value(SQL["count_between"], known) != len(kept):
            kept = {}
    handle.seen[_TAIL] = True
    return kept


ENOUGH = 200
"""So many matches are ranked against each other."""

OF_ONE_SESSION = 6
"""Where conversations are asked for, so many matches of one session are enough."""

_LOOKED_AT = 4000
_STEP = 1000
_FEW = 300
_DENSE = 2000


@dataclass(slots=True)
class Block:
    """Matches with ids from `floor` on; `done` if there is nothing below."""

    matches: list[Match] = field(default_factory=list)
    floor: int = 0
    done: bool = False
    read: bool = False
    """Whether it took all that may be read in one call."""


class _Gathering:
    """A block that is being filled."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.matches: list[Match] = []
        self.looked_at = 0
        self.characters = 0
        self._of_session: Counter[str] = Counter()

    @property
    def full(self) -> bool:
        return (
            len(self.matches) >= ENOUGH
            or self.looked_at >= _LOOKED_AT
            or self.characters >= CHARACTERS
        )

    def take(self, found: Iterable[tuple[Any, ...]], *, verify: bool) -> int | None:
        """Add the rows that match; return the id at which it was full, if it was."""
        task = self.task
        for row in found:
            match = as_match(row)
            wanted = (not verify or task.look.test(match.folded)) and self._wanted(match)
            self.characters += weight(row[4], match.text, ranked=wanted)
            if wanted:
                self.matches.append(match)
            if len(self.matches) >= ENOUGH or self.characters >= CHARACTERS:
                return match.id
        return None

    def _wanted(self, match: Match) -> bool:
        if not self.task.passes(match):
            return False
        self._of_session[match.session_id] += 1
        return not self.task.per_session or self._of_session[match.session_id] <= OF_ONE_SESSION

    def narrowed(self, ids: list[int]) -> list[int]:
        """Return those ids that pass the filters, a few of each session."""
        task = self.task
        if len(ids) <= _FEW or not task.per_session:
            return ids
        counted = self._of_session.copy()
        chosen = []
        for message_id, session_id in passing(task, ids).items():
            counted[session_id] += 1
            if counted[session_id] <= OF_ONE_SESSION:
                chosen.append(message_id)
        return chosen


def gather(task: Task, below: int) -> Block:
    """Return the newest block of matches whose ids are less than `below`."""
    filling = _Gathering(task)
    if task.look.apart:
        return _take_scattered(filling, below)
    plan = task.look.plan
    above = max(plan.covered_to + 1, task.low)
    if below > above:
        below = _take_tail(filling, above, below)
        if below > above or filling.full:
            done, read = below <= task.low, len(filling.matches) < ENOUGH
            return Block(filling.matches, below, done=done, read=read)
    if below > task.low and plan.lookups and plan.dense:
        below = _scan(filling, task.low, below, _DENSE)
        if filling.full or len(filling.matches) >= ENOUGH // 4:
            return Block(filling.matches, below, done=below <= task.low)
    if below <= task.low or not plan.lookups:
        return Block(filling.matches, task.low, done=True)
    return _take_lookups(filling, below)


def _take_lookups(filling: _Gathering, below: int) -> Block:
    task, plan = filling.task, filling.task.look.plan
    while True:
        ids, floor, done = listed(task.handle, plan.lookups, task.low, below, _STEP)
        chosen = filling.narrowed(_with_changed(task, ids, floor, below))
        filling.looked_at += len(ids)
        stopped = filling.take(rows(task, chosen), verify=plan.verify)
        if stopped is not None:
            return Block(filling.matches, stopped, read=filling.characters >= CHARACTERS)
        if done:
            return Block(filling.matches, task.low, done=True)
        below = floor
        if task.per_session:
            below = _past_giant(task, ids, below)
        if filling.full:
            return Block(filling.matches, below)


def _with_changed(task: Task, ids: list[int], low: int, below: int) -> list[int]:
    """Return the ids, newest first, with each changed message told by its text instead."""
    texts, look = changed(task.handle), task.look
    if not texts:
        return ids
    matching = {
        one
        for one, text in texts.items()
        if low <= one < below and look.needle in text and look.test(text)
    }
    return sorted(matching.union(ids).difference(texts.keys() - matching), reverse=True)


def _past_giant(task: Task, ids: list[int], below: int) -> int:
    """Return where to go on below a session that fills a step and has all ids of its range."""
    if len(ids) < _STEP:
        return below
    above, session_id = (
        task.handle.value("SELECT session_id FROM messages WHERE id = ?", (one,))
        for one in (ids[0], ids[-1])
    )
    if above != session_id:
        return below
    # Nobody else ever gets an id between two of them, so what was true once remains true.
    giants = task.handle.kept.setdefault("giants", {})
    first, last = giants.get(session_id, (0, 0))
    if not first <= ids[-1] <= last:
        first, last, count = task.handle.values(SQL["get_session_range"], (session_id,))[0]
        if count != last - first + 1:
            return below
        giants[session_id] = first, last
    return int(first)


def _scan(filling: _Gathering, low: int, below: int, most: int) -> int:
    """Read rows from `low` on, so many at most until it is full; return down to where."""
    step = min(most, _STEP)
    for _ in range(most // step):
        top = highest(filling.task.handle, low, below)
        if top is None:
            return low
        below = max(low, top + 1 - step)
        stopped = filling.take(scan(filling.task, below, top + 1), verify=True)
        if stopped is not None:
            return stopped
    return below


def _take_scattered(filling: _Gathering, below: int) -> Block:
    """Return the newest of what lies apart."""
    task, look = filling.task, filling.task.look
    top = highest(task.handle, task.low, below)
    if top is None:
        return Block(floor=task.low, done=True)
    start, below = max(task.low, top + 1 - SIEVED), top + 1
    if look.sieve:
        ids, floor = scattered(task, start, below)
    else:
        texts, floor = scattered_texts(task, start, below)
        ids = [one for one, text in texts.items() if look.needle in text and look.test(text)]
    stopped = filling.take(rows(task, ids, look.sieve), verify=bool(look.sieve))
    floor = floor if stopped is None else stopped
    done, read = floor <= task.low, len(filling.matches) < ENOUGH
    return Block(filling.matches, floor, done=done, read=read)


def _take_tail(filling: _Gathering, low: int, below: int) -> int:
    """Add what is above the index; return down to where."""
    texts = load_tail_texts(filling.task)
    if texts is not None:
        look = filling.task.look
        likely = [pair for pair in texts.items() if look.needle in pair[1]]
        ids = [one for one, folded in likely if low <= one < below and look.test(folded)]
        stopped = filling.take(rows(filling.task, ids[::-1]), verify=False)
        return low if stopped is None else stopped
    return _scan(filling, low, below, filling.task.reach)
