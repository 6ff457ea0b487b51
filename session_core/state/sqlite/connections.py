"""The connections of one store, which close in the one order that is safe."""

from __future__ import annotations

import math
import os
from collections import deque
from contextlib import suppress
from pathlib import Path

from session_core.errors import StorageError
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.opening import identity
from session_core.state.sqlite.writer import Writer

_IDLE = 8
"""So many readers are kept for the next one; a crowd that came at once leaves no more."""


class Connections:
    """Idle readers, the writer, and the guard before it."""

    def __init__(self) -> None:
        self.readers: deque[Handle] = deque()
        self.writer: Writer | None = None
        self.guard: Handle | None = None
        self.exists = False
        self.closed = False
        self._pid = os.getpid()

    def idle_reader(self, path: Path) -> Handle | None:
        """Return a reader of the file as it is now; those of another one are closed."""
        with suppress(IndexError):
            while True:
                handle = self.readers.pop()
                if handle.file == identity(path, immutable=handle.immutable):
                    return handle
                handle.connection.close()
        return None

    def give_back(self, handle: Handle) -> None:
        """Keep a reader for the next one, if there are not enough."""
        if handle.stands_in:
            handle.connection.close()
            return
        handle.connection.rollback()  # where an interrupt has left its moment open
        self.readers.append(handle)
        with suppress(IndexError):
            while len(self.readers) > (0 if self.closed else _IDLE):
                self.readers.popleft().connection.close()

    def check_same_file(self, path: Path) -> None:
        """Refuse to write to a file that has lost its name."""
        if self.guard is not None and self.guard.file != identity(path):
            raise StorageError(
                f"another file was put in the place of {path}, or none; open it again"
            )

    def close(self, wait_s: float = math.inf) -> None:
        """Close all of them, once the change that is under way is over, if that is in time.

        One that was cut short is called again, by another thread at the same time perhaps.
        """
        self.closed = True
        if self._pid != os.getpid():
            return  # after a fork they are the parent's, and a thread that is not here may lead
        if self.writer is not None and not self.writer.close(wait_s):
            return  # a thread is inside; the process ends, and closing out of order would be worse
        with suppress(IndexError):
            while True:
                self.readers.pop().connection.close()
        guard, self.guard, self.writer = self.guard, None, None
        if guard is not None:
            guard.connection.close()
