"""The segments of an FTS5 index: how many blocks they have, and how much a merge would free.

FTS5 deletes a row by adding a delete marker for each of its terms to a newer segment. The marker
and the entry that it cancels both take room until a merge meets them. Their share is estimated from
a few leaf blocks of each segment; the format of a leaf is described in fts5_index.c of SQLite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from session_core.state.sqlite.handle import Handle, quoted

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
