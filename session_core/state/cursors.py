"""Opaque cursors: the position in a list, and the list that it belongs to."""

from __future__ import annotations

import binascii
import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from session_core.errors import InvalidInput

_MAX_LENGTH = 16_384


def encode_cursor(kind: str, scope: Any, position: Any) -> str:
    """Return the cursor of `position` in the list `kind` of `scope`; all three are JSON values."""
    text = json.dumps([kind, _compute_digest(scope, position), position], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(kind: str, scope: Any, text: str) -> Any:
    """Return the position of a cursor.

    Raises:
        InvalidInput: it is malformed, or belongs to another list.
    """
    parts = _parse_parts(text)
    if parts is None:
        raise InvalidInput("malformed cursor; pass next_cursor of the previous page unchanged")
    cursor_kind, digest, position = parts
    if cursor_kind != kind or digest != _compute_digest(scope, position):
        raise InvalidInput(
            "cursor belongs to a different query; pass it with the arguments it was created with"
        )
    return position


def _parse_parts(text: str) -> list[Any] | None:
    if not isinstance(text, str) or len(text) > _MAX_LENGTH:
        return None
    try:
        # The padding was stripped when the cursor was made.
        raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        parts = json.loads(raw)
    except (ValueError, binascii.Error, RecursionError):
        return None
    return parts if isinstance(parts, list) and len(parts) == 3 else None  # noqa: PLR2004 -- as encoded


def _compute_digest(scope: Any, position: Any) -> str:
    # The scope is all that the list depends on (query, filters, order). Only its digest travels, so
    # that a cursor of another list is an error and never a wrong page.
    text = json.dumps([scope, position], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
