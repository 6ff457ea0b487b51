"""Bytes of transcript files: opened safely, read at offsets, verified by a checksum.

Files are opened read-only, without following a link. A file that is not the file of the sweep is
refused. Offsets of compressed files count uncompressed bytes.
"""

from __future__ import annotations

import io
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple, Protocol, cast

import zstandard

from session_core.transcripts.roots import FileIdentity, get_identity

MAX_LINE_BYTES = 16_000_000
"""The longest line that is passed to its format as a whole. Longer lines are passed by their head.
"""

MAX_DOCUMENT_BYTES = 64_000_000
MAX_SCAN_BYTES = 256_000_000
"""The bytes of one line that are searched for its end in one part, about 0.3 s."""

HEAD_BYTES = 65_536
BLOCK_BYTES = 1_000_000

_MAX_WINDOW = 1 << 27
_MAX_RATIO = 1000
_FREE_BYTES = 64_000_000
"""A compressed file may expand to this size and a thousand times its own. More is an attack."""


class Line(NamedTuple):
    """A line without its newline, or the head of a line that exceeds the cap."""

    offset: int
    data: bytes
    length: int
    """The size of the line with its newline."""

    @property
    def is_cut(self) -> bool:
        """True if the data is only the head of the line."""
        return self.length > len(self.data) + 1


