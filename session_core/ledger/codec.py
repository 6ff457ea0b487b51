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
from session_core.ledger.types import Kept

PIECE_BYTES = 1 << 20
"""What is written and read at a time."""

_LEVEL = 1
_BYTES = "$bytes"
_SUM_LENGTH = 8
_PLAIN = frozenset({str, int, float, bool, type(None)})


DIGEST_BYTES = 32


def digest(piece: bytes) -> bytes:
    """Return by what a piece is known again, wherever it lies meanwhile."""
    return hashlib.sha256(piece).digest()


def pack(kept: Iterable[Kept]) -> Iterator[bytes]:
    """Return the pieces of what is kept; an empty trash has none."""
    packer = zlib.compressobj(_LEVEL)
    piece = bytearray()
    some = False
    for one in kept:
        some = True
        piece += packer.compress(_line(one))
        while len(piece) >= PIECE_BYTES:
            yield bytes(piece[:PIECE_BYTES])
            del piece[:PIECE_BYTES]
    if some:
        yield bytes(piece + packer.flush())


def unpack(pieces: Iterable[bytes]) -> Iterator[Kept]:
    """Return what was packed into these pieces, one by one.

    Raises:
        Corrupt: a piece is damaged, or some are missing.
    """
    line: list[bytes] = []
    for text in _inflate(pieces):
        *ended, rest = text.split(b"\n")
        for end in ended:
            yield _kept(b"".join([*line, end]))
            line = []
        line.append(rest)
    if any(line):
        raise _damaged()


def _inflate(pieces: Iterable[bytes]) -> Iterator[bytes]:
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
        raise _damaged() from error
    if some and not packer.eof:
        raise _damaged()


def _line(one: Kept) -> bytes:
    """Return the line of one thing with its checksum: that of the stream comes at its end."""
    text = json.dumps([one.what, _plain(one.value)]).encode()
    return b"%08x%b\n" % (zlib.crc32(text), text)


def _kept(line: bytes) -> Kept:
    text = line[_SUM_LENGTH:]
    if line[:_SUM_LENGTH] != b"%08x" % zlib.crc32(text):
        raise _damaged()
    what, value = json.loads(text, object_hook=_restored)
    return Kept(what, value)


def _damaged() -> Corrupt:
    return Corrupt("the trash of this step is damaged; what it kept cannot be restored whole")


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {_BYTES: b64encode(value).decode()}
    if isinstance(value, dict):
        return {f"${key}" if key[:1] == "$" else key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        # Rows have many values and seldom one that is to be wrapped.
        return value if _PLAIN.issuperset(map(type, value)) else [_plain(one) for one in value]
    return value


def _restored(value: dict[str, Any]) -> Any:
    if len(value) == 1 and _BYTES in value:
        return b64decode(value[_BYTES])
    if not any(key[:1] == "$" for key in value):
        return value
    return {key[1:] if key[:1] == "$" else key: one for key, one in value.items()}
