"""How much one transaction may change so that it holds the write lock briefly, on every engine."""

from __future__ import annotations

import time
from collections.abc import Callable

_TARGET_S = 0.014
"""On the average; one that pays for others takes twice as long."""

_INITIAL_BYTES = 32_000
_MIN_BYTES = 16_000
"""Each transaction is paid for by three syncs, so smaller ones only make a busy machine busier."""

_DECAY_FACTOR = 0.8
_MAX_BYTES = 4_000_000


class BatchSize:
    """How many bytes of messages one transaction may delete so that it holds the lock briefly.

    Now and then a transaction pays for merging the search index that those before it left behind,
    so it is the pace of the last few that counts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.room = _INITIAL_BYTES
        self._clock = clock
        self._bytes = 0.0
        self._seconds = 0.0
        self._began_at = 0.0

    def begin(self) -> None:
        """Note that a transaction has the lock."""
        self._began_at = self._clock()

    def end(self, size: int | None = None) -> None:
        """Adapt to how long it had it, for so many bytes where that was not all of the room."""
        self._bytes = self._bytes * _DECAY_FACTOR + (self.room if size is None else size)
        self._seconds = self._seconds * _DECAY_FACTOR + self._clock() - self._began_at
        wanted = _TARGET_S * self._bytes / max(self._seconds, 0.0001)
        self.room = int(min(max(wanted, _MIN_BYTES), 2 * self.room, _MAX_BYTES))
