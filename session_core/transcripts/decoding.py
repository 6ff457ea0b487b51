"""Decoding of JSON and text that other programs wrote and that may be damaged or hostile."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import orjson

_MILLISECONDS = 100_000_000_000
"""Larger times are milliseconds, because as seconds they would be in the year 5138."""


def decode_json(data: bytes) -> Any:
    """Decode a JSON value, replacing text that is not valid Unicode.

    Raises:
        ValueError: the data is not JSON, or it is nested too deeply.
    """
    try:
        return orjson.loads(data)
    except ValueError:
        # Lone surrogates and bytes that are not UTF-8 are refused above, and agents do write them.
        try:
            return _clean_value(json.loads(data.decode("utf-8", "replace")))
        except RecursionError as error:
            raise ValueError("the JSON value is nested too deeply") from error


def clean_text(text: str) -> str:
    """Return a text without lone surrogates, which cannot be encoded."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def parse_time(value: Any) -> float | None:
    """Return the epoch seconds of an ISO time, or of a number of (milli)seconds, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        if not 0 <= value < _MILLISECONDS * 1000:
            return None
        return float(value) / 1000 if value > _MILLISECONDS else float(value)
    if not isinstance(value, str):
        return None
    try:
        # Python 3.10 reads neither `Z` nor fractions of other than three or six digits.
        stamp = value[:-1] + "+00:00" if value.endswith(("Z", "z")) else value
        time = datetime.fromisoformat(stamp)
        return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None


def _clean_value(value: Any) -> Any:
    """Return a copy of a decoded value without lone surrogates."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean_value(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): _clean_value(item) for key, item in value.items()}
    return value
