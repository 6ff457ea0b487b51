"""Which rows are copies that a compaction carried on, where they did not keep their times.

A compaction stores in one step what stands for the live rows: perhaps copies of the first ones, a
summary, copies of the last ones, maybe another note. Its rows without times of their own are a
microsecond apart for each id between them, which nothing is that was said one by one.
A step is taken for one only if behind its first row comes a copy of the very last row that was
summarised away, and that is certain only where it left no other live row before it, or has rows
with times of their own in between. Else, as an append of several messages looks like that too, the
last two rows have to come. In such a step every row that equals an original, in their order, is a
copy. What a person said twice is stored in two steps, and never hidden.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from session_core.state.sqlite import blocks, index, lineage
from session_core.state.sqlite.handle import Handle

SQL = blocks.load("carried")

_REACH_S = 0.002
"""Longer than any step is by its times; only rows that were stored together are so near."""

_SLACK = 20
_SEEN = "carried"


@dataclass(frozen=True, slots=True)
class Row:
    """A row, and what it says."""

    id: int
    session_id: str
    at: float
    said: tuple[Any, ...]


def originals(handle: Handle, message_id: int, session_id: str, at: Any) -> dict[int, Row]:
    """Return the copies among the rows that were stored together with a message, by their ids."""
    known: dict[int, dict[int, Row]] = handle.seen.setdefault(_SEEN, {})
    if message_id not in known:
        bounds = {"session": session_id, "id": message_id, "at": at, "reach": _REACH_S}
        step = [row[0] for row in handle.values(SQL["list_step"], bounds)]
        found = _copies(handle, step, session_id) if len(step) > 1 else {}
        known.update(dict.fromkeys([message_id, *step], found))
    return known[message_id]


def of_rows(handle: Handle, rows: Iterable[tuple[int, str, Any]]) -> dict[int, Row]:
    """Return the copies among all the rows of a session, or its first ones, in their order."""
    found: dict[int, Row] = {}
    for message_id, session_id, at in _together(rows):
        found |= originals(handle, message_id, session_id, at)
    return found


def stand_in(handle: Handle, message_id: int, session_id: str, at: float) -> dict[str, Any] | None:
    """Return the row that is shown for a compacted one: its live copy, else the first of all."""
    first = _first(handle, Row(message_id, session_id, at, ()))
    copies = _of_session(handle, "list_first_live", session_id).items()
    live = [copy for copy, original in copies if _first(handle, original) == first]
    found = _shown(handle, live)
    return found if found or first == message_id else _shown(handle, [first])


def in_child(handle: Handle, message_id: int, session_id: str) -> dict[str, Any] | None:
    """Return the copy of a row with which a continuation of its session began."""
    copies = _copies_in_children(handle, session_id).items()
    return _shown(handle, [copy for copy, original in copies if original.id == message_id])


def _shown(handle: Handle, ids: Sequence[int]) -> dict[str, Any] | None:
    """Return the last of these rows that is not rewound."""
    return handle.row(handle.sql(SQL["get_shown"]), (json.dumps(ids),)) if ids else None


def _first(handle: Handle, row: Row) -> int:
    """Return of which row of the session this is a copy, of a copy perhaps."""
    while True:
        original = originals(handle, row.id, row.session_id, row.at).get(row.id)
        if original is None or original.session_id != row.session_id:
            return row.id
        row = original


def _copies_in_children(handle: Handle, session_id: str) -> dict[int, Row]:
    found: dict[int, Row] = {}
    for child in lineage.continuations(handle, session_id):
        found |= _of_session(handle, "list_first_of", child["id"])
    return found


def _of_session(handle: Handle, block: str, session_id: str) -> dict[int, Row]:
    key = _SEEN, block, session_id
    if key not in handle.seen:
        rows = handle.values(handle.sql(SQL[block]), (session_id,))
        handle.seen[key] = of_rows(handle, ((row[0], session_id, row[1]) for row in rows))
    found: dict[int, Row] = handle.seen[key]
    return found


def _together(rows: Iterable[tuple[int, str, Any]]) -> Iterator[tuple[int, str, Any]]:
    """Yield a row of each step; among its rows may be some that kept older times."""
    last: tuple[int, str, Any] | None = None
    for row in rows:
        if not isinstance(row[2], (int, float)):
            continue
        if last is not None and row[1] == last[1]:
            if row[2] < last[2]:
                continue
            if _is_next(last, row):
                yield row
        last = row


def _is_next(last: tuple[int, str, Any], row: tuple[int, str, Any]) -> bool:
    apart = row[0] - last[0]
    return bool(abs((row[2] - last[2]) * 1e6 - apart) <= 0.4 + 0.1 * apart)


def _copies(handle: Handle, step: Sequence[int], session_id: str) -> dict[int, Row]:
    """Return the copies in a step, none where it was no compaction."""
    listed = handle.values(handle.sql(SQL["list_contents"]), {"ids": json.dumps(step)})
    stored = [_row(values) for values in listed]
    bounds = {
        "session": session_id,
        "at": stored[0].at,
        "below": stored[0].id,
        "count": len(stored) + _SLACK,
    }
    source, before = _before(handle, bounds)
    if not before:
        return {}
    found = _matched(stored, before)
    mixed = step[-1] - step[0] >= len(step)
    alone = bool(listed[0][-1]) and not handle.value(handle.sql(SQL["has_live_before"]), bounds)
    if not _ends_alike(stored, before, found, 1 if mixed or alone else 2):
        return {}
    first = handle.values(handle.sql(SQL["list_first"]), {**bounds, "session": source})
    for row, original in zip(stored, (_row(values) for values in first), strict=False):
        if row.id in found or row.said != original.said:
            break
        found[row.id] = original
    return found


def _before(handle: Handle, bounds: dict[str, Any]) -> tuple[str, list[Row]]:
    """Return the last rows that were summarised away before a step, and in which session."""
    session_id = bounds["session"]
    block = "list_compacted_before_by_id" if index.is_ours(handle) else "list_compacted_before"
    rows = handle.values(handle.sql(SQL[block]), bounds)
    parent = None if rows else lineage.continued_by(handle, session_id)
    if parent is not None:
        session_id = parent
        bounds = {**bounds, "session": session_id}
        rows = handle.values(handle.sql(SQL["list_visible_before"]), bounds)
    return session_id, sorted((_row(values) for values in rows), key=lambda row: row.id)


def _matched(stored: Sequence[Row], before: Sequence[Row]) -> dict[int, Row]:
    """Return which rows of a step, all but its first, equal which originals, from the end."""
    found: dict[int, Row] = {}
    rest = len(before)
    for row in reversed(stored[1:]):
        place = next((at for at in range(rest - 1, -1, -1) if before[at].said == row.said), None)
        if place is not None:
            found[row.id], rest = before[place], place
    return found


def _ends_alike(
    stored: Sequence[Row], before: Sequence[Row], found: dict[int, Row], least: int
) -> bool:
    """Whether the last originals, so many of them, were carried on one behind the other."""
    copies = [place for place, row in enumerate(stored) if row.id in found][-least:]
    wanted = [row.id for row in before[-least:]]
    carried = [found[stored[place].id].id for place in copies]
    return carried == wanted and copies[-1] - copies[0] == least - 1


def _row(values: Sequence[Any]) -> Row:
    message_id, session_id, at, role, content, *rest = values[:7]
    said = content.strip() if isinstance(content, str) else content
    return Row(message_id, session_id, at, (role, said, *rest))
