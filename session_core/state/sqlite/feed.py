"""The change feed: what was committed since a cursor, and waiting for the next commit.

Nothing is kept between calls that a cursor needs, so it survives a restart.
"""

from __future__ import annotations

import threading
import time
import weakref
from functools import cached_property

from session_core.errors import InvalidInput
from session_core.models import Changes
from session_core.state import arguments
from session_core.state.contract import Stop
from session_core.state.following import Following
from session_core.state.sqlite.feed_look import Look, Scans
from session_core.state.sqlite.position import Position
from session_core.state.sqlite.store import Store, fit_to_bind
from session_core.state.sqlite.watch import Watch

_MAKING = threading.Lock()


class Feed(Store):
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

        New sessions come before the messages, the ends of sessions after them. With more than
        `limit` the cursor goes on behind the last one. `gap` says that the cursor is of another
        database or of a later state of this one; the new cursor follows from now on.
        Where there is nothing yet it is waited for, until `stop` is set or the time is over.

        Raises:
            InvalidInput: the cursor is malformed, or is that of another session.
        """
        arguments.check_limit(limit)
        arguments.check_text("session", session)
        if timeout_s and self.in_transaction:
            raise InvalidInput("a transaction of this thread is open; wait after it")
        following = Following(cursor, timeout_s, stop)
        pause = time.sleep if stop is None else stop.wait
        while True:
            found = following.look(lambda cursor: self._look(cursor, session, limit))
            if found is not None:
                return found
            pause(following.pause_s)

    def close(self) -> None:
        """Close every connection; the last change that returned is durable."""
        super().close()
        self._watch.close()

    def _look(self, cursor: str | None, session: str | None, limit: int) -> Changes:
        """Look at what is committed, also inside of a transaction, whose changes are not yet."""
        self._check_alive()
        position = None if cursor is None else Position.decode(cursor)
        if position is not None and session not in (None, position.session):
            raise InvalidInput("a cursor of another session; pass it with the same or without")
        with self._errors(), fit_to_bind():
            state = self._watch.state()
            if cursor is not None and self._watch.has_seen(cursor, state):
                return Changes([], cursor)
            handle = self._reader()
            try:
                with handle.snapshot():
                    look = Look(handle, self._clock(), self._scans, state)
                    found = look.since(position, limit) if position else look.start(session)
            finally:
                self._open.give_back(handle)
        if not found.events and not look.put_off:
            self._watch.note(found.cursor, state)
        return found

    @property
    def _watch(self) -> Watch:
        with _MAKING:
            return self._made_watch

    @cached_property
    def _made_watch(self) -> Watch:
        watch = Watch(self.path)
        weakref.finalize(self, watch.close)
        return watch

    @property
    def _scans(self) -> Scans:
        with _MAKING:
            return self._made_scans

    @cached_property
    def _made_scans(self) -> Scans:
        return Scans()
