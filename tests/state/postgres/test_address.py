"""Addresses of PostgreSQL homes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from session_core import InvalidInput
from session_core.state.postgres.address import (
    HomeAddress,
    list_missing_timeouts,
    parse_address,
)


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("postgresql://db", HomeAddress("postgresql://db")),
        ("postgres://u@h:1/d", HomeAddress("postgres://u@h:1/d")),
        ("postgresql://h?migrate=yes", HomeAddress("postgresql://h", migrates=True)),
        (
            "postgresql://h/d?options=-c%20a%3D1",
            HomeAddress("postgresql://h/d?options=-c%20a%3D1"),
        ),
        (
            "postgresql://h/d?home=a%20b&sslmode=require&schema=other",
            HomeAddress("postgresql://h/d?sslmode=require", "a b", "other"),
        ),
    ],
)
def test_address_is_split(address: str, parsed: HomeAddress) -> None:
    assert parse_address(address) == parsed


@pytest.mark.parametrize(
    "address",
    [
        "/a/file.db",
        "mysql://u:secret@h",
        "postgresql://u:secret@h/d?home=",
        "postgresql://u:secret@h/d?schema=a;b",
        "postgresql://u:secret@h/d?migrate=perhaps",
        "postgresql://u:secret@h/d?no_such_option=1",
        "postgresql://u:secret@[h/d",
    ],
)
def test_invalid_address_is_refused_without_password(address: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_address(address)
    assert "secret" not in str(caught.value)


def test_timeouts_of_address_are_kept() -> None:
    missing = list_missing_timeouts(parse_address("postgresql://h?connect_timeout=2"))
    assert missing.keys() == list_missing_timeouts(HomeAddress("postgresql://h")).keys() - {
        "connect_timeout"
    }


def test_library_does_not_load_driver() -> None:
    code = "import sys, session_core; session_core.SessionDB; print('psycopg' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"
