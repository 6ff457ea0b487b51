"""Typed access to fields of decoded JSON, in which any value may have any type."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from session_core.transcripts.decoding import decode_json
from session_core.transcripts.format import ReaderState, ToolCall

_LARGEST = 2**53
"""The largest count that is exact in JSON."""

_CALLS_KEPT = 32
"""The number of calls whose tool names are kept. No agent starts more tools at once."""

_LONGEST_NAME = 4096
"""The length limit of names, which are stored with each message. No path is longer."""


def decode_object(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a record, or None if it is damaged or no object."""
    try:
        value = decode_json(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def get_str(record: Mapping[str, Any], key: str) -> str | None:
    """Return a text that is not empty, or None."""
    value = record.get(key)
    return value if isinstance(value, str) and value else None


def get_name(record: Mapping[str, Any], key: str) -> str | None:
    """Return an id, a name or a path, or None if it is empty or too long to be one."""
    value = record.get(key)
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME else None


def get_dict(record: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return an object, or an empty one if the field has another type."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def get_dicts(record: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects in a list, without values of other types."""
    value = record.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def get_count(record: Mapping[str, Any], key: str) -> int:
    """Return a count, or 0 if the field is not a count. A count may be stored as text."""
    value = record.get(key)
    if value is None:
        return 0
    if isinstance(value, str) and value.isdecimal() and len(value) < len(str(_LARGEST)):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return int(value) if 0 <= value <= _LARGEST else 0


def get_cost(record: Mapping[str, Any], key: str) -> float:
    """Return a cost in US dollars, or 0 if the field is not a cost."""
    value = record.get(key)
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    return float(value) if 0 <= value <= _LARGEST else 0.0


def join_texts(texts: Iterable[str | None]) -> str:
    """Join texts with an empty line between them, leaving out empty texts."""
    return "\n\n".join(filter(None, texts))


def find_between(text: str, begin: str, end: str) -> str | None:
    """Return the text between the first `begin` and the next `end`, or None."""
    _, opening, rest = text.partition(begin)
    inner, closing, _ = rest.partition(end)
    return inner if opening and closing else None


def remember_calls(state: ReaderState, calls: Iterable[ToolCall]) -> None:
    """Store the tool names of the newest calls in the state, to name their results."""
    names = state.setdefault("tools", {})
    names.update((call.id, call.name) for call in calls if call.id)
    for call_id in list(names)[: max(0, len(names) - _CALLS_KEPT)]:
        del names[call_id]


def name_tool(state: ReaderState, call_id: str | None) -> str | None:
    """Return the name of the tool of a call, or None."""
    name = state.get("tools", {}).get(call_id)
    return name if isinstance(name, str) else None


def format_value(value: Any) -> str:
    """Return a text unchanged, and any other value as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        # orjson refuses integers above 64 bits and values nested more than 254 deep.
        pass
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return ""
