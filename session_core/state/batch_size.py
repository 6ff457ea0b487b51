"""The size of deletion batches, adapted so that each holds the write lock briefly."""

from __future__ import annotations

import time
from collections.abc import Callable

_TARGET_S = 0.014
"""The mean duration. A transaction that merges the search index takes twice as long."""

_INITIAL_BYTES = 32_000
_MIN_BYTES = 16_000
"""Each transaction costs three syncs, so smaller batches only add load."""

_DECAY_FACTOR = 0.8
_MAX_BYTES = 4_000_000


class BatchSize:
    """Adapts the number of bytes of messages that one transaction deletes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_bytes = _INITIAL_BYTES
        self._clock = clock
        self._bytes = 0.0
        self._seconds = 0.0
        self._began_at = 0.0

    def begin_batch(self) -> None:
        """Record that a transaction has taken the lock."""
        self._began_at = self._clock()

    def end_batch(self, size: int | None = None) -> None:
        """Adapt the size to the time since `begin_batch`.

        `size` is the number of deleted bytes, by default the full batch.
        """
        # Some transactions pay for merging the search index that earlier ones have left, so the
        # pace is the decayed mean of the last few.
        self._bytes = self._bytes * _DECAY_FACTOR + (self.max_bytes if size is None else size)
        self._seconds = self._seconds * _DECAY_FACTOR + self._clock() - self._began_at
        target_bytes = _TARGET_S * self._bytes / max(self._seconds, 0.0001)
        self.max_bytes = int(min(max(target_bytes, _MIN_BYTES), 2 * self.max_bytes, _MAX_BYTES))
