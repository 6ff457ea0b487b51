"""Opaque cursors, which hold a position in a list and a digest of the list."""

from __future__ import annotations

import binascii
import hashlib
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from session_core.errors import InvalidInput

_MAX_LENGTH = 16_384
_DIGEST_LENGTH = 8
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAME = re.compile(r"[a-z]+\+?")
_SHORT_PART = re.compile(r"-?[0-9a-z]{1,13}|_[a-z]+~?")


def encode_cursor(kind: str, scope: Any, position: Any) -> str:
    """Return the cursor of `position` in the list `kind` of `scope`.

    All three arguments are JSON values.
    """
    digest = _compute_digest(kind, scope, position)
    short = _encode_short(position)
    if short is not None:
        return f"{digest}.{short}"
    text = json.dumps(position, separators=(",", ":"))
    return digest + urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(kind: str, scope: Any, text: str) -> Any:
    """Return the position of a cursor.

    Raises:
        InvalidInput: it is malformed, or belongs to another list.
    """
    parts = _parse_parts(text)
    if parts is None:
        raise InvalidInput("malformed cursor; pass next_cursor of the previous page unchanged")
    digest, position = parts
    if digest != _compute_digest(kind, scope, position):
        raise InvalidInput(
            "cursor belongs to a different query; pass it with the arguments it was created with"
        )
    return position


def _parse_parts(text: Any) -> tuple[str, Any] | None:
    if not isinstance(text, str) or not _DIGEST_LENGTH < len(text) <= _MAX_LENGTH:
        return None
    digest, encoded = text[:_DIGEST_LENGTH], text[_DIGEST_LENGTH:]
    if encoded.startswith("."):
        parts = encoded[1:].split(".")
        return (digest, [*map(_decode_part, parts)]) if all(map(_is_short_part, parts)) else None
    try:
        # The padding was stripped when the cursor was made.
        raw = urlsafe_b64decode(encoded.encode("ascii") + b"=" * (-len(encoded) % 4))
        return digest, json.loads(raw)
    except (ValueError, binascii.Error, RecursionError):
        return None


def _encode_short(position: Any) -> str | None:
    """Encode a list of integers and plain names as a short text.

    Return None if the position has another form.
    """
    if not isinstance(position, list) or not position:
        return None
    parts = []
    for value in position:
        if type(value) is int and abs(value) < 2**63:
            parts.append(_encode_integer(value))
        elif isinstance(value, str) and _NAME.fullmatch(value):
            parts.append("_" + value.replace("+", "~"))
        else:
            return None
    return ".".join(parts)


def _is_short_part(part: str) -> bool:
    return _SHORT_PART.fullmatch(part) is not None


def _decode_part(part: str) -> int | str:
    return part[1:].replace("~", "+") if part.startswith("_") else int(part, 36)


def _encode_integer(number: int) -> str:
    digits, rest = "", abs(number)
    while rest or not digits:
        rest, digit = divmod(rest, 36)
        digits = _DIGITS[digit] + digits
    return "-" + digits if number < 0 else digits


def _compute_digest(kind: str, scope: Any, position: Any) -> str:
    # The scope is all that the list depends on (query, filters, order). Only its digest travels, so
    # that a cursor of another list is an error and never a wrong page.
    parts = [kind, scope, position]
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()[:_DIGEST_LENGTH]
