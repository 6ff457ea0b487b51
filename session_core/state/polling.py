"""Polling of the change feed."""

from __future__ import annotations

import time
from collections.abc import Callable

from session_core.errors import Busy, InvalidInput
from session_core.state.protocol import StopSignal
from session_core.types import EventPage

_POLL_INTERVAL_S = 0.05


class ChangePoller:
    """Polls for commits after a cursor until the time limit, or until `stop` is set."""

    def __init__(self, cursor: str | None, timeout_s: float, stop: StopSignal | None) -> None:
        if not isinstance(timeout_s, (int, float)) or not timeout_s >= 0:
            raise InvalidInput(f"timeout_s must be a number >= 0, got {timeout_s!r:.40}")
        self._cursor = cursor
        self._until = time.monotonic() + timeout_s
        self._stop = stop

    def poll_once(self, read: Callable[[str | None], EventPage]) -> EventPage | None:
        """Read once and return the page, or None to poll again after `pause_s`.

        Raises:
            Busy: another process locks the database exclusively, and the time limit has passed.
        """
        is_over = time.monotonic() >= self._until or (
            self._stop is not None and self._stop.is_set()
        )
        try:
            page = read(self._cursor)
        # Another process has locked the database exclusively: try again until the time limit.
        except Busy:
            if is_over:
                raise
            return None
        # The next read starts after the commits that this one has examined.
        self._cursor = page.cursor
        return page if page.events or page.gap or is_over else None

    @property
    def pause_s(self) -> float:
        """The seconds to wait before the next read."""
        return max(0.0, min(_POLL_INTERVAL_S, self._until - time.monotonic()))
