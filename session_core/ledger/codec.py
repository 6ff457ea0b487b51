"""Encode trash as lines of JSON in one compressed stream that is cut into pieces.

Every value of a row survives the round trip. Bytes are stored as base64 under a reserved key, and
keys that begin with `$` are escaped.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from typing import Any

from session_core.errors import Corrupt
from session_core.ledger.types import TrashItem

PIECE_BYTES = 1 << 20
"""Size of the pieces that are written and read."""

# Trash is written before each step, so speed matters more than size.
_COMPRESSION_LEVEL = 1
_BYTES_KEY = "$bytes"
_CHECKSUM_LENGTH = 8
_PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})


DIGEST_BYTES = 32


def hash_piece(piece: bytes) -> bytes:
    """Return the SHA-256 digest of a piece."""
    return hashlib.sha256(piece).digest()


def pack_trash(items: Iterable[TrashItem]) -> Iterator[bytes]:
    """Yield the compressed pieces of trash items.

    No items give no pieces.
    """
    packer = zlib.compressobj(_COMPRESSION_LEVEL)
    piece = bytearray()
    has_items = False
    for item in items:
        has_items = True
        piece += packer.compress(_encode_line(item))
        while len(piece) >= PIECE_BYTES:
            yield bytes(piece[:PIECE_BYTES])
            del piece[:PIECE_BYTES]
    if has_items:
        yield bytes(piece + packer.flush())


def unpack_trash(pieces: Iterable[bytes]) -> Iterator[TrashItem]:
    """Yield the items that were packed into these pieces.

    Raises:
        Corrupt: a piece is damaged or missing.
    """
    line: list[bytes] = []
    for text in _decompress_pieces(pieces):
        *ended, rest = text.split(b"\n")
        for end in ended:
            yield _decode_line(b"".join([*line, end]))
            line = []
        line.append(rest)
    if any(line):
        raise _make_damage_error()


def _decompress_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.decompressobj()
    has_pieces = False
    try:
        for piece in pieces:
            has_pieces = True
            while piece:
                # Bounded, since a piece may hold a thousand times its size.
                yield packer.decompress(piece, PIECE_BYTES)
                piece = packer.unconsumed_tail  # noqa: PLW2901 -- a piece decompresses in several parts
        yield packer.flush()
    except zlib.error as error:
        raise _make_damage_error() from error
    if has_pieces and not packer.eof:
        raise _make_damage_error()


def _encode_line(item: TrashItem) -> bytes:
    """Return an item as a line with a checksum."""
    # The checksum of the stream comes at its end, too late for a reader of the first items.
    text = json.dumps([item.what, _encode_value(item.value)]).encode()
    return b"%08x%b\n" % (zlib.crc32(text), text)


def _decode_line(line: bytes) -> TrashItem:
    text = line[_CHECKSUM_LENGTH:]
    if line[:_CHECKSUM_LENGTH] != b"%08x" % zlib.crc32(text):
        raise _make_damage_error()
    what, value = json.loads(text, object_hook=_decode_value)
    return TrashItem(what, value)


def _make_damage_error() -> Corrupt:
    return Corrupt("the trash of this step is damaged; it cannot be restored completely")


def _encode_value(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {_BYTES_KEY: b64encode(value).decode()}
    if isinstance(value, dict):
        return {
            f"${key}" if key[:1] == "$" else key: _encode_value(item) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        # Most rows have only plain values, and this check is much cheaper than the copy.
        return (
            value
            if _PLAIN_TYPES.issuperset(map(type, value))
            else [_encode_value(item) for item in value]
        )
    return value


def _decode_value(value: dict[str, Any]) -> Any:
    if len(value) == 1 and _BYTES_KEY in value:
        return b64decode(value[_BYTES_KEY])
    if not any(key[:1] == "$" for key in value):
        return value
    return {key[1:] if key[:1] == "$" else key: item for key, item in value.items()}
