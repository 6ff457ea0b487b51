"""How often a search index of Hermes merges what it has gathered, while very much is changed.

Texts with a NUL in the trigram index of a Hermes home, which SQLite reads in two ways.

Up to 3.47 the trigram tokenizer stopped at a NUL, with which all multi-part content begins; since
3.48 it goes on behind it. An entry that one version made and another takes out leaves the index
damaged. So before and after a row is touched its entry gets a blank for the NUL, which every
version reads alike.

The search index of a home of our own, fed in batches behind what is appended.

A mark says up to which message it goes; what lies above is the tail, which search reads itself, so
no answer is stale. Both have the words of the folded text, so that no answer changes when a message
is indexed. A batch is a transaction of its own, after the one that appended. Message ids are never
used twice, so a word that is left over from a row that somebody else deleted finds nothing.
Triggers note each indexed message whose text another program changes; search reads those rows
itself, too, and after a thousand of them the index is begun anew.

The segments of an FTS5 index: how many blocks they have, and how much a merge would free.

FTS5 deletes a row by adding a delete marker for each of its terms to a newer segment. The marker
and the entry that it cancels both take room until a merge meets them. Their share is estimated from
a few leaf blocks of each segment; the format of a leaf is described in fts5_index.c of SQLite.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from session_core import _sqlite3
from session_core.errors import Unsupported
from session_core.state import query, search_text
from session_core.state.content import clean_text
from session_core.state.sqlite import opening, sql_blocks
from session_core.state.sqlite.connection import Handle, quoted

_USUAL = 4
_SELDOM = 8
"""So many segments are merged into one: an entry is written anew a third less often."""


@contextmanager
def seldom(handle: Handle) -> Iterator[None]:
    """Indexes merge more at a time inside, and as they did before behind it.

    That is a setting of theirs, and the transaction leaves it as it found it: in memory by setting
    what is usual, and stored by nothing. Where somebody has chosen another it stays at that.
    """
    tables = [] if is_ours(handle) else _unset(handle)
    for table in tables:
        _set(handle, table, _SELDOM)
    yield
    for table in tables:
        _set(handle, table, _USUAL)
        handle.run(f"DELETE FROM {_settings(table)} WHERE k = 'automerge'")  # noqa: S608 -- from the schema, quoted


def _unset(handle: Handle) -> list[str]:
    """Return the indexes for which nobody has chosen how often they merge."""
    tables = handle.schema.get("index_tables")
    if tables is None:
        tables = opening.list_usable(handle)
        handle.schema["index_tables"] = tables
    asked = "SELECT 1 FROM {} WHERE k = 'automerge'"
    return [each for each in tables if handle.value(asked.format(_settings(each))) is None]


def _set(handle: Handle, table: str, count: int) -> None:
    name = quoted(table)
    handle.run(f"INSERT INTO {name}({name}, rank) VALUES ('automerge', ?)", (count,))  # noqa: S608 -- from the schema, quoted


def _settings(table: str) -> str:
    return quoted(f"{table}_config")


_NUL = b"\0"
_BROKEN = "\ufffd"
_LITERAL_NUL_SINCE = (3, 48, 0)
_ROWS = "SELECT id FROM messages WHERE session_id = ? AND id >= ? AND instr(content, char(0)) > 0"
_ENTRIES = (
    "SELECT rowid, CAST(content AS BLOB) FROM messages_fts_trigram"
    " WHERE rowid IN (SELECT value FROM json_each(?))"
)


def mend_session(handle: Handle, session_id: str, since: int = 0) -> None:
    """Mend the entries of a session's messages from `since` on."""
    if _concerned(handle):
        mend(handle, [row[0] for row in handle.values(_ROWS, (session_id, since))])


def mend(handle: Handle, ids: Sequence[int]) -> None:
    """Mend the entries of these messages, where they have a NUL.

    Raises:
        Unsupported: an entry was made by a newer SQLite than this one.
    """
    if not ids or not _concerned(handle):
        return
    for row_id, stored in handle.values(_ENTRIES, (json.dumps(list(ids)),)):
        if stored is not None and _NUL in stored:
            _mend_entry(handle, row_id, stored)


def mend_all(handle: Handle) -> None:
    """Mend every entry; for a copy that is to be checked."""
    if _concerned(handle):
        odd = handle.values("SELECT id FROM messages WHERE instr(content, char(0)) > 0")
        mend(handle, [row[0] for row in odd])


