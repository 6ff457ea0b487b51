"""The schema of a database: its migrations, and the home that an address names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg

from session_core.errors import InvalidInput, Unsupported

DEFAULT_SCHEMA = "mcp_sessions"
DEFAULT_HOME = "main"
LEAST_VERSION = 150_000
"""PostgreSQL 15: views that check the rights of their caller."""

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_MIGRATION = re.compile(r"(\d{4})_(\w+)\.sql")
_MIGRATION_PACKAGE = "session_core.state.postgres.migrations"

_CREATE_RECORDS = """
CREATE TABLE IF NOT EXISTS migrations (
    number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
)
"""


@dataclass(frozen=True, slots=True)
class HomeAddress:
    """Where a home is: the database, the schema with its tables, and its name."""

    conninfo: str
    home: str = DEFAULT_HOME
    schema: str = DEFAULT_SCHEMA


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of the schema."""

    number: int
    name: str
    script: str


def parse_address(address: str) -> HomeAddress:
    """Return the parts of `postgresql://…?home=NAME&schema=NAME`.

    Raises:
        InvalidInput: it is no such address. The message never repeats it: it may have a password.
    """
    if not isinstance(address, str) or not address.startswith(("postgresql://", "postgres://")):
        raise InvalidInput("the address of a home must begin with postgresql://")
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    home = options.pop("home", DEFAULT_HOME)
    schema = options.pop("schema", DEFAULT_SCHEMA)
    if not home or "\0" in home:
        raise InvalidInput("the name of a home must not be empty; give home=NAME")
    if not _NAME.fullmatch(schema):
        raise InvalidInput(
            f"schema must be a name of small letters, digits and _, got {schema!r:.40}"
        )
    conninfo = urlunsplit(parts._replace(query=urlencode(options)))
    return HomeAddress(conninfo, home, schema)


def list_migrations() -> list[Migration]:
    """Return all migrations in order."""
    migrations = []
    for file in files(_MIGRATION_PACKAGE).iterdir():
        match = _MIGRATION.fullmatch(file.name)
        if match:
            script = file.read_text(encoding="utf-8")
            migrations.append(Migration(int(match[1]), match[2], script))
    return sorted(migrations, key=lambda migration: migration.number)


def migrate_schema(address: str) -> list[int]:
    """Apply the pending migrations of a database, each in a transaction; return their numbers.

    Raises:
        Unsupported: the server is older than PostgreSQL 15.
    """
    place = parse_address(address)
    with psycopg.connect(place.conninfo, autocommit=True) as connection:
        if connection.info.server_version < LEAST_VERSION:
            raise Unsupported("the server must be PostgreSQL 15 or later; upgrade it")
        applied = []
        for migration in list_migrations():
            with connection.transaction():
                if _apply_migration(connection, place.schema, migration):
                    applied.append(migration.number)
        return applied


def _apply_migration(
    connection: psycopg.Connection[Any], schema: str, migration: Migration
) -> bool:
    # The lock ends with the transaction, so it also works through a pooler.
    run = [
        f"SELECT pg_advisory_xact_lock(hashtext('migrate {schema}'))",
        f"CREATE SCHEMA IF NOT EXISTS {schema}",
        f"SET LOCAL search_path = {schema}",
        _CREATE_RECORDS,
    ]
    for statement in run:
        connection.execute(cast("Any", statement))
    found = connection.execute("SELECT 1 FROM migrations WHERE number = %s", (migration.number,))
    if found.fetchone() is not None:
        return False
    connection.execute(cast("Any", migration.script))
    connection.execute(
        "INSERT INTO migrations (number, name) VALUES (%s, %s)", (migration.number, migration.name)
    )
    return True


def list_pending(applied: Sequence[int]) -> list[Migration]:
    """Return the migrations that a database lacks."""
    return [migration for migration in list_migrations() if migration.number not in applied]
