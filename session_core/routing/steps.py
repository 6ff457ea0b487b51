"""What a thread decides about chats: which are its own meanwhile, and what follows when stored."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from session_core.errors import Busy
from session_core.event_loops import current_task


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
    turn: tuple[str, str] | None = None

    def __init__(self) -> None:
        self.afterwards = []
        self._step: Step | None = None
        self._task: weakref.ref[object] | None = None

    @property
    def together(self) -> Step | None:
        """The step that this task has open in this thread."""
        return self._step if self._task == current_task() else None

    @contextmanager
    def within(self, step: Step) -> Iterator[None]:
        """Let what this task decides inside be a part of a step."""
        self._step, self._task = step, current_task()
        try:
            yield
        finally:
            self._step = self._task = None

    def check_task(self) -> None:
        """Make sure that no other task of this thread has a step open.

        Raises:
            Busy: one has, and to wait for it would block both.
        """
        if self._step is not None and self.together is None:
            raise Busy(
                "another task of this thread has `store.together(...)` open; "
                "run such a step as one function: await AsyncSessionStore(store).run(step)"
            )


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
