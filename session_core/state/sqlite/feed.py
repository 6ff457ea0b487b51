"""Change feed: the changes committed since a cursor.

A cursor needs no state between calls, so it survives a restart. Messages are followed by their ids,
which are never reused. New sessions are followed by their row ids, which a VACUUM may change. Ended
sessions are followed by their end times, with a minute of overlap for late commits.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from session_core.errors import InvalidInput
from session_core.state import sql_blocks, validation
from session_core.state.content import decode_content, extract_plain_text
from session_core.state.polling import ChangePoller
from session_core.state.protocol import StopSignal
from session_core.state.sqlite import compaction, fts, sessions
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.database_file import HOME_ID_KEY
from session_core.state.sqlite.feed_cursor import (
    ANCHOR_COUNT,
    BUSY_STATE,
    OVERLAP_S,
    ChangePosition,
    FeedRow,
    FileState,
    FileWatch,
    KnownSession,
    ReportedEnds,
    hash_message,
)
from session_core.state.sqlite.store import SqliteOperations
from session_core.types import EventPage, SessionEvent

_CREATION_LOCK = threading.Lock()


class SqliteFeed(SqliteOperations):
    """Changes committed since a cursor."""

    def read_changes(
        self,
        cursor: str | None = None,
        *,
        session: str | None = None,
        limit: int = 100,
        timeout_s: float = 0.0,
        stop: StopSignal | None = None,
    ) -> EventPage:
        """Return the changes committed since `cursor`, or a new cursor if it is None.

        New sessions come before the messages, ended sessions after them. With more than `limit`
        events the cursor continues after the last one. `gap` reports that the cursor belongs to
        another database or to a later state of this database. The new cursor then starts now.

        Args:
            cursor: the cursor of the previous page. It is text and survives a restart.
            session: return only the events of this session.
            limit: the largest number of events.
            timeout_s: the number of seconds to wait if there is no event.
            stop: an event object, such as `threading.Event`, that ends the wait when it is set.

        Raises:
            InvalidInput: the cursor is malformed or belongs to another session.

        Example:
            >>> from session_core import SessionDB
            >>> db = SessionDB(":memory:")
            >>> cursor = db.read_changes().cursor
            >>> _ = db.append_message("s1", "user", "hello", create={"source": "cli"})
            >>> [event.type for event in db.read_changes(cursor).events]
            ['session_started', 'message']
        """
        validation.check_limit(limit)
        validation.check_text("session", session)
        if timeout_s and self._store.in_transaction:
            raise InvalidInput("a transaction of this thread is open; wait for changes after it")
        if timeout_s and self._store.find_snapshot() is not None:
            raise InvalidInput("a snapshot of this task is open; wait for changes after it")
        poller = ChangePoller(cursor, timeout_s, stop)
        pause = time.sleep if stop is None else stop.wait
        while True:
            page = poller.poll_once(lambda cursor: self._read_changes(cursor, session, limit))
            if page is not None:
                return page
            pause(poller.pause_s)

    def _read_changes(self, cursor: str | None, session: str | None, limit: int) -> EventPage:
        """Read committed changes, without an open transaction of the caller."""
        self._store.check_open()
        position = None if cursor is None else ChangePosition.decode(cursor)
        if position is not None and session not in (None, position.session):
            raise InvalidInput(
                "cursor belongs to another session; pass it with that session or without one"
            )
        with self._store.translate_errors():
            open_snapshot = self._store.find_snapshot()
            if open_snapshot is not None:
                # The present state of the file may be newer than the snapshot.
                handle, now = open_snapshot.get_handle(), open_snapshot.began_at
                changes = ChangeSnapshot(handle, now, self._scans, BUSY_STATE)
                return changes.read_page(position, session, limit)
            # Before the snapshot: a commit between the two is read again, never missed.
            state = self._watch.read_state()
            # Without a commit since the last poll, no snapshot is needed.
            if cursor is not None and self._watch.has_seen(cursor, state):
                return EventPage([], cursor)
            handle = self._store.take_reader()
            try:
                with handle.open_snapshot():
                    changes = ChangeSnapshot(handle, self._clock(), self._scans, state)
                    page = changes.read_page(position, session, limit)
            finally:
                self._store.pool.release_reader(handle)
        # After a postponed scan there may be ends in this state that were not reported.
        if not page.events and not changes.is_scan_postponed:
            self._watch.remember_state(page.cursor, state)
        return page

    @property
    def _watch(self) -> FileWatch:
        # `cached_property` has no lock of its own since Python 3.12.
        with _CREATION_LOCK:
            return self._create_watch

    @cached_property
    def _create_watch(self) -> FileWatch:
        watch = self._store.make_watch()
        weakref.finalize(self, watch.close)
        return watch

    @property
    def _scans(self) -> EndScans:
        with _CREATION_LOCK:
            return self._create_scans

    @cached_property
    def _create_scans(self) -> EndScans:
        return EndScans()


SQL = sql_blocks.load_blocks("feed")

_MAX_TEXT_CHARACTERS = 500
_CHEAP_SCAN_S = 0.02
_SCAN_SHARE = 20
"""A scan of all sessions that took a second is repeated after twenty seconds at the earliest.

