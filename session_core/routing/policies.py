"""When a chat starts afresh by itself, and when its entry is dropped: decisions, and nothing else.

Times are naive local ones, as entries store them. A time that has passed is counted as it was, also
where the clock was changed meanwhile; of an hour that comes twice the later one counts, so that
nothing ends early. Where the hour of a daily reset is skipped, the reset is at the first moment
after it; where it comes twice, the reset is at the first of both, and what is said between them
does not reset again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from session_core.routing.entries import SessionEntry, to_local_time

if TYPE_CHECKING:
    from session_core.config import SessionResetPolicy

HasActiveProcesses = Callable[[str], bool]
"""Whether a process of a chat is at work, by session key."""

_RESETTING_MODES = ("idle", "daily", "both")


def find_reset_reason(
    entry: SessionEntry,
    policy: SessionResetPolicy,
    now: datetime,
    *,
    has_active_processes: HasActiveProcesses | None = None,
) -> str | None:
    """Return why the policy ends the session of an entry now: `idle`, `daily`, or None.

    At the boundary itself nothing ends yet; a time in the future never does, nor a chat with a
    process at work.
    """
    reason = _find_due_reset(entry, policy, now)
    if reason is None or _is_active(entry, has_active_processes):
        return None
    return reason


def is_resume_expired(
    entry: SessionEntry, policy: SessionResetPolicy, now: datetime, freshness_s: float
) -> bool:
    """Whether a session that a restart interrupted has waited too long to be gone on with.

    Asked where `find_reset_reason` has none; no time is too long where nothing resets, nor with
    a freshness of 0 or less.
    """
    if not entry.resume_pending or policy.mode not in _RESETTING_MODES or freshness_s <= 0:
        return False
    since = entry.last_resume_marked_at or entry.updated_at
    return _measure_elapsed(since, now).total_seconds() > freshness_s


def is_prunable(
    entry: SessionEntry,
    max_age_days: int | None,
    now: datetime,
    active: HasActiveProcesses | None = None,
) -> bool:
    """Whether an entry is dropped for its age since the last message; 0 days or less drop none."""
    if max_age_days is None or max_age_days <= 0 or entry.suspended:
        return False
    is_old = _measure_elapsed(entry.updated_at, now) / timedelta(days=1) > max_age_days
    return is_old and not _is_active(entry, active)


def is_recently_used(entry: SessionEntry, seconds: float, now: datetime) -> bool:
    """Whether an entry was used in so many seconds until now."""
    return _measure_elapsed(entry.updated_at, now).total_seconds() <= seconds


def _find_due_reset(entry: SessionEntry, policy: SessionResetPolicy, now: datetime) -> str | None:
    if policy.mode in ("idle", "both"):
        idle = _measure_elapsed(entry.updated_at, now) / timedelta(minutes=1)
        if idle > policy.idle_minutes:
            return "idle"
    if policy.mode in ("daily", "both") and to_local_time(entry.updated_at) < _find_last_boundary(
        policy, now
    ):
        return "daily"
    return None


def _find_last_boundary(policy: SessionResetPolicy, now: datetime) -> datetime:
    here = to_local_time(now)
    today = here.replace(hour=policy.at_hour, minute=0, second=0, microsecond=0)
    return today if today <= here else today - timedelta(days=1)


def _measure_elapsed(since: datetime, now: datetime) -> timedelta:
    """Return the time between two, of which either may have a zone; one to come counts as now."""
    since, now = to_local_time(since), to_local_time(now)
    try:
        until = now.astimezone(timezone.utc)
        both = [until - since.replace(fold=fold).astimezone(timezone.utc) for fold in (0, 1)]
    except (OverflowError, OSError, ValueError):  # at the end of the calendar
        return now - since
    return min((span for span in both if span >= timedelta()), default=timedelta())


def _is_active(entry: SessionEntry, active: HasActiveProcesses | None) -> bool:
    """Whether a process is at work; one that cannot be asked counts as one that is."""
    if active is None:
        return False
    try:
        return bool(active(entry.session_key))
    except Exception:  # noqa: BLE001 -- somebody else's code, and a session must not end for it
        return True
