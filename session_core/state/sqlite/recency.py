"""The newest sessions by their last message, kept true at the cost of what has changed.

The first answer looks at every session once. Afterwards only messages that came since are looked
at, the sessions of the list itself are asked again, sessions that were stored since come in by
their row ids, and those that have lost their messages by when they began. When more has changed
than that can tell, everything is looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from session_core.state.sqlite import index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from session_core.state.sqlite.handle import Handle

KEPT = 200
"""How many sessions are kept; a page further back looks at every session."""

_MOST_NEWER = 5000


class Recency:
    """The newest sessions of one database, as `(active_at, id)`, newest first."""

    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql
        self._newest: list[tuple[float, str]] = []
        self._last_message = -1
        self._last_session: tuple[int, str] = (0, "")
        self._whole = False

    def newest(self, handle: Handle) -> list[tuple[float, str]]:
        """Return the newest sessions as of the open snapshot."""
        if handle.seen.get("recency") is not True:
            if not self._catch_up(handle):
                self._start(handle)
            handle.seen["recency"] = True
        return self._newest

    @property
    def whole(self) -> bool:
        """Whether the list has every session there is."""
        return self._whole

    def _start(self, handle: Handle) -> None:
        """Look at every session, by its id alone, since rows are long.

        Of those without messages only what began late enough may be among the newest.
        """
        found = handle.values(self._sql["list_newest"], {"rows": KEPT})
        active = [
            (active_at, session_id) for session_id, active_at in found if active_at is not None
        ]
        oldest = active[-1][0] if len(active) == KEPT else float("-inf")
        empty = self._empty(handle, oldest)
        active += [(started_at, session_id) for session_id, started_at in empty]
        self._whole = len(active) < KEPT
        self._newest = _sorted(active)
        self._last_message = index.top(handle)
        self._last_session = self._latest_session(handle)

    def _catch_up(self, handle: Handle) -> bool:
        if self._last_message < 0 or not self._newest:
            return False
        since = {"since": self._last_message, "rows": _MOST_NEWER}
        last = index.top(handle)
        if last < self._last_message or last - self._last_message >= _MOST_NEWER:
            return False
        rowid, session_id = self._last_session
        # A row id is used again once the highest ones are deleted, and a VACUUM changes them.
        if handle.value(self._sql["get_session_at"], (rowid,)) != session_id:
            return False
        oldest = self._newest[-1]
        members = {session_id for _, session_id in self._newest}
        members |= {row[0] for row in handle.values(self._sql["list_newer"], since)}
        members |= {row[0] for row in handle.values(self._sql["list_stored_since"], (rowid,))}
        if not self._whole:
            members |= {row[0] for row in self._empty(handle, oldest[0])}
        members = {member for member in members if isinstance(member, str)}
        found = [
            (active_at, member)
            for member in members
            if (active_at := handle.value(self._sql["get_activity"], {"id": member})) is not None
        ]
        # Below the oldest that was kept there may be sessions that nobody has looked at.
        self._newest = sorted(
            (entry for entry in found if self._whole or entry >= oldest), reverse=True
        )[:KEPT]
        self._whole = self._whole and len(found) <= KEPT
        self._last_message = last
        self._last_session = self._latest_session(handle)
        return self._whole or len(self._newest) >= KEPT // 2

    def _empty(self, handle: Handle, oldest: float) -> list[tuple[str, float]]:
        """Return the newest sessions without messages, perhaps any more, that began late enough."""
        bounds = {"oldest": oldest, "rows": KEPT}
        return handle.values(self._sql["list_newest_empty"], bounds)

    def _latest_session(self, handle: Handle) -> tuple[int, str]:
        found = handle.values(self._sql["get_last_session"])
        return found[0] if found else (0, "")


def _sorted(active: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the newest first, without ids that are no text, by which nobody can ask."""
    known = [entry for entry in active if isinstance(entry[1], str)]
    return sorted(known, reverse=True)[:KEPT]
