"""Change feed: the changes committed since a cursor, found by the transactions that made them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from session_core.errors import InvalidInput
from session_core.state import sql_blocks, validation
from session_core.state.content import decode_content, extract_plain_text
from session_core.state.polling import ChangePoller
from session_core.state.postgres.connection import PostgresConnection
from session_core.state.postgres.feed_cursor import ChangePosition, shorten_life
from session_core.state.postgres.store import PostgresStore
from session_core.state.protocol import StopSignal
from session_core.state.sqlite import compaction
from session_core.types import EventPage, SessionEvent

SQL = sql_blocks.load_blocks("feed", "session_core.state.postgres")

_MAX_TEXT_CHARACTERS = 500
_SHARED_LOOK_S = 0.02
"""The age up to which pollers of one process share a read snapshot of the server."""


class SnapshotWatch:
    """The present snapshot of the server, read once for all pollers."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._state: tuple[str, str] | None = None
        self._at = 0.0

    def is_present(self, position: ChangePosition, *, since: float) -> bool:
        """Return True if nothing was committed between a position and a time of this process."""
        with self._lock:
            if self._at < max(since, time.monotonic() - _SHARED_LOOK_S):
                self._at = time.monotonic()
                life, snapshot = self._store.read_server_state()
                self._state = shorten_life(life), snapshot
            return self._state == (position.life, position.since)


class PostgresFeed:
    """Changes committed since a cursor."""

    def __init__(self, store: PostgresStore) -> None:
        self._feed_store = store
        self._watch = SnapshotWatch(store)

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
        another home or to a later state of this home. The new cursor then starts now. If there is
        no event, the call waits until `stop` is set or `timeout_s` has passed.

        Raises:
            InvalidInput: the cursor is malformed or belongs to another session.
        """
        validation.check_limit(limit)
        validation.check_text("session", session)
        if timeout_s and self._feed_store.in_transaction:
            raise InvalidInput("a transaction of this thread is open; wait for changes after it")
        if timeout_s and self._feed_store.find_snapshot() is not None:
            raise InvalidInput("a snapshot of this task is open; wait for changes after it")
        poller = ChangePoller(cursor, timeout_s, stop)
        began = time.monotonic()
        pause = time.sleep if stop is None else stop.wait
        while True:
            page = poller.poll_once(
                lambda cursor: self._read_changes(cursor, session, limit, began)
            )
            if page is not None:
                return page
            pause(poller.pause_s)

    def _read_changes(
        self, cursor: str | None, session: str | None, limit: int, began: float | None = None
    ) -> EventPage:
        """Read committed changes, without an open transaction of the caller."""
        store = self._feed_store
        store.check_open()
        position = None if cursor is None else ChangePosition.decode(cursor)
        if position is not None and session not in (None, position.session):
            raise InvalidInput(
                "cursor belongs to another session; pass it with that session or without one"
            )
        with store.translate_errors():
            snapshot = store.find_snapshot()
            if snapshot is not None:
                return _read_page(snapshot.get_handle(), position, session, limit)
            if (
                cursor is not None
                and position is not None
                and position.until is None
                and position.mark == store.mark
                and self._watch.is_present(
                    position, since=time.monotonic() if began is None else began
                )
            ):
                return EventPage([], cursor)
            handle = store.begin_read()
            try:
                return _read_page(handle, position, session, limit)
            finally:
                store.end_read(handle)


def _read_page(
    handle: PostgresConnection, position: ChangePosition | None, session: str | None, limit: int
) -> EventPage:
    mark = handle.fetch_value(SQL["get_mark"])
    life = shorten_life(handle.life)
    start = ChangePosition(session, mark, handle.snapshot, life=life)
    if position is None:
        return EventPage([], start.encode())
    is_other_home = position.mark is not None and position.mark != mark
    # After a crash, a failover or a restore the ids of lost transactions are given again.
    is_other_life = position.life is not None and position.life != life
    is_future = handle.fetch_value(SQL["get_end"], {"snapshot": position.until or position.since})
    if is_other_home or is_other_life or is_future:
        return EventPage([], replace(start, session=position.session).encode(), gap=True)
    until = position.until or handle.snapshot
    return _PageReader(handle, replace(position, mark=mark, until=until, life=life), limit).read()


class _PageReader:
    """Reads the changes between two snapshots: new sessions, messages, ended sessions."""

    def __init__(self, handle: PostgresConnection, position: ChangePosition, limit: int) -> None:
        self._handle = handle
        self._position = position
        self._limit = limit
        self._events: list[SessionEvent] = []

    def read(self) -> EventPage:
        """Return a page and the position after it."""
        is_whole = self._add_started() and self._add_messages() and self._add_ended()
        position = self._position
        if is_whole:
            position = ChangePosition(
                position.session, position.mark, position.until or "", life=position.life
            )
        return EventPage(self._events, position.encode())

    def _list_rows(self, block: str, **bounds: Any) -> list[dict[str, Any]]:
        position = self._position
        room = self._limit - len(self._events)
        base = {"session": position.session, "since": position.since, "until": position.until}
        return self._handle.fetch_rows(
            self._handle.expand_sql(SQL[block]), {**base, **bounds, "limit": room}
        )

    def _add_started(self) -> bool:
        """Add the new sessions and return True if there are no more."""
        rows = self._list_rows("list_started", place=self._position.place)
        self._events += [
            SessionEvent("session_started", row["started_at"], row["id"], title=row["title"])
            for row in rows
        ]
        if rows:
            self._position = replace(self._position, place=rows[-1]["place"])
        return len(self._events) < self._limit

    def _add_messages(self) -> bool:
        while len(self._events) < self._limit:
            room = self._limit - len(self._events)
            rows = self._list_rows("list_messages", after=self._position.after)
            # Copies that a compaction has made are no news.
            self._events += _iter_message_events(row for row in rows if not self._is_copy(row))
            if rows:
                self._position = replace(self._position, after=rows[-1]["id"])
            if len(rows) < room:
                return len(self._events) < self._limit
        return False

    def _is_copy(self, row: dict[str, Any]) -> bool:
        place = row["id"], row["session_id"], row["timestamp"]
        return row["id"] in compaction.map_copies_to_originals(self._handle, *place)

    def _add_ended(self) -> bool:
        position = self._position
        rows = self._list_rows("list_ended", after=position.ended_at, after_id=position.ended_id)
        room = self._limit - len(self._events)
        self._events += [
            SessionEvent(
                "session_ended",
                row["ended_at"],
                row["id"],
                title=row["title"],
                reason=row["end_reason"],
            )
            for row in rows
        ]
        if rows:
            last = rows[-1]
            self._position = replace(position, ended_at=last["ended_at"], ended_id=last["id"])
        return len(rows) < room


def _iter_message_events(rows: Iterable[dict[str, Any]]) -> Iterator[SessionEvent]:
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
