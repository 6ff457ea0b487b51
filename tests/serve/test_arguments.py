"""What is wrong with an argument is said by its name, with what it is to be, and nothing else."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.anyio

WRONG = [
    ("sessions_list", "limit", "20", "limit is a whole number."),
    ("sessions_list", "limit", 2.5, "limit is a whole number."),
    ("sessions_list", "limit", True, "limit is a whole number."),
    ("sessions_list", "query", 5, "query is a text."),
    ("sessions_list", "query", "x" * 2001, "query has at most 2,000 characters."),
    ("sessions_stats", "deep", "yes", "deep is true or false."),
    ("sessions_stats", "deep", 1, "deep is true or false."),
    ("events_wait", "timeout_s", "5", "timeout_s is a number."),
    ("events_wait", "timeout_s", 51, "timeout_s is at most 50."),
    ("events_wait", "timeout_s", -1, "timeout_s is at least 0."),
    ("sessions_prune", "older_than_days", -1, "older_than_days is at least 0."),
    ("sessions_prune", "sessions", {"a": 1}, "sessions is a list of texts."),
    ("sessions_prune", "sessions", [7], "sessions.0 is a text."),
    ("sessions_edit", "session", "", "session has at least 1 character."),
    ("sessions_edit", "title", "x", "session is required."),
    ("sessions_read", "limit", 5, "session is required."),
    ("sessions_read", "around", "7", "around is a whole number."),
    ("sessions_read", "max_chars", 999, "max_chars is at least 1000."),
    ("sessions_restore", "limit", 101, "limit is at most 100."),
]


@pytest.mark.requirement("serving:arguments")
@pytest.mark.parametrize(("tool", "name", "value", "said"), WRONG)
async def test_invalid_value_error_is_readable(refused, tool, name, value, said):
    assert await refused(tool, **{name: value}) == said


@pytest.mark.requirement("serving:arguments")
async def test_several_invalid_arguments_are_listed(refused):
    said = await refused("sessions_list", limit=0, min_messages="3", stauts="all")
    assert said.startswith("min_messages is a whole number. limit is at least 1. 'stauts' is no")


@pytest.mark.requirement("serving:arguments")
async def test_integral_float_is_accepted_as_integer(call):
    assert (await call("sessions_list", limit=5.0))["sessions"] == []


@pytest.mark.requirement("serving:arguments")
async def test_read_rejects_two_positions(refused):
    said = await refused("sessions_read", session="x", before=1, after=2)
    assert said == "give at most one of before, after and around."
