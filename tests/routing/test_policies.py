"""Reset policies and pruning at their exact boundaries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest

from session_core.config import SessionResetPolicy
from session_core.routing.entries import SessionEntry
from session_core.routing.policies import find_reset_reason, is_prunable, is_resume_expired

local = partial(datetime, 2026)
"""A naive local time of this year, as entries store it."""

NOON = local(3, 10, 12)
TICK = timedelta(microseconds=1)


def entry(updated_at: datetime, **fields: Any) -> SessionEntry:
    return SessionEntry(
        session_key="agent:main:telegram:dm:42",
        session_id="s1",
        created_at=local(1, 1),
        updated_at=updated_at,
        **fields,
    )


def find_reason(
    policy: SessionResetPolicy,
    updated_at: datetime,
    now: datetime = NOON,
    active: Callable[[str], bool] | None = None,
) -> str | None:
    return find_reset_reason(entry(updated_at), policy, now, has_active_processes=active)


def fail_process_check(_: str) -> bool:
    raise OSError


IDLE = SessionResetPolicy(mode="idle", idle_minutes=60)
DAILY = SessionResetPolicy(mode="daily", at_hour=4)
BOTH = SessionResetPolicy(mode="both", idle_minutes=60, at_hour=4)


# Modes


@pytest.mark.requirement("store:policy-table")
def test_default_policy_never_resets() -> None:
    assert find_reason(SessionResetPolicy(), NOON - timedelta(days=999)) is None


@pytest.mark.requirement("store:policy-table")
def test_unknown_mode_never_resets() -> None:
    assert (
        find_reason(SessionResetPolicy.from_dict({"mode": "weekly"}), NOON - timedelta(days=999))
        is None
    )


def test_uppercase_mode_never_resets() -> None:
    assert (
        find_reason(SessionResetPolicy.from_dict({"mode": "Idle"}), NOON - timedelta(days=999))
        is None
    )


# Idle


@pytest.mark.requirement("store:policy-table")
def test_session_is_idle_after_idle_minutes() -> None:
    assert find_reason(IDLE, NOON - timedelta(minutes=60) - TICK) == "idle"


@pytest.mark.requirement("store:policy-table")
def test_session_is_active_at_last_idle_minute() -> None:
    assert find_reason(IDLE, NOON - timedelta(minutes=60)) is None


def test_idle_policy_ignores_daily_boundary() -> None:
    assert find_reason(IDLE, NOON - timedelta(minutes=59), now=NOON) is None


def test_idle_minutes_can_be_fractional() -> None:
    policy = SessionResetPolicy(mode="idle", idle_minutes=0.5)
    assert find_reason(policy, NOON - timedelta(seconds=30)) is None
    assert find_reason(policy, NOON - timedelta(seconds=30) - TICK) == "idle"


def test_infinite_idle_minutes_never_reset() -> None:
    policy = SessionResetPolicy(mode="idle", idle_minutes=10**30)
    assert find_reason(policy, datetime.fromisoformat("0001-01-01")) is None


# Daily


@pytest.mark.requirement("store:policy-table")
def test_session_before_daily_hour_is_reset() -> None:
    assert find_reason(DAILY, local(3, 10, 3, 59, 59)) == "daily"


@pytest.mark.requirement("store:policy-table")
def test_session_at_daily_hour_is_kept() -> None:
    assert find_reason(DAILY, local(3, 10, 4)) is None


@pytest.mark.requirement("store:policy-table")
def test_boundary_before_hour_is_yesterday() -> None:
    now = local(3, 10, 3, 59, 59)
    yesterday = local(3, 9, 4)
    assert find_reason(DAILY, yesterday, now) is None
    assert find_reason(DAILY, yesterday - TICK, now) == "daily"


@pytest.mark.requirement("store:policy-table")
def test_boundary_at_hour_is_today() -> None:
    at = local(3, 10, 4)
    assert find_reason(DAILY, at - TICK, at) == "daily"
    assert find_reason(DAILY, at - TICK, at - TICK) is None


def test_daily_hour_can_be_midnight() -> None:
    policy = SessionResetPolicy(mode="daily", at_hour=0)
    midnight = local(3, 10)
    assert find_reason(policy, midnight - TICK, midnight) == "daily"
    assert find_reason(policy, midnight, midnight) is None


def test_daily_policy_ignores_idle_time() -> None:
    assert find_reason(DAILY, NOON - timedelta(hours=7)) is None


# Both


@pytest.mark.requirement("store:policy-table")
def test_idle_reason_precedes_daily() -> None:
    assert find_reason(BOTH, NOON - timedelta(days=2)) == "idle"


@pytest.mark.requirement("store:policy-table")
def test_daily_reason_applies_without_idle() -> None:
    at = local(3, 10, 4, 10)
    assert find_reason(BOTH, at - timedelta(minutes=20), at) == "daily"


def test_recent_session_has_no_reset_reason() -> None:
    assert find_reason(BOTH, NOON - timedelta(minutes=60)) is None


# Active processes


@pytest.mark.requirement("store:policy-table")
@pytest.mark.parametrize("policy", [IDLE, DAILY, BOTH], ids=["idle", "daily", "both"])
def test_future_time_never_resets(policy: SessionResetPolicy) -> None:
    assert find_reason(policy, NOON + timedelta(days=2)) is None


@pytest.mark.requirement("store:policy-table")
def test_active_process_prevents_reset() -> None:
    assert find_reason(BOTH, NOON - timedelta(days=9), active=lambda _: True) is None


def test_ended_process_allows_reset() -> None:
    assert find_reason(BOTH, NOON - timedelta(days=9), active=lambda _: False) == "idle"


@pytest.mark.requirement("store:policy-table")
def test_failing_process_check_prevents_reset() -> None:
    assert find_reason(BOTH, NOON - timedelta(days=9), active=fail_process_check) is None


def test_process_check_runs_only_when_due() -> None:
    asked: list[str] = []
    find_reason(IDLE, NOON, active=lambda key: bool(asked.append(key)))
    assert asked == []
    find_reason(IDLE, NOON - timedelta(days=1), active=lambda key: bool(asked.append(key)))
    assert asked == ["agent:main:telegram:dm:42"]


def test_zoned_time_is_compared_as_local() -> None:
    kept = entry(NOON)
    kept.updated_at = (NOON - timedelta(days=9)).astimezone(timezone.utc)
    assert find_reset_reason(kept, IDLE, NOON) == "idle"
    assert is_prunable(kept, 5, NOON.astimezone())


# Clock changes


def test_skipped_hour_resets_at_next_moment() -> None:
    policy = SessionResetPolicy(mode="daily", at_hour=2)
    before = local(3, 29, 1, 59)
    assert find_reason(policy, before, local(3, 29, 3)) == "daily"


def test_repeated_hour_resets_once() -> None:
    policy = SessionResetPolicy(mode="daily", at_hour=2)
    updated_at = local(10, 25, 2, 30)
    assert find_reason(policy, updated_at, local(10, 25, 2, 10, fold=1)) is None


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A time zone whose clock is set forward on 29 March at 2:00 and back on 25 October at 3:00."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.requirement("store:clock-change")
@pytest.mark.usefixtures("berlin")
def test_skipped_hour_is_not_idle_time() -> None:
    updated_at = local(3, 29, 1, 59)
    assert find_reason(IDLE, updated_at, local(3, 29, 3, 0, 30)) is None
    assert find_reason(IDLE, updated_at, local(3, 29, 3, 59)) is None
    assert find_reason(IDLE, updated_at, local(3, 29, 3, 59) + TICK) == "idle"


@pytest.mark.requirement("store:clock-change")
@pytest.mark.usefixtures("berlin")
def test_repeated_hour_counts_twice_as_idle() -> None:
    updated_at = local(10, 25, 1, 59)
    assert find_reason(IDLE, updated_at, local(10, 25, 2, 59)) is None
    assert find_reason(IDLE, updated_at, local(10, 25, 2, 0, fold=1)) == "idle"


@pytest.mark.requirement("store:clock-change")
@pytest.mark.usefixtures("berlin")
def test_message_in_repeated_hour_delays_reset() -> None:
    updated_at = local(10, 25, 2, 30)  # the stored time does not say which of the two
    assert find_reason(IDLE, updated_at, local(10, 25, 2, 40)) is None
    assert find_reason(IDLE, updated_at, local(10, 25, 3, 30)) is None
    assert find_reason(IDLE, updated_at, local(10, 25, 3, 30) + TICK) == "idle"


# Resumption


def is_resumed(policy: SessionResetPolicy, freshness_s: float = 3600, **fields: Any) -> bool:
    fields = {"resume_pending": True, "updated_at": NOON - timedelta(hours=2)} | fields
    return is_resume_expired(entry(**fields), policy, NOON, freshness_s)


def test_session_past_freshness_is_not_resumed() -> None:
    assert is_resumed(DAILY, last_resume_marked_at=NOON - timedelta(hours=1) - TICK)


def test_session_at_freshness_limit_is_resumed() -> None:
    assert not is_resumed(DAILY, last_resume_marked_at=NOON - timedelta(hours=1))


def test_resume_without_mark_uses_last_message() -> None:
    assert is_resumed(DAILY)
    assert not is_resumed(DAILY, updated_at=NOON - timedelta(hours=1))


def test_session_without_policy_always_resumes() -> None:
    assert not is_resumed(SessionResetPolicy())


def test_unknown_mode_always_resumes() -> None:
    assert not is_resumed(SessionResetPolicy.from_dict({"mode": "weekly"}))


@pytest.mark.parametrize("freshness_s", [0, -1])
def test_zero_freshness_always_resumes(freshness_s: float) -> None:
    assert not is_resumed(DAILY, freshness_s)


def test_session_without_interruption_never_expires_resume() -> None:
    assert not is_resumed(DAILY, resume_pending=False)


# Pruning


def test_entry_is_prunable_after_max_age() -> None:
    assert is_prunable(entry(NOON - timedelta(days=90) - TICK), 90, NOON)


def test_entry_is_kept_at_max_age() -> None:
    assert not is_prunable(entry(NOON - timedelta(days=90)), 90, NOON)


def test_entry_age_counts_from_last_message() -> None:
    assert not is_prunable(entry(NOON), 1, NOON)


@pytest.mark.parametrize("days", [None, 0, -1])
def test_zero_days_prune_no_entry(days: int | None) -> None:
    assert not is_prunable(entry(NOON - timedelta(days=999)), days, NOON)


def test_suspended_entry_is_not_prunable() -> None:
    assert not is_prunable(entry(NOON - timedelta(days=999), suspended=True), 90, NOON)


def test_entry_with_active_process_is_not_prunable() -> None:
    old = entry(NOON - timedelta(days=999))
    assert not is_prunable(old, 90, NOON, lambda key: key == old.session_key)
    assert is_prunable(old, 90, NOON, lambda key: key == old.session_id)


def test_failing_process_check_prevents_pruning() -> None:
    assert not is_prunable(entry(NOON - timedelta(days=999)), 90, NOON, fail_process_check)


def test_huge_max_age_prunes_no_entry() -> None:
    assert not is_prunable(entry(datetime.fromisoformat("0001-01-01")), 10**30, NOON)
