"""The texts above the index, which are read once and kept from one search to the next."""

from __future__ import annotations

import json

from session_core.state import searchable
from session_core.state.sqlite import blocks, index
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.search_rows import Task

SQL = blocks.load("search")

_MOST_ROWS = 20_000
_MOST_CHARACTERS = 8_000_000
_TAIL = "search_tail"
_TOO_LONG = "search_tail_too_long"
_CHANGED = "search_changed"


def texts(task: Task) -> dict[int, str] | None:
    """Return the folded texts above the index by id, None if they are too many to keep.

    They are kept from one search to the next.
    """
    handle, covered_to = task.handle, task.look.plan.covered_to
    low = covered_to + 1
    indexed = covered_to != index.NOTHING or index.is_ours(handle)
    if not indexed or handle.kept.get(_TOO_LONG) == low:
        return None
    kept = _kept(handle, low)
    above = next(reversed(kept), low - 1)
    room = 0
    for row in index.tail(handle, above, _MOST_ROWS + 1):
        if not room:
            room = _MOST_CHARACTERS - sum(map(len, kept.values()))
        kept[row[0]] = searchable.fold(searchable.of(*row[1:]))
        room -= len(kept[row[0]])
        if len(kept) > _MOST_ROWS or room <= 0:
            handle.kept[_TOO_LONG] = low
            return None
    # A writer may roll back, so it keeps nothing.
    if not handle.connection.total_changes:
        handle.kept[_TAIL] = low, index.change_number(handle), kept
    return kept


def changed(handle: Handle) -> dict[int, str]:
    """Return the folded texts of the messages of which the index has other words, by id."""
    if _CHANGED not in handle.seen:
        ids = json.dumps(index.changed(handle) or ())
        rows = handle.connection.execute(SQL["list_apart_texts"], (ids,)).fetchall()
        handle.seen[_CHANGED] = {
            row[0]: searchable.fold(searchable.of(*row[1:])) for row in reversed(rows)
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
    if not handle.seen.get(_TAIL) and not number == index.change_number(handle) >= 0:
        kept = {}
    if kept_from < low:
        kept = {one: text for one, text in kept.items() if one >= low}
    if kept and not handle.seen.get(_TAIL):
        known = low, next(reversed(kept))
        if handle.value(SQL["count_between"], known) != len(kept):
            kept = {}
    handle.seen[_TAIL] = True
    return kept
