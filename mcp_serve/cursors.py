"""Cursors: where a list goes on, with the query that it belongs to, so that one is passed alone.

One is no secret and no proof. What it carries is validated like the arguments of a call.
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

FREE_ARGUMENTS = frozenset({"limit", "detail", "max_chars", "timeout_s", "cursor"})
"""What may differ from page to page."""

_UNSTORED_ARGUMENTS = frozenset({"timeout_s", "cursor"})
"""The rest is kept: who passes the cursor alone wants pages as large as the first."""

_MAX_CHARS = 32_768
_PART_COUNT = 5

_MAX_TIME = 1e11
"""A moment that no clock shows."""


@dataclass(frozen=True, slots=True)
class PagedQuery:
    """A query that is asked: its arguments, the moment from which its ages count, its place."""

    tool: str
    query: Mapping[str, Any]
    now: float
    place: Any = None

    def make_cursor(self, place: Any) -> str | None:
        """Return the cursor of another place; None where there is none."""
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
    """Return the query that a cursor goes on with; `place` is the type of the places of the tool.

    Raises:
        InvalidInput: it is none, or that of another tool.
    """
    parts = _decode_parts(cursor)
    if parts is None:
        raise make_malformed_error()
    of, digest, query, now, packed = parts
    if of != tool:
        raise InvalidInput(f"a cursor of {of!r:.40}; pass it to that, or call {tool} without one")
    if digest != _compute_digest(of, query, now, packed):
        raise make_malformed_error()
    try:
        found = _get_adapter(place).validate_json(json.dumps(packed), strict=True)
    except ValidationError as error:
        raise make_malformed_error() from error
    return PagedQuery(tool, query, now, found)


def make_malformed_error() -> InvalidInput:
    """Return what is raised for a cursor that was not made here."""
    return InvalidInput("malformed cursor; pass next_cursor of the page before as it is")


def check_same_arguments(
    asked: PagedQuery, given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    """Refuse what was passed beside a cursor and is not what it was made with.

    A query that leaves something out was made with its default.

    Raises:
        InvalidInput: it is not.
    """
    for name, value in given.items():
        if name not in FREE_ARGUMENTS and value != asked.query.get(name, defaults[name]):
            raise InvalidInput(
                f"{name} is not that of the cursor; pass the cursor alone, "
                "or call without it to ask anew"
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
    texts = isinstance(tool, str) and isinstance(digest, str)
    if not (texts and isinstance(query, dict) and isinstance(now, (int, float))):
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
