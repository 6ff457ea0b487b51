"""Cursors: the position in a list together with its query, so that a cursor is passed alone.

A cursor is neither secret nor trusted. Its content is validated like the arguments of a call.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from session_core import InvalidInput

# Arguments that may differ from page to page.
FREE_ARGUMENTS = frozenset({"limit", "detail", "max_chars", "timeout_s", "cursor"})

# The other arguments are stored, so that a cursor alone returns pages of the same size.
_UNSTORED_ARGUMENTS = frozenset({"timeout_s", "cursor"})

_MAX_CHARS = 32_768
_PART_COUNT = 5

# No clock shows a later time.
_MAX_TIME = 1e11


@dataclass(frozen=True, slots=True)
class PagedQuery:
    """A query: its arguments, the moment that its ages refer to, and its position."""

    tool: str
    query: Mapping[str, Any]
    now: float
    place: Any = None

    def make_cursor(self, place: Any) -> str | None:
        """Return a cursor for a position, or None if there is none."""
        if place is None:
            return None
        kept = {
            name: value for name, value in self.query.items() if name not in _UNSTORED_ARGUMENTS
        }
        parts = [
            self.tool,
            _compute_digest(self.tool, kept, self.now, place),
            kept,
            self.now,
            place,
        ]
        text = json.dumps(parts, separators=(",", ":"))
        return urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def parse_cursor(tool: str, cursor: str, place: Any) -> PagedQuery:
    """Return the query of a cursor; `place` is the type of positions of this tool.

    Raises:
        InvalidInput: the cursor is malformed or belongs to another tool.
    """
    parts = _decode_parts(cursor)
    if parts is None:
        raise make_malformed_error()
    owner, digest, query, now, packed = parts
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
    return PagedQuery(tool, query, now, position)


def make_malformed_error() -> InvalidInput:
    """Return the error for a cursor that this server did not create."""
    return InvalidInput("malformed cursor; pass next_cursor of the previous page unchanged")


def check_same_arguments(
    page_query: PagedQuery, given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    """Check that arguments passed with a cursor equal those it was created with.

    Raises:
        InvalidInput: an argument differs.
    """
    # The cursor does not store default values.
    for name, value in given.items():
        if name not in FREE_ARGUMENTS and value != page_query.query.get(name, defaults[name]):
            raise InvalidInput(
                f"{name} differs from the query of the cursor; pass the cursor alone, "
                "or call without it for a new query"
            )


def _decode_parts(cursor: str) -> tuple[str, str, dict[str, Any], float, Any] | None:
    if len(cursor) > _MAX_CHARS:
        return None
    try:
        packed = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        parts = json.loads(zlib.decompressobj().decompress(packed, _MAX_CHARS))
    except (ValueError, binascii.Error, zlib.error, RecursionError):
        return None
    if not isinstance(parts, list) or len(parts) != _PART_COUNT:
        return None
    tool, digest, query, now, place = parts
    are_texts = isinstance(tool, str) and isinstance(digest, str)
    if not (are_texts and isinstance(query, dict) and isinstance(now, (int, float))):
        return None
    if not 0 <= now < _MAX_TIME:
        return None
    return tool, digest, query, now, place


@lru_cache
def _get_adapter(place: Any) -> TypeAdapter[Any]:
    return TypeAdapter(place)


def _compute_digest(tool: str, query: Any, now: float, place: Any) -> str:
    text = json.dumps([tool, query, now, place], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
