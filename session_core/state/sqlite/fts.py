"""Full-text indexes: our own incremental index, and upkeep of the indexes of Hermes.

The index of a home of our own is filled in batches after messages were appended. A mark stores the
last indexed message. Later messages are the tail, which search reads itself, so no result is stale.
Both use the words of the folded text, so results do not change when a message is indexed. A batch
is a transaction of its own. Message ids are never reused, so a word left from a row that another
program deleted finds nothing. Triggers record each indexed message whose text another program
changes. Search reads these rows itself, and after a thousand of them the index is rebuilt.

The trigram index of a Hermes home depends on the SQLite version: up to 3.47 the tokenizer stopped
at a NUL, with which all multi-part content begins, and since 3.48 it continues. An entry added by
one version and removed by another damages the index. Before and after each change of a row its
entry therefore gets a blank for the NUL, which all versions read alike.

FTS5 deletes a row by writing a delete marker for each of its terms to a newer segment. The marker
and the cancelled entry both take room until a merge. Their share is estimated from a few leaf
blocks of each segment. The source file fts5_index.c of SQLite describes the format of a leaf.
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
from session_core.state import query, search_text, sql_blocks
from session_core.state.content import clean_text
from session_core.state.sqlite import extension
from session_core.state.sqlite.connection import Connection, quote_name

_DEFAULT_AUTOMERGE = 4
_RARE_AUTOMERGE = 8
"""Segments merged into one. With eight, an entry is rewritten a third less often."""


@contextmanager
def merge_less_often(handle: Connection) -> Iterator[None]:
    """Let indexes of Hermes merge more segments at a time in the block."""
    # The setting is stored in the index, so the transaction restores it: the value in memory by
    # setting the default, the stored one by deleting it. A setting chosen by others is kept.
    tables = [] if is_own_index(handle) else _list_default_indexes(handle)
    for table in tables:
        _set_automerge(handle, table, _RARE_AUTOMERGE)
    yield
    for table in tables:
        _set_automerge(handle, table, _DEFAULT_AUTOMERGE)
        handle.execute_update(f"DELETE FROM {_quote_config_table(table)} WHERE k = 'automerge'")  # noqa: S608 -- quoted names of the schema


def _list_default_indexes(handle: Connection) -> list[str]:
    """Return the indexes that use the default merge setting."""
    tables = handle.schema.get("index_tables")
    if tables is None:
        tables = extension.list_usable_indexes(handle)
        handle.schema["index_tables"] = tables
    statement = "SELECT 1 FROM {} WHERE k = 'automerge'"
    return [
        table
        for table in tables
        if handle.fetch_value(statement.format(_quote_config_table(table))) is None
    ]


def _set_automerge(handle: Connection, table: str, count: int) -> None:
    name = quote_name(table)
    handle.execute_update(f"INSERT INTO {name}({name}, rank) VALUES ('automerge', ?)", (count,))  # noqa: S608 -- quoted names of the schema


def _quote_config_table(table: str) -> str:
    return quote_name(f"{table}_config")


_NUL = b"\0"
_REPLACEMENT_CHARACTER = "\ufffd"
_LITERAL_NUL_SINCE = (3, 48, 0)
_NUL_ROWS = (
    "SELECT id FROM messages WHERE session_id = ? AND id >= ? AND instr(content, char(0)) > 0"
)
_TRIGRAM_ENTRIES = (
    "SELECT rowid, CAST(content AS BLOB) FROM messages_fts_trigram"
    " WHERE rowid IN (SELECT value FROM json_each(?))"
)


def repair_session_entries(handle: Connection, session_id: str, since: int = 0) -> None:
    """Repair the entries of a session's messages from the id `since`."""
    if _has_trigram_copy(handle):
        repair_entries(
            handle, [row[0] for row in handle.fetch_tuples(_NUL_ROWS, (session_id, since))]
        )


def repair_entries(handle: Connection, ids: Sequence[int]) -> None:
    """Repair the entries of these messages that contain a NUL.

    Raises:
        Unsupported: an entry was written by a newer SQLite than this one.
    """
    if not ids or not _has_trigram_copy(handle):
        return
    for row_id, stored in handle.fetch_tuples(_TRIGRAM_ENTRIES, (json.dumps(list(ids)),)):
        if stored is not None and _NUL in stored:
            _repair_entry(handle, row_id, stored)


