"""The search index of a home of our own, fed in batches behind what is appended.

A mark says up to which message it goes; what lies above is the tail, which search reads itself, so
no answer is stale. Both have the words of the folded text, so that no answer changes when a message
is indexed. A batch is a transaction of its own, after the one that appended. Message ids are never
used twice, so a word that is left over from a row that somebody else deleted finds nothing.
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
_MARK = "indexed_to"
_DUE = "index_due"

Row = tuple[int, Any, "str | None", "str | None"]


def is_ours(handle: Handle) -> bool:
    """Whether this home has an index of ours."""
    return handle.has("ms_index")


def indexed_to(handle: Handle) -> int:
    """Return the highest message that the index has, NOTHING if it has none."""
    mark = handle.cache.get(_MARK)
    if mark is None:
        mark = handle.cache[_MARK] = int(handle.value(SQL["get_mark"]) or NOTHING)
    return int(mark)


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
    rows = list(_bounded(tail(handle, indexed_to(handle), _BATCH)))
    if not rows:
        return False
    if indexed_to(handle) == NOTHING:
        # A home that was indexed in an earlier way has another mark, and words of that way.
        handle.run(SQL["empty_index"])
    _feed(handle, "add_text", rows)
    mark = rows[-1][0]
    handle.run(SQL["set_mark"], (str(mark),))
    handle.cache[_MARK] = mark
    handle.cache[_DUE] = _due_at(handle)
    return len(rows) == _BATCH or _size(rows) >= _BATCH_CHARACTERS


def forget(handle: Handle, ids: Sequence[int]) -> None:
    """Take messages out of the index, before their rows are deleted.

    Where somebody else has changed a row meanwhile the index may not know the words that it is to
    forget: it is damaged then, and begun anew.
    """
    try:
        _each(handle, ids, "remove_text")
    except driver.library().DatabaseError as error:
        if type(error) is not driver.library().DatabaseError:
            raise
        handle.run(SQL["empty_index"])
        handle.run(SQL["set_mark"], (str(NOTHING),))
        handle.cache |= {_MARK: NOTHING, _DUE: LAG}


def remember(handle: Handle, ids: Sequence[int]) -> None:
    """Index messages that were brought back under the ids that they had before."""
    _each(handle, ids, "add_text")


def _each(handle: Handle, ids: Sequence[int], block: str) -> None:
    if not is_ours(handle) or indexed_to(handle) == NOTHING:
        return
    for start in range(0, len(ids), _CHUNK):
        chunk = json.dumps(list(ids[start : start + _CHUNK]))
        bounds = {"ids": chunk, "mark": indexed_to(handle)}
        _feed(handle, block, handle.values(SQL["list_rows"], bounds))


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