class Source:
    """An open file whose bytes are read at offsets."""

    def __init__(self, file: io.RawIOBase, identity: FileIdentity, *, is_zstd: bool) -> None:
        self._file = file
        self._stream: BinaryIO | None = None
        self._position = 0
        self._is_zstd = is_zstd
        self.identity = identity

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes at an offset, or fewer at the end of the file."""
        if not self._is_zstd:
            self._file.seek(offset)
            return self._file.read(size) or b""
        limit = _FREE_BYTES + _MAX_RATIO * self.identity.size
        try:
            data = self._seek(offset).read(max(0, min(size, limit - offset)))
        except zstandard.ZstdError:
            return b""  # a torn frame ends the file here, as a torn line does
        self._position += len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _seek(self, offset: int) -> BinaryIO:
        """Move the decompressed stream to an offset, restarting it if needed."""
        if self._stream is None or offset < self._position:
            self._file.seek(0)
            reader = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).stream_reader(
                cast("BinaryIO", self._file), read_across_frames=True, closefd=False
            )
            self._stream, self._position = io.BufferedReader(reader, BLOCK_BYTES), 0
        while self._position < offset:
            skipped = self._stream.read(min(BLOCK_BYTES, offset - self._position))
            if not skipped:
                break
            self._position += len(skipped)
        return self._stream


class SourceOpener(Protocol):
    """Opens a file, or the copy that replaces it, by path."""

    def __call__(self, path: str, *, is_zstd: bool = False) -> AbstractContextManager[Source]:
        """Open a source for the `with` block.

        Raises:
            OSError: the source cannot be opened.
        """


@contextmanager
def open_source(
    path: str, *, is_zstd: bool = False, expected: FileIdentity | None = None
) -> Iterator[Source]:
    """Open a regular file, which must have the inode of `expected`.

    Raises:
        FileNotFoundError: the file is missing, is another file, or is not a regular file.
    """
    source = open_plain_source(path, is_zstd=is_zstd, expected=expected)
    try:
        yield source
    finally:
        source.close()


def open_plain_source(
    path: str, *, is_zstd: bool = False, expected: FileIdentity | None = None
) -> Source:
    """Open a file as `open_source` does, for a caller that closes it."""
    # A pipe in the place of the file must not block the reader.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    file = os.fdopen(descriptor, "rb", buffering=0)
    status = os.fstat(descriptor)
    identity = get_identity(status)
    # The path may lead to another file since the sweep.
    is_other = expected is not None and identity[:2] != expected[:2]
    if is_other or not stat.S_ISREG(status.st_mode):
        file.close()
        raise FileNotFoundError(path)
    return Source(file, identity, is_zstd=is_zstd)


def compute_checksum(source: Source, size: int, start: int = 0) -> int | None:
    """Return the CRC-32 of `size` bytes from `start`, or None if the file is shorter."""
    checksum, offset = 0, start
    while offset < start + size:
        data = source.read(offset, min(BLOCK_BYTES, start + size - offset))
        if not data:
            return None
        checksum = zlib.crc32(data, checksum)
        offset += len(data)
    return checksum


class ScannedLine(NamedTuple):
    """The progress of the search for the end of a line that exceeds the cap."""

    offset: int
    end: int
    """The offset before which the line has no newline."""
    checksum: int
    """The CRC-32 of all bytes before the end."""
    head: int
    """The CRC-32 of the head of the line, which identifies it."""


@dataclass(slots=True)
class LineReader:
    """Reads complete lines from an offset up to the original size of the file."""

    source: Source
    offset: int
    checksum: int
    """The CRC-32 of all bytes before the offset."""
    end: int | None
    """The size to read up to, or None for a compressed file."""
    scanned: ScannedLine | None = None
    """The line at the offset, if it exceeds the cap and was scanned before."""
    is_paused: bool = field(default=False, init=False)
    """Whether the search for the end of a line continues with the next part."""
    _head: bytes = field(default=b"", init=False)
    _pending: bytes = field(default=b"", init=False)

    def read_lines(self) -> list[Line]:
        """Return the lines of the next block.

        The list is empty if no complete line is left, or if the reader is paused.
        """
        if self.scanned is not None and self._recognise_line(self.scanned):
            return self._scan_long_line(self.scanned)
        self.scanned = None
        data = self._pending + self._read(self.offset + len(self._pending), BLOCK_BYTES)
        end = data.rfind(b"\n") + 1
        while not end:
            if len(data) > MAX_LINE_BYTES:
                return self._scan_long_line(self._begin_long_line(data))
            more = self._read(self.offset + len(data), BLOCK_BYTES)
            if not more:
                return []
            end = len(data) + more.rfind(b"\n") + 1 if b"\n" in more else 0
            data += more
        self._pending = data[end:]
        return self._split_lines(data[:end])

    def _read(self, position: int, size: int) -> bytes:
        if self.end is not None:
            size = min(size, self.end - position)
        return self.source.read(position, size) if size > 0 else b""

    def _split_lines(self, block: bytes) -> list[Line]:
        lines, offset = [], self.offset
        for data in block[:-1].split(b"\n"):
            length = len(data) + 1
            if length > MAX_LINE_BYTES:
                data = data[:HEAD_BYTES]  # noqa: PLW2901 -- only the head is used
            lines.append(Line(offset, data, length))
            offset += length
        self.checksum = zlib.crc32(block, self.checksum)
        self.offset = offset
        return lines

    def _recognise_line(self, scanned: ScannedLine) -> bool:
        """Return True if the line that was scanned before is still at the offset."""
        if not self._head:
            self._head = self._read(self.offset, HEAD_BYTES)
        is_long = self.end is None or scanned.end <= self.end
        is_same = (scanned.offset, scanned.head) == (self.offset, zlib.crc32(self._head))
        return is_long and is_same

    def _begin_long_line(self, data: bytes) -> ScannedLine:
        self._head, self._pending = data[:HEAD_BYTES], b""
        checksum, head = zlib.crc32(data, self.checksum), zlib.crc32(self._head)
        return ScannedLine(self.offset, self.offset + len(data), checksum, head)

    def _scan_long_line(self, scanned: ScannedLine) -> list[Line]:
        """Return the head of a line that exceeds the cap, if its end is found."""
        self.scanned, limit = scanned, scanned.end + MAX_SCAN_BYTES
        while data := self._read(self.scanned.end, BLOCK_BYTES):
            size = data.find(b"\n") + 1
            read = data[:size] if size else data
            checksum, end = zlib.crc32(read, self.scanned.checksum), self.scanned.end + len(read)
            if size:
                return [self._end_long_line(checksum, end)]
            self.scanned = self.scanned._replace(end=end, checksum=checksum)
            if end >= limit:
                self.is_paused = True
                break
        return []

    def _end_long_line(self, checksum: int, end: int) -> Line:
        start, length = self.offset, end - self.offset
        line = Line(start, self._head[: min(HEAD_BYTES, length - 1)], length)
        self.offset, self.checksum, self.scanned, self._head = end, checksum, None, b""
        return line
