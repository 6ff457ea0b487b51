"""When a chat starts afresh, and when its entry is dropped, to the second."""

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
"""A time of this year on the clock of the wall, as entries have them."""

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
def test_no_mode_is_none_and_never_resets() -> None:
    assert find_reason(SessionResetPolicy(), NOON - timedelta(days=999)) is None


@pytest.mark.requirement("store:policy-table")
def test_an_unknown_mode_never_resets() -> None:
    assert (
        find_reason(SessionResetPolicy.from_dict({"mode": "weekly"}), NOON - timedelta(days=999))
        is None
    )


def test_a_mode_is_known_in_small_letters_alone() -> None:
    assert (
        find_reason(SessionResetPolicy.from_dict({"mode": "Idle"}), NOON - timedelta(days=999))
        is None
    )


# Idle


@pytest.mark.requirement("store:policy-table")
def test_a_session_is_idle_after_its_minutes() -> None:
    assert find_reason(IDLE, NOON - timedelta(minutes=60) - TICK) == "idle"


@pytest.mark.requirement("store:policy-table")
def test_a_session_is_not_idle_at_its_last_minute() -> None:
    assert find_reason(IDLE, NOON - timedelta(minutes=60)) is None


def test_the_boundary_of_a_day_is_nothing_to_an_idle_policy() -> None:
    assert find_reason(IDLE, NOON - timedelta(minutes=59), now=NOON) is None


def test_half_a_minute_is_an_idle_time() -> None:
    policy = SessionResetPolicy(mode="idle", idle_minutes=0.5)
    assert find_reason(policy, NOON - timedelta(seconds=30)) is None
    assert find_reason(policy, NOON - timedelta(seconds=30) - TICK) == "idle"


def test_an_idle_time_without_end_never_comes() -> None:
    policy = SessionResetPolicy(mode="idle", idle_minutes=10**30)
    assert find_reason(policy, datetime.fromisoformat("0001-01-01")) is None


# Daily


@pytest.mark.requirement("store:policy-table")
def test_a_session_from_before_the_hour_is_reset() -> None:
    assert find_reason(DAILY, local(3, 10, 3, 59, 59)) == "daily"


@pytest.mark.requirement("store:policy-table")
def test_a_session_from_the_hour_itself_is_not_reset() -> None:
    assert find_reason(DAILY, local(3, 10, 4)) is None


@pytest.mark.requirement("store:policy-table")
def test_before_the_hour_the_boundary_is_that_of_yesterday() -> None:
    now = local(3, 10, 3, 59, 59)
    yesterday = local(3, 9, 4)
    assert find_reason(DAILY, yesterday, now) is None
    assert find_reason(DAILY, yesterday - TICK, now) == "daily"


@pytest.mark.requirement("store:policy-table")
def test_at_the_hour_the_boundary_is_that_of_today() -> None:
    at = local(3, 10, 4)
    assert find_reason(DAILY, at - TICK, at) == "daily"
    assert find_reason(DAILY, at - TICK, at - TICK) is None


def test_midnight_is_an_hour() -> None:
    policy = SessionResetPolicy(mode="daily", at_hour=0)
    midnight = local(3, 10)
    assert find_reason(policy, midnight - TICK, midnight) == "daily"
    assert find_reason(policy, midnight, midnight) is None


def test_an_idle_time_is_nothing_to_a_daily_policy() -> None:
    assert find_reason(DAILY, NOON - timedelta(hours=7)) is None


# Both


@pytest.mark.requirement("store:policy-table")
def test_idle_is_the_reason_where_both_are() -> None:
    assert find_reason(BOTH, NOON - timedelta(days=2)) == "idle"


@pytest.mark.requirement("store:policy-table")
def test_daily_is_the_reason_where_the_session_was_not_idle() -> None:
    at = local(3, 10, 4, 10)
    assert find_reason(BOTH, at - timedelta(minutes=20), at) == "daily"


def test_neither_is_none() -> None:
    assert find_reason(BOTH, NOON - timedelta(minutes=60)) is None


# What keeps a session


@pytest.mark.requirement("store:policy-table")
@pytest.mark.parametrize("policy", [IDLE, DAILY, BOTH], ids=["idle", "daily", "both"])
def test_a_time_in_the_future_never_resets(policy: SessionResetPolicy) -> None:
    assert find_reason(policy, NOON + timedelta(days=2)) is None


@pytest.mark.requirement("store:policy-table")
def test_a_process_at_work_keeps_a_session() -> None:
    assert find_reason(BOTH, NOON - timedelta(days=9), active=lambda _: True) is None


def test_a_process_that_has_ended_keeps_none() -> None:
    assert find_reason(BOTH, NOON - timedelta(days=9), active=lambda _: False) == "idle"


@pytest.mark.requirement("store:policy-table")
def test_processes_that_cannot_be_asked_keep_a_session() -> None:
    assert find_reason(BOTH, NOON - timedelta(days=9), active=fail_process_check) is None


def test_processes_are_asked_by_session_key_and_only_where_it_matters() -> None:
    asked: list[str] = []
    find_reason(IDLE, NOON, active=lambda key: bool(asked.append(key)))
    assert asked == []
    find_reason(IDLE, NOON - timedelta(days=1), active=lambda key: bool(asked.append(key)))
    assert asked == ["agent:main:telegram:dm:42"]


