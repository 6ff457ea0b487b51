"""Reset policies: when a session ends by time and when an entry is pruned.

`ResetPolicies` evaluates the policies of the chats of one store; the functions are pure. This
module stores nothing.

Times are naive local times, as entries store them. Durations are measured in real time, even if the
clock was changed meanwhile. If an hour occurs twice, the later occurrence counts, so that no
session ends early. If the hour of a daily reset is skipped, the reset is at the first moment after
it. If that hour occurs twice, the reset is at the first occurrence, and a message between the two
does not reset again.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from session_core.chats import get_key_platform
from session_core.routing.entries import RouteState, SessionEntry, to_local_time
from session_core.routing.leases import TURN_LEASE
from session_core.routing.recovery import CONTINUABLE_REASONS, is_ended_by_policy
from session_core.routing.settings import HasActiveProcesses, StoreSettings

if TYPE_CHECKING:
    from session_core.config import SessionResetPolicy
    from session_core.types import SessionRow

_RESETTING_MODES = ("idle", "daily", "both")


class ResetPolicies:
    """Evaluates the reset policies of the chats of a store and the states of their routes."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def has_active_turn(self, entry: SessionEntry) -> bool:
        """Return True if a live process runs a turn in the session.

        A turn counts for at most six hours.
        """
        return TURN_LEASE.find_holder(entry, self._settings.now()) is not None

    def is_session_finalizable(self, entry: SessionEntry) -> bool:
        """Return True if the policy of this chat can end its session."""
        return self._get_policy(entry).mode in _RESETTING_MODES

    def find_expiry_reason(self, entry: SessionEntry) -> str | None:
        """Return the reason for which the policy ends a session now, or None.

        A session with an active turn does not end.
        """
        if self.has_active_turn(entry):
            return None
        return find_reset_reason(
            entry,
            self._get_policy(entry),
            self._settings.now(),
            has_active_processes=self._settings.has_active_processes,
        )

    def find_reset_at_message(self, entry: SessionEntry) -> str | None:
        """Return the reason for which a message that arrives now starts a new session."""
        if entry.suspended:
            return "suspended"
        reason = self.find_expiry_reason(entry)
        # An ordinary reset precedes, so that its reason is the one that is reported.
        if reason is None and entry.resume_pending:
            settings = self._settings
            freshness_s = settings.config.auto_continue_freshness_s
            if is_resume_expired(entry, self._get_policy(entry), settings.now(), freshness_s):
                return "resume_pending_expired"
        return reason

    def is_ended_elsewhere(self, entry: SessionEntry) -> bool:
        """Return True if another chat's policy ended the session and this chat's would not.

        Several chats can share a session, each with its own reset policy.
        """
        db = self._settings.db
        row = None if db is None else db.get_session(entry.session_id)
        if row is None or entry.expiry_finalized or not is_ended_by_policy(row):
            return False
        return self.find_expiry_reason(entry) is None

    def is_prunable(self, entry: SessionEntry, max_age_days: int) -> bool:
        """Return True if an entry is old enough to be removed."""
        settings = self._settings
        return is_prunable(entry, max_age_days, settings.now(), settings.has_active_processes)

    def find_route_state(self, entry: SessionEntry) -> RouteState:
        """Return the state of a route.

        A route that the next message repairs is neither `stale` nor `dangling`.
        """
        lost = self._find_lost_state(entry)
        if lost is not None:
            return lost
        if entry.suspended:
            return "suspended"
        if entry.resume_pending:
            return "resume_pending"
        return "expired" if self.find_expiry_reason(entry) else "active"

    def _find_lost_state(self, entry: SessionEntry) -> RouteState | None:
        db = self._settings.db
        if db is None:
            return None
        row: SessionRow | None = db.get_session(entry.session_id)
        if row is None:
            return "dangling"
        # The next message continues with the tip, so the end of the tip decides.
        if row["end_reason"] == "compression":
            row = db.get_session(db.get_compression_tip(entry.session_id)) or row
        has_ended = row["end_reason"] is not None and row["end_reason"] not in CONTINUABLE_REASONS
        return "stale" if has_ended and not self.is_ended_elsewhere(entry) else None

    def _get_policy(self, entry: SessionEntry) -> SessionResetPolicy:
        """Return the reset policy for the platform and type of a chat."""
        platform = entry.platform or get_key_platform(entry.session_key) or None
        return self._settings.config.get_reset_policy(platform, entry.chat_type)


def find_reset_reason(
    entry: SessionEntry,
    policy: SessionResetPolicy,
    now: datetime,
    *,
    has_active_processes: HasActiveProcesses | None = None,
) -> str | None:
    """Return the reason for which a policy ends a session now: `idle`, `daily` or None.

    A session does not end exactly at the limit, if its last use is in the future, or while a
    process of the chat is at work.
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
    """Return True if an entry is older than `max_age_days` and not in use.

    A value of None, 0 or less prunes nothing.
    """
    # The next message of a suspended chat must still find that it is suspended.
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
    """Return the real time between two times.

    A start in the future counts as now.
    """
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
