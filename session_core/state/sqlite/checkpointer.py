"""Checkpoints of the write-ahead log by the write connection."""

from __future__ import annotations

from contextlib import suppress

from session_core import _sqlite3
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.lock_wait import run_without_waiting

CHECKPOINT_ROWS = 400
"""Changed rows after which the log is checkpointed, at about a thousand pages.

A log that is reused costs half of one that grows.
"""

_INDEX_ROWS_PER_MESSAGE = 10
"""Rows of its search indexes that Hermes changes with each row of a message."""


class Checkpointer:
    """Checkpoints the log of one connection after enough changes, without waiting for a lock."""

    def __init__(self, *, own: bool, wait_ms: int, overdue: bool) -> None:
        self._own = own
        self._wait_ms = wait_ms
        self._row_weight = 1 if own else _INDEX_ROWS_PER_MESSAGE
        self._rows_seen = 0
        self._overdue = overdue

    def checkpoint_if_overdue(self, handle: Connection) -> None:
        """Checkpoint a long log that was present when the database was opened."""
        # Processes that write a little and exit would leave a log that only grows. A new process
        # does not know how much of it was checkpointed, so it checkpoints before its first write.
        if self._overdue:
            self._overdue = False
            self._run_checkpoint(handle)

    def checkpoint_if_due(self, handle: Connection | None) -> None:
        """Checkpoint after enough changes."""
        if (
            handle is not None
            and self._count_changed_rows(handle) >= CHECKPOINT_ROWS * self._row_weight
        ):
            self._run_checkpoint(handle)

    def checkpoint_and_truncate(self, handle: Connection) -> None:
        """Checkpoint at close, and truncate the log of a home of our own.

        A copy of the database file alone is then complete, and the next open has no log to read,
        which takes 0.4 ms for each megabyte.
        """
        self._checkpoint(handle, "TRUNCATE" if self._own else "PASSIVE")

    def _count_changed_rows(self, handle: Connection) -> int:
        return handle.connection.total_changes - self._rows_seen

    def _run_checkpoint(self, handle: Connection) -> None:
        # FULL holds the write lock, so it cannot interleave with a commit, as a race in SQLite
        # before 3.51.3 needs.
        self._checkpoint(handle, "FULL" if self._own else "PASSIVE")

    def _checkpoint(self, handle: Connection, mode: str) -> None:
        """Run a checkpoint.

        If it fails, the log keeps all changes for the next checkpoint.
        """
        # Also if it fails: while a reader blocks it, it is tried once for this number of rows.
        self._rows_seen = handle.connection.total_changes
        # The change is already durable. An error here would report to its caller that it is not.
        with suppress(_sqlite3.load_library().Error):
            sql = f"PRAGMA wal_checkpoint({mode})"
            run_without_waiting(
                handle, lambda: handle.connection.execute(sql).fetchall(), self._wait_ms
            )
