"""Addresses of PostgreSQL: homes that they open, refusals, and hidden passwords."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from session_core import (
    Busy,
    Denied,
    InvalidInput,
    SessionError,
    StorageError,
    Unsupported,
    aopen_home,
    open_home,
)
from session_core.maintenance import PlanRequest
from session_core.state import engines, migrate_home
from session_core.state.postgres import address as addresses
from tests import postgres_server
from tests.postgres_home import get_home_address
from tests.test_opened_home import CHAT, add_old_session, build_echo


def make_name() -> str:
    """Return a name that no other test of the server has."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def address(tmp_path: Path) -> str:
    """Return the address of a home that only this test has."""
    return get_home_address(tmp_path)


def test_address_opens_every_part(address: str) -> None:
    with open_home(address) as home:
        assert (home.path, home.db.folder, home.store.sessions_dir) == (None, None, None)
        assert home.runtime(build_echo).handle(CHAT, "hello").text == "you said hello"
        add_old_session(home)
        preview = home.maintenance.plan(PlanRequest("sessions", older_than_days=90))
        result = home.maintenance.apply(preview.plan)
        assert home.db.get_session("old") is None
        home.maintenance.restore(result.batch)
        entry = home.store.get_or_create_session(CHAT)
        assert home.compressor.is_due(entry.session_id) is False
    with pytest.raises(InvalidInput, match="closed"):
        _ = home.maintenance
    with open_home(address) as again:
        assert again.store.get_or_create_session(CHAT).session_id == entry.session_id
        assert again.db.get_session("old") is not None


def test_homes_of_one_schema_are_apart(address: str) -> None:
    with open_home(address) as one, open_home(f"{address}-other") as other:
        one.db.append_message("s", "user", "hi", create={"source": "cli"})
        one.store.get_or_create_session(CHAT)
        assert other.db.list_sessions().items == []
        assert other.store.load_entries() == {}


@pytest.mark.anyio
async def test_address_opens_for_coroutines(address: str) -> None:
    async with await aopen_home(address) as home:
        await home.db.append_message("s", "user", "hi", create={"source": "cli"})
        assert (await home.db.get_session("s"))["source"] == "cli"


def test_service_file_names_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    options = addresses.conninfo_to_dict(addresses.parse_address(address).conninfo)
    file = tmp_path / "services"
    names = options.keys() & {"host", "port", "user", "dbname"}
    lines = [f"{name}={options[name]}" for name in sorted(names)]
    file.write_text("\n".join(["[fleet]", *lines, "password=secret"]))
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    with open_home("postgresql://?service=fleet&home=by_service") as home:
        home.db.create_session("s", "cli")
        assert home.db.get_session("s") is not None


@pytest.mark.parametrize(
    ("place", "kind"),
    [("{user}:secret@/nowhere?host={host}", Denied), ("u:secret@127.0.0.1:1/d", Busy)],
)
def test_refused_connection_shows_no_password(
    address: str,
    place: str,
    kind: type[SessionError],
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = addresses.conninfo_to_dict(addresses.parse_address(address).conninfo)
    refused = "postgresql://" + place.format(**options)
    with pytest.raises(kind) as caught:
        open_home(refused)
    cause = caught.value.__cause__
    shown = [str(caught.value), repr(cause), caplog.text, repr(addresses.parse_address(refused))]
    assert "secret" not in " ".join(shown)


def test_pending_migrations_are_refused_or_applied() -> None:
    schema = f"{postgres_server.get_owner_address()}&schema={make_name()}"
    with pytest.raises(StorageError, match=r"0001 home.*mcp-sessions migrate"):
        open_home(schema)
    with open_home(f"{schema}&migrate=yes") as home:
        home.db.create_session("s", "cli")
    assert migrate_home(schema) == []
    with open_home(schema) as home:
        assert home.db.get_session("s") is not None


def test_migration_names_what_it_applied() -> None:
    names = migrate_home(f"{postgres_server.get_owner_address()}&schema={make_name()}")
    assert names[0] == "0001 home"
    with pytest.raises(InvalidInput, match="postgresql://"):
        migrate_home("/some/folder")


def test_missing_driver_names_extra(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(engines, "_MODULES", ("a_driver_that_is_missing",))
    with pytest.raises(Unsupported, match=r"mcp-sessions\[postgres\]"):
        open_home(address)


def test_state_folder_is_refused_for_address(address: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="omit state"):
        open_home(address, state=tmp_path)


def test_role_without_rights_is_denied(address: str) -> None:
    options = addresses.conninfo_to_dict(addresses.parse_address(address).conninfo)
    owner = postgres_server.get_owner_address()
    with addresses.psycopg.connect(owner, autocommit=True) as connection:
        role = make_name()
        connection.execute(f"CREATE ROLE {role} LOGIN")
    with pytest.raises(Denied, match="migrate with the role"):
        migrate_home(f"postgresql://{role}@/postgres?host={options['host']}&schema={make_name()}")
