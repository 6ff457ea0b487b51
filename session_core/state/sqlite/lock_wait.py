"""Waiting for a database that another connection has locked, and errors about its holders.

SQLite itself waits up to the busy timeout of a connection. Statements that need the write lock are
then retried with jitter until a deadline. `write_queue` has the waits of threads for each other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from session_core import _sqlite3
from session_core.errors import Busy

if TYPE_CHECKING:
    from session_core.state.sqlite.connection import Connection
    from session_core.types import Holder

T = TypeVar("T")

_JITTER_S = (0.02, 0.15)

LOCK_MESSAGES = (
    "database is locked",
    "database table is locked",
    "database schema is locked",
    "locking protocol",
)
"""The beginnings of the messages of SQLite about a lock of another connection."""


def is_busy(error: Exception) -> bool:
    """Return True if another connection holds the lock, so that a retry may help."""
    return isinstance(error, _sqlite3.load_library().OperationalError) and str(error).startswith(
        LOCK_MESSAGES
    )


def execute_with_retry(handle: Connection, sql: str, deadline: float) -> None:
    """Run a statement that needs the lock, and retry with jitter until the deadline."""
    while True:
        try:
            handle.connection.execute(sql)
        except _sqlite3.load_library().OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
            # Processes that were refused at the same moment would otherwise meet again.
            time.sleep(random.uniform(*_JITTER_S))  # noqa: S311 -- jitter, not a secret
        else:
            return


def run_without_waiting(handle: Connection, function: Callable[[], T], wait_ms: int) -> T:
    """Call `function` with a busy timeout of zero and return its result."""
    try:
        handle.connection.execute("PRAGMA busy_timeout=0")
        return function()
    finally:
        handle.connection.execute(f"PRAGMA busy_timeout={wait_ms}")


def require_no_holders(path: Path, holders: Sequence[Holder]) -> None:
    """Refuse a rewrite of a file that other processes have open.

    Raises:
        Busy: a process has the file open.
    """
    names = [str(holder) for holder in holders]
    if names:
        raise Busy(
            f"{path} is open in {', '.join(names)}; stop that process, then try again",
            holders=names,
        )


def make_busy_error(path: Path, holders: Sequence[Holder]) -> Busy:
    """Return the error for a database that another connection has locked."""
    names = [str(holder) for holder in holders]
    listed = ", ".join(names) or "another connection, possibly of this process"
    return Busy(
        f"the database {path} is held by {listed}; let it finish, then try again", holders=names
    )
