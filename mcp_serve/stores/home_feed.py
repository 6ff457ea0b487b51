"""The change feed of a home: one waiting call polls for commits on behalf of all.

Messages, session starts and ends come from the database with a durable cursor. Changed titles,
routes and compressions are found by comparing snapshots and are known to this process only.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from mcp_serve import render
from mcp_serve.arguments import format_time
from mcp_serve.plain_text import shorten_text
from mcp_serve.progress import CHECKS, run_in_thread
from mcp_serve.render import drop_empty
from session_core import Busy, NotFound, SessionError, extract_plain_text
from session_core.types import SessionEvent, SessionSummary

if TYPE_CHECKING:
    from mcp_serve.stores.homes import ServedHome
    from mcp_serve.stores.served_store import ServedStore


_MAX_EVENTS = 1000
_MAX_SESSIONS = 50
_MAX_TEXT_CHARS = 500
_CHECK_INTERVAL_S = 1.0
_POLL_INTERVAL_S = 0.05
# Routes that took one second to read are read again after 20 seconds.
_ROUTES_PAUSE_FACTOR = 20


@dataclass(frozen=True, slots=True)
class EventPosition:
    """A position in the stored events and in the events seen by this process."""

    session: str | None
    stored: str
    run: str
    number: int

    def to_list(self) -> list[Any]:
        """Return the position as JSON values."""
        return [self.session, self.stored, self.run, self.number]

    @classmethod
    def from_list(cls, packed: Any) -> EventPosition:
        """Return the position made of JSON values."""
        session, stored, run, number = packed
        return cls(session, stored, run, number)


@dataclass(frozen=True, slots=True)
class FeedResult:
    """The events since a position, and the position after them."""

    events: list[dict[str, Any]]
    place: EventPosition
    gap: bool


class StoreFeed(Protocol):
    """The methods of a feed that `events_wait` and subscriptions call."""

    commits: int
    seen: FeedState | None

    async def wait_for_commit(self, commits: int) -> None:
        """Return after more than `commits` changes were noticed."""

    def get_current_position(self, session: str | None) -> EventPosition:
        """Return the current position."""

    def read_events(self, position: EventPosition, limit: int) -> FeedResult:
        """Return the events since a position."""

    def follow_session(self, session: str | None) -> None:
        """Notice changes of a session, however old it is."""


class HomeFeed:
    """Follows the changes of one home while a call waits or a client listens."""

    def __init__(self, home: ServedHome) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._run = secrets.token_hex(4)
        self._passing: deque[tuple[int, str, dict[str, Any]]] = deque(maxlen=_MAX_EVENTS)
        self._number = 0
        self._stored: str | None = None
        # The last snapshot; None before the first.
        self.seen: FeedState | None = None
        self._followed: dict[str, None] = {}
        self._routes_due = 0.0
        # True if the last snapshot has the routes of an earlier one.
        self._are_routes_old = False
        self._looked_at = 0.0
        self._turn = anyio.Lock()
        self._noticed: str | None = None
        # Number of commits noticed so far.
        self.commits = 0

    async def wait_for_commit(self, commits: int) -> None:
        """Return after more than `commits` commits were noticed.

        One caller polls for all callers.

        The caller reads `commits` before `read_events`, so that no commit in between is missed.
        """
        async with self._turn:
            while self.commits == commits:
                await anyio.sleep(_POLL_INTERVAL_S)
                await run_in_thread(self._check_for_commit, of=CHECKS)

    def get_current_position(self, session: str | None) -> EventPosition:
        """Return the current position."""
        self.follow_session(session)
        stored = self._home.db.read_changes(session=session).cursor
        self._update_snapshot()
        return EventPosition(session, stored, self._run, self._number)

    def read_events(self, position: EventPosition, limit: int) -> FeedResult:
        """Return the events since a position."""
        self.follow_session(position.session)
        page = self._home.db.read_changes(position.stored, session=position.session, limit=limit)
        events = [render_event(self._home, event, self._home.store_name) for event in page.events]
        # Stored events need no snapshot. A busy client still gets one each second.
        if not events or time.monotonic() - self._looked_at > _CHECK_INTERVAL_S:
            self._update_snapshot()
        passing, number = self._list_transient_events(position, limit - len(events))
        next_position = EventPosition(position.session, page.cursor, self._run, number)
        return FeedResult(events + passing, next_position, page.gap)

    def _list_transient_events(
        self, position: EventPosition, room: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Return the events that only this process has seen since a position.

        Such events of an earlier process are lost.
        """
        if position.run != self._run:
            return [], self._number
        events: list[dict[str, Any]] = []
        number = position.number
        for event_number, session, event in list(self._passing):
            if event_number > position.number and position.session in (None, session):
                if len(events) >= room:
                    return events, number
                events.append(event)
            number = max(number, event_number)
        return events, number

    def follow_session(self, session: str | None) -> None:
        """Include a session in the snapshots, however old it is."""
        if self._noticed is None:
            self._check_for_commit()
        if session is None:
            return
        with self._lock:
            self._followed = {session: None, **self._followed}
            while len(self._followed) > _MAX_SESSIONS:
                self._followed.popitem()
            snapshot = self.seen
            if snapshot is not None and session not in snapshot.compacted:
                lines = self._summarize_sessions({session})
                self.seen = replace(
                    snapshot,
                    followed={**snapshot.followed, **lines},
                    compacted={**snapshot.compacted, **self._count_compacted(lines)},
                )

    def _check_for_commit(self) -> None:
        """Notice a commit.

        While a writer locks the database, the next poll notices it.
        """
        try:
            changes = self._home.db.read_changes(self._noticed, limit=_MAX_EVENTS)
        except Busy:
            return
        if changes.cursor != self._noticed or self._is_route_read_due():
            self._noticed = changes.cursor
            self.commits += 1

    def _update_snapshot(self) -> None:
        with self._lock:
            self._looked_at = time.monotonic()
            changes = self._home.db.read_changes(self._stored, limit=500)
            previous, pins = self.seen, self._read_pins()
            is_same = previous is not None and (changes.cursor, pins) == (
                self._stored,
                previous.pins,
            )
            if is_same and not self._is_route_read_due():
                return
            self._stored = changes.cursor
            self.seen = self._take_snapshot(pins)
            if previous is not None:
                for session, event in find_snapshot_events(self._home, previous, self.seen):
                    self._number += 1
                    self._passing.append((self._number, session, event))

    def _take_snapshot(self, pins: frozenset[str]) -> FeedState:
        lines = {line.id: line for line in self._home.db.list_sessions(limit=_MAX_SESSIONS).items}
        followed = self._summarize_sessions(self._followed.keys() - lines)
        compacted = self._count_compacted((*lines, *followed))
        return FeedState(lines, followed, compacted, self._read_routes(), pins)

    def _summarize_sessions(self, sessions: Iterable[str]) -> dict[str, SessionSummary]:
        rows: dict[str, SessionSummary] = {}
        for session in sessions:
            with suppress(NotFound):
                rows[session] = self._home.db.summarize_session(session)
        return rows

    def _count_compacted(self, sessions: Iterable[str]) -> dict[str, int]:
        return {session: self._home.db.get_revision(session).compacted for session in sessions}

    def _read_pins(self) -> frozenset[str]:
        """Return our own pins, or the pins of the last snapshot if they cannot be read now."""
        try:
            return frozenset(self._home.list_own_pins())
        except SessionError:
            return frozenset() if self.seen is None else self.seen.pins

    def _is_route_read_due(self) -> bool:
        """Return True if a commit came since the routes were read, and their pause is over.

        No other commit may follow, so that the change of a route would stay unnoticed.
        """
        return self._are_routes_old and time.monotonic() >= self._routes_due

    def _read_routes(self) -> Mapping[str, str]:
        started_at = time.monotonic()
        self._are_routes_old = self.seen is not None and started_at < self._routes_due
        if self.seen is not None and self._are_routes_old:
            return self.seen.routes
        routes = {key: entry.session_id for key, entry in self._home.store.load_entries().items()}
        self._routes_due = started_at + (time.monotonic() - started_at) * _ROUTES_PAUSE_FACTOR
        return routes


