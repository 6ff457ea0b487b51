"""Addresses of homes in PostgreSQL, and single connections to their servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from session_core.errors import Busy, Denied, InvalidInput, SessionError, Unsupported
from session_core.home import DEFAULT_HOME_NAME

DEFAULT_SCHEMA = "mcp_sessions"
LEAST_VERSION = 150_000
"""PostgreSQL 15: views that check the rights of their caller."""

_SWITCH = {"yes": True, "no": False}
_TIMEOUTS = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 14_000,
}
"""A machine that has vanished answers nothing, and by default is waited for two hours."""

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class HomeAddress:
    """The parts of an address: the database, the schema, and the name of the home."""

    # It may have a password.
    conninfo: str = field(repr=False)
    home: str = DEFAULT_HOME_NAME
    schema: str = DEFAULT_SCHEMA
    migrates: bool = False
    """Whether a program that opens it for writing may apply pending migrations."""


def parse_address(address: str) -> HomeAddress:
    """Parse an address `postgresql://…?home=NAME&schema=NAME&migrate=yes`.

    Raises:
        InvalidInput: the address is not valid. The message never repeats it, since it may have a
            password.
    """
    if not isinstance(address, str) or not address.startswith(("postgresql://", "postgres://")):
        raise InvalidInput("the address of a home must begin with postgresql://")
    server, _, query = address.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    home = options.pop("home", DEFAULT_HOME_NAME)
    schema = options.pop("schema", DEFAULT_SCHEMA)
    if not home or "\0" in home:
        raise InvalidInput("the name of a home must not be empty; give home=NAME")
    if not _NAME.fullmatch(schema):
        raise InvalidInput(
            f"schema must be a name of small letters, digits and _, got {schema!r:.40}"
        )
    migrate = options.pop("migrate", "no")
    if migrate not in _SWITCH:
        raise InvalidInput("migrate in the address of a home must be yes or no")
    conninfo = f"{server}?{urlencode(options, quote_via=quote)}" if options else server
    try:
        conninfo_to_dict(conninfo)
    except psycopg.Error:
        # The text of the driver repeats the address.
        raise InvalidInput(
            "the address of a home is not valid; check its options, and write %40 for @ in names"
        ) from None
    return HomeAddress(conninfo, home, schema, migrates=_SWITCH[migrate])


def list_missing_timeouts(place: HomeAddress) -> dict[str, Any]:
    """Return the timeouts of a connection that its address does not set."""
    options = conninfo_to_dict(place.conninfo)
    return {name: value for name, value in _TIMEOUTS.items() if name not in options}


@contextmanager
def connect(place: HomeAddress) -> Iterator[psycopg.Connection[Any]]:
    """Connect to the server of an address once, so that a refusal is reported at once."""
    try:
        connection = psycopg.connect(
            place.conninfo,
            autocommit=True,
            prepare_threshold=None,
            **list_missing_timeouts(place),
        )
    except psycopg.Error as error:
        raise _make_connect_error(error) from error
    with connection:
        if connection.info.server_version < LEAST_VERSION:
            raise Unsupported("the server must be PostgreSQL 15 or later; upgrade it")
        try:
            yield connection
        except psycopg.OperationalError as error:
            raise Busy(
                "the connection to the server was lost; check the server, then try again"
            ) from error


def _make_connect_error(error: psycopg.Error) -> SessionError:
    # The driver has no class for a refusal. Its text repeats the server's severity.
    is_password_missing = error.pgconn is not None and error.pgconn.needs_password
    is_starting = "the database system is" in str(error)
    if is_password_missing or ("FATAL" in str(error) and not is_starting):
        return Denied(
            "the server refused the connection; check the user, the password and the database"
        )
    return Busy("the server of the home does not answer; check host, port and network")
