"""Reads of the new part of a file: its tail, or all of it after a rewrite."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

from session_core.transcripts.format import FileFormat, Record, SourceFile
from session_core.transcripts.parts import SessionPart, SourceEntry, SourcePart, merge_facts
from session_core.transcripts.sources import (
    HEAD_BYTES,
    MAX_DOCUMENT_BYTES,
    Line,
    LineReader,
    ScannedLine,
    Source,
    SourceOpener,
    compute_checksum,
)

MAX_CHECKED_BYTES = 16_000_000
"""The longest prefix that a call verifies. Longer prefixes are verified by idle work."""

_MAX_SIDECAR_BYTES = 1_000_000
SETTLED_NS = 50_000_000
"""The age below which a file may change again without a new modification time."""

READER_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
    ArithmeticError,
)
"""Errors that a format may raise for unexpected records, which then stay raw."""


class FileFeed:
    """Reads the files of one root through their format."""

    def __init__(self, root: str, reader: FileFormat, opener: SourceOpener) -> None:
        self._root = root
        self._format = reader
        self._open = opener
        self._scanned: dict[str, tuple[tuple[int, int], ScannedLine]] = {}
        """The progress of the search for the end of a file's last line, by path, with its inode."""

    def read_part(
        self, entry: SourceEntry, file: SourceFile, room: int, *, is_deep: bool = False
    ) -> SourcePart | None:
        """Read the next part of about `room` bytes.

        Return None if the file cannot be read. With `is_deep`, a prefix of any size is verified.
        """
        try:
            with self._open(entry.full_path, is_zstd=file.is_zstd) as source:
                part = self._begin_part(source, entry, file, is_deep=is_deep)
                if file.is_document:
                    self._read_document(source, part, file)
                else:
                    self._read_lines(source, part, file, room)
                self._read_sidecars(part, file)
        except OSError:
            return None
        if time.time_ns() - part.after.identity.mtime_ns < SETTLED_NS:
            # A time that no file has, so that the next scan reads it again.
            part.after.identity = part.after.identity._replace(mtime_ns=-1)
        return part

    def read_head_and_tail(self, entry: SourceEntry, file: SourceFile) -> SourcePart | None:
        """Read the records at the head and the tail of a file, to show it in a list."""
        # A glance leaves no trace: its records are read again for the index.
        part = SourcePart(entry, replace(entry), file)
        part.sessions[file.session_id] = SessionPart(file.session_id)
        try:
            with self._open(entry.full_path, is_zstd=file.is_zstd) as source:
                if file.is_document:
                    self._read_document(source, part, file)
                else:
                    self._read_head_and_tail_lines(source, part, file)
                self._read_sidecars(part, file)
        except OSError:
            return None
        return part

    def _read_head_and_tail_lines(self, source: Source, part: SourcePart, file: SourceFile) -> None:
        size = source.identity.size
        head = source.read(0, HEAD_BYTES)
        part.after.is_read = len(head) == size and not file.is_zstd
        self._add_lines(head[: head.rfind(b"\n") + 1], 0, part, file)
        if file.is_zstd or size <= HEAD_BYTES:
            return
        start = max(len(head), size - HEAD_BYTES)
        tail = source.read(start, size - start)
        begin, end = tail.find(b"\n") + 1, tail.rfind(b"\n") + 1
        self._add_lines(tail[begin:end], start + begin, part, file)

    def _add_lines(self, block: bytes, offset: int, part: SourcePart, file: SourceFile) -> None:
        for data in block.split(b"\n"):
            record = self._read_line(Line(offset, data, len(data) + 1), part)
            if record is not None:
                part.add_record(record, file.session_id)
            offset += len(data) + 1

    def _begin_part(
        self, source: Source, entry: SourceEntry, file: SourceFile, *, is_deep: bool
    ) -> SourcePart:
        is_same = is_unchecked = False
        # A document is written anew as a whole, so it has no prefix to continue from.
        if entry.version == self._format.version and not file.is_document:
            is_same, is_unchecked = _compare_prefix(source, entry, file, is_deep=is_deep)
        after = replace(
            entry,
            identity=source.identity,
            version=self._format.version,
            is_unchecked=is_unchecked,
            is_read=False,
        )
        part = SourcePart(entry, after, file, is_reset=not is_same and bool(entry.id))
        if is_same:
            part.state, part.unknown = json.loads(entry.state), json.loads(entry.unknown)
        else:
            after.offset = after.checksum = 0
            after.newest_at = None
        part.sessions[file.session_id] = SessionPart(file.session_id)
        return part

    def _read_lines(self, source: Source, part: SourcePart, file: SourceFile, room: int) -> None:
        after = part.after
        inode, scanned = self._scanned.pop(after.path, (None, None))
        if inode != source.identity[:2]:
            scanned = None
        # Only up to the stored size: bytes that are written meanwhile belong to the next part.
        end = None if file.is_zstd else source.identity.size
        reader = LineReader(source, after.offset, after.checksum, end, scanned)
        begin = reader.offset
        while reader.offset - begin < room:
            lines = reader.read_lines()
            if not lines:
                after.is_read = not reader.is_paused
                break
            for line in lines:
                record = self._read_line(line, part)
                if record is not None:
                    part.add_record(record, file.session_id)
        if reader.scanned is not None:
            self._scanned[after.path] = (source.identity[:2], reader.scanned)
        after.offset, after.checksum = reader.offset, reader.checksum

    def _read_line(self, line: Line, part: SourcePart) -> Record | None:
        if not line.data.strip():
            return None
        state = part.state
        try:
            if line.is_cut:
                return self._format.read_cut_record(line.data, line.offset, line.length, state)
            return self._format.read_record(line.data, line.offset, state)
        except READER_ERRORS:
            return Record(line.offset, line.length, "unreadable", is_known=False)

    def _read_document(self, source: Source, part: SourcePart, file: SourceFile) -> None:
        after = part.after
        data = source.read(0, MAX_DOCUMENT_BYTES + 1)
        after.offset, after.is_read = len(data), True
        if len(data) > MAX_DOCUMENT_BYTES:
            record = Record(0, len(data), "too large", is_known=False)
        else:
            try:
                record = self._format.read_record(data, 0, part.state)
            except READER_ERRORS:
                record = Record(0, len(data), "unreadable", is_known=False)
        part.add_record(record, file.session_id)

    def _read_sidecars(self, part: SourcePart, file: SourceFile) -> None:
        for path in file.sidecars:
            try:
                with self._open(os.path.join(self._root, path)) as source:  # noqa: PTH118 -- os.path avoids building a Path
                    data = source.read(0, _MAX_SIDECAR_BYTES)
            except OSError:
                continue
            try:
                facts = self._format.read_sidecar(path, data)
            except READER_ERRORS:
                continue
            merge_facts(part.sessions[file.session_id].facts, facts)


def _compare_prefix(
    source: Source, entry: SourceEntry, file: SourceFile, *, is_deep: bool
) -> tuple[bool, bool]:
    """Return whether the part read before is unchanged, and whether that is unverified."""
    if entry.offset == 0 or (source.identity == entry.identity and not entry.is_unchecked):
        return True, False
    if not file.is_zstd and source.identity.size < entry.offset:
        return False, False
    if entry.offset <= MAX_CHECKED_BYTES or is_deep:
        return compute_checksum(source, entry.offset) == entry.checksum, False
    # A cheap sign of a rewrite, until idle work compares the checksum.
    is_aligned = source.read(entry.offset - 1, 1) == b"\n"
    return is_aligned, True
