"""The runner of the migrations, which checks and updates the schema of a database.

The migrations are the numbered SQL files of this package, to which files are only added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, cast

import psycopg
from psycopg import sql

from session_core.errors import Denied, InvalidInput, StorageError, Unsupported
from session_core.state.postgres.address import connect, parse_address

_MIGRATION = re.compile(r"(\d{4})_(\w+)\.sql")
_MIGRATION_PACKAGE = "session_core.state.postgres.migrations"

_CREATE_RECORDS = """
CREATE TABLE IF NOT EXISTS migrations (
    number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
)
"""

_IS_EXEMPT = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = %s"
_LIST_TABLES = """
SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'v')
"""
_LIST_GRANTED = """
SELECT DISTINCT grantee.rolname FROM pg_class AS c, aclexplode(c.relacl) AS granted
JOIN pg_roles AS grantee ON grantee.oid = granted.grantee
WHERE c.oid = to_regclass(%s) AND granted.grantee <> c.relowner
    AND granted.privilege_type = 'INSERT'
"""
_GRANTS = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role}",
)
_RIGHTS = {"migrations": "SELECT", "homes": "SELECT, INSERT, UPDATE"}


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of the schema."""

    number: int
    name: str
    script: str


def list_migrations() -> list[Migration]:
    """Return all migrations in order."""
    migrations = []
    for file in files(_MIGRATION_PACKAGE).iterdir():
        match = _MIGRATION.fullmatch(file.name)
        if match:
            script = file.read_text(encoding="utf-8")
            migrations.append(Migration(int(match[1]), match[2], script))
    return sorted(migrations, key=lambda migration: migration.number)


def prepare_schema(address: str, *, read_only: bool = False) -> None:
    """Check the server and the schema of an address.

    Pending migrations are applied if the address allows that.

    Raises:
        Busy: the server does not answer.
        Denied: the server refuses the connection.
        StorageError: the schema lacks migrations.
        Unsupported: the server is older than PostgreSQL 15, or a newer version of this program has
            migrated the schema.
    """
    place = parse_address(address)
    with connect(place) as connection:
        applied = read_applied(connection, place.schema)
    _refuse_newer(place.schema, applied)
    pending = list_pending(applied)
    if pending and place.migrates and not read_only:
        migrate_schema(address)
    elif pending:
        names = ", ".join(f"{migration.number:04} {migration.name}" for migration in pending)
        raise StorageError(
            f"the schema {place.schema} lacks migrations: {names}; "
            "run `mcp-sessions migrate` with the address, or add migrate=yes to it"
        )


def _refuse_newer(schema: str, applied: Sequence[int]) -> None:
    newer = find_newer(applied)
    if newer is not None:
        raise Unsupported(
            f"the schema {schema} has the migration {newer:04}, and this version of mcp-sessions "
            f"knows them up to {_get_newest():04}; install a newer mcp-sessions"
        )


def find_newer(applied: Sequence[int]) -> int | None:
    """Return the number of the newest migration if this version does not know it, else None."""
    newest = max(applied, default=0)
    return newest if newest > _get_newest() else None


def _get_newest() -> int:
    return max(migration.number for migration in list_migrations())


def migrate_schema(address: str, *, grant_to: str | None = None) -> list[Migration]:
    """Apply the pending migrations of a database, each in a transaction, and return them.

    The role `grant_to` gets the rights that a program needs to use the homes of the schema, and no
    other rights. Roles that have these rights already get them for new tables too.

    Raises:
        Busy: the server does not answer.
        Denied: the server refuses the connection, or the role may not create objects.
        InvalidInput: the role to grant to does not exist, or row security does not bind it.
        Unsupported: the server is older than PostgreSQL 15, or a newer version of this program has
            migrated the schema.
    """
    place = parse_address(address)
    applied = []
    with connect(place) as connection:
        if grant_to is not None:
            _check_runtime_role(connection, grant_to)
        _refuse_newer(place.schema, read_applied(connection, place.schema))
        try:
            for migration in list_migrations():
                with connection.transaction():
                    if _apply_migration(connection, place.schema, migration):
                        applied.append(migration)
            roles = {grant_to} if grant_to is not None else set()
            if applied or roles:
                with connection.transaction():
                    roles.update(_list_runtime_roles(connection, place.schema))
                    _grant_use(connection, place.schema, roles)
        except psycopg.errors.InsufficientPrivilege as error:
            raise Denied(
                f"the role may not create objects in schema {place.schema} or grant their use; "
                "migrate with the role that owns it"
            ) from error
    return applied


def _check_runtime_role(connection: psycopg.Connection[Any], role: str) -> None:
    row = connection.execute(_IS_EXEMPT, (role,)).fetchone()
    if row is None:
        raise InvalidInput(f"role {role!r:.80} does not exist; create it, then migrate again")
    if row[0]:
        raise InvalidInput(
            f"role {role!r:.80} is exempt from row security; grant to a role that is "
            "neither SUPERUSER nor BYPASSRLS"
        )


def _list_runtime_roles(connection: psycopg.Connection[Any], schema: str) -> list[str]:
    """Return the roles that may use the homes of a schema."""
    return [row[0] for row in connection.execute(_LIST_GRANTED, (f"{schema}.homes",))]


def _grant_use(connection: psycopg.Connection[Any], schema: str, roles: Iterable[str]) -> None:
    """Let roles change rows of the homes.

    The roles own nothing and may not delete a home.
    """
    tables = [row[0] for row in connection.execute(_LIST_TABLES, (schema,))]
    for role in sorted(roles):
        names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
        for statement in _GRANTS:
            connection.execute(sql.SQL(statement).format(**names))
        for table in tables:
            rights = _RIGHTS.get(table, "SELECT, INSERT, UPDATE, DELETE")
            statement = f"GRANT {rights} ON {{schema}}.{{table}} TO {{role}}"
            identifier = sql.Identifier(table)
            text = sql.SQL(cast("Any", statement)).format(**names, table=identifier)
            connection.execute(text)


def read_applied(connection: psycopg.Connection[Any], schema: str) -> list[int]:
    """Return the numbers of the migrations that a schema has."""
    table = f"{schema}.migrations"
    statement = f"SELECT number FROM {table}"  # noqa: S608 -- `parse_address` checks the name
    try:
        if connection.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
            return []
        return [row[0] for row in connection.execute(cast("Any", statement))]
    except psycopg.errors.InsufficientPrivilege as error:
        raise Denied(
            f"the role may not use schema {schema}; its owner runs "
            "`mcp-sessions migrate` with --grant and the name of the role"
        ) from error


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
    cursor = connection.execute("SELECT 1 FROM migrations WHERE number = %s", (migration.number,))
    if cursor.fetchone() is not None:
        return False
    connection.execute(cast("Any", migration.script))
    connection.execute(
        "INSERT INTO migrations (number, name) VALUES (%s, %s)", (migration.number, migration.name)
    )
    return True


def list_pending(applied: Sequence[int]) -> list[Migration]:
    """Return the migrations that a schema lacks.

    `applied` holds the numbers of its migrations.
    """
    return [migration for migration in list_migrations() if migration.number not in applied]