def test_a_time_with_a_zone_is_compared_all_the_same() -> None:
    kept = entry(NOON)
    kept.updated_at = (NOON - timedelta(days=9)).astimezone(timezone.utc)
    assert find_reset_reason(kept, IDLE, NOON) == "idle"
    assert is_prunable(kept, 5, NOON.astimezone())


# Where the clock is changed


def test_an_hour_that_is_skipped_resets_at_the_first_moment_after() -> None:
    policy = SessionResetPolicy(mode="daily", at_hour=2)
    before = local(3, 29, 1, 59)
    assert find_reason(policy, before, local(3, 29, 3)) == "daily"


def test_an_hour_that_comes_twice_resets_once() -> None:
    policy = SessionResetPolicy(mode="daily", at_hour=2)
    said = local(10, 25, 2, 30)
    assert find_reason(policy, said, local(10, 25, 2, 10, fold=1)) is None


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock is set forward on 29 March at 2:00 and back on 25 October at 3:00."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.requirement("store:clock-change")
@pytest.mark.usefixtures("berlin")
def test_an_hour_that_is_skipped_is_no_idle_time() -> None:
    said = local(3, 29, 1, 59)
    assert find_reason(IDLE, said, local(3, 29, 3, 0, 30)) is None
    assert find_reason(IDLE, said, local(3, 29, 3, 59)) is None
    assert find_reason(IDLE, said, local(3, 29, 3, 59) + TICK) == "idle"


@pytest.mark.requirement("store:clock-change")
@pytest.mark.usefixtures("berlin")
def test_an_hour_that_comes_twice_is_idle_time_twice() -> None:
    said = local(10, 25, 1, 59)
    assert find_reason(IDLE, said, local(10, 25, 2, 59)) is None
    assert find_reason(IDLE, said, local(10, 25, 2, 0, fold=1)) == "idle"


@pytest.mark.requirement("store:clock-change")
@pytest.mark.usefixtures("berlin")
def test_what_was_said_in_an_hour_that_comes_twice_ends_no_session_early() -> None:
    said = local(10, 25, 2, 30)  # which of both it was is not stored
    assert find_reason(IDLE, said, local(10, 25, 2, 40)) is None
    assert find_reason(IDLE, said, local(10, 25, 3, 30)) is None
    assert find_reason(IDLE, said, local(10, 25, 3, 30) + TICK) == "idle"


# Resuming


def is_resumed(policy: SessionResetPolicy, freshness_s: float = 3600, **fields: Any) -> bool:
    fields = {"resume_pending": True, "updated_at": NOON - timedelta(hours=2)} | fields
    return is_resume_expired(entry(**fields), policy, NOON, freshness_s)


def test_a_session_that_waited_too_long_is_not_resumed() -> None:
    assert is_resumed(DAILY, last_resume_marked_at=NOON - timedelta(hours=1) - TICK)


def test_a_session_is_resumed_at_the_end_of_its_window() -> None:
    assert not is_resumed(DAILY, last_resume_marked_at=NOON - timedelta(hours=1))


def test_without_a_mark_the_last_message_counts() -> None:
    assert is_resumed(DAILY)
    assert not is_resumed(DAILY, updated_at=NOON - timedelta(hours=1))


def test_a_session_is_always_resumed_where_nothing_resets() -> None:
    assert not is_resumed(SessionResetPolicy())


def test_an_unknown_mode_always_resumes() -> None:
    assert not is_resumed(SessionResetPolicy.from_dict({"mode": "weekly"}))


@pytest.mark.parametrize("freshness_s", [0, -1])
def test_no_freshness_always_resumes(freshness_s: float) -> None:
    assert not is_resumed(DAILY, freshness_s)


def test_only_what_waits_is_too_late() -> None:
    assert not is_resumed(DAILY, resume_pending=False)


# Pruning


def test_an_entry_is_dropped_after_its_days() -> None:
    assert is_prunable(entry(NOON - timedelta(days=90) - TICK), 90, NOON)


def test_an_entry_is_kept_on_its_last_day() -> None:
    assert not is_prunable(entry(NOON - timedelta(days=90)), 90, NOON)


def test_the_age_of_an_entry_is_that_of_its_last_message() -> None:
    assert not is_prunable(entry(NOON), 1, NOON)


@pytest.mark.parametrize("days", [None, 0, -1])
def test_no_days_drop_nothing(days: int | None) -> None:
    assert not is_prunable(entry(NOON - timedelta(days=999)), days, NOON)


def test_a_suspended_entry_is_kept() -> None:
    assert not is_prunable(entry(NOON - timedelta(days=999), suspended=True), 90, NOON)


def test_an_entry_with_a_process_at_work_is_kept() -> None:
    old = entry(NOON - timedelta(days=999))
    assert not is_prunable(old, 90, NOON, lambda key: key == old.session_key)
    assert is_prunable(old, 90, NOON, lambda key: key == old.session_id)


def test_an_entry_whose_processes_cannot_be_asked_is_kept() -> None:
    assert not is_prunable(entry(NOON - timedelta(days=999)), 90, NOON, fail_process_check)


def test_more_days_than_a_calendar_has_drop_nothing() -> None:
    assert not is_prunable(entry(datetime.fromisoformat("0001-01-01")), 10**30, NOON)