def repair_all_entries(handle: Connection) -> None:
    """Repair every entry, on a copy to be checked."""
    if _has_trigram_copy(handle):
        rows = handle.fetch_tuples("SELECT id FROM messages WHERE instr(content, char(0)) > 0")
        repair_entries(handle, [row[0] for row in rows])


def _has_trigram_copy(handle: Connection) -> bool:
    """Return True if the trigram index stores a copy of the text, as up to schema 22."""
    return handle.has_column("messages_fts_trigram_content", "c0")


def has_nul(content: Any) -> bool:
    """Return True if stored content contains a NUL."""
    return _NUL in content if isinstance(content, bytes) else "\0" in str(content or "")


def _repair_entry(handle: Connection, row_id: int, stored: bytes) -> None:
    """Repair one entry, which may contain bytes that are not text."""
    reads_past_nul = _sqlite3.load_library().sqlite_version_info >= _LITERAL_NUL_SINCE
    was_read_past_nul = _is_indexed_past_nul(
        handle, row_id, _decode_text(stored), unknown=reads_past_nul
    )
    if was_read_past_nul and not reads_past_nul:
        raise Unsupported(
            "the search index of this home was written by a newer sqlite than "
            f"{_sqlite3.load_library().sqlite_version}; choose the bundled one to change such "
            "messages"
        )
    if reads_past_nul and not was_read_past_nul:
        # The entry removed by this version must equal the entry added by the other one.
        handle.execute_update(
            "UPDATE messages_fts_trigram_content SET c0 = CAST(? AS TEXT) WHERE id = ?",
            (stored[: stored.index(_NUL)], row_id),
        )
    handle.execute_update(
        "UPDATE messages_fts_trigram SET content = ? WHERE rowid = ?",
        (_decode_text(stored.replace(_NUL, b" ")), row_id),
    )


def _is_indexed_past_nul(handle: Connection, row_id: int, text: str, *, unknown: bool) -> bool:
    """Return True if the index has a trigram that occurs only after the NUL."""
    head, _, tail = text.partition("\0")
    tail = tail.partition("\0")[0]
    for start in range(len(tail) - 2):
        piece = tail[start : start + 3]
        if _REPLACEMENT_CHARACTER not in piece and piece.lower() not in head.lower():
            row_found = handle.fetch_value(
                "SELECT 1 FROM messages_fts_trigram WHERE messages_fts_trigram MATCH ?"
                " AND rowid = ?",
                (query.quote_fts_string(piece), row_id),
            )
            return row_found is not None
    return unknown


def _decode_text(stored: bytes) -> str:
    return stored.decode("utf-8", "replace")


SQL = sql_blocks.load_blocks("fts")

MIN_ID, MAX_ID = -(2**63), 2**63 - 1
EMPTY_MARK = MIN_ID - 1
"""The mark of an empty index."""

MAX_LAG = 1000
"""Messages above the mark at which the index is updated."""

MAX_QUEUED = 100
"""Queued messages at which the index is updated before a search."""

_BATCH_ROWS = 512
_BATCH_CHARACTERS = 500_000
"""A batch holds the lock for about ten milliseconds. Smaller batches cost more in total."""

_CHUNK_IDS = 500
_MAX_CHANGED_CHARACTERS = 8_000_000
_TRIGGER_COUNT = 2
_MARK_KEY = "indexed_to"
_DUE_KEY = "index_due"
_CHANGED_KEY = "index_changed"
_WATCHED_KEY = "index_watched"

IndexedRow = tuple[int, Any, "str | None", "str | None"]


def is_own_index(handle: Connection) -> bool:
    """Return True if this home has our own index."""
    return handle.has_column("ms_index")


def find_high_mark(handle: Connection) -> int:
    """Return the highest indexed message id, or EMPTY_MARK if the index is empty or unusable."""
    return EMPTY_MARK if list_changed_messages(handle) is None else _read_mark(handle)


def list_changed_messages(handle: Connection) -> tuple[int, ...] | None:
    """Return the indexed messages whose text changed, or None if the index must be rebuilt.

    A rebuild is needed after too many changes, and in a home of an earlier version without
    triggers.
    """
    if not _has_triggers(handle):
        return None
    if _CHANGED_KEY not in handle.seen:
        handle.seen[_CHANGED_KEY] = _list_changed(handle)
    ids: tuple[int, ...] | None = handle.seen[_CHANGED_KEY]
    return ids