def _concerned(handle: Handle) -> bool:
    """Whether there is such an index with a copy of the text, as up to schema 22."""
    return handle.has("messages_fts_trigram_content", "c0")


def has_nul(content: Any) -> bool:
    """Whether content, as it is stored, is concerned."""
    return _NUL in content if isinstance(content, bytes) else "\0" in str(content or "")


def _mend_entry(handle: Handle, row_id: int, stored: bytes) -> None:
    """Mend one entry, which need not be text: bytes that a row holds are in it as they are."""
    goes_on = _sqlite3.library().sqlite_version_info >= _LITERAL_NUL_SINCE
    went_on = _was_read_past_nul(handle, row_id, _text(stored), unknown=goes_on)
    if went_on and not goes_on:
        raise Unsupported(
            "the search index of this home was written by a newer sqlite than "
            f"{_sqlite3.library().sqlite_version}; choose the bundled one to change such messages"
        )
    if goes_on and not went_on:
        # What this version is to take out has to be what that one has put in.
        handle.run(
            "UPDATE messages_fts_trigram_content SET c0 = CAST(? AS TEXT) WHERE id = ?",
            (stored[: stored.index(_NUL)], row_id),
        )
    handle.run(
        "UPDATE messages_fts_trigram SET content = ? WHERE rowid = ?",
        (_text(stored.replace(_NUL, b" ")), row_id),
    )


def _was_read_past_nul(handle: Handle, row_id: int, text: str, *, unknown: bool) -> bool:
    """Whether the index has a trigram of the text that stands behind the NUL alone."""
    head, _, tail = text.partition("\0")
    tail = tail.partition("\0")[0]
    for start in range(len(tail) - 2):
        piece = tail[start : start + 3]
        if _BROKEN not in piece and piece.lower() not in head.lower():
            found = handle.value(
                "SELECT 1 FROM messages_fts_trigram WHERE messages_fts_trigram MATCH ?"
                " AND rowid = ?",
                (query.quoted(piece), row_id),
            )
            return found is not None
    return unknown


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "replace")


SQL = sql_blocks.load("fts")

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

IndexedRow = tuple[int, Any, "str | None", "str | None"]


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


def tail(handle: Handle, above: int, count: int) -> Iterator[IndexedRow]:
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
        for statement in sql_blocks.statements("index"):
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
    except _sqlite3.library().DatabaseError as error:
        if type(error) is not _sqlite3.library().DatabaseError:
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


def _feed(handle: Handle, block: str, rows: Iterable[IndexedRow]) -> None:
    handle.connection.executemany(
        SQL[block],
        [(row[0], clean_text(_words(row))) for row in rows],
    )


def _words(row: IndexedRow) -> str:
    return search_text.spaced(search_text.fold(search_text.of(*row[1:])))


def _bounded(rows: Iterable[IndexedRow]) -> Iterator[IndexedRow]:
    """Stop where it is enough for a batch; one row always comes."""
    taken = 0
    for row in rows:
        yield row
        taken += _size((row,))
        if taken >= _BATCH_CHARACTERS:
            return


def _size(rows: Iterable[IndexedRow]) -> int:
    parts = chain.from_iterable(row[1:] for row in rows)
    return sum(len(part) for part in parts if isinstance(part, (str, bytes)))


_SEGMENT = 1 << 37
_BLOCKS = 1 << 31
_MOST_SEGMENTS = 2000

_SAMPLED_SEGMENTS = 10
_SAMPLED_BLOCKS = 3
"""So many leaves of each segment are read; all smaller segments together hold next to nothing."""

