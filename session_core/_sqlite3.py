"""Which SQLite library this process uses: decided here once, imported nowhere else.

The library takes the standard module. An application may choose the bundled one, which has the
WAL checkpoint race mended, before the first connection; afterwards the choice is fixed, since two
SQLite libraries on one file in one process drop each other's locks.
"""

from __future__ import annotations

import sqlite3  # noqa: TID251
import threading
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, cast, get_args

from session_core.errors import Conflict, InvalidInput, Unsupported

Connection = sqlite3.Connection
Cursor = sqlite3.Cursor

SqliteChoice = Literal["standard", "bundled"]

FIXED_VERSION = (3, 51, 3)
"""The first version without the race between two checkpoints and a commit."""


@dataclass(frozen=True, slots=True)
class Driver:
    """The SQLite library that was decided on."""

    name: SqliteChoice
    version: str
    fixed: bool
    """Whether it is free of the WAL checkpoint race."""


_lock = threading.Lock()
_chosen_library: SqliteChoice | None = None
_module: Any = None


def choose_sqlite(name: SqliteChoice) -> Driver:
    """Decide for this process, before the first connection.

    Raises:
        Conflict: the other one is in use already.
        InvalidInput: there is no such choice.
        Unsupported: the bundled one is not installed.
    """
    global _chosen_library  # noqa: PLW0603 -- one decision for the process
    if name not in get_args(SqliteChoice):
        raise InvalidInput(
            f"unknown sqlite {name!r}; known are {', '.join(get_args(SqliteChoice))}"
        )
    with _lock:
        if _module is not None and _chosen_library != name:
            raise Conflict(
                f"this process already uses the {_chosen_library} sqlite; choose before opening"
            )
        if name == "bundled" and find_spec("pysqlite3") is None:
            raise Unsupported("the bundled sqlite is not installed; install pysqlite3")
        _chosen_library = name
    return describe_sqlite()


def describe_sqlite() -> Driver:
    """Say what was decided, or would be at the first connection."""
    library = _import_library(_chosen_library or "standard") if _module is None else _module
    version = tuple(int(part) for part in library.sqlite_version.split("."))
    return Driver(_chosen_library or "standard", library.sqlite_version, version >= FIXED_VERSION)


def load_library() -> Any:
    """Return the module, which fixes the choice."""
    global _chosen_library, _module  # noqa: PLW0603 -- one decision for the process
    if _module is None:
        with _lock:
            _chosen_library = _chosen_library or "standard"
            _module = _import_library(_chosen_library)
    return _module


def connect(uri: str, *, busy_timeout_s: float) -> Connection:
    """Open a connection that begins no transaction by itself and may be used from any thread.

    Text that is no UTF-8 is read with a sign in the place of what is wrong: as an error, one byte
    of it would take every list and search with it, and tell what stands there.
    """
    connection = load_library().connect(
        uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )
    connection.text_factory = _decode_text
    return cast("Connection", connection)


def _decode_text(stored: bytes) -> str:
    return stored.decode("utf-8", "replace")


def _import_library(name: SqliteChoice) -> Any:
    return sqlite3 if name == "standard" else import_module("pysqlite3.dbapi2")
