"""What was committed since a cursor."""

from __future__ import annotations

from typing import Protocol

from session_core.models import Changes


class Stop(Protocol):
    """What tells a call that waits to stop: a `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether to stop."""

    def wait(self, timeout: float) -> bool:
        """Wait for it, at most so many seconds."""


class Feed(Protocol):
    """What was committed since a cursor."""

    def changes(
        self,
        cursor: str | None = None,
        *,
        session: str | None = None,
        limit: int = 100,
        timeout_s: float = 0.0,
        stop: Stop | None = None,
    ) -> Changes:
        """Return what was committed since `cursor`; without one, from now on.

        Where there is nothing yet it is waited for, until `stop` is set or the time is over.
        """
