"""Times in arguments. The error for an invalid argument names it and the valid values."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from mcp_serve.arguments import parse_time, parse_time_range
from session_core import InvalidInput

pytestmark = pytest.mark.anyio

# Two days after the clocks of Lisbon went back, so that the days before have 25 and 24 hours.
NOW = datetime.fromisoformat("2026-10-27T15:30:00+00:00").timestamp()
DAYS = [
    ("today", "2026-10-27T00:00:00+00:00", "2026-10-28T00:00:00+00:00"),
    ("Yesterday", "2026-10-26T00:00:00+00:00", "2026-10-27T00:00:00+00:00"),
    ("1 day ago", "2026-10-26T00:00:00+00:00", "2026-10-27T00:00:00+00:00"),
    ("2 days ago", "2026-10-25T00:00:00+01:00", "2026-10-26T00:00:00+00:00"),
    (" 3  Days Ago", "2026-10-24T00:00:00+01:00", "2026-10-25T00:00:00+01:00"),
    ("last week", "2026-10-20T00:00:00+01:00", "2026-10-21T00:00:00+01:00"),
    ("last month", "2026-09-27T00:00:00+01:00", "2026-09-28T00:00:00+01:00"),
    ("2026-10-01", "2026-10-01T00:00:00+00:00", "2026-10-02T00:00:00+00:00"),
    ("2026-10-01T08:00", "2026-10-01T08:00:00+00:00", "2026-10-01T08:00:00+00:00"),
    ("2026-10-01T08:00+02:00", "2026-10-01T06:00:00+00:00", "2026-10-01T06:00:00+00:00"),
    ("12h", "2026-10-27T03:30:00+00:00", "2026-10-27T03:30:00+00:00"),
]


@pytest.fixture(name="lisbon")
def _lisbon(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Lisbon")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("lisbon")
@pytest.mark.requirement("serving:arguments")
@pytest.mark.parametrize(("text", "begin", "end"), DAYS)
def test_days_have_begin_and_end(text, begin, end):
    expected = tuple(datetime.fromisoformat(at).timestamp() for at in (begin, end))
    assert parse_time_range(text, text, NOW) == expected


@pytest.mark.usefixtures("lisbon")
def test_last_month_ends_with_shorter_month():
    now = datetime.fromisoformat("2026-03-31T12:00:00+01:00").timestamp()
    expected = datetime.fromisoformat("2026-02-28T00:00:00+00:00").timestamp()
    assert parse_time("since", "last month", now) == expected
    january = datetime.fromisoformat("2026-01-05T12:00:00+00:00").timestamp()
    december = datetime.fromisoformat("2025-12-05T00:00:00+00:00").timestamp()
    assert parse_time("since", "last month", january) == december


@pytest.mark.parametrize("text", ["tomorrow", "last year", "999999 days ago", "2026-13-01", ""])
def test_unknown_times_are_refused(text):
    with pytest.raises(InvalidInput, match="is not a valid time"):
        parse_time("since", text, NOW)


WRONG = [
    ("sessions_list", "limit", "20", "limit must be an integer."),
    ("sessions_list", "limit", 2.5, "limit must be an integer."),
    ("sessions_list", "limit", True, "limit must be an integer."),
    ("sessions_list", "query", 5, "query must be a string."),
    ("sessions_list", "query", "x" * 2001, "query must have at most 2,000 characters."),
    ("sessions_stats", "deep", "yes", "deep must be true or false."),
    ("sessions_stats", "deep", 1, "deep must be true or false."),
    ("events_wait", "timeout_s", "5", "timeout_s must be a number."),
    ("events_wait", "timeout_s", 51, "timeout_s must be <= 50."),
    ("events_wait", "timeout_s", -1, "timeout_s must be >= 0."),
    ("sessions_prune", "older_than_days", -1, "older_than_days must be >= 0."),
    ("sessions_prune", "sessions", {"a": 1}, "sessions must be a list of strings."),
    ("sessions_prune", "sessions", [7], "sessions.0 must be a string."),
    ("sessions_edit", "sessions", [""], "sessions.0 must have at least 1 character."),
    ("sessions_edit", "title", "x", "sessions is required."),
    ("sessions_read", "limit", 5, "session is required."),
    ("sessions_read", "around", "7", "around must be an integer."),
    ("sessions_read", "max_chars", 999, "max_chars must be >= 1000."),
    ("sessions_restore", "limit", 101, "limit must be <= 100."),
]


@pytest.mark.requirement("serving:arguments")
@pytest.mark.parametrize(("tool", "name", "value", "text"), WRONG)
async def test_invalid_value_error_is_readable(refused, tool, name, value, text):
    assert await refused(tool, **{name: value}) == text


@pytest.mark.requirement("serving:arguments")
async def test_several_invalid_arguments_are_listed(refused):
    text = await refused("sessions_list", limit=0, min_messages="3", stauts="all")
    assert text.startswith(
        "min_messages must be an integer. limit must be >= 1. unknown argument 'stauts'"
    )


@pytest.mark.requirement("serving:arguments")
async def test_integral_float_is_accepted_as_integer(call):
    assert (await call("sessions_list", limit=5.0))["sessions"] == []


@pytest.mark.requirement("serving:arguments")
async def test_read_rejects_two_positions(refused):
    text = await refused("sessions_read", session="x", before=1, after=2)
    assert "at most one of before, after and around" in text
