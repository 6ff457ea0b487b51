"""Work that is done beside: the next piece is read and packed while the database is busy."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Aside:
    """Does one thing at a time in a thread of its own; `close` waits for what is under way."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: Future[Any] | None = None

    def begin(self, work: Callable[[], Any]) -> None:
        """Begin with something; what was begun before is waited for, and forgotten."""
        self.result()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "mcp-sessions-aside")
        self._under_way = self._pool.submit(work)

    def result(self) -> Any:
        """Return what the last thing has come to; None where nothing has, or it failed."""
        future, self._under_way = self._under_way, None
        if future is None or future.exception() is not None:
            return None
        return future.result()

    def close(self) -> None:
        """Wait for what is under way, and end the thread."""
        pool, self._pool = self._pool, None
        self._under_way = None
        if pool is not None:
            pool.shutdown(cancel_futures=True)