def get_change_number(handle: Connection) -> int:
    """Return a number that grows with each change of a text, or -1 without triggers."""
    return int(handle.fetch_value(SQL["get_change_number"])) if _has_triggers(handle) else -1


def _read_mark(handle: Connection) -> int:
    if handle.queues_texts:
        return MAX_ID  # every message is in the index or in the queue
    mark = handle.cache.get(_MARK_KEY)
    if mark is None:
        mark = handle.cache[_MARK_KEY] = int(handle.fetch_value(SQL["get_mark"]) or EMPTY_MARK)
    return int(mark)


def _has_triggers(handle: Connection) -> bool:
    if handle.queues_texts:
        return True
    if _WATCHED_KEY not in handle.cache:
        count = handle.fetch_value(SQL["count_triggers"]) if is_own_index(handle) else 0
        handle.cache[_WATCHED_KEY] = count == _TRIGGER_COUNT
    return bool(handle.cache[_WATCHED_KEY])


def _list_changed(handle: Connection) -> tuple[int, ...] | None:
    ids = [row[0] for row in handle.fetch_tuples(SQL["list_changed"], {"rows": MAX_LAG})]
    # Each search reads these rows itself, so a rebuild bounds their number.
    if len(ids) >= MAX_LAG:
        return None
    if not ids or _read_mark(handle) == EMPTY_MARK:
        return ()
    bounds = {"ids": json.dumps(ids), "mark": _read_mark(handle)}
    sizes = dict(handle.fetch_tuples(SQL["list_changed_sizes"], bounds))
    return None if sum(sizes.values()) > _MAX_CHANGED_CHARACTERS else tuple(sizes)


def find_highest_id(handle: Connection) -> int:
    """Return the highest message id, or 0 without messages."""
    return int(handle.fetch_value(SQL["get_top"]))


def list_unindexed(handle: Connection, above: int, count: int) -> Iterator[IndexedRow]:
    """Return the messages above an id with their indexed columns, in order."""
    # The next id would not fit into 64 bits.
    if above == MAX_ID:
        return iter(())
    return handle.iter_rows(SQL["list_tail"], (above + 1, count))


def is_index_behind(handle: Connection) -> bool:
    """Return True if the tail above the mark is long enough to slow down a search."""
    if handle.queues_texts:
        changed = list_changed_messages(handle)
        return changed is None or len(changed) >= MAX_QUEUED
    return is_own_index(handle) and find_highest_id(handle) >= _find_due_id(handle)


def _find_due_id(handle: Connection) -> int:
    return max(find_high_mark(handle), 0) + MAX_LAG


def schedule_indexing(handle: Connection, last_id: int) -> None:
    """Mark an update of the index as due if the tail above the mark is long.

    `last_id` is the last message that the open transaction has appended.
    """
    if handle.queues_texts:
        return
    # Cached, since each append asks and only a batch moves the mark.
    due = handle.cache.get(_DUE_KEY)
    if due is None:
        due = _find_due_id(handle) if is_own_index(handle) else float("inf")
        handle.cache[_DUE_KEY] = due
    if last_id >= due:
        handle.indexing_due = True


def index_batch(handle: Connection) -> bool:
    """Index a batch of messages above the mark, in the open transaction.

    Return True if more messages may follow.
    """
    if not is_own_index(handle):
        return False
    # Our own changes do not clear `seen`, and this value decides which rows are indexed.
    handle.seen.pop(_CHANGED_KEY, None)
    above = find_high_mark(handle)
    rows = list(_limit_batch(list_unindexed(handle, above, _BATCH_ROWS)))
    if not rows:
        return False
    if above == EMPTY_MARK:
        _reset_index(handle)
    _write_index_rows(handle, "add_text", rows)
    mark = rows[-1][0]
    # In one transaction with the words: messages below the mark are searched nowhere else.
    handle.execute_update(SQL["set_mark"], (str(mark),))
    # These rows were indexed with the text that they have now.
    handle.execute_update(SQL["delete_changed_between"], {"low": above + 1, "mark": mark})
    handle.cache[_MARK_KEY] = mark
    handle.cache[_DUE_KEY] = _find_due_id(handle)
    return len(rows) == _BATCH_ROWS or _count_characters(rows) >= _BATCH_CHARACTERS


