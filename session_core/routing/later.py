"""A call that is made a while later, once for all who asked, and one that is tried again."""

from __future__ import annotations

import threading
from collections.abc import Callable

RETRY_S = 1.0
"""What has failed is tried again so much later, then after twice as long, and so on."""

_MOST_RETRY_S = 30.0


class Later:
    """Makes one call, in a thread of its own, for which a process that ends waits."""

    def __init__(self, call: Callable[[], object], *, waited_for: bool = True) -> None:
        self._call = call
        self._waited_for = waited_for
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def ask(self, delay_s: float) -> None:
        """Let the call be made, at once where the process is ending and starts no thread."""
        with self._lock:
            if self._timer is not None:
                return
            self._timer = threading.Timer(delay_s, self._make)
            self._timer.daemon = not self._waited_for
            try:
                self._timer.start()
            except RuntimeError:
                self._timer = None
            else:
                return
        if self._waited_for:
            self._call()

    def forget(self) -> bool:
        """Make no call any more; return whether one was to be made."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        return timer is not None

    def _make(self) -> None:
        if self.forget():
            self._call()


class Retry:
    """Tries a call again that asks for it where it fails; a process that ends does not wait."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._later = Later(call, waited_for=False)
        self._delay_s = RETRY_S

    def ask(self) -> None:
        """Let the call be made again, later than the last time."""
        self._later.ask(self._delay_s)
        self._delay_s = min(2 * self._delay_s, _MOST_RETRY_S)

    def forget(self) -> None:
        """Note that the call has done its work, or is not wanted any more."""
        self._later.forget()
        self._delay_s = RETRY_S
