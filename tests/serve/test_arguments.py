"""The error for an invalid argument names the argument and the valid values, nothing else."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.anyio

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
    ("sessions_edit", "session", "", "session must have at least 1 character."),
    ("sessions_edit", "title", "x", "session is required."),
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
