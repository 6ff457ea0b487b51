"""The change feed of transcripts: messages and sessions that agents append."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from mcp_serve.feed import EventPosition, FeedResult, FeedState, render_event
from mcp_serve.progress import LOOKS, run_in_thread

if TYPE_CHECKING:
    from mcp_serve.transcripts import ServedTranscripts
    from session_core.types import SessionEvent

_POLL_INTERVAL_S = 0.2


class TranscriptFeed:
    """Follows the files of transcript stores while a call waits or a client listens."""

    def __init__(self, store: ServedTranscripts) -> None:
        self._store = store
        self._turn = anyio.Lock()
        self._noticed: str | None = None
        # Number of changes noticed so far.
        self.commits = 0
        # Titles are not compared: they change with the messages of their session.
        self.seen: FeedState | None = None

    async def wait_for_commit(self, commits: int) -> None:
        """Return after more than `commits` changes were noticed; one caller polls for all."""
        async with self._turn:
            while self.commits == commits:
                await anyio.sleep(_POLL_INTERVAL_S)
                await run_in_thread(self._check_for_change, of=LOOKS)

    def get_current_position(self, session: str | None) -> EventPosition:
        """Return the current position."""
        if self._noticed is None:
            self._check_for_change()
        cursor = self._store.library.read_changes(session=session).cursor
        return EventPosition(session, cursor, "", 0)

    def read_events(self, position: EventPosition, limit: int) -> FeedResult:
        """Return the events since a position."""
        with self._store.open_snapshot():
            page = self._store.library.read_changes(
                position.stored, session=position.session, limit=limit
            )
            events = [self._render_event(event) for event in page.events]
        return FeedResult(events, EventPosition(position.session, page.cursor, "", 0), page.gap)

    def _render_event(self, event: SessionEvent) -> dict[str, Any]:
        source = self._store.summarize_session(event.session_id).source
        return render_event(self._store, event, self._store.find_row_store(source))

    def follow_session(self, session: str | None) -> None:
        """Do nothing: every session is followed."""

    def _check_for_change(self) -> None:
        cursor = self._store.library.read_changes(self._noticed, limit=1).cursor
        if cursor != self._noticed:
            self._noticed = cursor
            self.commits += 1
