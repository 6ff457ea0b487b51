"""The change feed: what was committed since a cursor, and waiting for the next commit.

Nothing is kept between calls that a cursor needs, so it survives a restart.

One look at one moment of the database: what was committed since a position.

Messages are followed by their ids, which are never used twice; new sessions by the place of their
row, which a VACUUM may move and a session that is stored again has not; ended ones by the time of
their end, with a minute of overlap for those that were committed late.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from session_core.errors import InvalidInput
from session_core.state import validation
from session_core.state.content import decode, plain_text
from session_core.state.polling import Following
from session_core.state.protocol import Stop
from session_core.state.sqlite import compaction, fts, sessions, sql_blocks
from session_core.state.sqlite.connection import Handle
from session_core.state.sqlite.connections import Store, fit_to_bind
from session_core.state.sqlite.feed_cursor import (
    ANCHORS,
    BUSY,
    OVERLAP_S,
    Ends,
    Known,
    Position,
    Row,
    State,
    Watch,
    message_check,
)
from session_core.state.sqlite.opening import MARK
from session_core.types import Changes, Event

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
        validation.check_limit(limit)
        validation.check_text("session", session)
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


SQL = sql_blocks.load("feed")

_TEXT_CHARACTERS = 500
_CHEAP_SCAN_S = 0.02
_SCAN_SHARE = 20
"""Where no index has the ends, a look at all sessions that took a second waits for twenty."""


class Scans:
    """The costly look at the ends of all sessions, not taken more often than it is worth."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: State | None = None
        self._after = 0.0
        self._rows: list[Row] = []
        self._due_at = 0.0

    def ended(
        self, handle: Handle, after: float, state: State, *, at_once: bool
    ) -> list[Row] | None:
        """Return the sessions that ended after a time; None where that must wait."""
        with self._lock:
            if self._state != state or state == BUSY or after < self._after:
                began = time.monotonic()
                if began < self._due_at and not at_once:
                    return None
                self._rows = handle.values(SQL["list_ended"], (after,))
                took = time.monotonic() - began
                self._due_at = began + took * _SCAN_SHARE if took > _CHEAP_SCAN_S else 0.0
                self._state, self._after = state, after
            return [row for row in self._rows if row[1] >= after]


