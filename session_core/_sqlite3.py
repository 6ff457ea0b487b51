"""The SQLite library of this process, which only this module imports.

The default is the standard module. An application may choose the bundled one, which has no WAL
checkpoint race, before the first connection; then the choice is fixed. Two SQLite libraries on one
file in one process would drop each other's locks.
"""

from __future__ import annotations

import threading
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast, get_args

from session_core.errors import Conflict, InvalidInput, Unsupported
from session_core.types import Driver, SqliteChoice

if TYPE_CHECKING:
    import sqlite3  # noqa: TID251

    Connection = sqlite3.Connection
    Cursor = sqlite3.Cursor


FIXED_VERSION = (3, 51, 3)
"""The first version without the race between two checkpoints and a commit."""

_lock = threading.Lock()
_chosen_library: SqliteChoice | None = None
_module: Any = None


def choose_sqlite(name: SqliteChoice) -> Driver:
    """Choose the SQLite library of this process before its first connection.

    Raises:
        Conflict: the other library is already in use.
        InvalidInput: the name is unknown.
        Unsupported: the bundled library is not installed.
    """
    global _chosen_library  # noqa: PLW0603 -- one decision for the process
    if name not in get_args(SqliteChoice):
        raise InvalidInput(
            f"sqlite library must be one of {', '.join(get_args(SqliteChoice))}, got {name!r}"
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
    """Return the library in use, or the library that the first connection will use."""
    library = _import_library(_chosen_library or "standard") if _module is None else _module
    version = tuple(int(part) for part in library.sqlite_version.split("."))
    return Driver(_chosen_library or "standard", library.sqlite_version, version >= FIXED_VERSION)


def load_library() -> Any:
    """Return the SQLite module. The choice cannot be changed afterwards."""
    global _chosen_library, _module  # noqa: PLW0603 -- one decision for the process
    if _module is None:
        with _lock:
            _chosen_library = _chosen_library or "standard"
            _module = _import_library(_chosen_library)
    return _module


def connect(uri: str, *, busy_timeout_s: float) -> Connection:
    """Open a connection without implicit transactions, usable from any thread."""
    connection = load_library().connect(
        uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )
    # Text that is not UTF-8 is decoded with replacement characters: an exception would fail every
    # list and search over that row, and its message would contain the text.
    connection.text_factory = _decode_text
    return cast("Connection", connection)


def _decode_text(stored: bytes) -> str:
    return stored.decode("utf-8", "replace")


def _import_library(name: SqliteChoice) -> Any:
    return import_module("sqlite3" if name == "standard" else "pysqlite3.dbapi2")
