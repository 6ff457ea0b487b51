"""What comes in: the arguments that several tools share, as types with what a model is told.

Times as they are said: ISO 8601 with zone on the way out, that or an age on the way in.
"""

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

__all__ = ["PageArguments", "ProfileArguments", "ToolArguments", "to_tuple"]

Text = Annotated[str, Field(max_length=2000)]
Session = Annotated[
    str, Field(min_length=1, max_length=500, description="Id, unique prefix, session key or title.")
]
ExactSession = Annotated[
    str, Field(min_length=1, max_length=500, description="Full id or session key.")
]
Project = Annotated[str, Field(max_length=1000, description="Folder, and below it.")]
Since = Annotated[str, Field(max_length=64, description="As since.")]
Status = Annotated[
    Literal["open", "ended", "archived", "all"],
    Field(description="Default: all but archived."),
]
Roles = Annotated[
    list[Annotated[str, Field(max_length=50)]],
    Field(max_length=20, description="e.g. user, assistant, tool."),
]
Detail = Annotated[Literal["concise", "detailed"], Field()]
Cursor = Annotated[str, Field(max_length=32_768, description="A next_cursor.")]
MaxChars = Annotated[int, Field(ge=answer_size.MIN_CHARS, le=answer_size.MAX_CHARS)]
Count = Annotated[int, Field(ge=0, le=2**53)]
MessageId = Annotated[int, Field(ge=0, le=2**63 - 1)]


Sources = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=100)]
"""Several sources, which a model is not troubled with."""
Sessions = Annotated[list[str], Field(max_length=10_000, description="Full ids or session keys.")]
Days = Annotated[float, Field(ge=0, le=100_000)]
Handle = Annotated[str, Field(max_length=100, description="Plan to apply, passed alone.")]


class ProfileArguments(ToolArguments):
    """What every tool takes."""

    profile: Annotated[str, Field(max_length=200)] | None = None


class PageArguments(ProfileArguments):
    """What every list takes."""

    cursor: Cursor | None = None


def to_tuple(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return one of a kind or several as several."""
    if given is None:
        return None
    return (given,) if isinstance(given, str) else tuple(given)


_AGE_PATTERN = re.compile(r"(\d{1,6})\s*([mhdw])")
_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def format_time(at: float | None) -> str | None:
    """Return a time to the second in UTC; None where it is none that a calendar has."""
    try:
        return None if at is None else _format_second(int(at))
    except (OverflowError, ValueError, OSError):
        return None


@lru_cache(4096)
def _format_second(second: int) -> str:
    return datetime.fromtimestamp(second, timezone.utc).isoformat().replace("+00:00", "Z")


def parse_time(name: str, text: str | None, now: float) -> float | None:
    """Return the time that an argument says; one without a zone is in UTC.

    Raises:
        InvalidInput: it says none.
    """
    if text is None:
        return None
    age = _AGE_PATTERN.fullmatch(text.strip().lower())
    if age:
        return now - int(age[1]) * _UNIT_SECONDS[age[2]]
    try:
        found = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        zoned = found if found.tzinfo else found.replace(tzinfo=timezone.utc)
        return zoned.timestamp()
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"{name} {redact(text)!r:.80} is no time; give an age such as '7d' or '12h', "
            "or a time such as '2026-11-01T08:00:00Z'"
        ) from error


def parse_time_range(
    since: str | None, until: str | None, now: float
) -> tuple[float | None, float | None]:
    """Return the times between which something is looked for.

    Raises:
        InvalidInput: one of them says none, or nothing is between them.
    """
    first, last = parse_time("since", since, now), parse_time("until", until, now)
    if first is not None and last is not None and first > last:
        raise InvalidInput(
            f"since {since!r:.80} is later than until {until!r:.80}, and nothing is between them; "
            "exchange them"
        )
    return first, last
