"""What a crash has left between routes and sessions, looked at once as at a start."""

from __future__ import annotations

from functools import partial

from session_core.errors import Conflict, SessionError
from session_core.routing.arrivals import Arrivals
from session_core.routing.entries import SessionEntry


class Checking(Arrivals):
    """Heals the routes of a store."""

    def check_against_state(self) -> list[str]:
        """Look at each route once, as at a start: heal what a crash has left; return the keys.

        A route whose session has ended is led to its continuation or to the session that can be
        gone on with. One that leads nowhere is removed, and the next message begins afresh.
        """
        return [key for key in self._copies.all() if self._deciding(key, partial(self._check, key))]

    def _check(self, key: str, entry: SessionEntry | None) -> bool:
        if entry is None or self.db is None:
            return False
        arrived_id = entry.session_id
        try:
            if not self._heal(entry):
                moved = entry.session_id != arrived_id
                if moved:
                    self._put(key, entry, self._peer(entry), urgent=True)
                return moved
            if entry.origin and self._recover(key, entry.origin, entry, arriving=False):
                return True
        except Conflict:
            raise
        except SessionError:
            return False  # what cannot be looked up now is looked up when a message comes
        return bool(self._copies.remove({key: entry}))
