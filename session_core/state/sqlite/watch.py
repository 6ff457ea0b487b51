"""Noticing that anybody committed, by asking a connection that is kept open for it.

Asking is cheap, takes no lock that lasts and writes nothing. What the holders of cursors have seen
is remembered, so that one who asks again and again costs nothing where nobody has committed; a
cursor that is not known is looked at.
"""

from __future__ import annotations

import threading
from pathlib import Path

from session_core import driver
from session_core.presence import sidecar
from session_core.state.sqlite.handle import Handle, is_busy
from session_core.state.sqlite.opening import identity, open_reader, size

State = tuple[int, ...]
"""Which file it is and how often it was changed; comparable as long as the watch is open."""

_REMEMBERED = 20_000
"""So many cursors are known at once: where one is forgotten, who holds it looks in vain."""

BUSY: State = (-1,)
"""A writer keeps everybody out just now, so that nobody can tell."""


class Watch:
    """One kept connection to a database file, for all threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: set[str] = set()
        self._seen_at: State = BUSY
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

    def note(self, cursor: str, state: State) -> None:
        """Remember that at a state there was nothing new to the holder of a cursor."""
        with self._lock:
            if state != self._seen_at or len(self._seen) >= _REMEMBERED:
                self._seen_at, self._seen = state, set()
            self._seen.add(cursor)

    def has_seen(self, cursor: str, state: State) -> bool:
        """Whether nobody has committed since there was nothing new to this cursor."""
        with self._lock:
            known = state != BUSY and state == self._seen_at
            return known and cursor in self._seen

    def close(self) -> None:
        """Close the connection; those who wait see no further change."""
        with self._lock:
            self._closed = True
            self._reopen(())

    def _identity(self) -> State:
        """Return which file it is, and which log: one that is replaced is not ours any more."""
        if not size(self._path):
            return ()
        immutable = self._handle is not None and self._handle.immutable
        return (*(identity(self._path, immutable=immutable) or ()), *self._log())

    def _log(self) -> State:
        try:
            return (sidecar(self._path, "-wal").stat().st_ino,)
        except OSError:
            return (0,)

    def _reopen(self, file: State) -> None:
        if self._handle is not None:
            self._handle.connection.close()
            self._handle = None
        self._file = ()
        if file and not self._closed:
            self._handle = open_reader(self._path)
            self._handle.connection.execute("PRAGMA busy_timeout=0")
            self._file = self._identity()