class Look:
    """One look at one moment of the database."""

    def __init__(self, handle: Handle, now: float, scans: Scans, state: State) -> None:
        self._handle = handle
        self._now = now
        self._scans = scans
        self._state = state
        self.put_off = False
        """Whether ends of sessions may be there that were not looked for."""
        self._mark = _mark(handle)
        self._high = _high_water(handle)

    def start(self, session: str | None) -> Changes:
        """Return a cursor that starts now."""
        return Changes([], self._now_position(session).encode())

    def since(self, position: Position, limit: int) -> Changes:
        """Return what is new since a position."""
        if not self._continues(position):
            return Changes([], self._now_position(position.session).encode(), gap=True)
        started, anchors, lost = self._started(position, limit)
        messages, after = self._messages(position, limit - len(started))
        events = started + messages
        ends = position.ends
        if after == self._high:
            ended, ends = self._ended(position, limit - len(events))
            events += ended
        following = Position(
            session=position.session,
            at=self._now,
            mark=self._mark,
            after=after,
            anchor=self._anchor(after),
            sessions=anchors,
            ends=ends,
        )
        return Changes(events, following.encode(), gap=lost)

    def _now_position(self, session: str | None) -> Position:
        ended = self._ended_rows(session, self._now - OVERLAP_S, at_once=True)
        return Position(
            session=session,
            at=self._now,
            mark=self._mark,
            after=self._high,
            anchor=self._anchor(self._high),
            sessions=self._last_sessions(),
            ends=Ends.since(ended or (), self._now),
        )

    def _continues(self, position: Position) -> bool:
        """Whether this is the database of the position, and not an earlier state of it.

        By a clock that was set back sessions end before what was reported, where nobody looks.
        """
        if self._now < position.at - OVERLAP_S:
            return False
        if position.mark != self._mark and (position.mark or position.after):
            return False
        if self._high < position.after:
            return False
        if position.anchor is None:
            return True
        message_id, check = position.anchor
        row = self._handle.row(SQL["get_message_anchor"], (message_id,))
        return row is None or message_check(row) == check

    def _anchor(self, after: int) -> tuple[int, str] | None:
        row = self._handle.row(SQL["get_anchor"], (after,))
        return None if row is None else (row["id"], message_check(row))

    def _last_sessions(self) -> tuple[Known, ...]:
        return tuple(map(Known.of, self._handle.rows(SQL["list_last_sessions"], (ANCHORS,))))

    def _place(self, position: Position) -> int | None:
        """Return behind which row new sessions are; None where nobody can tell any more."""
        moved: list[tuple[int, int]] = []
        for known in position.sessions:
            row = self._handle.row(SQL["get_session_place"], (known.id,))
            found = None if row is None else Known.of(row)
            if found == known:
                return known.place
            if found is not None and found.check == known.check:
                moved.append((found.place, known.place))
        if _are_renumbered(moved):
            return moved[0][0]
        return 0 if len(position.sessions) < ANCHORS else None

    def _started(
        self, position: Position, limit: int
    ) -> tuple[list[Event], tuple[Known, ...], bool]:
        place = self._place(position)
        if place is None:
            return [], self._last_sessions(), True
        wanted = {"place": place, "session": position.session, "limit": limit}
        block = "list_started" if position.session is None else "list_started_of"
        rows = self._handle.rows(SQL[block], wanted)
        events = [
            Event("session_started", row["started_at"], row["id"], title=row["title"])
            for row in rows
        ]
        if len(rows) < limit:
            return events, self._last_sessions(), False
        reported = map(Known.of, reversed(rows))
        return events, tuple([*reported, *position.sessions][:ANCHORS]), False

    def _messages(self, position: Position, limit: int) -> tuple[list[Event], int]:
        """Return new messages, and up to where all have been looked at."""
        events: list[Event] = []
        after = position.after
        while len(events) < limit:
            wanted = limit - len(events)
            rows = self._messages_after(after, position.session, wanted)
            events += _message_events(row for row in rows if not self._is_copy(row))
            if len(rows) < wanted:
                return events, self._high
            after = rows[-1]["id"]
        return events, after

    def _messages_after(self, after: int, session: str | None, limit: int) -> list[dict[str, Any]]:
        bounds = {"after": after, "session": session, "limit": limit}
        return self._handle.rows(self._handle.sql(SQL["list_messages"]), bounds)

    def _is_copy(self, row: dict[str, Any]) -> bool:
        place = row["id"], row["session_id"], row["timestamp"]
        return row["id"] in compaction.originals(self._handle, *place)

    def _ended(self, position: Position, limit: int) -> tuple[list[Event], Ends]:
        floor, _ = position.ends.floor
        rows = self._ended_rows(position.session, floor) if limit > 0 else None
        if rows is None:
            self.put_off = True
            return [], position.ends
        fresh, ends = position.ends.follow(rows, limit, self._now)
        return [_end_event(row) for row in fresh], ends

    def _ended_rows(
        self, session: str | None, after: float, *, at_once: bool = False
    ) -> list[Row] | None:
        if session is not None:
            return self._handle.values(SQL["list_ended_of"], (session, after))
        # A home of our own has an index on the ends.
        if self._mark is not None:
            return self._handle.values(SQL["list_ended"], (after,))
        return self._scans.ended(self._handle, after, self._state, at_once=at_once)


def _are_renumbered(moved: list[tuple[int, int]]) -> bool:
    """Whether rows that are elsewhere now were closed up, as a VACUUM does, with none between."""
    places = [now for now, _ in moved]
    closed_up = places == list(range(places[0], places[0] - len(places), -1)) if places else False
    return len(moved) > 1 and closed_up and all(now < then for now, then in moved)


def _mark(handle: Handle) -> str | None:
    mark = sessions.meta(handle, MARK)
    return None if mark is None else str(mark)


def _high_water(handle: Handle) -> int:
    if not handle.has("sqlite_sequence"):
        return fts.top(handle)
    return int(handle.value(SQL["get_high_water"]))


def _message_events(rows: Iterable[dict[str, Any]]) -> Iterator[Event]:
    for row in rows:
        text = plain_text(decode(row["content"]))[:_TEXT_CHARACTERS]
        yield Event(
            "message",
            row["timestamp"],
            row["session_id"],
            message_id=row["id"],
            role=row["role"],
            text=text or None,
        )


def _end_event(row: Row) -> Event:
    session_id, ended_at, reason, title = row
    return Event("session_ended", ended_at, session_id, title=title, reason=reason)
