"""The rule for one who follows: when there is an answer, and when it is looked for again."""

from __future__ import annotations

import time
from collections.abc import Callable

from session_core.errors import Busy, InvalidInput
from session_core.state.protocol import StopSignal
from session_core.types import EventPage

_POLL_INTERVAL_S = 0.05


class ChangePoller:
    """Waits for what is committed after a cursor, until the time is over or `stop` is set."""

    def __init__(self, cursor: str | None, timeout_s: float, stop: StopSignal | None) -> None:
        if not isinstance(timeout_s, (int, float)) or not timeout_s >= 0:
            raise InvalidInput(f"timeout_s is {timeout_s!r:.40}; a number of at least 0")
        self._cursor = cursor
        self._until = time.monotonic() + timeout_s
        self._stop = stop

    def poll_once(self, look: Callable[[str | None], EventPage]) -> EventPage | None:
        """Look once; None where it is to be done again, after `pause_s`.

        Raises:
            Busy: somebody keeps everybody out, and the time is over.
        """
        over = time.monotonic() >= self._until or (self._stop is not None and self._stop.is_set())
        try:
            found = look(self._cursor)
        except Busy:
            if over:
                raise
            return None
        self._cursor = found.cursor
        return found if found.events or found.gap or over else None

    @property
    def pause_s(self) -> float:
        """How long to wait before the next look."""
        return max(0.0, min(_POLL_INTERVAL_S, self._until - time.monotonic()))
