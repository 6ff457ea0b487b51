"""What happens in a home, heard by all who wait: one of them looks whether anybody has committed.

Messages, starts and ends come from the database by its own cursor and survive a restart. Titles,
routes and compressions are seen by comparing two looks, and end with the process. Titles and
compressions are those of the newest conversations and of the sessions that somebody follows.

What is otherwise in a home than in the look before: titles, compressions, routes.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio

from mcp_serve import render
from mcp_serve.arguments import format_time
from mcp_serve.progress import LOOKS, run_in_thread
from mcp_serve.render import drop_empty, shorten_text
from session_core import (
    Busy,
    NotFound,
    SessionError,
    SessionEvent,
    SessionSummary,
    extract_plain_text,
)

if TYPE_CHECKING:
    from mcp_serve.homes import ServedHome


_MAX_EVENTS = 1000
_MAX_SESSIONS = 50
_MAX_TEXT_CHARS = 500
_LOOK_INTERVAL_S = 1.0
_POLL_INTERVAL_S = 0.05
_ROUTES_PAUSE_FACTOR = 20
"""Routes that took a second to read are read again after twenty."""


@dataclass(frozen=True, slots=True)
class EventPosition:
    """Up to where somebody has heard: in the database, and in what this process has seen."""

    session: str | None
    stored: str
    run: str
    number: int

    def to_list(self) -> list[Any]:
        """Return it as JSON."""
        return [self.session, self.stored, self.run, self.number]

    @classmethod
    def from_list(cls, packed: Any) -> EventPosition:
        """Return what was packed."""
        session, stored, run, number = packed
        return cls(session, stored, run, number)


@dataclass(frozen=True, slots=True)
class FeedResult:
    """What was heard since a place, and the place behind it."""

    events: list[dict[str, Any]]
    place: EventPosition
    gap: bool


class HomeFeed:
    """Follows one home while somebody asks."""

    def __init__(self, home: ServedHome) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._run = secrets.token_hex(4)
        self._passing: deque[tuple[int, str, dict[str, Any]]] = deque(maxlen=_MAX_EVENTS)
        self._number = 0
        self._stored: str | None = None
        self.seen: FeedState | None = None
        """What was seen in the last look; None before the first."""
        self._followed: dict[str, None] = {}
        self._routes_due = 0.0
        self._looked_at = 0.0
        self._turn = anyio.Lock()
        self._noticed: str | None = None
        self.commits = 0
        """How often it was noticed that somebody has committed."""

    async def wait_for_commit(self, commits: int) -> None:
        """Return when more commits were noticed than so many; whoever has the turn looks for all.

        Taken before `since`, so that what is committed behind that is noticed.
        """
        async with self._turn:
            while self.commits == commits:
                await anyio.sleep(_POLL_INTERVAL_S)
                await run_in_thread(self._check_for_commit, of=LOOKS)

    def get_current_position(self, session: str | None) -> EventPosition:
        """Return the place of now."""
        self.follow_session(session)
        stored = self._home.db.read_changes(session=session).cursor
        self._update_snapshot()
        return EventPosition(session, stored, self._run, self._number)

    def read_events(self, place: EventPosition, limit: int) -> FeedResult:
        """Return what has happened since a place."""
        self.follow_session(place.session)
        found = self._home.db.read_changes(place.stored, session=place.session, limit=limit)
        events = [_render_event(self._home, event) for event in found.events]
        # What was stored is told at once; who is told something all the time waits for no look.
        if not events or time.monotonic() - self._looked_at > _LOOK_INTERVAL_S:
            self._update_snapshot()
        passing, number = self._list_passing_events(place, limit - len(events))
        following = EventPosition(place.session, found.cursor, self._run, number)
        return FeedResult(events + passing, following, found.gap)

    def _list_passing_events(
        self, place: EventPosition, room: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Return what this process has seen; what another run has seen is gone."""
        if place.run != self._run:
            return [], self._number
        found: list[dict[str, Any]] = []
        number = place.number
        for at, session, event in list(self._passing):
            if at > place.number and place.session in (None, session):
                if len(found) >= room:
                    return found, number
                found.append(event)
            number = max(number, at)
        return found, number

    def follow_session(self, session: str | None) -> None:
        """Look from now on also at a session that is named, be it as old as it may."""
        if self._noticed is None:
            self._check_for_commit()
        if session is None:
            return
        with self._lock:
            self._followed = {session: None, **self._followed}
            while len(self._followed) > _MAX_SESSIONS:
                self._followed.popitem()
            seen = self.seen
            if seen is not None and session not in seen.compacted:
                lines = self._summarize_sessions({session})
                self.seen = replace(
                    seen,
                    followed={**seen.followed, **lines},
                    compacted={**seen.compacted, **self._count_compacted(lines)},
                )

    def _check_for_commit(self) -> None:
        """Notice a commit; one that keeps everybody out is noticed at the next look."""
        try:
            found = self._home.db.read_changes(self._noticed, limit=_MAX_EVENTS)
        except Busy:
            return
        if found.cursor != self._noticed:
            self._noticed = found.cursor
            self.commits += 1

    def _update_snapshot(self) -> None:
        with self._lock:
            self._looked_at = time.monotonic()
            stored = self._home.db.read_changes(self._stored, limit=500)
            before, pins = self.seen, self._read_pins()
            if before is not None and (stored.cursor, pins) == (self._stored, before.pins):
                return
            self._stored = stored.cursor
            self.seen = self._take_snapshot(pins)
            if before is not None:
                for session, event in find_differences(self._home, before, self.seen):
                    self._number += 1
                    self._passing.append((self._number, session, event))

    def _take_snapshot(self, pins: frozenset[str]) -> FeedState:
        lines = {line.id: line for line in self._home.db.list_sessions(limit=_MAX_SESSIONS).items}
        followed = self._summarize_sessions(self._followed.keys() - lines)
        compacted = self._count_compacted((*lines, *followed))
        return FeedState(lines, followed, compacted, self._read_routes(), pins)

    def _summarize_sessions(self, sessions: Iterable[str]) -> dict[str, SessionSummary]:
        found: dict[str, SessionSummary] = {}
        for session in sessions:
            with suppress(NotFound):
                found[session] = self._home.db.summarize_session(session)
        return found

    def _count_compacted(self, sessions: Iterable[str]) -> dict[str, int]:
        return {session: self._home.db.get_revision(session).compacted for session in sessions}

    def _read_pins(self) -> frozenset[str]:
        """Return the pins of ours, those of the last look where they cannot be read just now."""
        try:
            return frozenset(self._home.list_own_pins())
        except SessionError:
            return frozenset() if self.seen is None else self.seen.pins

    def _read_routes(self) -> Mapping[str, str]:
        began = time.monotonic()
        if self.seen is not None and began < self._routes_due:
            return self.seen.routes
        found = {key: entry.session_id for key, entry in self._home.store.load_entries().items()}
        self._routes_due = began + (time.monotonic() - began) * _ROUTES_PAUSE_FACTOR
        return found


