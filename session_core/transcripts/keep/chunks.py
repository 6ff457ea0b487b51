"""Chunks of kept bytes: split at lines by their content, hashed and compressed.

Equal lines give equal chunks at any offset, so that copies in forks and resumed sessions are stored
once.
"""

from __future__ import annotations

import hashlib
import zlib

import zstandard

MIN_CHUNK_BYTES = 32_768
MAX_CHUNK_BYTES = 262_144

_BORDER_MASK = 31
"""One in 32 lines after the minimum size ends a chunk."""

_LEVEL = 6
_DIGEST_BYTES = 32


def find_chunk_end(data: bytes, start: int) -> int:
    """Return the end of the chunk that begins at `start`."""
    limit = min(len(data), start + MAX_CHUNK_BYTES)
    # The line in which the smallest chunk ends is skipped: its beginning may be cut off.
    at = data.find(b"\n", start + MIN_CHUNK_BYTES - 1, limit)
    while at >= 0:
        end = data.find(b"\n", at + 1, limit)
        if end < 0:
            break
        if zlib.crc32(data[at + 1 : end]) & _BORDER_MASK == 0:
            return end + 1
        at = end
    return limit


def compute_digest(data: bytes) -> bytes:
    """Return the digest that identifies a chunk."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def compress_chunk(data: bytes) -> bytes:
    """Compress a chunk, with a checksum."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(data)


def decompress_chunk(data: bytes, length: int) -> bytes:
    """Decompress a chunk of `length` bytes.

    Raises:
        OSError: the chunk is damaged.
    """
    try:
        chunk = zstandard.ZstdDecompressor().decompress(data, max_output_size=length)
    except zstandard.ZstdError as error:
        raise OSError(f"a kept chunk is damaged: {error}") from error
    if len(chunk) != length:
        raise OSError("a kept chunk is damaged: it is shorter than it was")
    return chunk
