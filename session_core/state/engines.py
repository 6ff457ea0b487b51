"""The choice of the engine for an address, and the report on its server.

Only this module imports the PostgreSQL engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from session_core.errors import InvalidInput, Unsupported
from session_core.home import DATABASE_SCHEMES, DatabaseAddress, find_scheme
from session_core.state.protocol import StateDatabase

__all__ = [
    "DatabaseAddress",
    "Pooling",
    "ServerReport",
    "inspect_server",
    "is_postgres_address",
    "migrate_home",
    "open_postgres",
]

_MODULES = ("psycopg", "psycopg_pool")

Pooling = Literal["none", "session", "transaction", "statement"]
"""The mode of a pooler in front of the server: how long it lends a connection."""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The state of a database server, as one program sees it."""

    version: str
    role: str
    is_exempt: bool
    """Whether row security does not bind the role, so that only the code keeps homes apart."""
    can_write: bool
    """Whether the role may change homes, which needs an existing schema."""
    is_standby: bool
    """Whether the server takes no changes."""
    encoding: str
    pending: tuple[str, ...]
    """The migrations that the schema lacks."""
    newer: int | None
    """A migration that only a newer version of this program knows."""
    skew_s: float
    """The seconds by which the clock of the server is ahead of this machine."""
    round_trip_s: float
    pooling: Pooling


def is_postgres_address(text: object) -> bool:
    """Return True if a text is the address of a home in PostgreSQL."""
    return isinstance(text, str) and find_scheme(text) in DATABASE_SCHEMES


def open_postgres(address: str, **options: Any) -> StateDatabase:
    """Open the home that an address names, after checking its server and its schema.

    Raises:
        Busy: the server does not answer.
        Denied: the server refuses the connection.
        InvalidInput: the address is not valid.
        StorageError: the schema lacks migrations.
        Unsupported: psycopg is not installed, or the server is older than PostgreSQL 15.
    """
    _load_migration_runner().prepare_schema(address, read_only=bool(options.get("read_only")))
    from session_core.state.postgres.session_db import PostgresDB  # noqa: PLC0415 -- psycopg is optional

    return PostgresDB(address, **options)


def migrate_home(address: str, *, grant_to: str | None = None) -> list[str]:
    """Apply the pending migrations of the schema of `address` and return their names.

    Each migration is one transaction. Programs that migrate at the same time apply each migration
    once. All homes of a schema share it.

    Args:
        address: the address of a home, with a role that may create objects in the database.
        grant_to: an existing role for programs. It may then read and change rows of the homes, and
            owns nothing. Later migrations keep its rights.

    Raises:
        Busy: the server does not answer.
        Denied: the server refuses the connection, or the role may not create objects.
        InvalidInput: it is not the address of a home in PostgreSQL, or the role to grant to does
            not exist or is exempt from row-level security.
        Unsupported: psycopg is not installed, or the server is older than PostgreSQL 15.
    """
    if not is_postgres_address(address):
        raise InvalidInput("the address of a home to migrate must begin with postgresql://")
    applied = _load_migration_runner().migrate_schema(address, grant_to=grant_to)
    return [f"{migration.number:04} {migration.name}" for migration in applied]


def inspect_server(address: str) -> ServerReport:
    """Report the state of the server of an address, without a change.

    Raises:
        Busy: the server does not answer.
        Denied: the server refuses the connection.
        InvalidInput: the address is not valid.
        Unsupported: psycopg is not installed, or the server is older than PostgreSQL 15.
    """
    _load_migration_runner()
    from session_core.state.postgres import server_check  # noqa: PLC0415 -- psycopg is optional

    return server_check.inspect_server(address)


def _load_migration_runner() -> Any:
    """Import the runner of migrations.

    Raises:
        Unsupported: the driver of PostgreSQL is not installed.
    """
    if any(find_spec(name) is None for name in _MODULES):
        raise Unsupported(
            "homes in PostgreSQL need psycopg; install it from a clone: "
            "pip install '/path/to/mcp-sessions[postgres]'"
        )
    from session_core.state.postgres.migrations import runner  # noqa: PLC0415 -- psycopg is optional

    return runner