Only homes without an index on the end times need these scans.
"""


class EndScans:
    """Caches scans of all sessions for their ends and limits how often they run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: FileState | None = None
        self._after = 0.0
        self._rows: list[FeedRow] = []
        self._due_at = 0.0

    def list_ended(
        self, handle: Connection, after: float, state: FileState, *, at_once: bool
    ) -> list[FeedRow] | None:
        """Return the sessions that ended after a time, or None if the scan must wait."""
        with self._lock:
            # A scan from a later time on lacks the ends before it.
            if self._state != state or state == BUSY_STATE or after < self._after:
                began = time.monotonic()
                if began < self._due_at and not at_once:
                    return None
                self._rows = handle.fetch_tuples(SQL["list_ended"], (after,))
                took = time.monotonic() - began
                self._due_at = began + took * _SCAN_SHARE if took > _CHEAP_SCAN_S else 0.0
                self._state, self._after = state, after
            return [row for row in self._rows if row[1] >= after]


class ChangeSnapshot:
    """Reads the changes of one snapshot of the database."""

    def __init__(self, handle: Connection, now: float, scans: EndScans, state: FileState) -> None:
        self._handle = handle
        self._now = now
        self._scans = scans
        self._state = state
        self.is_scan_postponed = False
        """Whether a scan for ended sessions was postponed."""
        self._mark = _find_home_mark(handle)
        self._high = _find_highest_message_id(handle)

    def read_page(
        self, position: ChangePosition | None, session: str | None, limit: int
    ) -> EventPage:
        """Return the changes since a position, or a new cursor if it is None."""
        if position is None:
            return self.create_start_cursor(session)
        return self.list_changes(position, limit)

    def create_start_cursor(self, session: str | None) -> EventPage:
        """Return an empty page with a cursor that starts now."""
        return EventPage([], self._get_current_position(session).encode())

    def list_changes(self, position: ChangePosition, limit: int) -> EventPage:
        """Return the changes since a position."""
        if not self._is_same_history(position):
            return EventPage([], self._get_current_position(position.session).encode(), gap=True)
        started, anchors, lost = self._list_started(position, limit)
        messages, after = self._list_messages(position, limit - len(started))
        events = started + messages
        ends = position.ends
        # Ends are reported only after all messages, so that no event of a session follows its end.
        if after == self._high:
            ended, ends = self._list_ended(position, limit - len(events))
            events += ended
        next_position = ChangePosition(
            session=position.session,
            at=self._now,
            mark=self._mark,
            after=after,
            anchor=self._find_anchor(after),
            sessions=anchors,
            ends=ends,
        )
        return EventPage(events, next_position.encode(), gap=lost)

    def _get_current_position(self, session: str | None) -> ChangePosition:
        ended = self._list_ended_rows(session, self._now - OVERLAP_S, at_once=True)
        return ChangePosition(
            session=session,
            at=self._now,
            mark=self._mark,
            after=self._high,
            anchor=self._find_anchor(self._high),
            sessions=self._list_last_sessions(),
            ends=ReportedEnds.from_rows(ended or (), self._now),
        )

    def _is_same_history(self, position: ChangePosition) -> bool:
        """Return True if the database is the one of the position, and not in an earlier state."""
        # After the clock was set back, sessions may end before the reported ends.
        if self._now < position.at - OVERLAP_S:
            return False
        # A cursor from before the file existed has neither, and every database continues it.
        if position.mark != self._mark and (position.mark or position.after):
            return False
        # Ids are never reused, so a lower one means an older state, such as a restored backup.
        if self._high < position.after:
            return False
        if position.anchor is None:
            return True
        message_id, check = position.anchor
        row = self._handle.fetch_row(SQL["get_message_anchor"], (message_id,))
        # The message may have been deleted since, which is no other history.
        return row is None or hash_message(row) == check

    def _find_anchor(self, after: int) -> tuple[int, str] | None:
        row = self._handle.fetch_row(SQL["get_anchor"], (after,))
        return None if row is None else (row["id"], hash_message(row))

    def _list_last_sessions(self) -> tuple[KnownSession, ...]:
        return tuple(
            map(
                KnownSession.from_row,
                self._handle.fetch_rows(SQL["list_last_sessions"], (ANCHOR_COUNT,)),
            )
        )

    def _find_session_position(self, position: ChangePosition) -> int | None:
        """Return the row id after which new sessions follow, or None if it is unknown."""
        moves: list[tuple[int, int]] = []
        for reported in position.sessions:
            row = self._handle.fetch_row(SQL["get_session_place"], (reported.id,))
            current = None if row is None else KnownSession.from_row(row)
            if current == reported:
                return reported.place
            # The same session at another row id: renumbered by a VACUUM, or stored again.
            if current is not None and current.check == reported.check:
                moves.append((current.place, reported.place))
        if _is_renumbered(moves):
            return moves[0][0]
        # A home with fewer sessions than anchors has lost them all, so every session is new.
        return 0 if len(position.sessions) < ANCHOR_COUNT else None

    def _list_started(
        self, position: ChangePosition, limit: int
    ) -> tuple[list[SessionEvent], tuple[KnownSession, ...], bool]:
        place = self._find_session_position(position)
        if place is None:
            return [], self._list_last_sessions(), True
        bounds = {"place": place, "session": position.session, "limit": limit}
        block = "list_started" if position.session is None else "list_started_of"
        rows = self._handle.fetch_rows(SQL[block], bounds)
        events = [
            SessionEvent("session_started", row["started_at"], row["id"], title=row["title"])
            for row in rows
        ]
        if len(rows) < limit:
            return events, self._list_last_sessions(), False
        reported = map(KnownSession.from_row, reversed(rows))
        return events, tuple([*reported, *position.sessions][:ANCHOR_COUNT]), False

    def _list_messages(
        self, position: ChangePosition, limit: int
    ) -> tuple[list[SessionEvent], int]:
        """Return new messages, and the id up to which all messages were read."""
        events: list[SessionEvent] = []
        after = position.after
        while len(events) < limit:
            room = limit - len(events)
            rows = self._list_messages_after(after, position.session, room)
            # Copies that a compaction has made are no news.
            events += _to_message_events(row for row in rows if not self._is_copy(row))
            if len(rows) < room:
                # Up to the end of the snapshot: ids of other sessions and of deleted rows are not
                # read again.
                return events, self._high
            after = rows[-1]["id"]
        return events, after

    def _list_messages_after(
        self, after: int, session: str | None, limit: int
    ) -> list[dict[str, Any]]:
        bounds = {"after": after, "session": session, "limit": limit}
        return self._handle.fetch_rows(self._handle.expand_sql(SQL["list_messages"]), bounds)

    def _is_copy(self, row: dict[str, Any]) -> bool:
        place = row["id"], row["session_id"], row["timestamp"]
        return row["id"] in compaction.map_copies_to_originals(self._handle, *place)

    def _list_ended(
        self, position: ChangePosition, limit: int
    ) -> tuple[list[SessionEvent], ReportedEnds]:
        floor, _ = position.ends.floor
        rows = self._list_ended_rows(position.session, floor) if limit > 0 else None
        if rows is None:
            self.is_scan_postponed = True
            return [], position.ends
        new_rows, ends = position.ends.take_new_ends(rows, limit, self._now)
        return [_to_end_event(row) for row in new_rows], ends

    def _list_ended_rows(
        self, session: str | None, after: float, *, at_once: bool = False
    ) -> list[FeedRow] | None:
        if session is not None:
            return self._handle.fetch_tuples(SQL["list_ended_of"], (session, after))
        # A home of our own has an index on the ends.
        if self._mark is not None:
            return self._handle.fetch_tuples(SQL["list_ended"], (after,))
        return self._scans.list_ended(self._handle, after, self._state, at_once=at_once)