def _render_event(home: ServedHome, event: SessionEvent) -> dict[str, Any]:
    return {
        "type": event.type,
        "at": format_time(event.at),
        "session_id": event.session_id,
        **drop_empty(
            profile=home.profile,
            message_id=event.message_id,
            role=render.render_line(home, event.role, render.MAX_ROLE_CHARS),
            text=_render_text(home, event),
            title=render.render_line(home, event.title),
            reason=render.render_line(home, event.reason),
        ),
    }


def _render_text(home: ServedHome, event: SessionEvent) -> str | None:
    """Return the beginning of what was said: the whole text is looked at for secrets first."""
    if event.message_id is None or event.text is None:
        return None
    row = home.db.get_message(event.message_id)
    whole = event.text if row is None else extract_plain_text(row["content"])
    return shorten_text(home.redact(whole), _MAX_TEXT_CHARS)


@dataclass(frozen=True, slots=True)
class FeedState:
    """What was seen in one look."""

    lines: Mapping[str, SessionSummary]
    followed: Mapping[str, SessionSummary]
    compacted: Mapping[str, int]
    routes: Mapping[str, str]
    pins: frozenset[str]
    """Pins of ours, where no row has them."""


def find_changed_sessions(before: FeedState, after: FeedState) -> set[str]:
    """Return the sessions whose row says otherwise, but for what their messages change in it."""
    rows = {**after.followed, **after.lines}
    otherwise = {
        session
        for session, line in {**before.followed, **before.lines}.items()
        if session not in rows or _drop_message_fields(rows[session]) != _drop_message_fields(line)
    }
    return otherwise | (before.pins ^ after.pins)


def is_list_changed(before: FeedState, after: FeedState) -> bool:
    """Whether other conversations are the newest than before, or some have another name."""
    return _map_names(before) != _map_names(after)


def find_differences(
    home: ServedHome, before: FeedState, after: FeedState
) -> list[tuple[str, dict[str, Any]]]:
    """Return what is otherwise than in the look before, each with its session."""
    at = format_time(home.now())
    found: list[tuple[str, dict[str, Any]]] = []

    def note(kind: str, session: str, **more: Any) -> None:
        event = {"type": kind, "at": at, "session_id": session}
        found.append((session, event | drop_empty(profile=home.profile, **more)))

    known = {line.root_id for line in before.lines.values()}
    seen = {**before.followed, **before.lines}
    for session, line in {**after.followed, **after.lines}.items():
        was = seen.get(session)
        if was is not None and was.title != line.title:
            note("title_changed", session, title=render.render_line(home, line.title))
        more = after.compacted[session] > before.compacted.get(session, after.compacted[session])
        goes_on = was is None and session in after.lines and line.root_id in known
        if more or goes_on:
            note("compressed", session)
    for key, session in after.routes.items():
        if before.routes.get(key) != session:
            note("route_changed", session, session_key=key)
    for key in before.routes.keys() - after.routes.keys():
        note("route_changed", before.routes[key], session_key=key, reason="removed")
    return found


def _drop_message_fields(line: SessionSummary) -> SessionSummary:
    return replace(line, messages=0, last_active_at=0.0, preview="")


def _map_names(seen: FeedState) -> dict[str, str]:
    return {session: line.title or line.preview for session, line in seen.lines.items()}
