"""Work that is done beside: the next step is read and made durable while one is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from session_core.ledger.ledger import Ledger
from session_core.ledger.records import Kept
from session_core.ledger.steps import Prepared, prepare, throw_away


class Ahead(Protocol):
    """What the next step takes."""

    prepared: Prepared | None


class Aside:
    """Does one thing at a time in a thread of its own; `close` waits for what is under way."""

    def __init__(self, ledger: Ledger, batch: str) -> None:
        self._ledger = ledger
        self._batch = batch
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: Future[Any] | None = None

    def keep(self, kept: Iterable[Kept], members: Sequence[str]) -> Prepared:
        """Make durable what would undo a step that is not its turn yet."""
        return prepare(self._ledger, self._batch, kept, members)

    def begin(self, work: Callable[[], Ahead | None]) -> None:
        """Begin with something; what was begun before is waited for, and thrown away."""
        self.drop()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "mcp-sessions-aside")
        self._under_way = self._pool.submit(work)

    def result(self) -> Any:
        """Return what the last thing has come to; None where nothing has, or it failed."""
        future, self._under_way = self._under_way, None
        if future is None or isinstance(future.exception(), Exception):
            return None
        return future.result()

    def drop(self, ahead: Ahead | None = None) -> None:
        """Throw away what was taken ahead, else what the last thing has come to."""
        found: Ahead | None = ahead or self.result()
        if found is not None and found.prepared is not None:
            throw_away(self._ledger, found.prepared)

    def close(self) -> None:
        """Wait for what is under way, throw it away, and end the thread."""
        pool, self._pool = self._pool, None
        try:
            self.drop()
        finally:
            if pool is not None:
                pool.shutdown(cancel_futures=True)
