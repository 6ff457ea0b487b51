"""What happens in a home, heard by all who wait: one look where somebody has committed.

Messages, starts and ends come from the database by its own cursor and survive a restart. Titles,
routes and compressions are seen by comparing two looks, and end with the process.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp_serve import rows
from mcp_serve.answers import said
from mcp_serve.quoting import shorten
from mcp_serve.times import iso
from session_core import Event, SessionSummary, plain_text

if TYPE_CHECKING:
    from mcp_serve.homes import Home

_KEPT = 1000
_LOOKED_AT = 50
_TEXT = 500
_LOOK_S = 1.0
_SHARE = 20
"""Routes that took a second to read are read again after twenty."""


@dataclass(frozen=True, slots=True)
class Place:
    """Up to where somebody has heard: in the database, and in what this process has seen."""

    session: str | None
    stored: str
    run: str
    number: int

    def packed(self) -> list[Any]:
        """Return it as JSON."""
        return [self.session, self.stored, self.run, self.number]

    @classmethod
    def unpack(cls, packed: Any) -> Place:
        """Return what was packed."""
        session, stored, run, number = packed
        return cls(session, stored, run, number)


@dataclass(frozen=True, slots=True)
class Heard:
    """What was heard since a place, and the place behind it."""

    events: list[dict[str, Any]]
    place: Place
    gap: bool


@dataclass(slots=True)
class Seen:
    """What was seen in one look."""

    lines: Mapping[str, SessionSummary] = field(default_factory=dict)
    compacted: Mapping[str, int] = field(default_factory=dict)
    routes: Mapping[str, str] = field(default_factory=dict)


class Feed:
    """Follows one home while somebody asks."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._run = secrets.token_hex(4)
        self._passing: deque[tuple[int, str, dict[str, Any]]] = deque(maxlen=_KEPT)
        self._number = 0
        self._stored: str | None = None
        self._seen: Seen | None = None
        self._routes_due = 0.0
        self._looked_at = 0.0

    def begin(self, session: str | None) -> Place:
        """Return the place of now."""
        stored = self._home.db.changes(session=session).cursor
        self._look()
        return Place(session, stored, self._run, self._number)

    def since(self, place: Place, limit: int) -> Heard:
        """Return what has happened since a place."""
        found = self._home.db.changes(place.stored, session=place.session, limit=limit)
        events = [_stored(self._home, event) for event in found.events]
        # What was stored is told at once; who is told something all the time waits for no look.
        if not events or time.monotonic() - self._looked_at > _LOOK_S:
            self._look()
        passing, number = self._passed(place, limit - len(events))
        following = Place(place.session, found.cursor, self._run, number)
        return Heard(events + passing, following, found.gap)

    def _passed(self, place: Place, room: int) -> tuple[list[dict[str, Any]], int]:
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

    def _look(self) -> None:
        with self._lock:
            self._looked_at = time.monotonic()
            stored = self._home.db.changes(self._stored, limit=500)
            if self._seen is not None and stored.cursor == self._stored:
                return
            self._stored = stored.cursor
            before, self._seen = self._seen, self._see()
            if before is not None:
                for session, event in _differences(self._home, before, self._seen):
                    self._number += 1
                    self._passing.append((self._number, session, event))

    def _see(self) -> Seen:
        db = self._home.db
        lines = {line.id: line for line in db.list_sessions(limit=_LOOKED_AT).items}
        compacted = {each: db.revision(each).compacted for each in lines}
        return Seen(lines, compacted, self._see_routes())

    def _see_routes(self) -> Mapping[str, str]:
        began = time.monotonic()
        if self._seen is not None and began < self._routes_due:
            return self._seen.routes
        found = {key: entry.session_id for key, entry in self._home.store.entries().items()}
        self._routes_due = began + (time.monotonic() - began) * _SHARE
        return found


def _stored(home: Home, event: Event) -> dict[str, Any]:
    return {
        "type": event.type,
        "at": iso(event.at),
        "session_id": event.session_id,
        **said(
            profile=home.profile,
            message_id=event.message_id,
            role=event.role,
            text=_text(home, event),
            title=rows.one_line(home, event.title),
            reason=rows.one_line(home, event.reason),
        ),
    }


def _text(home: Home, event: Event) -> str | None:
    """Return the beginning of what was said: the whole text is looked at for secrets first."""
    if event.message_id is None or event.text is None:
        return None
    row = home.db.get_message(event.message_id)
    whole = event.text if row is None else plain_text(row["content"])
    return shorten(home.redact(whole), _TEXT)


def _differences(home: Home, before: Seen, after: Seen) -> list[tuple[str, dict[str, Any]]]:
    """Return what is otherwise than in the look before, each with its session."""
    at = iso(home.now())
    found: list[tuple[str, dict[str, Any]]] = []

    def note(kind: str, session: str, **more: Any) -> None:
        event = {"type": kind, "at": at, "session_id": session}
        found.append((session, event | said(profile=home.profile, **more)))

    known = {line.root_id for line in before.lines.values()}
    for session, line in after.lines.items():
        was = before.lines.get(session)
        if was is not None and was.title != line.title:
            note("title_changed", session, title=rows.one_line(home, line.title))
        more = after.compacted[session] > before.compacted.get(session, after.compacted[session])
        if more or (was is None and line.root_id in known):
            note("compressed", session)
    for key, session in after.routes.items():
        if before.routes.get(key) != session:
            note("route_changed", session, session_key=key)
    for key in before.routes.keys() - after.routes.keys():
        note("route_changed", before.routes[key], session_key=key, reason="removed")
    return found
