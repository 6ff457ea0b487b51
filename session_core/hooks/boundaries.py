"""Which boundary of which session was passed, so that each is passed once, whoever races for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from session_core.hooks.specs import FINALIZE, RESET

_REMEMBERED = 10_000


class Boundaries:
    """What was fired since a session last began or ended: a beginning undoes an end, and reverse.

    It guards against races of a process with itself: what is being fired is never forgotten, of
    what was fired the oldest is. Whoever has a store asks that first, which knows what was told in
    whatever process, and says `forget` where something is to be told whatever is remembered here.
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

    def has_fired(self, session_id: str, hook: str) -> bool:
        """Whether this was fired, as far as is remembered."""
        with self._lock:
            return hook in self._fired.get(session_id, {})

    def forget(self, session_id: str) -> None:
        """Let the end of a session be fired again, and the reset to it; not what is being fired."""
        with self._lock:
            fired = self._fired.get(session_id, {})
            for hook in (FINALIZE, RESET):
                if hook in fired and fired[hook].is_set():
                    del fired[hook]

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
            self._forget_oldest()
            return event, True

    def _forget_oldest(self) -> None:
        over = len(self._fired) - _REMEMBERED
        done = (
            session_id
            for session_id, fired in self._fired.items()
            if all(event.is_set() for event in fired.values())
        )
        for session_id in list(islice(done, max(over, 0))):
            del self._fired[session_id]
