"""What a thread decides about chats: which are its own meanwhile, and what follows when stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager


class Step:
    """A step of sessions and routes, and what follows its commit.

    `ending` are the sessions that it ends and that no chat has left in it yet.
    """

    def __init__(self, session_keys: frozenset[str], ending: Collection[str] = ()) -> None:
        self.session_keys = session_keys
        self.ending = set(ending)
        self.afterwards: list[Callable[[], object]] = []


class Told(threading.local):
    """What follows once the decision of this thread is stored, and the step it is a part of.

    `turn` is the key of a chat, and the token of the turn that its message begins.
    """

    afterwards: list[Callable[[], object]]
    together: Step | None = None
    turn: tuple[str, str] | None = None

    def __init__(self) -> None:
        self.afterwards = []


class Flights:
    """A lock a key, there only while somebody wants it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._locks: dict[str, tuple[threading.RLock, int]] = {}

    @contextmanager
    def of(self, key: str) -> Iterator[None]:
        """Hold the lock of a key."""
        with self._mutex:
            lock, users = self._locks.get(key, (threading.RLock(), 0))
            self._locks[key] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._mutex:
                lock, users = self._locks.pop(key)
                if users > 1:
                    self._locks[key] = lock, users - 1