_VARINT_BYTES = 9


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment, whose leaf blocks have successive ids."""

    first: int
    last: int

    @property
    def blocks(self) -> int:
        """Return how many leaf blocks it has."""
        return self.last - self.first + 1

    def sample_ids(self) -> Sequence[int]:
        """Return the ids of a few of its blocks, at even distances."""
        count = min(self.blocks, _SAMPLED_BLOCKS)
        return [self.first + (2 * at + 1) * self.blocks // (2 * count) for at in range(count)]


@dataclass(slots=True)
class _Entries:
    """What was counted in some leaf blocks: live entries and delete markers, with their bytes."""

    live: int = 0
    live_bytes: int = 0
    markers: int = 0
    marker_bytes: int = 0

    def add(self, size: int, *, is_marker: bool) -> None:
        if is_marker:
            self.markers += 1
            self.marker_bytes += size
        else:
            self.live += 1
            self.live_bytes += size


def list_segments(handle: Handle, table: str) -> list[Segment]:
    """Return the segments of an index by its `_data` table."""
    name = quoted(table)
    first_after = f"SELECT min(id) FROM {name} WHERE id >= ?"  # noqa: S608 -- from the schema, quoted
    last_before = f"SELECT max(id) FROM {name} WHERE id < ?"  # noqa: S608 -- from the schema, quoted
    segments: list[Segment] = []
    first = handle.value(first_after, (_SEGMENT,))
    while first is not None and len(segments) < _MOST_SEGMENTS:
        begin = first // _SEGMENT * _SEGMENT
        segments.append(Segment(first, handle.value(last_before, (begin + _BLOCKS,))))
        first = handle.value(first_after, (begin + _SEGMENT,))
    return segments


def count_blocks(handle: Handle, table: str) -> int:
    """Return how many blocks an index has."""
    return 1 + sum(segment.blocks for segment in list_segments(handle, table))


def estimate_dead_blocks(handle: Handle, table: str) -> float:
    """Return about how many blocks of an index a merge of all its segments would free."""
    segments = list_segments(handle, table)
    if len(segments) < 2:  # noqa: PLR2004 -- a single segment has nothing to be merged with
        return 0.0
    sampled = sorted(segments, key=lambda segment: segment.blocks)[-_SAMPLED_SEGMENTS:]
    counted = [(segment, _count_entries(handle, table, segment)) for segment in sampled]
    live = sum(entries.live for _, entries in counted)
    entry_bytes = sum(entries.live_bytes for _, entries in counted) / (live or 1)
    dead = 0.0
    for segment, entries in counted:
        all_bytes = entries.live_bytes + entries.marker_bytes
        cancelled = entries.marker_bytes + entries.markers * entry_bytes
        dead += segment.blocks * cancelled / (all_bytes or 1)
    return min(dead, float(sum(segment.blocks for segment in segments)))


def _count_entries(handle: Handle, table: str, segment: Segment) -> _Entries:
    entries = _Entries()
    sql = f"SELECT block FROM {quoted(table)} WHERE id = ?"  # noqa: S608 -- from the schema, quoted
    for block_id in segment.sample_ids():
        block = handle.value(sql, (block_id,))
        if isinstance(block, bytes):
            for size, is_marker in _entries_of(block):
                entries.add(size, is_marker=is_marker)
    return entries


def _entries_of(block: bytes) -> Iterator[tuple[int, bool]]:
    """Yield the size of each entry of a leaf block, and whether it is a delete marker."""
    first_rowid = int.from_bytes(block[:2], "big")
    end = int.from_bytes(block[2:4], "big")
    terms = _term_offsets(block, end)
    if first_rowid:  # the doclist of the block before goes on here
        yield from _doclist(block, first_rowid, terms[0] if terms else end)
    for number, at in enumerate(terms):
        stop = terms[number + 1] if number + 1 < len(terms) else end
        start = at
        if number:
            _, start = _varint(block, start)  # how much of the term before is its beginning
        length, start = _varint(block, start)
        yield from _doclist(block, start + length, stop)


def _term_offsets(block: bytes, end: int) -> list[int]:
    offsets: list[int] = []
    at, offset = end, 0
    while at < len(block):
        distance, at = _varint(block, at)
        offset += distance
        if not 4 <= offset < end:  # noqa: PLR2004 -- the length of a leaf's head
            break
        offsets.append(offset)
    return offsets


def _doclist(block: bytes, at: int, stop: int) -> Iterator[tuple[int, bool]]:
    """Yield the entries of a doclist that are whole in a block."""
    while at < stop:
        _, after_row = _varint(block, at)
        size_and_flag, after_size = _varint(block, after_row)
        following = after_size + (size_and_flag >> 1)
        if following > stop:
            break
        yield following - at, bool(size_and_flag & 1)
        at = following


def _varint(block: bytes, at: int) -> tuple[int, int]:
    """Return the integer at a position, and the position after it."""
    if at < len(block) and block[at] < 0x80:  # noqa: PLR2004 -- nearly all are a single byte
        return block[at], at + 1
    value = 0
    for used, byte in enumerate(block[at : at + _VARINT_BYTES], 1):
        if used == _VARINT_BYTES:
            return value << 8 | byte, at + used
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # noqa: PLR2004 -- the last byte of an integer
            return value, at + used
    return value, len(block)
