"""The search index of a home of our own, fed in batches behind what is appended.

A mark says up to which message it goes; what lies above is the tail, which search reads itself, so
no answer is stale. Both have the words of the folded text, so that no answer changes when a message
is indexed. A batch is a transaction of its own, after the one that appended. Message ids are never
used twice, so a word that is left over from a row that somebody else deleted finds nothing.
Triggers note each indexed message whose text another program changes; search reads those rows
itself, too, and after a thousand of them the index is begun anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from session_core import driver
from session_core.state import searchable
from session_core.state.content import clean_text
from session_core.state.sqlite import blocks
from session_core.state.sqlite.handle import Handle

SQL = blocks.load("indexing")

MIN_ID, MAX_ID = -(2**63), 2**63 - 1
NOTHING = MIN_ID - 1
"""The mark of an index that has no message."""

LAG = 1000
"""With so many messages above the mark the index is brought up to date."""

_BATCH = 512
_BATCH_CHARACTERS = 500_000
"""A batch holds the lock for about ten milliseconds; smaller ones cost more in all."""

_CHUNK = 500
_MOST_CHANGED_CHARACTERS = 8_000_000
_TRIGGERS = 2
_MARK = "indexed_to"
_DUE = "index_due"
_CHANGED = "index_changed"
_WATCHED = "index_watched"

Row = tuple[int, Any, "str | None", "str | None"]


def is_ours(handle: Handle) -> bool:
    """Whether this home has an index of ours."""
    return handle.has("ms_index")


def indexed_to(handle: Handle) -> int:
    """Return the highest message that the index has, NOTHING if it has none or cannot be used."""
    return NOTHING if changed(handle) is None else _mark(handle)


def changed(handle: Handle) -> tuple[int, ...] | None:
    """Return the indexed messages whose text changed since, None if the index is to begin anew.

    That is so after too many changes, and in a home of an earlier version, which did not note them.
    """
    if not _has_triggers(handle):
        return None
    if _CHANGED not in handle.seen:
        handle.seen[_CHANGED] = _list_changed(handle)
    ids: tuple[int, ...] | None = handle.seen[_CHANGED]
    return ids


def change_number(handle: Handle) -> int:
    """Return a number that grows with each change of a text, -1 if changes are not noted."""
    return int(handle.value(SQL["get_change_number"])) if _has_triggers(handle) else -1


def _mark(handle: Handle) -> int:
    mark = handle.cache.get(_MARK)
    if mark is None:
        mark = handle.cache[_MARK] = int(handle.value(SQL["get_mark"]) or NOTHING)
    return int(mark)


def _has_triggers(handle: Handle) -> bool:
    if _WATCHED not in handle.cache:
        count = handle.value(SQL["count_triggers"]) if is_ours(handle) else 0
        handle.cache[_WATCHED] = count == _TRIGGERS
    return bool(handle.cache[_WATCHED])


def _list_changed(handle: Handle) -> tuple[int, ...] | None:
    ids = [row[0] for row in handle.values(SQL["list_changed"], {"rows": LAG})]
    if len(ids) >= LAG:
        return None
    if not ids or _mark(handle) == NOTHING:
        return ()
    bounds = {"ids": json.dumps(ids), "mark": _mark(handle)}
    sizes = dict(handle.values(SQL["list_changed_sizes"], bounds))
    return None if sum(sizes.values()) > _MOST_CHANGED_CHARACTERS else tuple(sizes)


def top(handle: Handle) -> int:
    """Return the highest id of a message, 0 where there is none."""
    return int(handle.value(SQL["get_top"]))


def tail(handle: Handle, above: int, count: int) -> Iterator[Row]:
    """Return messages with what an index has of them, in order."""
    if above == MAX_ID:
        return iter(())
    return handle.connection.execute(SQL["list_tail"], (above + 1, count))


def is_behind(handle: Handle) -> bool:
    """Whether so many messages are above the mark that reading them takes long."""
    return is_ours(handle) and top(handle) >= _due_at(handle)


def _due_at(handle: Handle) -> int:
    return max(indexed_to(handle), 0) + LAG


def appended(handle: Handle, last_id: int) -> None:
    """Note, in their transaction, that messages were appended."""
    due = handle.cache.get(_DUE)
    if due is None:
        due = _due_at(handle) if is_ours(handle) else float("inf")
        handle.cache[_DUE] = due
    if last_id >= due:
        handle.due = True


def catch_up(handle: Handle) -> bool:
    """Index a batch of the messages above the mark, in the open transaction.

    Return whether there may be enough for another one.
    """
    if not is_ours(handle):
        return False
    handle.seen.pop(_CHANGED, None)
    above = indexed_to(handle)
    rows = list(_bounded(tail(handle, above, _BATCH)))
    if not rows:
        return False
    if above == NOTHING:
        _begin_anew(handle)
    _feed(handle, "add_text", rows)
    mark = rows[-1][0]
    handle.run(SQL["set_mark"], (str(mark),))
    handle.run(SQL["delete_changed_between"], {"low": above + 1, "mark": mark})
    handle.cache[_MARK] = mark
    handle.cache[_DUE] = _due_at(handle)
    return len(rows) == _BATCH or _size(rows) >= _BATCH_CHARACTERS


def _begin_anew(handle: Handle) -> None:
    """Empty the index, which may have words that its messages have no more."""
    if not _has_triggers(handle):
        for statement in blocks.statements("index"):
            handle.run(statement)
        del handle.cache[_WATCHED]
        handle.run(SQL["delete_old_mark"])
    handle.run(SQL["empty_index"])
    handle.run(SQL["delete_all_changed"])
    handle.seen.pop(_CHANGED, None)


def forget(handle: Handle, ids: Sequence[int]) -> None:
    """Take messages out of the index, before their rows are deleted.

    Of a message that another program changed the index has words that are not known any more, so it
    is left as it is. If the index is damaged it is begun anew.
    """
    try:
        _each(handle, ids, "remove_text")
    except driver.library().DatabaseError as error:
        if type(error) is not driver.library().DatabaseError:
            raise
        handle.run(SQL["empty_index"])
        handle.run(SQL["set_mark"], (str(NOTHING),))
        handle.cache |= {_MARK: NOTHING, _DUE: LAG}


def remember(handle: Handle, ids: Sequence[int], since: int) -> None:
    """Index messages that were forgotten, or not there, at the change number `since`."""
    if not _has_triggers(handle):
        return
    for chunk in _chunks(ids):
        handle.run(SQL["delete_changed"], {"ids": json.dumps(chunk), "number": since})
    _each(handle, ids, "add_text")


def _each(handle: Handle, ids: Sequence[int], block: str) -> None:
    handle.seen.pop(_CHANGED, None)
    if not is_ours(handle) or indexed_to(handle) == NOTHING:
        return
    unknown = set(changed(handle) or ())
    for chunk in _chunks([one for one in ids if one not in unknown]):
        bounds = {"ids": json.dumps(chunk), "mark": _mark(handle)}
        _feed(handle, block, handle.values(SQL["list_rows"], bounds))


def _chunks(ids: Sequence[int]) -> Iterator[list[int]]:
    return (list(ids[start : start + _CHUNK]) for start in range(0, len(ids), _CHUNK))


def _feed(handle: Handle, block: str, rows: Iterable[Row]) -> None:
    handle.connection.executemany(
        SQL[block],
        [(row[0], clean_text(_words(row))) for row in rows],
    )


def _words(row: Row) -> str:
    return searchable.spaced(searchable.fold(searchable.of(*row[1:])))


def _bounded(rows: Iterable[Row]) -> Iterator[Row]:
    """Stop where it is enough for a batch; one row always comes."""
    taken = 0
    for row in rows:
        yield row
        taken += _size((row,))
        if taken >= _BATCH_CHARACTERS:
            return


def _size(rows: Iterable[Row]) -> int:
    parts = chain.from_iterable(row[1:] for row in rows)
    return sum(len(part) for part in parts if isinstance(part, (str, bytes)))
