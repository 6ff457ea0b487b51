"""Work that takes long: between its steps it says that it goes on, and asks whether to end."""

from __future__ import annotations

import time
from collections.abc import Callable

from session_core.maintenance.answers import StopFn

_TELL_S = 0.5


class Stopped(Exception):
    """Somebody wants it to end; what is not done yet stays as it is."""


class Steps:
    """Called between two steps, however short they are: it tells twice a second at most."""

    def __init__(self, tell: Callable[[], object] | None, stop: StopFn | None) -> None:
        self._tell = tell
        self._stop = stop
        self._told_at = -_TELL_S

    def __call__(self) -> None:
        """Tell, and ask.

        Raises:
            Stopped: it is to end.
        """
        now = time.monotonic()
        if self._tell is not None and now - self._told_at >= _TELL_S:
            self._told_at = now
            self._tell()
        if self._stop is not None and self._stop():
            raise Stopped