def render_event(store: ServedStore, event: SessionEvent, store_name: str | None) -> dict[str, Any]:
    """Return an event of the database or of a transcript."""
    return {
        "type": event.type,
        "at": format_time(event.at),
        "session_id": event.session_id,
        **drop_empty(
            store=store_name,
            message_id=event.message_id,
            role=render.render_line(store, event.role, render.MAX_ROLE_CHARS),
            text=_render_text(store, event),
            title=render.render_line(store, event.title),
            reason=render.render_line(store, event.reason),
        ),
    }


def _render_text(store: ServedStore, event: SessionEvent) -> str | None:
    """Return the beginning of a message, cut after its whole text was redacted."""
    if event.message_id is None or event.text is None:
        return None
    row = store.get_message(event.session_id, event.message_id)
    text = event.text if row is None else extract_plain_text(row["content"])
    return shorten_text(store.redact(text), _MAX_TEXT_CHARS)


@dataclass(frozen=True, slots=True)
class FeedState:
    """One snapshot of the newest and the followed sessions."""

    lines: Mapping[str, SessionSummary]
    followed: Mapping[str, SessionSummary]
    compacted: Mapping[str, int]
    routes: Mapping[str, str]
    # Our own pins of sessions in homes without a column for them.
    pins: frozenset[str]


