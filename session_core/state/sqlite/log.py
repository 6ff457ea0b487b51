"""When the log is folded back into the database file, which is never waited for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from session_core import driver
from session_core.state.sqlite.handle import Handle

T = TypeVar("T")

CHECKPOINT_ROWS = 400
"""After so many changed rows the log is folded back, at about a thousand pages.

A log that is reused costs half of one that grows.
"""

_INDEX_ROWS = 10
"""So many rows of its search indexes does Hermes change with one of a message."""


class Log:
    """What was changed through one connection since its log was folded back."""

    def __init__(self, *, own: bool, wait_ms: int, overdue: bool) -> None:
        self._own = own
        self._wait_ms = wait_ms
        self._row_weight = 1 if own else _INDEX_ROWS
        self._rows_seen = 0
        self._overdue = overdue

    def fold_back_overdue(self, handle: Handle) -> None:
        """Fold back a long log that was found.

        Processes that write a little and end would leave one that only ever grows: who opens it
        first has forgotten what was folded back, so that is done before a write.
        """
        if self._overdue:
            self._overdue = False
            self._fold(handle)

    def fold_back_in_time(self, handle: Handle | None) -> None:
        """Fold the log back after enough changes."""
        if handle is not None and self._rows(handle) >= CHECKPOINT_ROWS * self._row_weight:
            self._fold(handle)

    def fold_away(self, handle: Handle) -> None:
        """Fold the log back, and leave none where the home is ours.

        Whoever copies the one file, as people do, has all of it, and the next one who opens it has
        no log to read through, which takes 0.4 ms a megabyte.
        """
        self._checkpoint(handle, "TRUNCATE" if self._own else "PASSIVE")

    def _rows(self, handle: Handle) -> int:
        return handle.connection.total_changes - self._rows_seen

    def _fold(self, handle: Handle) -> None:
        self._checkpoint(handle, "FULL" if self._own else "PASSIVE")

    def _checkpoint(self, handle: Handle, mode: str) -> None:
        """Checkpoint; where that fails, the log still has all of it, and the next one does it."""
        self._rows_seen = handle.connection.total_changes
        # The change is durable already: an error now would tell its caller that it is not.
        with suppress(driver.library().Error):
            sql = f"PRAGMA wal_checkpoint({mode})"
            hurry(handle, lambda: handle.connection.execute(sql).fetchall(), self._wait_ms)


def hurry(handle: Handle, work: Callable[[], T], wait_ms: int) -> T:
    """Do something for which whoever has the lock is not waited for."""
    try:
        handle.connection.execute("PRAGMA busy_timeout=0")
        return work()
    finally:
        handle.connection.execute(f"PRAGMA busy_timeout={wait_ms}")
