"""Chunks: cut by their content, and bounded."""

from __future__ import annotations

import random

import pytest

from session_core.transcripts.keep.chunks import (
    MAX_CHUNK_BYTES,
    compress_chunk,
    compute_digest,
    decompress_chunk,
    find_chunk_end,
)


def cut(data: bytes) -> list[bytes]:
    """Return the chunks of some bytes."""
    chunks, start = [], 0
    while start < len(data):
        end = find_chunk_end(data, start)
        chunks.append(data[start:end])
        start = end
    return chunks


def make_lines(count: int, seed: int) -> bytes:
    """Return lines of many lengths."""
    chance = random.Random(seed)
    return b"".join(
        chance.randbytes(chance.randrange(900)).hex().encode() + b"\n" for _ in range(count)
    )


def test_chunks_are_bounded_and_complete():
    for data in (make_lines(5000, 1), b"x" * 1_000_000, b"\n" * 1_000_000, b"", b"x"):
        chunks = cut(data)
        assert b"".join(chunks) == data
        assert all(len(chunk) <= MAX_CHUNK_BYTES for chunk in chunks)
        assert len(chunks) <= len(data) // 32_768 + 1


def test_chunks_meet_again_after_an_insertion():
    data = make_lines(5000, 2)
    before = set(map(compute_digest, cut(data)))
    after = list(map(compute_digest, cut(make_lines(3, 3) + data)))

    assert sum(digest in before for digest in after) > 0.9 * len(after)


def test_damaged_chunk_is_noticed():
    data = make_lines(100, 4)
    packed = compress_chunk(data)
    assert decompress_chunk(packed, len(data)) == data

    with pytest.raises(OSError, match="damaged"):
        decompress_chunk(packed[:-9] + bytes(9), len(data))
    with pytest.raises(OSError, match="damaged"):
        decompress_chunk(packed, len(data) + 1)