def find_changed_sessions(before: FeedState, after: FeedState) -> set[str]:
    """Return the sessions with a row that differs in more than its messages."""
    rows = {**after.followed, **after.lines}
    changed = {
        session
        for session, line in {**before.followed, **before.lines}.items()
        if session not in rows or _drop_message_fields(rows[session]) != _drop_message_fields(line)
    }
    return changed | (before.pins ^ after.pins)


def is_list_changed(before: FeedState, after: FeedState) -> bool:
    """Return True if the newest conversations or their names differ."""
    return _map_titles(before) != _map_titles(after)


def find_snapshot_events(
    home: ServedHome, before: FeedState, after: FeedState
) -> list[tuple[str, dict[str, Any]]]:
    """Return the events between two snapshots, each with its session."""
    at = format_time(time.time())
    events: list[tuple[str, dict[str, Any]]] = []

    def add_event(kind: str, session: str, **fields: Any) -> None:
        event = {"type": kind, "at": at, "session_id": session}
        events.append((session, event | drop_empty(store=home.store_name, **fields)))

    known_roots = {line.root_id for line in before.lines.values()}
    previous_rows = {**before.followed, **before.lines}
    for session, line in {**after.followed, **after.lines}.items():
        previous = previous_rows.get(session)
        if previous is not None and previous.title != line.title:
            add_event("title_changed", session, title=render.render_line(home, line.title))
        is_compacted = after.compacted[session] > before.compacted.get(
            session, after.compacted[session]
        )
        is_continuation = (
            previous is None and session in after.lines and line.root_id in known_roots
        )
        if is_compacted or is_continuation:
            add_event("compressed", session)
    for key, session in after.routes.items():
        if before.routes.get(key) != session:
            add_event("route_changed", session, session_key=key)
    for key in before.routes.keys() - after.routes.keys():
        add_event("route_changed", before.routes[key], session_key=key, reason="removed")
    return events


def _drop_message_fields(line: SessionSummary) -> SessionSummary:
    # Messages have events of their own, with a durable cursor.
    return replace(line, messages=0, last_active_at=0.0, preview="")


def _map_titles(snapshot: FeedState) -> dict[str, str]:
    return {session: line.title or line.preview for session, line in snapshot.lines.items()}
