"""The folded texts of what is above the index, kept from one search to the next."""

from __future__ import annotations

from session_core.state import searchable
from session_core.state.sqlite import blocks
from session_core.state.sqlite.handle import Handle

SQL = blocks.load("search")

MOST_ROWS = 20_000
_MOST_CHARACTERS = 8_000_000
_TAIL = "search_tail"
_TOO_LONG = "search_tail_too_long"


def texts(handle: Handle, low: int) -> dict[int, str] | None:
    """Return the folded texts above the index by id, None if they are too many to keep."""
    if handle.kept.get(_TOO_LONG) == low:
        return None
    kept = _kept(handle, low)
    bounds = {"above": max(next(reversed(kept), 0), low - 1), "count": MOST_ROWS + 1}
    room = 0
    for row in handle.connection.execute(SQL["list_tail_texts"], bounds):
        if not room:
            room = _MOST_CHARACTERS - sum(map(len, kept.values()))
        kept[row[0]] = searchable.fold(searchable.of(*row[1:]))
        room -= len(kept[row[0]])
        if len(kept) > MOST_ROWS or room <= 0:
            handle.kept[_TOO_LONG] = low
            return None
    if not handle.connection.total_changes:
        handle.kept[_TAIL] = kept
    return kept


def _kept(handle: Handle, low: int) -> dict[int, str]:
    """Return what was read of it before, as far as it still holds.

    A writer may roll back, so it keeps nothing. Where somebody else committed and there are now
    other rows than before among those read, some were brought back: all are read again.
    """
    kept: dict[int, str] = handle.kept.get(_TAIL, {})
    if not kept or handle.connection.total_changes:
        return {}
    if next(iter(kept)) < low:
        kept = {one: text for one, text in kept.items() if one >= low}
    if kept and not handle.seen.get(_TAIL):
        ends = (next(iter(kept)), next(reversed(kept)))
        if handle.value(SQL["count_between"], ends) != len(kept):
            kept = {}
    handle.seen[_TAIL] = True
    return kept
