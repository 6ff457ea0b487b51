"""The change feed of transcripts: messages and sessions that agents append, and our titles.

Data that agents append has a durable cursor. Our titles are compared with the titles at the last
check, so only this process has their events, as with titles of a home.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio

from mcp_serve import render
from mcp_serve.arguments import format_time
from mcp_serve.progress import CHECKS, run_in_thread
from mcp_serve.stores.home_feed import EventPosition, FeedResult, FeedState, render_event
from session_core import NotFound, SessionError

if TYPE_CHECKING:
    from mcp_serve.stores.transcripts import ServedTranscripts
    from session_core.types import SessionEvent

_POLL_INTERVAL_S = 0.2
_MAX_EVENTS = 1000


class TranscriptFeed:
    """Follows the files of transcript stores while a call waits or a client listens."""

    def __init__(self, store: ServedTranscripts) -> None:
        self._store = store
        self._turn = anyio.Lock()
        self._noticed: str | None = None
        self._lock = threading.Lock()
        self._run = secrets.token_hex(4)
        self._titles: Mapping[tuple[str, str], str] | None = None
        self._passing: deque[tuple[int, dict[str, Any]]] = deque(maxlen=_MAX_EVENTS)
        self._number = 0
        # Number of changes noticed so far.
        self.commits = 0
        # Rows are not compared: those of agents change with the messages of their session.
        self.seen: FeedState | None = None

    async def wait_for_commit(self, commits: int) -> None:
        """Return after more than `commits` changes were noticed.

        One caller polls for all callers.
        """
        async with self._turn:
            while self.commits == commits:
                await anyio.sleep(_POLL_INTERVAL_S)
                await run_in_thread(self._check_for_change, of=CHECKS)

    def get_current_position(self, session: str | None) -> EventPosition:
        """Return the current position."""
        if self._noticed is None:
            self._check_for_change()
        cursor = self._store.library.read_changes(session=session).cursor
        self._record_title_changes()
        return EventPosition(session, cursor, self._run, self._number)

    def read_events(self, position: EventPosition, limit: int) -> FeedResult:
        """Return the events since a position."""
        with self._store.open_snapshot():
            page = self._store.library.read_changes(
                position.stored, session=position.session, limit=limit
            )
            events = [self._render_event(event) for event in page.events]
        self._record_title_changes()
        passing, number = self._list_transient_events(position, limit - len(events))
        following = EventPosition(position.session, page.cursor, self._run, number)
        return FeedResult(events + passing, following, page.gap)

    def _list_transient_events(
        self, position: EventPosition, room: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Return the changes of our titles that this process has seen since a position."""
        if position.run != self._run:
            return [], self._number
        events: list[dict[str, Any]] = []
        number = position.number
        for event_number, event in list(self._passing):
            if event_number > position.number and position.session in (None, event["session_id"]):
                if len(events) >= room:
                    return events, number
                events.append(event)
            number = max(number, event_number)
        return events, number

    def _record_title_changes(self) -> bool:
        """Record changes of our titles, and return True if there are any."""
        with self._lock:
            try:
                titles = self._store.labels.list_titles(self._store.names)
            except SessionError:
                return False  # a damaged file is reported by the next edit
            before, self._titles = self._titles, titles
            if before is None or before == titles:
                return False
            for store, session_id in sorted(before.keys() | titles.keys()):
                if before.get((store, session_id)) != titles.get((store, session_id)):
                    self._number += 1
                    self._passing.append((self._number, self._make_event(store, session_id)))
            return True

    def _make_event(self, store: str, session_id: str) -> dict[str, Any]:
        title = None
        with suppress(NotFound):  # our empty title shows the title of the agent
            title = self._store.summarize_session(session_id).title
        return {
            "type": "title_changed",
            "at": format_time(time.time()),
            "session_id": session_id,
            **render.drop_empty(
                store=self._store.find_shown_store(store),
                title=render.render_line(self._store, title),
            ),
        }

    def _render_event(self, event: SessionEvent) -> dict[str, Any]:
        source = self._store.summarize_session(event.session_id).source
        return render_event(self._store, event, self._store.find_shown_store(source))

    def follow_session(self, session: str | None) -> None:
        """Do nothing, since every session is followed."""

    def _check_for_change(self) -> None:
        cursor = self._store.library.read_changes(self._noticed, limit=1).cursor
        if self._record_title_changes() or cursor != self._noticed:
            self._noticed = cursor
            self.commits += 1
