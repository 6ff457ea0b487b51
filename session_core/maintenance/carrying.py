"""How rows stand in an export: readable where that says the same, and exact in any case.

One session is one line: its columns, `messages` at the end, and before those under `mcp_sessions`
what other tables have of it. Content and calls of tools are JSON as in exports of Hermes, but only
where storing that makes the same text again. What JSON has no value for is an object of one key.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from session_core.errors import InvalidInput
from session_core.models import Images, Raw
from session_core.state import content

VERSION = 1

OURS = "mcp_sessions"
"""The key of what no column of a session is."""

MESSAGES = "messages"

OF_OTHERS = frozenset({"compression_locks", "session_turn_leases"})
"""Tables that say who is at work in a session just now; they are not carried."""

_OWN = frozenset({"sessions", MESSAGES})

_BYTES, _RAW, _REAL = "$bytes", "$raw", "$real"
_JSON = "tool_calls"


def said(column: str, value: Any) -> Any:
    """Return what stands in an export for a stored value."""
    if isinstance(value, str):
        return _readable(column, value)
    if isinstance(value, bytes):
        return {_BYTES: b64encode(value).decode()}
    if isinstance(value, Raw):
        return {_RAW: b64encode(value.stored).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {_REAL: str(value)}
    return value


def stored(column: str, value: Any) -> Any:
    """Return what is stored for a value of an export, also one of Hermes.

    Raises:
        InvalidInput: it is none.
    """
    if isinstance(value, str):
        return content.clean_text(value)
    if isinstance(value, dict) and len(value) == 1:
        key, inside = next(iter(value.items()))
        if key in _EXACT and isinstance(inside, str):
            return _exact(key, inside)
    if isinstance(value, (list, dict)):
        return content.encode(value) if column == "content" else content.dump(value)
    return int(value) if isinstance(value, bool) else value


def row(columns: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return a row as it stands in an export."""
    return {name: said(name, value) for name, value in zip(columns, values, strict=True)}


def table(image: Images) -> dict[str, Any]:
    """Return the rows of another table as they stand in an export."""
    rows = [[said("", value) for value in each] for each in image.rows]
    return {"table": image.table, "columns": image.columns, "rows": rows, "shared": image.shared}


def images(carried: Any) -> list[Images]:
    """Return the rows of other tables that an export carries.

    Raises:
        InvalidInput: they are not what `table` has made.
    """
    try:
        found = [
            Images(
                str(each["table"]),
                tuple(map(str, each["columns"])),
                tuple(tuple(stored("", value) for value in values) for values in each["rows"]),
                bool(each["shared"]),
            )
            for each in carried["tables"]
        ]
    except (KeyError, TypeError) as error:
        raise InvalidInput(f"{OURS} is not what an export has there") from error
    for image in found:
        _check(image)
    return found


def text(value: Any) -> str:
    """Return the JSON of a value that stands in an export."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _check(image: Images) -> None:
    """Refuse what no export has: rows that come otherwise or not at all, and rows of no shape."""
    if image.table in _OWN | OF_OTHERS:
        raise InvalidInput(f"{OURS} has rows of {image.table}, which no export has there")
    width = len(image.columns)
    if len(set(image.columns)) < width or any(len(row) != width for row in image.rows):
        raise InvalidInput(f"{OURS} has rows of {image.table} that do not fit their columns")


def _readable(column: str, value: str) -> Any:
    """Return the JSON that a text is, where storing that makes the same text again."""
    if column == "content" and value.startswith(content.MARKER):
        decoded = content.decode(value)
    elif column == _JSON:
        decoded = content.decode_json(value)
    else:
        return value
    try:
        same = isinstance(decoded, (list, dict)) and stored(column, decoded) == value
    except InvalidInput:
        return value
    return decoded if same else value


def _exact(key: str, inside: str) -> Any:
    try:
        return _EXACT[key](inside)
    except (Error, ValueError) as error:
        raise InvalidInput(f"{key} has a value that is none") from error


_EXACT: Mapping[str, Callable[[str], Any]] = {
    _BYTES: lambda inside: b64decode(inside, validate=True),
    _RAW: lambda inside: Raw(b64decode(inside, validate=True)),
    _REAL: float,
}
