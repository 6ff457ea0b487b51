"""Blocks of matches, newest first, each with a bounded cost.

A block depends on the database, the query and its position only, so that a cursor can continue
inside it. It ends when it has enough matches to rank, or when enough rows were read. The texts
above the index are read once and kept from one search to the next.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from session_core.state import search_text, sql_blocks
from session_core.state.sqlite import fts
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
    """Return the folded texts above the index by id, or None if there are too many to keep."""
    handle, covered_to = task.handle, task.query.plan.covered_to
    low = covered_to + 1
    indexed = covered_to != fts.EMPTY_MARK or fts.is_own_index(handle)
    if not indexed or handle.kept.get(_TOO_LONG_CACHE_KEY) == low:
        return None
    kept = _load_cached_texts(handle, low)
    last_read = next(reversed(kept), low - 1)
    room = 0
    for row in fts.list_unindexed(handle, last_read, _MAX_ROWS + 1):
        if not room:
            room = _MAX_CHARACTERS - sum(map(len, kept.values()))
        kept[row[0]] = search_text.fold_text(search_text.build_search_text(*row[1:]))
        room -= len(kept[row[0]])
        if len(kept) > _MAX_ROWS or room <= 0:
            handle.kept[_TOO_LONG_CACHE_KEY] = low
            return None
    # A writer may roll back, so its rows are not kept.
    if not handle.has_changes:
        handle.kept[_TAIL_CACHE_KEY] = low, fts.get_change_number(handle), kept
    return kept


def load_changed_texts(handle: Connection) -> dict[int, str]:
    """Return by id the folded texts of messages whose index entry is outdated."""
    if _CHANGED_CACHE_KEY not in handle.seen:
        ids = fts.list_changed_messages(handle)
        rows = handle.fetch_tuples(SQL["list_apart_texts"], (json.dumps(ids),)) if ids else []
        handle.seen[_CHANGED_CACHE_KEY] = {
            row[0]: search_text.fold_text(search_text.build_search_text(*row[1:]))
            for row in reversed(rows)
        }
    texts: dict[int, str] = handle.seen[_CHANGED_CACHE_KEY]
    return texts


def _load_cached_texts(handle: Connection, low: int) -> dict[int, str]:
    """Return the texts of an earlier search that are still valid."""
    # If another process has committed and the number of rows in the cached range has changed, rows
    # were restored: all are read again. The same if a text was changed, or may have been.
    kept: dict[int, str]
    kept_from, number, kept = handle.kept.pop(_TAIL_CACHE_KEY, (low, 0, {}))
    if kept_from > low or handle.has_changes:
        return {}
    if not handle.seen.get(_TAIL_CACHE_KEY) and not number == fts.get_change_number(handle) >= 0:
        kept = {}
    if kept_from < low:
        kept = {message_id: text for message_id, text in kept.items() if message_id >= low}
    if kept and not handle.seen.get(_TAIL_CACHE_KEY):
        cached_range = low, next(reversed(kept))
        if handle.fetch_value(SQL["count_between"], cached_range) != len(kept):
            kept = {}
    handle.seen[_TAIL_CACHE_KEY] = True
    return kept


MAX_BLOCK_MATCHES = 200
"""The number of matches that are ranked together."""

MAX_SESSION_MATCHES = 6
"""The number of matches of one session if hits are conversations."""

_FIRST_WINDOW_IDS, _WINDOW_BLOCKS = 500, 4
_MAX_LISTED_IDS = 4000
_STEP_IDS = 1000
_MAX_SPARSE_IDS = 300
_DENSE_IDS = 2000


@dataclass(slots=True)
class MatchBlock:
    """Matches with ids from `floor` on.

    `done` means that there are no rows below `floor`.
    """

    matches: list[Match] = field(default_factory=list)
    floor: int = 0
    done: bool = False
    read: bool = False
    """True if the block has used the whole read budget of one call."""
    found_terms: int = 0
    """The number of words of a question that occur at all."""


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

    def add_rows(self, rows: Iterable[tuple[Any, ...]], *, verify: bool) -> int | None:
        """Add the rows that match.

        Return the id at which the block was full, or None.
        """
        task = self.task
        for row in rows:
            match = decode_match(row)
            is_match = (not verify or task.query.test(match.folded)) and self._is_wanted(match)
            self.characters += measure_weight(row[4], match.text, ranked=is_match)
            if is_match:
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
        """Return the ids that pass the filters, limited to a few of each session."""
        task = self.task
        # The first messages of a session may all be without a match.
        if len(ids) <= _MAX_SPARSE_IDS or not task.per_session or task.query.plan.loose:
            return ids
        counted = self._of_session.copy()
        chosen = []
        for message_id, session_id in filter_ids(task, ids).items():
            counted[session_id] += 1
            if counted[session_id] <= MAX_SESSION_MATCHES:
                chosen.append(message_id)
        return chosen


def gather_block(task: SearchTask, below: int) -> MatchBlock:
    """Return the newest block of matches with ids less than `below`."""
    builder = _BlockBuilder(task)
    if task.query.apart:
        return _gather_scattered(builder, below)
    plan = task.query.plan
    above = max(plan.covered_to + 1, task.low)
    if below > above:
        # Rows above the index are newer than all indexed rows, so they come first.
        below = _add_tail(builder, above, below)
        if below > above or builder.is_full:
            done, is_exhausted = below <= task.low, len(builder.matches) < MAX_BLOCK_MATCHES
            return MatchBlock(builder.matches, below, done=done, read=is_exhausted)
    if below > task.low and plan.lookups and plan.dense:
        # Most rows match a dense lookup, so reading the newest rows is faster than the lookup.
        below = _scan_range(builder, task.low, below, _DENSE_IDS)
        if builder.is_full or len(builder.matches) >= MAX_BLOCK_MATCHES // 4:
            return MatchBlock(builder.matches, below, done=below <= task.low)
    if below <= task.low or not plan.lookups:
        return MatchBlock(builder.matches, task.low, done=True)
    return _gather_from_lookups(builder, below)


def gather_oldest(task: SearchTask, start: int, top: int) -> MatchBlock:
    """Return the oldest block of matches from an id on.

    Its `floor` is the id at which the next block begins.
    """
    size = _FIRST_WINDOW_IDS
    while start < top:
        end = min(top, start + size)
        matches = _gather_whole_window(task, start, end)
        if matches is None:
            size = max(1, size // 4)
        elif matches or end == top:
            return MatchBlock(matches, end, done=end == top)
        else:
            # Windows grow while they are empty, so a rare word takes few look-ups.
            start, size = end, size * 4
    return MatchBlock(floor=top, done=True)


def _gather_whole_window(task: SearchTask, start: int, end: int) -> list[Match] | None:
    """Return all matches between two ids, or None if there are too many for one block."""
    window = replace(task, low=start)
    matches: list[Match] = []
    for _ in range(_WINDOW_BLOCKS):
        block = gather_block(window, end)
        matches += block.matches
        if block.done:
            return matches
        end = block.floor
    return matches if end - start <= 1 else None


def _gather_from_lookups(builder: _BlockBuilder, below: int) -> MatchBlock:
    task, plan = builder.task, builder.task.query.plan
    while True:
        ids, floor, done = list_lookup_ids(task.handle, plan.lookups, task.low, below, _STEP_IDS)
        chosen = builder.limit_per_session(_merge_changed(task, ids, floor, below))
        builder.looked_at += len(ids)
        stopped = builder.add_rows(iter_rows(task, chosen), verify=plan.verify)
        if stopped is not None:
            return MatchBlock(builder.matches, stopped, read=builder.characters >= MAX_CHARACTERS)
        if done:
            return MatchBlock(builder.matches, task.low, done=True)
        below = floor
        if task.per_session:
            below = _skip_giant_session(task, ids, below)
        if builder.is_full:
            return MatchBlock(builder.matches, below)


def _merge_changed(task: SearchTask, ids: list[int], low: int, below: int) -> list[int]:
    """Return ids, newest first, after testing the text of changed messages.

    The index is not trusted for messages that have changed.
    """
    texts, query = load_changed_texts(task.handle), task.query
    if not texts:
        return ids
    matching = {
        message_id
        for message_id, text in texts.items()
        if low <= message_id < below and query.needle in text and query.test(text)
    }
    return sorted(matching.union(ids).difference(texts.keys() - matching), reverse=True)


def _skip_giant_session(task: SearchTask, ids: list[int], below: int) -> int:
    """Return the position below a session whose messages fill a step without gaps."""
    if len(ids) < _STEP_IDS:
        return below
    first_session, session_id = (
        task.handle.fetch_value("SELECT session_id FROM messages WHERE id = ?", (message_id,))
        for message_id in (ids[0], ids[-1])
    )
    if first_session != session_id:
        return below
    # Ids are never reused, so a range without gaps keeps belonging to the session.
    giants = task.handle.kept.setdefault("giants", {})
    first, last = giants.get(session_id, (0, 0))
    if not first <= ids[-1] <= last:
        first, last, count = task.handle.fetch_tuples(SQL["get_session_range"], (session_id,))[0]
        if count != last - first + 1:
            return below
        giants[session_id] = first, last
    return int(first)


def _scan_range(builder: _BlockBuilder, low: int, below: int, limit: int) -> int:
    """Read up to `limit` rows down to `low` until the block is full, and return the id reached."""
    step = min(limit, _STEP_IDS)
    for _ in range(limit // step):
        top = find_highest_id(builder.task.handle, low, below)
        if top is None:
            return low
        below = max(low, top + 1 - step)
        stopped = builder.add_rows(scan_rows(builder.task, below, top + 1), verify=True)
        if stopped is not None:
            return stopped
    return below


def _gather_scattered(builder: _BlockBuilder, below: int) -> MatchBlock:
    """Return the newest block of scattered rows."""
    task, query = builder.task, builder.task.query
    top = find_highest_id(task.handle, task.low, below)
    if top is None:
        return MatchBlock(floor=task.low, done=True)
    start, below = max(task.low, top + 1 - MAX_SIEVED_ROWS), top + 1
    if query.sieve:
        ids, floor = list_scattered(task, start, below)
    else:
        texts, floor = read_scattered_texts(task, start, below)
        ids = [
            message_id
            for message_id, text in texts.items()
            if query.needle in text and query.test(text)
        ]
    stopped = builder.add_rows(iter_rows(task, ids, query.sieve), verify=bool(query.sieve))
    floor = floor if stopped is None else stopped
    done, is_exhausted = floor <= task.low, len(builder.matches) < MAX_BLOCK_MATCHES
    return MatchBlock(builder.matches, floor, done=done, read=is_exhausted)


def _add_tail(builder: _BlockBuilder, low: int, below: int) -> int:
    """Add the matches above the index and return the id reached."""
    texts = load_tail_texts(builder.task)
    if texts is not None:
        query = builder.task.query
        candidates = [pair for pair in texts.items() if query.needle in pair[1]]
        ids = [
            message_id
            for message_id, folded in candidates
            if low <= message_id < below and query.test(folded)
        ]
        stopped = builder.add_rows(iter_rows(builder.task, ids[::-1]), verify=False)
        return low if stopped is None else stopped
    return _scan_range(builder, low, below, builder.task.scan_limit)
