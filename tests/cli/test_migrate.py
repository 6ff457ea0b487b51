"""`migrate`: the schema of a home in PostgreSQL, and homes that need no migration."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from session_core import open_home
from tests import postgres_server
from tests.cli.command_user import CommandUser


@pytest.fixture
def person(forks: Any, tmp_path: Any) -> CommandUser:
    return CommandUser(forks, tmp_path, tmp_path / "no_home")


@pytest.fixture
def address() -> str:
    """Return the address of a schema that only this test has."""
    return f"{postgres_server.get_owner_address()}&schema=t{uuid.uuid4().hex[:12]}"


def test_migrate_applies_each_migration_once(person: CommandUser, address: str) -> None:
    result = person.run("migrate", "--home", address)
    assert (result.code, result.out.startswith("Applied: 0001 home, 0002 ledger")) == (0, True)
    result = person.run("migrate", "--home", address, "--json")
    assert json.loads(result.out) == {"applied": []}
    assert "up to date" in person.run("migrate", "--home", address).out
    with open_home(address) as home:
        home.db.create_session("s", "cli")


def test_home_in_folder_needs_no_migration(person: CommandUser) -> None:
    result = person.run("migrate")
    assert (result.code, "needs no migration" in result.out) == (0, True)


def test_failed_migration_shows_no_password(person: CommandUser) -> None:
    for address, code in (
        ("postgresql://u:secret@127.0.0.1:1/d", 4),
        ("postgresql://u:secret@h/d?no_such_option=1", 2),
        ("mysql://u:secret@h/d", 2),
    ):
        result = person.run("migrate", "--home", address)
        assert result.code == code
        assert "secret" not in result.out + result.err
