"""The feed of messages written since a cursor, in the order in which they were indexed.

A cursor is an id of the index: appended messages get rising ids, and messages of history get lower
ids. A message that is read again after a rewrite of its file counts as history and is not reported
twice.
"""

from __future__ import annotations

from typing import Any

from session_core.state.cursors import decode_cursor, encode_cursor
from session_core.transcripts.index import SQL, Index
from session_core.transcripts.index_writer import FIRST_ID
from session_core.transcripts.listing import Condition, shorten_prompt
from session_core.transcripts.parts import ROLE_MASK, ROLES
from session_core.transcripts.texts import Place
from session_core.transcripts.windows import WindowReader
from session_core.types import EventPage, SessionEvent

_KIND = "transcript-events"

_SELECT = (
    "SELECT m.id, m.number, m.place, m.length, m.at, m.flags, m.key, s.id, s.source_id,"
    " s.native_id, s.session_id, s.title, s.preview, s.active_at"
    " FROM messages m CROSS JOIN sessions s ON s.id = m.session WHERE m.id >= ?"
)


class ChangeFeed:
    """Reads the events of messages from an index."""

    def __init__(self, index: Index, windows: WindowReader) -> None:
        self._index = index
        self._windows = windows

    def read_changes(
        self, cursor: str | None, conditions: list[Condition], session: str | None, limit: int
    ) -> EventPage:
        """Return the events since a cursor.

        Without a cursor, return only a new cursor.
        """
        with self._index.open_snapshot():
            # From the same snapshot as the rows: messages that are appended in between would
            # otherwise be skipped.
            epoch, end = self._get_number("epoch", 0), self._get_number("next_id", FIRST_ID)
            if cursor is None:
                return EventPage([], encode_cursor(_KIND, session, [epoch, end]))
            position = decode_cursor(_KIND, session, cursor)
            # Another epoch means another file of the index, to which these ids do not belong.
            if position[0] != epoch or position[1] > end:
                return EventPage([], encode_cursor(_KIND, session, [epoch, end]), gap=True)
            events, end = self._read_events(position[1], end, conditions, limit)
            return EventPage(events, encode_cursor(_KIND, session, [epoch, end]))

    def _read_events(
        self, begin: int, end: int, conditions: list[Condition], limit: int
    ) -> tuple[list[SessionEvent], int]:
        """Return up to `limit` events from the id `begin` on, and the id to continue from."""
        sql = " AND ".join([_SELECT, *(condition.sql for condition in conditions)])
        values = [value for condition in conditions for value in condition.values]
        rows = self._index.read(f"{sql} ORDER BY m.id LIMIT ?", (begin, *values, limit))
        if len(rows) == limit:
            end = rows[-1][0] + 1
        events: list[SessionEvent] = []
        for row in rows:
            events += self._make_events(row)
        return events, end

    def _make_events(self, row: tuple[Any, ...]) -> list[SessionEvent]:
        """Return the event of a message, after the start of its session if it is the first."""
        number, place, length, at, flags, key = row[1:7]
        session, source_id, native_id, session_id, title, preview, active_at = row[7:]
        places = [Place(number, place, length, key)]
        message = self._windows.read_texts(source_id, native_id, places).get(number)
        moment = (active_at if at is None else at) / 1000
        first = "SELECT min(number) FROM messages WHERE session = ?"
        events = []
        if self._index.read(first, (session,))[0][0] == number:
            events.append(
                SessionEvent(
                    "session_started", moment, session_id, title=title or shorten_prompt(preview)
                )
            )
        role = ROLES[flags & ROLE_MASK]
        text = None if message is None else message.text
        events.append(SessionEvent("message", moment, session_id, number, role, text))
        return events

    def _get_number(self, key: str, default: int) -> int:
        rows = self._index.read(SQL["get_meta"], (key,))
        return int(rows[0][0]) if rows else default
