"""The transcripts of other agents as a served store: read in place, never changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from mcp_serve.redaction import redaction
from mcp_serve.served_store import Position, ResolvedSession, Summary
from mcp_serve.transcript_feed import TranscriptFeed
from session_core import NotFound, SessionError, SessionFilter
from session_core.transcripts import StoreCoverage, TranscriptStore
from session_core.types import (
    MessageRow,
    MessageWindow,
    Page,
    SearchHit,
    SearchResult,
    SessionOrder,
)

INDEXING_S = 2.0
"""How long a search helps to index what is not indexed yet."""

_SLICE_S = 0.2

GROUP_NAME = "transcripts"
"""The name of all transcript stores together, in notes and cursors."""


class ServedTranscripts:
    """One transcript store, or all of them as one; the library is opened on first use."""

    def __init__(
        self,
        names: Sequence[str],
        open_library: Callable[[], TranscriptStore],
        *,
        is_one_of_several: bool,
        redact: bool,
        clock: Callable[[], float],
    ) -> None:
        self.names: Sequence[str] = tuple(names)
        self.name = names[0] if len(names) == 1 else GROUP_NAME
        self.store_name: str | None = self.name if is_one_of_several else None
        self.redacts = redact
        self.redact: Callable[[str], str] = redaction.redact if redact else redaction.keep_text
        self.now = clock
        self._open_library = open_library
        # Set once; what is written afterwards is read by the calls.
        self._is_indexed = False
        self.feed = TranscriptFeed(self)

    @property
    def library(self) -> TranscriptStore:
        """The transcripts of these stores.

        Raises:
            Denied: the index cannot be written.
        """
        return self._open_library().select_stores(self.names)

    @contextmanager
    def open_snapshot(self) -> Iterator[None]:
        """Let all reads of this thread in the block see the files as they are at the first."""
        with self._open_library().open_block():
            yield

    def list_sessions(
        self,
        where: SessionFilter | None = None,
        *,
        order: SessionOrder = "recent",
        limit: int = 20,
        after: Position | None = None,
    ) -> Page[Summary]:
        """List sessions, those that follow a position of a merged list."""
        below = None if after is None else (-after[0], after[1], after[2])
        page = self.library.list_sessions(where, order=order, limit=limit, below=below)
        return Page(list(page.items), page.next_cursor)

    def summarize_session(self, session_id: str) -> Summary:
        """Return the row of a session.

        Raises:
            NotFound: the session does not exist.
        """
        row = self.library.get_session(session_id)
        if row is None:
            raise NotFound(f"session {session_id!r:.80} does not exist")
        return row

    def find_row_store(self, source: str) -> str | None:
        """Return the store of a session, which is its source, if several stores are served."""
        return None if self.store_name is None else source

    def list_own_pins(self) -> Collection[str]:
        """Return nothing: transcripts are not pinned."""
        return ()

    def match_session(self, reference: str, *, exact: bool = False) -> ResolvedSession | None:
        """Return the session for an id, a prefix of one or a title, or None."""
        row, way = self.library.get_session(reference), 0
        if row is None and not exact:
            session_id = self.library.resolve_session_id(reference)
            row = None if session_id is None else self.library.get_session(session_id)
            way = 3 if session_id is not None and session_id.startswith(reference) else 2
        return None if row is None else ResolvedSession(row.id, way, row.source)

    def list_nearest_ids(self, reference: str) -> Sequence[str] | None:
        """Return no ids: those of agents are random."""
        del reference
        return ()

    def list_lineage(self, session_id: str) -> Sequence[str]:
        """Return the session alone: a compaction stays in its transcript."""
        return (session_id,)

    def find_parent(self, session_id: str) -> str | None:
        """Return None: no transcript continues another one."""
        del session_id
        return None

    def read_window(self, session_id: str, **options: Any) -> MessageWindow:
        """Return messages next to a message id, or the newest ones."""
        return self.library.read_window(session_id, **options)

    def get_message(self, session_id: str, message_id: int) -> MessageRow | None:
        """Return a message of a session by its id, or None."""
        return self.library.get_message(session_id, message_id)

    def search(
        self,
        query: str,
        *,
        source: Sequence[str] | None = None,
        project: str | None = None,
        status: Any = None,
        **options: Any,
    ) -> SearchResult:
        """Search the messages; conditions on sessions are those of a list."""
        if options.get("cursor") is None:
            self._wait_for_index()
        sources = None if source is None else tuple(source)
        where = SessionFilter(source=sources, project=project, status=status)
        return self.library.search(query, where=where, **options)

    def _wait_for_index(self) -> None:
        """Index for a moment if that was not finished: a search without hits helps nobody."""
        until = time.monotonic() + INDEXING_S
        with suppress(SessionError):  # the search answers from what is indexed
            while not self._is_indexed and time.monotonic() < until:
                self._is_indexed = not self.library.work(_SLICE_S)

    def find_messages(self, hits: Iterable[SearchHit]) -> Mapping[tuple[str, int], MessageRow]:
        """Return the messages of hits by session and message id."""
        return self.library.find_messages((hit.session_id, hit.message_id) for hit in hits)

    def measure_share(self) -> float:
        """Return the share of the bytes that a search sees."""
        return self.library.measure_share()

    def measure_coverage(self) -> list[StoreCoverage]:
        """Return how much of each store is indexed."""
        return self.library.measure_coverage()
