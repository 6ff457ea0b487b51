"""Cursors: the position in a list together with its query, so that a cursor is passed alone.

A cursor is neither secret nor trusted. Its content is validated like the arguments of a call.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from session_core import InvalidInput

# Arguments that may differ from page to page.
FREE_ARGUMENTS = frozenset({"limit", "detail", "max_chars", "timeout_s", "cursor"})

# The other arguments are stored, so that a cursor alone returns pages of the same size.
_UNSTORED_ARGUMENTS = frozenset({"timeout_s", "cursor"})

_MAX_CHARS = 32_768
_PART_COUNT = 4
_DIGEST_BYTES = 4
_RAW = -15
# Text of most cursors: a short one is hardly compressed without it.
_COMMON_TEXT = (
    b'"mark":null,"anchor":null,"sessions":[],"floor":[17,""],"reported":[]}\x04,""]]],"floor":[17'
    b'{"session":null,"at":17","mark":"","after":,"anchor":[,"],"sessions":[["'
    b'"claude-code":"codex":"opencode":"hermes":"own":"transcripts":"substring","message","oldest",'
    b'"newest","relevance","detailed","view":"full","exclude_source":"tool":"titled":true,"mode":'
    b'"per":"order":"around":"roles":["user","assistant"],"until":"since":"status":"archived",'
    b'"source":"project":"/home/","session":"sessions":"limit":50,"store":"view":"platform":'
    b'"state":["events_wait",["sessions_prune",["sessions_restore",["routes_list",["sessions_list",'
    b'["sessions_read",{"session":"["sessions_search",{"query":"},17{"":"_prefix._any._all."}]'
)

# No clock shows a later time.
_MAX_TIME = 1e11


@dataclass(frozen=True, slots=True)
class PagedQuery:
    """A query with its arguments, the time to which its ages refer, and its position."""

    tool: str
    query: Mapping[str, Any]
    now: float
    place: Any = None

    def make_cursor(self, place: Any) -> str | None:
        """Return a cursor for a position, or None if there is none."""
        if place is None:
            return None
        query = {
            name: value for name, value in self.query.items() if name not in _UNSTORED_ARGUMENTS
        }
        now = int(self.now) if self.now.is_integer() else self.now
        parts = [self.tool, query, now, place]
        packer = zlib.compressobj(9, wbits=_RAW, zdict=_COMMON_TEXT)
        packed = packer.compress(_pack_text(json.dumps(parts, separators=(",", ":")).encode()))
        digest = _compute_digest(self.tool, query, now, place)
        return urlsafe_b64encode(digest + packed + packer.flush()).decode().rstrip("=")


def parse_cursor(tool: str, cursor: str, place: Any) -> PagedQuery:
    """Return the query of a cursor.

    `place` is the type of positions of this tool.

    Raises:
        InvalidInput: the cursor is malformed or belongs to another tool.
    """
    parts = _decode_parts(cursor)
    if parts is None:
        raise make_malformed_error()
    digest, owner, query, now, packed = parts
    if owner != tool:
        raise InvalidInput(
            f"the cursor belongs to {owner!r:.40}; pass it to that tool, or call {tool} without it"
        )
    if digest != _compute_digest(owner, query, now, packed):
        raise make_malformed_error()
    try:
        position = _get_adapter(place).validate_json(json.dumps(packed), strict=True)
    except ValidationError as error:
        raise make_malformed_error() from error
    return PagedQuery(tool, query, float(now), position)


def make_malformed_error() -> InvalidInput:
    """Return the error for a cursor that this server did not create."""
    return InvalidInput("malformed cursor; pass next_cursor of the previous page unchanged")


def check_same_arguments(
    page_query: PagedQuery, passed: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    """Check that arguments passed with a cursor equal the arguments it was created with.

    Raises:
        InvalidInput: an argument differs.
    """
    # The cursor does not store default values.
    for name, value in passed.items():
        if name not in FREE_ARGUMENTS and value != page_query.query.get(name, defaults[name]):
            raise InvalidInput(
                f"{name} differs from the query of the cursor; pass the cursor alone, "
                "or call without it for a new query"
            )


def _decode_parts(cursor: str) -> tuple[bytes, str, dict[str, Any], float, Any] | None:
    if len(cursor) > _MAX_CHARS:
        return None
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        unpacker = zlib.decompressobj(wbits=_RAW, zdict=_COMMON_TEXT)
        parts = json.loads(_unpack_text(unpacker.decompress(raw[_DIGEST_BYTES:], _MAX_CHARS)))
    except (ValueError, IndexError, binascii.Error, zlib.error, RecursionError):
        return None
    if not isinstance(parts, list) or len(parts) != _PART_COUNT:
        return None
    tool, query, now, place = parts
    is_number = isinstance(now, (int, float)) and not isinstance(now, bool)
    if not (isinstance(tool, str) and isinstance(query, dict) and is_number):
        return None
    return (raw[:_DIGEST_BYTES], tool, query, now, place) if 0 <= now < _MAX_TIME else None


# JSON has no such characters: they begin the bytes of a UUID, and the bytes of hexadecimal digits.
_UUID_SIGN, _HEX_SIGN = b"\x01", b"\x02"
_UUID_BYTES = 16
_DIGITS_PATTERN = re.compile(
    rb"(?P<uuid>[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})|(?<=\")(?P<hex>(?:[0-9a-f]{2}){8,250})(?=\")"
)


def _pack_digits(text: bytes) -> bytes:
    """Return JSON with ids and positions as bytes, since digits cannot be compressed."""

    def pack(match: re.Match[bytes]) -> bytes:
        if match["uuid"]:
            return _UUID_SIGN + UUID(match["uuid"].decode()).bytes
        raw = bytes.fromhex(match["hex"].decode())
        return _HEX_SIGN + bytes([len(raw)]) + raw

    return _DIGITS_PATTERN.sub(pack, text)


def _unpack_digits(packed: bytes) -> bytes:
    text, at = bytearray(), 0
    while at < len(packed):
        sign = packed[at : at + 1]
        if sign == _UUID_SIGN:
            end = at + 1 + _UUID_BYTES
            text += str(UUID(bytes=packed[at + 1 : end])).encode()
        elif sign == _HEX_SIGN:
            end = at + 2 + packed[at + 1]
            text += packed[at + 2 : end].hex().encode()
        else:
            end = at + 1
            text += sign
        at = end
    return bytes(text)


# A position of the library: a digest and JSON in base64, which hardly can be compressed.
_INNER_PATTERN = re.compile(rb'"([\w-]{8})((?:eyJ|W)[\w-]+)"', re.ASCII)
_PACKED_INNER_PATTERN = re.compile(rb"\x03(.{8})([^\x04]*)\x04")


def _pack_text(text: bytes) -> bytes:
    """Return JSON with inner positions decoded, and with digits as bytes."""
    return _pack_digits(_INNER_PATTERN.sub(_pack_inner, text))


def _pack_inner(match: re.Match[bytes]) -> bytes:
    try:
        inner = urlsafe_b64decode(match[2] + b"=" * (-len(match[2]) % 4))
    except binascii.Error:
        return match[0]
    # Any other text that only looks like a position is kept.
    is_plain = inner.isascii() and inner.decode().isprintable()
    is_same = is_plain and _unpack_inner(match[1], inner) == match[0]
    return b"\x03" + match[1] + inner + b"\x04" if is_same else match[0]


def _unpack_inner(digest: bytes, inner: bytes) -> bytes:
    return b'"' + digest + urlsafe_b64encode(inner).rstrip(b"=") + b'"'


def _unpack_text(packed: bytes) -> bytes:
    text = _unpack_digits(packed)
    return _PACKED_INNER_PATTERN.sub(lambda match: _unpack_inner(match[1], match[2]), text)


@lru_cache
def _get_adapter(place: Any) -> TypeAdapter[Any]:
    return TypeAdapter(place)


def _compute_digest(tool: str, query: Any, now: float, place: Any) -> bytes:
    text = json.dumps([tool, query, now, place], sort_keys=True, separators=(",", ":"))
    first, *others = hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES]
    # The command takes a cursor that begins with a dash for an option: without the highest bit
    # it begins with a letter.
    return bytes([first & 0x7F, *others])
