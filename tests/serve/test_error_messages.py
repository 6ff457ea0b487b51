"""The message of each kind of error: the problem and the next call."""

from __future__ import annotations

import pytest

from mcp_serve.error_messages import explain_error
from session_core import (
    Busy,
    Changed,
    Corrupt,
    Denied,
    InvalidInput,
    NotFound,
    StorageFull,
    TitleTaken,
    Unsupported,
)
from tests.serve.planted_secrets import PLANTED, get_secret

NEXT = {
    Changed: "; read again and make a new plan.",
    Busy: "; try the same call again in a few seconds.",
    StorageFull: "; free space on that disk, then try again.",
    Corrupt: "; call sessions_stats to see the damage.",
    Denied: ".",
    InvalidInput: ".",
    NotFound: ".",
    Unsupported: ".",
}


@pytest.mark.requirement("serving:errors")
@pytest.mark.parametrize("kind", NEXT)
def test_errors_name_cause_and_next_call(kind):
    assert explain_error(kind("it is so")) == f"it is so{NEXT[kind]}"


@pytest.mark.requirement("serving:errors")
def test_not_found_lists_five_nearest():
    near = [f"s{number}" for number in range(9)]
    assert explain_error(NotFound("no session 's'", nearest=near)) == (
        "no session 's'. Nearest: s0, s1, s2, s3, s4."
    )


@pytest.mark.requirement("serving:errors")
def test_taken_title_error_names_session():
    assert "s7" in explain_error(TitleTaken("The plan", "s7"))


@pytest.mark.requirement("serving:errors")
@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), RuntimeError("SELECT 1")])
def test_defect_is_not_explained(error):
    assert explain_error(error) is None


@pytest.mark.requirement("serving:errors")
def test_errors_are_short_without_secrets():
    text = explain_error(InvalidInput(f"{PLANTED['github']} is none. " + "x" * 5_000))
    assert get_secret(PLANTED["github"]) not in text
    assert len(text) < 700
