"""Trash as bytes: lines of JSON, compressed as one stream that is cut into pieces.

Whatever a row holds comes back as it was; bytes travel in base64, and keys that could be taken for
that are told apart by their first character.
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
"""What is written and read at a time."""

_COMPRESSION_LEVEL = 1
_BYTES_KEY = "$bytes"
_CHECKSUM_LENGTH = 8
_PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})


DIGEST_BYTES = 32


def hash_piece(piece: bytes) -> bytes:
    """Return by what a piece is known again, wherever it lies meanwhile."""
    return hashlib.sha256(piece).digest()


def pack_trash(kept: Iterable[TrashItem]) -> Iterator[bytes]:
    """Return the pieces of what is kept; an empty trash has none."""
    packer = zlib.compressobj(_COMPRESSION_LEVEL)
    piece = bytearray()
    some = False
    for one in kept:
        some = True
        piece += packer.compress(_encode_line(one))
        while len(piece) >= PIECE_BYTES:
            yield bytes(piece[:PIECE_BYTES])
            del piece[:PIECE_BYTES]
    if some:
        yield bytes(piece + packer.flush())


def unpack_trash(pieces: Iterable[bytes]) -> Iterator[TrashItem]:
    """Return what was packed into these pieces, one by one.

    Raises:
        Corrupt: a piece is damaged, or some are missing.
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
    some = False
    try:
        for piece in pieces:
            some = True
            while piece:
                yield packer.decompress(piece, PIECE_BYTES)
                piece = packer.unconsumed_tail  # noqa: PLW2901 -- what a piece holds comes in parts
        yield packer.flush()
    except zlib.error as error:
        raise _make_damage_error() from error
    if some and not packer.eof:
        raise _make_damage_error()


def _encode_line(one: TrashItem) -> bytes:
    """Return the line of one thing with its checksum: that of the stream comes at its end."""
    text = json.dumps([one.what, _encode_value(one.value)]).encode()
    return b"%08x%b\n" % (zlib.crc32(text), text)


def _decode_line(line: bytes) -> TrashItem:
    text = line[_CHECKSUM_LENGTH:]
    if line[:_CHECKSUM_LENGTH] != b"%08x" % zlib.crc32(text):
        raise _make_damage_error()
    what, value = json.loads(text, object_hook=_decode_value)
    return TrashItem(what, value)


def _make_damage_error() -> Corrupt:
    return Corrupt("the trash of this step is damaged; what it kept cannot be restored whole")


def _encode_value(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {_BYTES_KEY: b64encode(value).decode()}
    if isinstance(value, dict):
        return {
            f"${key}" if key[:1] == "$" else key: _encode_value(one) for key, one in value.items()
        }
    if isinstance(value, (list, tuple)):
        # Rows have many values and seldom one that is to be wrapped.
        return (
            value
            if _PLAIN_TYPES.issuperset(map(type, value))
            else [_encode_value(one) for one in value]
        )
    return value


def _decode_value(value: dict[str, Any]) -> Any:
    if len(value) == 1 and _BYTES_KEY in value:
        return b64decode(value[_BYTES_KEY])
    if not any(key[:1] == "$" for key in value):
        return value
    return {key[1:] if key[:1] == "$" else key: one for key, one in value.items()}
