"""Reset policies: when a session ends by the clock and when an entry is pruned. Pure decisions.

Times are naive local times, as entries store them. Elapsed time is real time, even if the clock was
changed meanwhile; of an hour that occurs twice the later one counts, so that no session ends early.
If the hour of a daily reset is skipped, the reset is at the first moment after it; if it occurs
twice, the reset is at the first, and a message between the two does not reset again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from session_core.routing.entries import SessionEntry, to_local_time

if TYPE_CHECKING:
    from session_core.config import SessionResetPolicy

HasActiveProcesses = Callable[[str], bool]
"""Returns True if a process of the chat with this session key is at work."""

_RESETTING_MODES = ("idle", "daily", "both")


def find_reset_reason(
    entry: SessionEntry,
    policy: SessionResetPolicy,
    now: datetime,
    *,
    has_active_processes: HasActiveProcesses | None = None,
) -> str | None:
    """Return the reason for which the policy ends a session now: `idle`, `daily` or None.

    A session does not end at the boundary itself, at a time in the future, or while a process of
    the chat is at work.
    """
    reason = _find_due_reset(entry, policy, now)
    if reason is None or _is_active(entry, has_active_processes):
        return None
    return reason


def is_resume_expired(
    entry: SessionEntry, policy: SessionResetPolicy, now: datetime, freshness_s: float
) -> bool:
    """Return True if a session interrupted by a restart has waited too long to be continued.

    The caller has checked that `find_reset_reason` returns None. Without a resetting policy, or
    with a freshness of 0 or less, no wait is too long.
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
    """Return True if an entry is old enough to be pruned; 0 days or less prune none."""
    if max_age_days is None or max_age_days <= 0 or entry.suspended:
        return False
    is_old = _measure_elapsed(entry.updated_at, now) / timedelta(days=1) > max_age_days
    return is_old and not _is_active(entry, active)


def is_recently_used(entry: SessionEntry, seconds: float, now: datetime) -> bool:
    """Return True if an entry was used in the last `seconds`."""
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
    local_now = to_local_time(now)
    today = local_now.replace(hour=policy.at_hour, minute=0, second=0, microsecond=0)
    return today if today <= local_now else today - timedelta(days=1)


def _measure_elapsed(since: datetime, now: datetime) -> timedelta:
    """Return the time between two times, with or without zones; a future start counts as now."""
    since, now = to_local_time(since), to_local_time(now)
    try:
        until = now.astimezone(timezone.utc)
        # A stored time that occurs twice has two readings; the later one, the shorter span, counts.
        spans = [until - since.replace(fold=fold).astimezone(timezone.utc) for fold in (0, 1)]
    except (OverflowError, OSError, ValueError):  # at the end of the calendar
        return now - since
    return min((span for span in spans if span >= timedelta()), default=timedelta())


def _is_active(entry: SessionEntry, active: HasActiveProcesses | None) -> bool:
    """Return True if a process of the chat is at work, or if the check fails."""
    if active is None:
        return False
    try:
        return bool(active(entry.session_key))
    except Exception:  # noqa: BLE001 -- code of the application; no session ends because of it
        return True
