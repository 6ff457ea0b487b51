"""What a model reads of each kind of error: what is wrong, and what to call next."""

from __future__ import annotations

import pytest

from mcp_serve.errors import explain_error
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
from tests.serve.planted import PLANTED, get_secret

NEXT = {
    Changed: "; read again and plan anew.",
    Busy: "; try the same call again in a few seconds.",
    StorageFull: "; free some room on that disk, then try again.",
    Corrupt: "; call sessions_stats for what is wrong with the home.",
    Denied: ".",
    InvalidInput: ".",
    NotFound: ".",
    Unsupported: ".",
}


@pytest.mark.requirement("serving:errors")
@pytest.mark.parametrize("kind", NEXT)
def test_each_says_what_is_wrong_and_what_to_call(kind):
    assert explain_error(kind("it is so")) == f"it is so{NEXT[kind]}"


@pytest.mark.requirement("serving:errors")
def test_what_is_unknown_comes_with_five_that_are_near():
    near = [f"s{number}" for number in range(9)]
    assert explain_error(NotFound("no session 's'", nearest=near)) == (
        "no session 's'. Nearest: s0, s1, s2, s3, s4."
    )


@pytest.mark.requirement("serving:errors")
def test_a_title_that_is_taken_says_who_has_it():
    assert "s7" in explain_error(TitleTaken("The plan", "s7"))


@pytest.mark.requirement("serving:errors")
@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), RuntimeError("SELECT 1")])
def test_of_a_defect_nothing_is_said(error):
    assert explain_error(error) is None


@pytest.mark.requirement("serving:errors")
def test_no_error_says_a_secret_or_much():
    said = explain_error(InvalidInput(f"{PLANTED['github']} is none. " + "x" * 5_000))
    assert get_secret(PLANTED["github"]) not in said
    assert len(said) < 700
