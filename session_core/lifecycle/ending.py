"""The end of a turn whose coroutine may be cancelled while a call of it still runs in a thread."""

from __future__ import annotations

import threading
from contextlib import ExitStack


class Ending:
    """Closes a stack when the last holder lets go: the coroutine of a turn, or a call of it."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self._lock = threading.Lock()
        self._holders = 1

    def hold(self) -> None:
        """Keep the turn open until the same holder lets go."""
        with self._lock:
            self._holders += 1

    def let_go(self) -> None:
        """Let go; the last holder closes the stack, and so never does this on an event loop."""
        with self._lock:
            self._holders -= 1
            is_last = self._holders == 0
        if is_last:
            self.stack.close()
