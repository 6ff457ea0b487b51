"""How a plan says when something was, in words that a person reads."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from functools import lru_cache

from session_core.models import Stock
from session_core.routing.entries import SessionEntry

_DAY_S = 86_400.0
_PLAIN = re.compile(r"[\w.:-]{1,40}")


def day(at: float) -> str:
    """Return the date of a time, which may be beyond what a calendar has."""
    return _date(at // _DAY_S)


@lru_cache(4096)
def _date(days: float) -> str:
    try:
        return datetime.fromtimestamp(days * _DAY_S, timezone.utc).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"


def ago(at: float | None, now: float) -> str:
    """Return how many days have gone by since a time."""
    if at is None:
        return "at an unknown time"
    days = int((now - at) // _DAY_S)
    if days < 1:
        return "within a day"
    return "1 day ago" if days == 1 else f"{days:,} days ago"


def used_at(entry: SessionEntry) -> float | None:
    """Return when a chat was used last, where that is a time that a calendar has."""
    try:
        return entry.updated_at.timestamp()
    except (OverflowError, OSError, ValueError):
        return None


def end_of(stock: Stock) -> str:
    """Return when and how a session ended, or that it did not."""
    if stock.ended_at is None:
        return "never ended"
    reason = stock.end_reason or ""
    # A column that others write: what is no plain word is quoted.
    said = reason if _PLAIN.fullmatch(reason) else json.dumps(reason, ensure_ascii=False)
    return f"ended {day(stock.ended_at)}" + (f" ({said})" if reason else "")
