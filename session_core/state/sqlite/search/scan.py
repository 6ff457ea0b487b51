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
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.search.candidates import (
    MAX_CHARACTERS,
    MAX_SIEVED_ROWS,
    Match,
    SearchTask,
    decode_match,
    filter_ids,
    find_highest_id,
    iter_rows,
    list_lookup_ids,
    list_scattered,
    measure_weight,
    read_scattered_texts,
    scan_rows,
)

SQL = sql_blocks.load_blocks("search")

_MAX_ROWS = 20_000
_MAX_CHARACTERS = 8_000_000
_TAIL_CACHE_KEY = "search_tail"
_TOO_LONG_CACHE_KEY = "search_tail_too_long"
_CHANGED_CACHE_KEY = "search_changed"


def load_tail_texts(task: SearchTask) -> dict[int, str] | None:
    """Return the folded texts above the index by id, None if they are too many to keep.

    They are kept from one search to the next.
    """
    handle, covered_to = task.handle, task.look.plan.covered_to
    low = covered_to + 1
    indexed = covered_to != fts.EMPTY_MARK or fts.is_own_index(handle)
    if not indexed or handle.kept.get(_TOO_LONG_CACHE_KEY) == low:
        return None
    kept = _load_cached_texts(handle, low)
    above = next(reversed(kept), low - 1)
    room = 0
    for row in fts.list_unindexed(handle, above, _MAX_ROWS + 1):
        if not room:
            room = _MAX_CHARACTERS - sum(map(len, kept.values()))
        kept[row[0]] = search_text.fold_text(search_text.build_search_text(*row[1:]))
        room -= len(kept[row[0]])
        if len(kept) > _MAX_ROWS or room <= 0:
            handle.kept[_TOO_LONG_CACHE_KEY] = low
            return None
    # A writer may roll back, so it keeps nothing.
    if not handle.connection.total_changes:
        handle.kept[_TAIL_CACHE_KEY] = low, fts.get_change_number(handle), kept
    return kept


def load_changed_texts(handle: Connection) -> dict[int, str]:
    """Return the folded texts of the messages of which the index has other words, by id."""
    if _CHANGED_CACHE_KEY not in handle.seen:
        ids = json.dumps(fts.list_changed_messages(handle) or ())
        rows = handle.connection.execute(SQL["list_apart_texts"], (ids,)).fetchall()
        handle.seen[_CHANGED_CACHE_KEY] = {
            row[0]: search_text.fold_text(search_text.build_search_text(*row[1:]))
            for row in reversed(rows)
        }
    found: dict[int, str] = handle.seen[_CHANGED_CACHE_KEY]
    return found


def _load_cached_texts(handle: Connection, low: int) -> dict[int, str]:
    """Return what was read of it before, as far as it still holds.

    Where somebody else committed and there are now other rows than before among those read, some
    were brought back: all are read again. So they are if a text was changed, or may have been.
    """
    kept: dict[int, str]
    kept_from, number, kept = handle.kept.pop(_TAIL_CACHE_KEY, (low, 0, {}))
    if kept_from > low or handle.connection.total_changes:
        return {}
    if not handle.seen.get(_TAIL_CACHE_KEY) and not number == fts.get_change_number(handle) >= 0:
        kept = {}
    if kept_from < low:
        kept = {one: text for one, text in kept.items() if one >= low}
    if kept and not handle.seen.get(_TAIL_CACHE_KEY):
        known = low, next(reversed(kept))
        if handle.fetch_value(SQL["count_between"], known) != len(kept):
            kept = {}
    handle.seen[_TAIL_CACHE_KEY] = True
    return kept


MAX_BLOCK_MATCHES = 200
"""So many matches are ranked against each other."""

MAX_SESSION_MATCHES = 6
"""Where conversations are asked for, so many matches of one session are enough."""

_MAX_LISTED_IDS = 4000
_STEP_IDS = 1000
_MAX_SPARSE_IDS = 300
_DENSE_IDS = 2000


@dataclass(slots=True)
class MatchBlock:
    """Matches with ids from `floor` on; `done` if there is nothing below."""

    matches: list[Match] = field(default_factory=list)
    floor: int = 0
    done: bool = False
    read: bool = False
    """Whether it took all that may be read in one call."""


class _BlockBuilder:
    """A block that is being filled."""

    def __init__(self, task: SearchTask) -> None:
        self.task = task
        self.matches: list[Match] = []
        self.looked_at = 0
        self.characters = 0
        self._of_session: Counter[str] = Counter()

    @property
    def is_full(self) -> bool:
        return (
            len(self.matches) >= MAX_BLOCK_MATCHES
            or self.looked_at >= _MAX_LISTED_IDS
            or self.characters >= MAX_CHARACTERS
        )

    def add_rows(self, found: Iterable[tuple[Any, ...]], *, verify: bool) -> int | None:
        """Add the rows that match; return the id at which it was full, if it was."""
        task = self.task
        for row in found:
            match = decode_match(row)
            wanted = (not verify or task.look.test(match.folded)) and self._is_wanted(match)
            self.characters += measure_weight(row[4], match.text, ranked=wanted)
            if wanted:
                self.matches.append(match)
            if len(self.matches) >= MAX_BLOCK_MATCHES or self.characters >= MAX_CHARACTERS:
                return match.id
        return None

    def _is_wanted(self, match: Match) -> bool:
        if not self.task.passes(match):
            return False
        self._of_session[match.session_id] += 1
        return (
            not self.task.per_session or self._of_session[match.session_id] <= MAX_SESSION_MATCHES
        )

    def limit_per_session(self, ids: list[int]) -> list[int]:
        """Return those ids that pass the filters, a few of each session."""
        task = self.task
        if len(ids) <= _MAX_SPARSE_IDS or not task.per_session:
            return ids
        counted = self._of_session.copy()
        chosen = []
        for message_id, session_id in filter_ids(task, ids).items():
            counted[session_id] += 1
            if counted[session_id] <= MAX_SESSION_MATCHES:
                chosen.append(message_id)
        return chosen


