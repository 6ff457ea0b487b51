"""The verbs of the command on a home in PostgreSQL, which `--home` names by its address."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from session_core import open_home
from session_core.state.postgres.migrations.runner import migrate_schema
from tests import postgres_server
from tests.cli.command_user import CommandUser
from tests.postgres_home import get_home_address
from tests.postgres_server import RUNTIME_ROLE
from tests.thorough import mark_thorough

PASSWORD = "correct-horse"
ROLE = "with_password"


@pytest.fixture(name="person")
def _person(forks: Any, tmp_path: Path) -> CommandUser:
    return CommandUser(forks, tmp_path, tmp_path / "no_home")


@pytest.fixture(name="address")
def _address(tmp_path: Path) -> str:
    """Return the address of a home with a new session and two old ones."""
    address = get_home_address(tmp_path)
    create = {"source": "cli", "started_at": 1.6e9}
    with open_home(address) as home:
        home.db.append_message("new", "user", "when does the ferry go", create={"source": "cli"})
        for session in ("old1", "old2"):
            home.db.append_message(session, "user", "x" * 50, timestamp=1.6e9, create=create)
            home.db.end_session(session, "user_exit")
    return address


@pytest.fixture(name="role_address")
def _role_address(tmp_path: Path) -> Iterator[str]:
    """Return the address of a home for a role that needs its password."""
    address = postgres_server.get_owner_address()
    rules = Path(postgres_server.get_folder(), "data", "pg_hba.conf")
    before = rules.read_bytes()
    rules.write_bytes(f"local all {ROLE} scram-sha-256\n".encode() + before)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
        connection.execute(f"GRANT {RUNTIME_ROLE} TO {ROLE}")
        connection.execute("SELECT pg_reload_conf()")
        yield get_home_address(tmp_path).replace(f"{RUNTIME_ROLE}@", f"{ROLE}@")
        rules.write_bytes(before)
        connection.execute("SELECT pg_reload_conf()")
        connection.execute(f"DROP ROLE {ROLE}")


def test_reading_verbs_read_address(person: CommandUser, address: str) -> None:
    def read(*words: str) -> Any:
        result = person.run(*words, "--home", address, "--json")
        assert (result.code, result.err) == (0, "")
        return json.loads(result.out)

    listed = [row["id"] for row in read("list")["sessions"]]
    assert (listed[0], sorted(listed)) == ("new", ["new", "old1", "old2"])
    assert read("show", "new")["messages"][0]["text"] == "when does the ferry go"
    assert [hit["session_id"] for hit in read("search", "ferry")["hits"]] == ["new"]
    assert read("stats")["sessions"]["total"] == 3
    assert person.run("list", MCP_SESSIONS_HOME=address).code == 0


def test_changing_verbs_change_address(person: CommandUser, address: str) -> None:
    def change(*words: str) -> Any:
        result = person.run(*words, "--home", address, "--json")
        assert result.code == 0, result.err
        return json.loads(result.out)

    pruned = change("prune", "--yes")
    assert pruned["removed"] == 2
    assert change("restore", pruned["batch"], "--yes")["restored"] == 2
    assert change("edit", "new", "--title", "Ferry", "--yes")["sessions"][0]["title"] == "Ferry"
    assert len(change("log")["lines"]) == 3
    exported = person.run("export", "--home", address)
    (person.folder / "all.jsonl").write_text(exported.out)
    other = f"{address}-other"
    imported = person.run("import", "all.jsonl", "--home", other, "--yes", "--json")
    assert json.loads(imported.out)["sessions"] == 3


def test_printed_command_has_no_password(person: CommandUser, address: str) -> None:
    # This server asks for no password.
    secret = address.replace("@", ":secret@", 1)
    for words in (["prune", "--yes"], ["stats"]):
        result = person.run(*words, "--home", secret)
        assert result.code == 0
        assert "secret" not in result.out + result.err
    result = person.run(MCP_SESSIONS_HOME=secret)
    assert "secret" not in result.out + result.err


def test_install_refuses_address_with_password(person: CommandUser, address: str) -> None:
    result = person.run("install", "codex", "--home", address.replace("@", ":secret@", 1))
    assert (result.code, "password file" in result.err) == (1, True)
    assert "secret" not in result.out + result.err
    result = person.run("install", "codex", "--yes", "--home", address)
    assert result.code == 0
    assert address in (person.folder / ".codex" / "config.toml").read_text()


def test_wrong_password_is_refused(person: CommandUser, role_address: str) -> None:
    for word in ("wrong-horse", ""):
        result = person.run("list", "--home", role_address, PGPASSWORD=word)
        assert (result.code, "check the user, the password" in result.err) == (1, True)
        assert not word or word not in result.out + result.err


def test_password_comes_from_usual_places(person: CommandUser, role_address: str) -> None:
    passwords = person.folder / "passwords"
    passwords.write_text(f"*:*:*:{ROLE}:{PASSWORD}\n")
    passwords.chmod(0o600)
    services = person.folder / "services"
    host = postgres_server.get_folder()
    services.write_text(f"[fleet]\nhost={host}\ndbname=postgres\nuser={ROLE}\n")
    by_service = f"postgresql://?service=fleet&home={quote(str(person.folder))}"
    files = {"PGPASSFILE": str(passwords), "PGSERVICEFILE": str(services)}
    with open_home(get_home_address(person.folder)) as home:
        home.db.create_session("s", "cli")
    for address, env in (
        (role_address, {"PGPASSWORD": PASSWORD}),
        (role_address, files),
        (by_service, files),
    ):
        result = person.run("list", "--home", address, **env)
        assert (result.code, result.err) == (0, "")
        assert PASSWORD not in result.out


@pytest.mark.parametrize(
    ("address", "code", "text"),
    [
        ("postgresql://u:secret@127.0.0.1:1/d", 4, "does not answer; check host, port"),
        ("postgresql://u:secret@h/d?no_such_option=1", 2, "check its options"),
        ("mysql://u:secret@h/d", 1, "postgresql://"),
    ],
)
def test_unusable_address_is_reported(
    person: CommandUser, address: str, code: int, text: str
) -> None:
    for verb in (["list"], ["prune", "--yes"], ["watch"]):
        result = person.run(*verb, "--home", address)
        assert (result.code, text in result.err) == (code, True), result.err
        assert "secret" not in result.out + result.err


def test_schema_of_other_version_is_reported(person: CommandUser) -> None:
    schema = f"t{uuid.uuid4().hex[:12]}"
    address = f"{postgres_server.get_owner_address()}&schema={schema}"
    result = person.run("list", "--home", address)
    assert (result.code, "run `mcp-sessions migrate`" in result.err) == (1, True)
    migrate_schema(address)
    with psycopg.connect(postgres_server.get_owner_address()) as connection:
        connection.execute(f"INSERT INTO {schema}.migrations VALUES (999, 'later')")  # noqa: S608 -- a name of the test
    result = person.run("list", "--home", address)
    assert (result.code, "install a newer mcp-sessions" in result.err) == (1, True)


def test_missing_home_is_named(person: CommandUser) -> None:
    address = f"{postgres_server.get_address()}&home={uuid.uuid4().hex}"
    for verb in (["list"], ["prune", "--yes"]):
        result = person.run(*verb, "--home", address)
        assert (result.code, "check home=NAME" in result.err) == (3, True)
    result = person.run("import", "none.jsonl", "--home", address, "--plan-only")
    assert result.code != 3


def find_checks(person: CommandUser, address: str, code: int, **env: str) -> dict[str, Any]:
    """Return the checks of `doctor` by their names."""
    result = person.run("doctor", "--home", address, "--json", **env)
    assert result.code == code, result.out + result.err
    return {check["about"]: check for check in json.loads(result.out)["checks"]}


def test_doctor_checks_server(person: CommandUser, address: str) -> None:
    checks = find_checks(person, address, 0)
    states = {about: check["state"] for about, check in checks.items()}
    names = ("home", "server", "role", "migrations", "clock", "pooler", "handshake")
    assert {name: states[name] for name in names} == dict.fromkeys(names, "ok")
    assert checks["pooler"]["pooling"] == "none"


@pytest.mark.thorough
def test_doctor_warns_of_exempt_role(person: CommandUser, address: str) -> None:
    owner = f"{postgres_server.get_owner_address()}&{address.partition('&')[2]}"
    role = find_checks(person, owner.replace("@", ":secret@", 1), 0)["role"]
    assert (role["state"], "migrate" in role["next"]) == ("warning", True)


@pytest.mark.parametrize(
    ("address", "check", "advice"),
    [
        mark_thorough(("postgresql://u:secret@127.0.0.1:1/d", "server", "start the server")),
        mark_thorough(("postgresql://u:secret@h/d?no_such_option=1", "server", "fix the address")),
        ("SCHEMA", "migrations", "mcp-sessions migrate --home"),
    ],
)
def test_doctor_names_fix(person: CommandUser, address: str, check: str, advice: str) -> None:
    if address == "SCHEMA":
        address = f"{postgres_server.get_owner_address()}&schema=t{uuid.uuid4().hex[:12]}"
    result = person.run("doctor", "--home", address, "--json", "--timeout", "20")
    found = {found["about"]: found for found in json.loads(result.out)["checks"]}
    assert (result.code, found[check]["state"]) == (1, "failure")
    assert found[check]["next"].startswith(advice)
    assert "secret" not in result.out + result.err
