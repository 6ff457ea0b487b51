"""Cursors: opaque text that says where a list goes on, and of which list it is.

The scope is whatever the list depends on (query, filters, order); only its digest travels, with
that of the position, so that a cursor of another list is an error and never a wrong page.
"""

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
    """Return the position that a cursor stands for.

    Raises:
        InvalidInput: it is no cursor, or one of another list.
    """
    parts = _parse_parts(text)
    if parts is None:
        raise InvalidInput("malformed cursor; take next_cursor of the page before as it is")
    found, digest, position = parts
    if found != kind or digest != _compute_digest(scope, position):
        raise InvalidInput("a cursor of another list or query; pass it with the same arguments")
    return position


def _parse_parts(text: str) -> list[Any] | None:
    if not isinstance(text, str) or len(text) > _MAX_LENGTH:
        return None
    try:
        raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        parts = json.loads(raw)
    except (ValueError, binascii.Error, RecursionError):
        return None
    return parts if isinstance(parts, list) and len(parts) == 3 else None  # noqa: PLR2004 -- as encoded


def _compute_digest(scope: Any, position: Any) -> str:
    text = json.dumps([scope, position], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