def _reset_index(handle: Connection) -> None:
    """Empty the index, which may have outdated words, and create missing triggers."""
    if not _has_triggers(handle):
        for statement in sql_blocks.split_statements("index"):
            handle.execute_update(statement)
        del handle.cache[_WATCHED_KEY]
        handle.execute_update(SQL["delete_old_mark"])
    handle.execute_update(SQL["empty_index"])
    handle.execute_update(SQL["delete_all_changed"])
    handle.seen.pop(_CHANGED_KEY, None)


def remove_index_entries(handle: Connection, ids: Sequence[int]) -> None:
    """Remove messages from our own index, before their rows are deleted or changed."""
    # The indexed words of a message that another program changed are unknown, so its entry stays.
    # A damaged index is rebuilt.
    if handle.queues_texts:
        return
    try:
        _update_index_entries(handle, ids, "remove_text")
    except _sqlite3.load_library().DatabaseError as error:
        if type(error) is not _sqlite3.load_library().DatabaseError:
            raise
        handle.execute_update(SQL["empty_index"])
        handle.execute_update(SQL["set_mark"], (str(EMPTY_MARK),))
        handle.cache |= {_MARK_KEY: EMPTY_MARK, _DUE_KEY: MAX_LAG}


def reindex_messages(handle: Connection, ids: Sequence[int], since: int) -> None:
    """Index messages again and delete their change records newer than `since`.

    `since` is the change number before the messages were removed from the index or inserted.
    """
    if handle.queues_texts or not _has_triggers(handle):
        return
    for chunk in _iter_chunks(ids):
        handle.execute_update(SQL["delete_changed"], {"ids": json.dumps(chunk), "number": since})
    _update_index_entries(handle, ids, "add_text")


def _update_index_entries(handle: Connection, ids: Sequence[int], block: str) -> None:
    handle.seen.pop(_CHANGED_KEY, None)
    if not is_own_index(handle) or find_high_mark(handle) == EMPTY_MARK:
        return
    unknown = set(list_changed_messages(handle) or ())
    for chunk in _iter_chunks([message_id for message_id in ids if message_id not in unknown]):
        bounds = {"ids": json.dumps(chunk), "mark": _read_mark(handle)}
        _write_index_rows(handle, block, handle.fetch_tuples(SQL["list_rows"], bounds))


def _iter_chunks(ids: Sequence[int]) -> Iterator[list[int]]:
    return (list(ids[start : start + _CHUNK_IDS]) for start in range(0, len(ids), _CHUNK_IDS))


def _write_index_rows(handle: Connection, block: str, rows: Iterable[IndexedRow]) -> None:
    handle.connection.executemany(
        SQL[block],
        [(row[0], clean_text(_normalize_text(row))) for row in rows],
    )


def _normalize_text(row: IndexedRow) -> str:
    return search_text.space_words(search_text.fold_text(search_text.build_search_text(*row[1:])))


def _limit_batch(rows: Iterable[IndexedRow]) -> Iterator[IndexedRow]:
    """Yield rows until the batch is full, at least one row."""
    characters = 0
    for row in rows:
        yield row
        characters += _count_characters((row,))
        if characters >= _BATCH_CHARACTERS:
            return


def _count_characters(rows: Iterable[IndexedRow]) -> int:
    parts = chain.from_iterable(row[1:] for row in rows)
    return sum(len(part) for part in parts if isinstance(part, (str, bytes)))


_SEGMENT_ID_STEP = 1 << 37
_MAX_SEGMENT_BLOCKS = 1 << 31
_MAX_SEGMENTS = 2000

_SAMPLED_SEGMENTS = 10
_SAMPLED_BLOCKS = 3
"""Leaf blocks that are read of each segment. Smaller segments together hold little."""

_VARINT_BYTES = 9


