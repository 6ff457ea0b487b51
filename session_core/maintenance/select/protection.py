"""What stays as it is, and why: judged from the inventory and from who is alive alone.

How a plan says when something was, in words that a person reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from datetime import datetime, timezone
from functools import lru_cache

from session_core.activity import ActivitySnapshot
from session_core.maintenance.types import ProtectionReason
from session_core.routing.entries import SessionEntry
from session_core.types import InventoryItem

RECENT_S = 7 * 86_400.0
"""Beside another holder of the database, what ended so lately is not removed yet."""


def find_protection(
    sessions: Iterable[InventoryItem],
    alive: ActivitySnapshot,
    *,
    removed: bool,
    but: Collection[ProtectionReason] = (),
) -> ProtectionReason | None:
    """Return why sessions that go together stay, None where they may go.

    One that is protected protects all. Where they are only ended, that others have the database
    open says nothing; `but` are reasons that do not count here.
    """
    found = {why for each in sessions for why in _iter_reasons(each, alive, removed=removed)}
    return next((why for why in _REASON_ORDER if why in found and why not in but), None)


_REASON_ORDER: tuple[ProtectionReason, ...] = (
    "live",
    "compressing",
    "suspended",
    "routed",
    "pinned",
    "no known age",
    "never ended",
    "ended lately",
)
"""Of several reasons, the one that is named."""


def _iter_reasons(
    stock: InventoryItem, alive: ActivitySnapshot, *, removed: bool
) -> Iterable[ProtectionReason]:
    routed = stock.id in alive.routes
    company = alive.company
    if company.describe_active_user(stock.id, stock.last_active_at, routed=routed) is not None:
        yield "live"
    if stock.id in alive.compressing:
        yield "compressing"
    if stock.id in alive.suspended:
        yield "suspended"
    if routed:
        yield "routed"
    if stock.pinned or stock.id in alive.pinned:
        yield "pinned"
    if stock.last_active_at is None:
        yield "no known age"
    if removed and company.holders:
        if stock.ended_at is None:
            yield "never ended"
        elif company.at - stock.ended_at < RECENT_S:
            yield "ended lately"


_DAY_S = 86_400.0
_PLAIN_PATTERN = re.compile(r"[\w.:-]{1,40}")


def format_day(at: float) -> str:
    """Return the date of a time, which may be beyond what a calendar has."""
    return _format_date(at // _DAY_S)


@lru_cache(4096)
def _format_date(days: float) -> str:
    try:
        return datetime.fromtimestamp(days * _DAY_S, timezone.utc).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"


def format_age(at: float | None, now: float) -> str:
    """Return how many days have gone by since a time."""
    if at is None:
        return "at an unknown time"
    days = int((now - at) // _DAY_S)
    if days < 1:
        return "within a day"
    return "1 day ago" if days == 1 else f"{days:,} days ago"


def get_last_use(entry: SessionEntry) -> float | None:
    """Return when a chat was used last, where that is a time that a calendar has."""
    try:
        return entry.updated_at.timestamp()
    except (OverflowError, OSError, ValueError):
        return None


def describe_end(stock: InventoryItem) -> str:
    """Return when and how a session ended, or that it did not."""
    if stock.ended_at is None:
        return "never ended"
    reason = stock.end_reason or ""
    # A column that others write: what is no plain word is quoted.
    said = reason if _PLAIN_PATTERN.fullmatch(reason) else json.dumps(reason, ensure_ascii=False)
    return f"ended {format_day(stock.ended_at)}" + (f" ({said})" if reason else "")
