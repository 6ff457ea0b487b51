"""Decide which sessions are protected, from the inventory and the activity alone.

The module also formats times and ages for the reasons of a plan.
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
"""While another process has the database open, sessions that ended this recently are kept."""


def find_protection(
    sessions: Iterable[InventoryItem],
    activity: ActivitySnapshot,
    *,
    removed: bool,
    exempt: Collection[ProtectionReason] = (),
    kept: Collection[str] = (),
) -> ProtectionReason | None:
    """Return the reason to keep sessions that are removed together, or None if there is none.

    One protected session protects all. If they are only ended, an open database does not count;
    `exempt` are reasons to ignore, `kept` the sessions that the request keeps.
    """
    reasons = {
        reason
        for session in sessions
        for reason in (
            *_iter_reasons(session, activity, removed=removed),
            *(("kept",) if session.id in kept else ()),
        )
    }
    return next(
        (reason for reason in _REASON_ORDER if reason in reasons and reason not in exempt), None
    )


_REASON_ORDER: tuple[ProtectionReason, ...] = (
    "live",
    "compressing",
    "suspended",
    "routed",
    "pinned",
    "kept",
    "no known age",
    "never ended",
    "ended lately",
)
"""If there are several reasons, the first of these is reported."""


def _iter_reasons(
    session: InventoryItem, activity: ActivitySnapshot, *, removed: bool
) -> Iterable[ProtectionReason]:
    routed = session.id in activity.routes
    home_activity = activity.company
    if (
        home_activity.describe_active_user(session.id, session.last_active_at, routed=routed)
        is not None
    ):
        yield "live"
    if session.id in activity.compressing:
        yield "compressing"
    if session.id in activity.suspended:
        yield "suspended"
    if routed:
        yield "routed"
    if session.pinned or session.id in activity.pinned:
        yield "pinned"
    if session.last_active_at is None:
        yield "no known age"
    # A process with the database open may be at work in any open session.
    if removed and home_activity.holders:
        if session.ended_at is None:
            yield "never ended"
        elif home_activity.at - session.ended_at < RECENT_S:
            yield "ended lately"


_DAY_S = 86_400.0
_PLAIN_PATTERN = re.compile(r"[\w.:-]{1,40}")


def format_day(at: float) -> str:
    """Return the date of a time, which may be outside the range of a calendar."""
    return _format_date(at // _DAY_S)


@lru_cache(4096)
def _format_date(days: float) -> str:
    try:
        return datetime.fromtimestamp(days * _DAY_S, timezone.utc).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"


def format_age(at: float | None, now: float) -> str:
    """Return the number of days since a time, as text."""
    if at is None:
        return "at an unknown time"
    days = int((now - at) // _DAY_S)
    if days < 1:
        return "within a day"
    return "1 day ago" if days == 1 else f"{days:,} days ago"


def get_last_use(entry: SessionEntry) -> float | None:
    """Return the last use of a chat, or None if the time is outside the range of a calendar."""
    try:
        return entry.updated_at.timestamp()
    except (OverflowError, OSError, ValueError):
        return None


def describe_end(session: InventoryItem) -> str:
    """Describe the end of a session by its date and reason, or `never ended`."""
    if session.ended_at is None:
        return "never ended"
    reason = session.end_reason or ""
    # Other programs write this column: quote a value that is not a plain word.
    quoted = reason if _PLAIN_PATTERN.fullmatch(reason) else json.dumps(reason, ensure_ascii=False)
    return f"ended {format_day(session.ended_at)}" + (f" ({quoted})" if reason else "")