@dataclass(frozen=True, slots=True)
class IndexSegment:
    """A segment of an index, whose leaf blocks have consecutive ids."""

    first: int
    last: int

    @property
    def blocks(self) -> int:
        """The number of leaf blocks."""
        return self.last - self.first + 1

    def list_sample_ids(self) -> Sequence[int]:
        """Return the ids of a few evenly spaced blocks."""
        count = min(self.blocks, _SAMPLED_BLOCKS)
        return [self.first + (2 * at + 1) * self.blocks // (2 * count) for at in range(count)]


@dataclass(slots=True)
class _EntryCounts:
    """Counts and bytes of live entries and delete markers in sampled leaf blocks."""

    live: int = 0
    live_bytes: int = 0
    markers: int = 0
    marker_bytes: int = 0

    def add_entry(self, size: int, *, is_marker: bool) -> None:
        if is_marker:
            self.markers += 1
            self.marker_bytes += size
        else:
            self.live += 1
            self.live_bytes += size


def list_segments(handle: Connection, table: str) -> list[IndexSegment]:
    """Return the segments of an index, from its `_data` table."""
    name = quote_name(table)
    first_after = f"SELECT min(id) FROM {name} WHERE id >= ?"  # noqa: S608 -- quoted names of the schema
    last_before = f"SELECT max(id) FROM {name} WHERE id < ?"  # noqa: S608 -- quoted names of the schema
    segments: list[IndexSegment] = []
    first = handle.fetch_value(first_after, (_SEGMENT_ID_STEP,))
    while first is not None and len(segments) < _MAX_SEGMENTS:
        begin = first // _SEGMENT_ID_STEP * _SEGMENT_ID_STEP
        segments.append(
            IndexSegment(first, handle.fetch_value(last_before, (begin + _MAX_SEGMENT_BLOCKS,)))
        )
        first = handle.fetch_value(first_after, (begin + _SEGMENT_ID_STEP,))
    return segments


def count_blocks(handle: Connection, table: str) -> int:
    """Return the number of blocks of an index."""
    return 1 + sum(segment.blocks for segment in list_segments(handle, table))


def estimate_dead_blocks(handle: Connection, table: str) -> float:
    """Return an estimate of the blocks that a merge of all segments would free."""
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


def _count_entries(handle: Connection, table: str, segment: IndexSegment) -> _EntryCounts:
    entries = _EntryCounts()
    sql = f"SELECT block FROM {quote_name(table)} WHERE id = ?"  # noqa: S608 -- quoted names of the schema
    for block_id in segment.list_sample_ids():
        block = handle.fetch_value(sql, (block_id,))
        if isinstance(block, bytes):
            for size, is_marker in _iter_entries(block):
                entries.add_entry(size, is_marker=is_marker)
    return entries


def _iter_entries(block: bytes) -> Iterator[tuple[int, bool]]:
    """Yield the size of each entry of a leaf block, and whether it is a delete marker."""
    first_rowid = int.from_bytes(block[:2], "big")
    end = int.from_bytes(block[2:4], "big")
    terms = _list_term_offsets(block, end)
    if first_rowid:  # the doclist of the previous block continues here
        yield from _iter_doclist(block, first_rowid, terms[0] if terms else end)
    for number, at in enumerate(terms):
        stop = terms[number + 1] if number + 1 < len(terms) else end
        start = at
        if number:
            _, start = _read_varint(block, start)  # length of the prefix shared with the last term
        length, start = _read_varint(block, start)
        yield from _iter_doclist(block, start + length, stop)


def _list_term_offsets(block: bytes, end: int) -> list[int]:
    offsets: list[int] = []
    at, offset = end, 0
    while at < len(block):
        distance, at = _read_varint(block, at)
        offset += distance
        if not 4 <= offset < end:  # noqa: PLR2004 -- the length of a leaf's head
            break
        offsets.append(offset)
    return offsets


def _iter_doclist(block: bytes, at: int, stop: int) -> Iterator[tuple[int, bool]]:
    """Yield the entries of a doclist that lie completely in a block."""
    while at < stop:
        _, after_row = _read_varint(block, at)
        size_and_flag, after_size = _read_varint(block, after_row)
        entry_end = after_size + (size_and_flag >> 1)
        if entry_end > stop:
            break
        yield entry_end - at, bool(size_and_flag & 1)
        at = entry_end


def _read_varint(block: bytes, at: int) -> tuple[int, int]:
    """Return the integer at an offset, and the offset after it."""
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
