"""Argument types shared by several tools, and times in arguments and answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from mcp_serve import answer_size
from mcp_serve.redaction.redaction import redact
from mcp_serve.sdk.tools import ToolArguments
from session_core import InvalidInput

__all__ = ["PageArguments", "StoreArguments", "ToolArguments", "to_tuple"]

Text = Annotated[str, Field(max_length=2000)]
Session = Annotated[
    str, Field(min_length=1, max_length=500, description="Id, unique prefix, session key or title.")
]
ExactSession = Annotated[
    str, Field(min_length=1, max_length=500, description="Full id or session key.")
]
Project = Annotated[str, Field(max_length=1000, description="Folder, with subfolders.")]
Since = Annotated[str, Field(max_length=64, description="Same format as since.")]
Status = Annotated[
    Literal["open", "ended", "archived", "all"],
    Field(description="Default: all but archived."),
]
Roles = Annotated[
    list[Annotated[str, Field(max_length=50)]],
    Field(max_length=20, description="e.g. user, assistant, tool."),
]
Detail = Annotated[Literal["concise", "detailed"], Field()]
Cursor = Annotated[str, Field(max_length=32_768, description="From next_cursor.")]
MaxChars = Annotated[int, Field(ge=answer_size.MIN_CHARS, le=answer_size.MAX_CHARS)]
Count = Annotated[int, Field(ge=0, le=2**53)]
MessageId = Annotated[int, Field(ge=0, le=2**63 - 1)]


# Several sources; the listed schema of a tool shows a single one to stay short.
Sources = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=100)]
Sessions = Annotated[list[str], Field(max_length=10_000, description="Full ids or session keys.")]
Days = Annotated[float, Field(ge=0, le=100_000)]
Handle = Annotated[str, Field(max_length=100, description="Plan to apply; pass it alone.")]


class StoreArguments(ToolArguments):
    """The arguments of every tool."""

    store: Annotated[str, Field(max_length=200)] | None = None


class PageArguments(StoreArguments):
    """The arguments of every list."""

    cursor: Cursor | None = None


def to_tuple(value: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return one value or several as a tuple."""
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(value)


_AGE_PATTERN = re.compile(r"(\d{1,6})\s*([mhdw])")
_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def format_time(at: float | None) -> str | None:
    """Return a time in ISO 8601 to the second in UTC; None for a time outside the calendar."""
    try:
        return None if at is None else _format_second(int(at))
    except (OverflowError, ValueError, OSError):
        return None


@lru_cache(4096)
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, timezone.utc).isoformat().replace("+00:00", "Z")


def parse_time(name: str, text: str | None, now: float) -> float | None:
    """Return the time of an argument; a time without a zone is UTC.

    Raises:
        InvalidInput: the text is not a valid time or age.
    """
    if text is None:
        return None
    age = _AGE_PATTERN.fullmatch(text.strip().lower())
    if age:
        return now - int(age[1]) * _UNIT_SECONDS[age[2]]
    try:
        parsed = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        zoned = parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)
        return zoned.timestamp()
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"{name} {redact(text)!r:.80} is not a valid time; pass an age such as '7d' or '12h', "
            "or a time such as '2026-11-01T08:00:00Z'"
        ) from error


def parse_time_range(
    since: str | None, until: str | None, now: float
) -> tuple[float | None, float | None]:
    """Return the bounds of a time range.

    Raises:
        InvalidInput: a bound is not valid, or since is later than until.
    """
    first, last = parse_time("since", since, now), parse_time("until", until, now)
    if first is not None and last is not None and first > last:
        raise InvalidInput(
            f"since {since!r:.80} must not be later than until {until!r:.80}; exchange them"
        )
    return first, last
