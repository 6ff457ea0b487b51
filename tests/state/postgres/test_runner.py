"""Migrations of PostgreSQL homes."""

from __future__ import annotations

import psycopg
import pytest

from session_core import SessionDB, StorageError, Unsupported
from session_core.state.postgres.migrations import runner
from session_core.state.postgres.migrations.runner import migrate_schema
from session_core.state.postgres.session_db import PostgresDB
from tests import postgres_server


def test_migrations_are_numbered_without_gap() -> None:
    numbers = [migration.number for migration in runner.list_migrations()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_migration_is_applied_once() -> None:
    address = f"{postgres_server.get_owner_address()}&schema=once"
    numbers = [migration.number for migration in runner.list_migrations()]
    assert [migration.number for migration in migrate_schema(address)] == numbers
    assert migrate_schema(address) == []
    with psycopg.connect(postgres_server.get_owner_address()) as connection:
        rows = connection.execute("SELECT number FROM once.migrations ORDER BY number").fetchall()
    assert [row[0] for row in rows] == numbers


def test_schema_of_newer_program_is_refused() -> None:
    address = f"{postgres_server.get_owner_address()}&schema=newer"
    migrate_schema(address)
    with psycopg.connect(postgres_server.get_owner_address()) as connection:
        connection.execute("INSERT INTO newer.migrations VALUES (999, 'later')")
    for refused in (runner.prepare_schema, migrate_schema):
        with pytest.raises(Unsupported, match=r"0999.*install a newer mcp-sessions"):
            refused(address)


def test_failed_migration_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    address = postgres_server.get_owner_address()  # migrated before the migrations are replaced
    broken = runner.Migration(1, "broken", "CREATE TABLE half (id int); SELECT 1 / 0")
    monkeypatch.setattr(runner, "list_migrations", lambda: [broken])
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate_schema(f"{address}&schema=broken")
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT to_regnamespace('broken')").fetchone() == (None,)


def test_missing_schema_names_migrations() -> None:
    with PostgresDB(f"{postgres_server.get_address()}&schema=nowhere") as db:
        with pytest.raises(StorageError, match="migrations"):
            db.get_session("s")
        with pytest.raises(StorageError, match="migrations"):
            db.create_session("s", "cli")


@pytest.mark.parametrize(
    "table",
    ["sessions", "messages", "session_model_usage", "state_meta", "ms_session_state"],
)
def test_home_has_columns_of_sqlite_home(
    db: PostgresDB, tmp_path: pytest.TempPathFactory, table: str
) -> None:
    with SessionDB(f"{tmp_path}/own.db") as own:
        own.create_session("s", "cli")
        expected = own.rows.list_columns(table)
    db.create_session("s", "cli")
    assert db.rows.list_columns(table) == expected