def _is_renumbered(moves: list[tuple[int, int]]) -> bool:
    """Return True if rows were renumbered without gaps, as a VACUUM does."""
    places = [now for now, _ in moves]
    closed_up = places == list(range(places[0], places[0] - len(places), -1)) if places else False
    return len(moves) > 1 and closed_up and all(now < then for now, then in moves)


def _find_home_mark(handle: Connection) -> str | None:
    mark = sessions.find_meta(handle, HOME_ID_KEY)
    return None if mark is None else str(mark)


def _find_highest_message_id(handle: Connection) -> int:
    if not handle.has_column("sqlite_sequence"):
        return fts.find_highest_id(handle)
    return int(handle.fetch_value(SQL["get_high_water"]))


def _to_message_events(rows: Iterable[dict[str, Any]]) -> Iterator[SessionEvent]:
    for row in rows:
        text = extract_plain_text(decode_content(row["content"]))[:_MAX_TEXT_CHARACTERS]
        yield SessionEvent(
            "message",
            row["timestamp"],
            row["session_id"],
            message_id=row["id"],
            role=row["role"],
            text=text or None,
        )


def _to_end_event(row: FeedRow) -> SessionEvent:
    session_id, ended_at, reason, title = row
    return SessionEvent("session_ended", ended_at, session_id, title=title, reason=reason)
