"""The newest sessions of a database by activity, kept and updated.

The first call reads every session. Later calls read only newer messages, the listed sessions,
sessions stored since by their row ids, and sessions that lost their messages by their start. After
larger changes every session is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from session_core.state.sqlite import fts

if TYPE_CHECKING:
    from session_core.state.sqlite.connection import Connection

MAX_RECENT = 200
"""Number of kept sessions. A later page reads every session."""

_MAX_NEWER = 5000


class RecentSessions:
    """The newest sessions of one database, as `(active_at, id)`, newest first."""

    def __init__(self, sql: Mapping[str, str]) -> None:
        self._sql = sql
        self._newest: list[tuple[float, str]] = []
        self._last_message = -1
        self._last_session: tuple[int, str] = (0, "")
        self._is_complete = False

    def list_newest(self, handle: Connection) -> list[tuple[float, str]]:
        """Return the newest sessions as of the open snapshot."""
        # `seen` is cleared by commits of others, so the list is updated once for each of them.
        if handle.seen.get("recency") is not True:
            if not self._read_new_sessions(handle):
                self._read_all_sessions(handle)
            handle.seen["recency"] = True
        return self._newest

    @property
    def is_complete(self) -> bool:
        """True if the list contains every session."""
        return self._is_complete

    def _read_all_sessions(self, handle: Connection) -> None:
        """Read every session by its id alone, since rows are long."""
        rows = handle.fetch_tuples(self._sql["list_newest"], {"rows": MAX_RECENT})
        active = [
            (active_at, session_id) for session_id, active_at in rows if active_at is not None
        ]
        oldest = active[-1][0] if len(active) == MAX_RECENT else float("-inf")
        empty = self._list_empty_sessions(handle, oldest)
        active += [(started_at, session_id) for session_id, started_at in empty]
        self._is_complete = len(active) < MAX_RECENT
        self._newest = _sort_newest_first(active)
        self._last_message = fts.find_highest_id(handle)
        self._last_session = self._find_latest_session(handle)

    def _read_new_sessions(self, handle: Connection) -> bool:
        if self._last_message < 0 or not self._newest:
            return False
        since = {"since": self._last_message, "rows": _MAX_NEWER}
        last = fts.find_highest_id(handle)
        if last < self._last_message or last - self._last_message >= _MAX_NEWER:
            return False
        rowid, session_id = self._last_session
        # Row ids are reused after the highest ones are deleted, and a VACUUM changes them.
        if handle.fetch_value(self._sql["get_session_at"], (rowid,)) != session_id:
            return False
        oldest = self._newest[-1]
        members = {session_id for _, session_id in self._newest}
        members |= {row[0] for row in handle.fetch_tuples(self._sql["list_newer"], since)}
        members |= {row[0] for row in handle.fetch_tuples(self._sql["list_stored_since"], (rowid,))}
        if not self._is_complete:
            members |= {row[0] for row in self._list_empty_sessions(handle, oldest[0])}
        members = {member for member in members if isinstance(member, str)}
        entries = [
            (active_at, member)
            for member in members
            if (active_at := handle.fetch_value(self._sql["get_activity"], {"id": member}))
            is not None
        ]
        # Below the oldest kept entry there may be sessions that were never read.
        self._newest = sorted(
            (entry for entry in entries if self._is_complete or entry >= oldest), reverse=True
        )[:MAX_RECENT]
        self._is_complete = self._is_complete and len(entries) <= MAX_RECENT
        self._last_message = last
        self._last_session = self._find_latest_session(handle)
        return self._is_complete or len(self._newest) >= MAX_RECENT // 2

    def _list_empty_sessions(self, handle: Connection, oldest: float) -> list[tuple[str, float]]:
        """Return the newest sessions without messages that began after the oldest entry."""
        bounds = {"oldest": oldest, "rows": MAX_RECENT}
        return handle.fetch_tuples(self._sql["list_newest_empty"], bounds)

    def _find_latest_session(self, handle: Connection) -> tuple[int, str]:
        rows = handle.fetch_tuples(self._sql["get_last_session"])
        return rows[0] if rows else (0, "")


def _sort_newest_first(active: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the entries newest first, without ids that are not text."""
    entries = [entry for entry in active if isinstance(entry[1], str)]
    return sorted(entries, reverse=True)[:MAX_RECENT]
