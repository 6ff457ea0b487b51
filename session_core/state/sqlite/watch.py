"""Noticing that anybody committed, by asking a connection that is kept open for it.

Asking is cheap, takes no lock that lasts and writes nothing. What a thread has seen is remembered
by thread: a commit between its look at the data and its wait ends the wait at once.
"""

from __future__ import annotations

import threading
from pathlib import Path

from session_core import driver
from session_core.state.sqlite.handle import Handle, is_busy
from session_core.state.sqlite.opening import open_reader

State = tuple[int, ...]
"""Which file it is and how often it was changed; comparable as long as the watch is open."""

BUSY: State = (-1,)
"""A writer keeps everybody out just now, so that nobody can tell."""


class Watch:
    """One kept connection to a database file, for all threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen = threading.local()
        self._latest: State | None = None
        self._handle: Handle | None = None
        self._file: State = ()
        self._closed = False

    def state(self) -> State:
        """Return what the file is now; empty where it is not there."""
        with self._lock:
            try:
                file = self._identity()
                if file != self._file:
                    self._reopen(file)
                if self._handle is None:
                    return self._file
                return (*self._file, self._handle.value("PRAGMA data_version"))
            except driver.library().OperationalError as error:
                if not is_busy(error):
                    raise
                return BUSY

    def look(self) -> State:
        """Note what this thread sees from now on, and return it."""
        state = self._seen.state = self._latest = self.state()
        return state

    def changed(self) -> bool:
        """Whether anybody has committed since this thread looked, or since any did; look again."""
        state = self.state()
        if state == BUSY:
            return False
        seen = getattr(self._seen, "state", self._latest)
        self._seen.state = state
        return seen is not None and bool(state != seen)

    def close(self) -> None:
        """Close the connection; those who wait see no further change."""
        with self._lock:
            self._closed = True
            self._reopen(())

    def _identity(self) -> State:
        """Return which file it is, and which log: one that is replaced is not ours any more."""
        try:
            found = self._path.stat()
        except OSError:
            return ()
        if not found.st_size:
            return ()
        try:
            return (found.st_dev, found.st_ino, Path(f"{self._path}-wal").stat().st_ino)
        except OSError:
            return (found.st_dev, found.st_ino, 0)

    def _reopen(self, file: State) -> None:
        if self._handle is not None:
            self._handle.connection.close()
            self._handle = None
        self._file = ()
        if file and not self._closed:
            self._handle, _ = open_reader(self._path)
            self._handle.connection.execute("PRAGMA busy_timeout=0")
            self._file = self._identity()
