"""`copy`: from one home to another, by path or address."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB, open_home
from tests.cli.command_user import CommandUser
from tests.homes import make_hermes_database
from tests.postgres_home import get_home_address


@pytest.fixture(name="person")
def _person(forks: Any, tmp_path: Path) -> CommandUser:
    with SessionDB(tmp_path / "a.db") as db:
        for number in range(3):
            db.append_message(f"s{number}", "user", f"hello {number}", create={"source": "cli"})
        db.set_session_title("s0", "Ferry")
    return CommandUser(forks, tmp_path, tmp_path / "no_home")


def test_copy_goes_to_address_and_back(person: CommandUser) -> None:
    address = get_home_address(person.folder)
    plan = person.run("copy", "a.db", address, "--plan-only", "--json")
    fields = json.loads(plan.out)
    assert (plan.code, fields["outcome"], fields["sessions"]) == (0, "planned", 3)
    with open_home(address) as home:
        assert home.db.admin.get_home_id() is None
    result = person.run("copy", "a.db", address, "--yes", "--json")
    assert (result.code, json.loads(result.out)["copied"]) == (0, 3)
    result = person.run("copy", address, "back.db", "--yes")
    assert (result.code, "3 copied" in result.out, "equal on both sides" in result.out) == (
        0,
        True,
        True,
    )
    listed = person.run("list", "--home", "back.db", "--json")
    assert sorted(row["id"] for row in json.loads(listed.out)["sessions"]) == ["s0", "s1", "s2"]


def test_copy_asks_and_names_what_differs(person: CommandUser) -> None:
    with SessionDB(person.folder / "b.db") as db:
        db.append_message("s1", "user", "of another", create={"source": "cli"})
        db.create_session("mine", "cli")
        db.set_session_title("mine", "Ferry")
    result = person.run("copy", "a.db", "b.db")
    assert (result.code, "pass --yes" in result.err) == (5, True)
    assert "s0" in result.out
    assert "title" in result.out
    result = person.run("copy", "a.db", "b.db", "--yes")
    assert (result.code, "s1" in result.out, "another session" in result.out) == (6, True, True)


def test_copy_leaves_removed_sessions_out(person: CommandUser) -> None:
    with SessionDB(person.folder / "a.db") as db:
        db.meta.set_value("key", "value")
    assert person.run("copy", "a.db", "b.db", "--yes").code == 0
    with SessionDB(person.folder / "b.db") as db:
        db.delete_session("s1")
    result = person.run("copy", "a.db", "b.db", "--yes")
    assert (result.code, "1 session removed from B" in result.out, "1 value" in result.out) == (
        0,
        True,
        True,
    )
    result = person.run("copy", "a.db", "b.db", "--yes", "--removed", "--json")
    assert (result.code, json.loads(result.out)["copied"]) == (0, 1)


def test_impossible_copy_is_refused(person: CommandUser) -> None:
    hermes = person.folder / ".hermes" / "state.db"
    hermes.parent.mkdir()
    make_hermes_database(hermes)
    down = "postgresql://u:secret@127.0.0.1:1/d"
    for words, code, text in (
        (("a.db", ".hermes"), 1, "Hermes home cannot be the target"),
        (("a.db", "a.db"), 2, "same home"),
        (("none.db", "b.db"), 3, "there is no home"),
        (("a.db", down), 4, "does not answer"),
        ((down, "b.db"), 4, "does not answer"),
        (("a.db", "mysql://u:secret@h/d"), 1, "postgresql://"),
    ):
        result = person.run("copy", *words, "--yes")
        assert (result.code, text in result.err) == (code, True), result.err
        assert "secret" not in result.out + result.err
    assert not (person.folder / "b.db").exists()