def gather_block(task: SearchTask, below: int) -> MatchBlock:
    """Return the newest block of matches whose ids are less than `below`."""
    filling = _BlockBuilder(task)
    if task.look.apart:
        return _gather_scattered(filling, below)
    plan = task.look.plan
    above = max(plan.covered_to + 1, task.low)
    if below > above:
        below = _add_tail(filling, above, below)
        if below > above or filling.is_full:
            done, read = below <= task.low, len(filling.matches) < MAX_BLOCK_MATCHES
            return MatchBlock(filling.matches, below, done=done, read=read)
    if below > task.low and plan.lookups and plan.dense:
        below = _scan_range(filling, task.low, below, _DENSE_IDS)
        if filling.is_full or len(filling.matches) >= MAX_BLOCK_MATCHES // 4:
            return MatchBlock(filling.matches, below, done=below <= task.low)
    if below <= task.low or not plan.lookups:
        return MatchBlock(filling.matches, task.low, done=True)
    return _gather_from_lookups(filling, below)


def _gather_from_lookups(filling: _BlockBuilder, below: int) -> MatchBlock:
    task, plan = filling.task, filling.task.look.plan
    while True:
        ids, floor, done = list_lookup_ids(task.handle, plan.lookups, task.low, below, _STEP_IDS)
        chosen = filling.limit_per_session(_merge_changed(task, ids, floor, below))
        filling.looked_at += len(ids)
        stopped = filling.add_rows(iter_rows(task, chosen), verify=plan.verify)
        if stopped is not None:
            return MatchBlock(filling.matches, stopped, read=filling.characters >= MAX_CHARACTERS)
        if done:
            return MatchBlock(filling.matches, task.low, done=True)
        below = floor
        if task.per_session:
            below = _skip_giant_session(task, ids, below)
        if filling.is_full:
            return MatchBlock(filling.matches, below)


def _merge_changed(task: SearchTask, ids: list[int], low: int, below: int) -> list[int]:
    """Return the ids, newest first, with each changed message told by its text instead."""
    texts, look = load_changed_texts(task.handle), task.look
    if not texts:
        return ids
    matching = {
        one
        for one, text in texts.items()
        if low <= one < below and look.needle in text and look.test(text)
    }
    return sorted(matching.union(ids).difference(texts.keys() - matching), reverse=True)


def _skip_giant_session(task: SearchTask, ids: list[int], below: int) -> int:
    """Return where to go on below a session that fills a step and has all ids of its range."""
    if len(ids) < _STEP_IDS:
        return below
    above, session_id = (
        task.handle.fetch_value("SELECT session_id FROM messages WHERE id = ?", (one,))
        for one in (ids[0], ids[-1])
    )
    if above != session_id:
        return below
    # Nobody else ever gets an id between two of them, so what was true once remains true.
    giants = task.handle.kept.setdefault("giants", {})
    first, last = giants.get(session_id, (0, 0))
    if not first <= ids[-1] <= last:
        first, last, count = task.handle.fetch_tuples(SQL["get_session_range"], (session_id,))[0]
        if count != last - first + 1:
            return below
        giants[session_id] = first, last
    return int(first)


def _scan_range(filling: _BlockBuilder, low: int, below: int, most: int) -> int:
    """Read rows from `low` on, so many at most until it is full; return down to where."""
    step = min(most, _STEP_IDS)
    for _ in range(most // step):
        top = find_highest_id(filling.task.handle, low, below)
        if top is None:
            return low
        below = max(low, top + 1 - step)
        stopped = filling.add_rows(scan_rows(filling.task, below, top + 1), verify=True)
        if stopped is not None:
            return stopped
    return below


def _gather_scattered(filling: _BlockBuilder, below: int) -> MatchBlock:
    """Return the newest of what lies apart."""
    task, look = filling.task, filling.task.look
    top = find_highest_id(task.handle, task.low, below)
    if top is None:
        return MatchBlock(floor=task.low, done=True)
    start, below = max(task.low, top + 1 - MAX_SIEVED_ROWS), top + 1
    if look.sieve:
        ids, floor = list_scattered(task, start, below)
    else:
        texts, floor = read_scattered_texts(task, start, below)
        ids = [one for one, text in texts.items() if look.needle in text and look.test(text)]
    stopped = filling.add_rows(iter_rows(task, ids, look.sieve), verify=bool(look.sieve))
    floor = floor if stopped is None else stopped
    done, read = floor <= task.low, len(filling.matches) < MAX_BLOCK_MATCHES
    return MatchBlock(filling.matches, floor, done=done, read=read)


def _add_tail(filling: _BlockBuilder, low: int, below: int) -> int:
    """Add what is above the index; return down to where."""
    texts = load_tail_texts(filling.task)
    if texts is not None:
        look = filling.task.look
        likely = [pair for pair in texts.items() if look.needle in pair[1]]
        ids = [one for one, folded in likely if low <= one < below and look.test(folded)]
        stopped = filling.add_rows(iter_rows(filling.task, ids[::-1]), verify=False)
        return low if stopped is None else stopped
    return _scan_range(filling, low, below, filling.task.scan_limit)
