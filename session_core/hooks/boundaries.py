"""Which boundary of which session was passed, so that each is passed once, whoever races for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from session_core.hooks.specs import FINALIZE

_REMEMBERED = 10_000


class Boundaries:
    """What was fired since a session last began or ended: a beginning undoes an end, and reverse.

    It guards against races of a process with itself; that a session was finalized in an earlier
    process is said by what is stored. Of very many sessions the oldest are forgotten.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fired: OrderedDict[str, dict[str, threading.Event]] = OrderedDict()

    @contextmanager
    def once(self, session_id: str | None, hook: str, *, wait_s: float) -> Iterator[bool]:
        """Yield whether this is the first; if not, the first has finished, or `wait_s` is over."""
        if session_id is None:
            yield True
            return
        finished, first = self._enter(session_id, hook)
        if not first:
            finished.wait(wait_s)
            yield False
            return
        try:
            yield True
        finally:
            finished.set()

    def forget(self, session_id: str) -> None:
        """Let everything of a session be fired again."""
        with self._lock:
            self._fired.pop(session_id, None)

    def _enter(self, session_id: str, hook: str) -> tuple[threading.Event, bool]:
        with self._lock:
            fired = self._fired.setdefault(session_id, {})
            self._fired.move_to_end(session_id)
            if hook in fired:
                return fired[hook], False
            if hook == FINALIZE:
                fired.clear()
            else:
                fired.pop(FINALIZE, None)
            event = fired[hook] = threading.Event()
            while len(self._fired) > _REMEMBERED:
                self._fired.popitem(last=False)
            return event, True
