"""The transcripts of other agents as a served store, and the thread that indexes and keeps them.

They are read in place and never changed.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from mcp_serve.redaction import redaction
from mcp_serve.stores.served_store import (
    EditedSessions,
    EditValues,
    Position,
    ResolvedSession,
    Summary,
    ValueChange,
    list_hit_places,
)
from mcp_serve.stores.transcript_feed import TranscriptFeed
from session_core import NotFound, SessionError, SessionFilter, Unsupported
from session_core.transcripts import (
    StoreCoverage,
    TranscriptCopies,
    TranscriptStore,
    TranscriptSummary,
)
from session_core.types import MessageRow, MessageWindow, Page, SearchHit, SessionOrder

if TYPE_CHECKING:
    from session_core.ledger import AuditEntry, Batch, LabelChange, Labels
    from session_core.state import StoreSearch

INDEXING_S = 1.0
"""How long a search helps to index what is not indexed yet, before it looks for its own words."""

_SLICE_S = 0.2
_BY_TITLE = 2
_MAX_RELATIVES = 5
_RELATIONS = {"branch": "Fork", "delegate": "Subagent", None: "Continuation"}

GROUP_NAME = "transcripts"
"""The name of all transcript stores together, in notes and cursors."""

_WORKER_SLICE_S = 0.1
_LONG_SLICE_S = 0.5
# A command that answers a question must not wait for the first copies of everything.
_KEEP_S = 1.0
_PAUSE_S = 0.01
_PARTS = 1000
# Interval at which the thread looks for history after everything is indexed. Calls see new data.
_IDLE_S = 30.0
_JOIN_S = 2.0


class ServedTranscripts:
    """One transcript store, or all of them as one.

    The library is opened on first use.
    """

    def __init__(
        self,
        names: Sequence[str],
        open_library: Callable[[], TranscriptStore],
        get_labels: Callable[[], Labels],
        *,
        is_one_of_several: bool,
        redact: bool,
    ) -> None:
        self.names: Sequence[str] = tuple(names)
        self.name = names[0] if len(names) == 1 else GROUP_NAME
        self.store_name: str | None = self.name if is_one_of_several else None
        self.redacts = redact
        self.has_long_previews = True
        self.redact: Callable[[str], str] = redaction.redact if redact else redaction.skip_redaction
        self._open_library = open_library
        self._get_labels = get_labels
        # Set once, since calls read data that is written later.
        self._is_indexed = False
        self.feed = TranscriptFeed(self)

    @property
    def library(self) -> TranscriptStore:
        """The transcripts of these stores.

        Raises:
            Denied: the index cannot be written.
        """
        return self._open_library().select_stores(self.names)

    @property
    def labels(self) -> Labels:
        """Our titles, pins and archive marks of sessions in all stores."""
        return self._get_labels()

    @property
    def keep(self) -> TranscriptCopies:
        """The kept copies, of all stores."""
        return self._open_library().keep

    @contextmanager
    def open_snapshot(self) -> Iterator[None]:
        """Let all reads of this thread in the block see the files as the first read sees them."""
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
        """List sessions after a position of a merged list."""
        below = None if after is None else (-after[0], after[1], after[2])
        page = self.library.list_sessions(where, order=order, limit=limit, below=below)
        return Page(list(page.items), page.next_cursor)

    def summarize_session(self, session_id: str) -> TranscriptSummary:
        """Return the row of a session.

        Raises:
            NotFound: the session does not exist.
        """
        row = self.library.get_session(session_id)
        if row is None:
            raise NotFound(f"session {session_id!r:.80} does not exist")
        return row

    def list_sources(self) -> Collection[str]:
        """Return the names of the stores, which are also the sources of their sessions."""
        return self.names

    def list_folders(self) -> Collection[str]:
        """Return the folders of the sessions."""
        return self.library.list_folders()

    def build_resume_command(self, summary: Summary) -> Sequence[str] | None:
        """Return the command of the agent that continues a session, or None."""
        return getattr(summary, "resume", None)

    def find_shown_store(self, source: str) -> str | None:
        """Return the store of a session, which is its source, if several stores are served."""
        return None if self.store_name is None else source

    def list_own_pins(self) -> Collection[str]:
        """Return nothing, since the rows themselves have the pins."""
        return ()

    def match_session(
        self, reference: str, *, exact: bool = False, titles: bool = True
    ) -> ResolvedSession | None:
        """Return the session for an id, a prefix of an id or a title, or None."""
        row, way = self.library.get_session(reference), 0
        if row is None and not exact:
            session_id = self.library.resolve_session_id(reference)
            row = None if session_id is None else self.library.get_session(session_id)
            way = 3 if session_id is not None and session_id.startswith(reference) else _BY_TITLE
        if row is None or (way == _BY_TITLE and not titles):
            return None
        return ResolvedSession(row.id, way, row.source)

    def list_nearest_ids(self, reference: str) -> Sequence[str] | None:
        """Return no ids, since the ids of agents are random."""
        del reference
        return ()

    def list_lineage(self, session_id: str) -> Sequence[str]:
        """Return the session alone, since a compaction stays in its transcript."""
        return (session_id,)

    def find_parent(self, session_id: str) -> str | None:
        """Return None, since no transcript continues another."""
        del session_id
        return None

    def describe_relatives(self, session_id: str) -> str | None:
        """Return a note on the subagents and forks of a session, and on its parent."""
        row = self.summarize_session(session_id)
        children = self.library.list_children(session_id)
        parts = [
            _format_relatives(name, [child.id for child in children if child.link == link])
            for name, link in (("Subagents", "delegate"), ("Forks", "branch"))
        ]
        if row.parent_id:
            parts.insert(0, f"{_RELATIONS[row.link]} of session {row.parent_id:.100}.")
        note = " ".join(part for part in parts if part)
        return f"{note} Read one with sessions_read." if note else None

    def read_window(self, session_id: str, **options: Any) -> MessageWindow:
        """Return the messages next to a message id, or the newest messages."""
        return self.library.read_window(session_id, **options)

    def get_message(self, session_id: str, message_id: int) -> MessageRow | None:
        """Return a message of a session by its id, or None."""
        return self.library.get_message(session_id, message_id)

    def read_preview_messages(self, summaries: Iterable[Summary]) -> Mapping[str, MessageRow]:
        """Return the messages that previews were cut from, by session."""
        places = [(row.id, row.preview_id) for row in summaries if row.preview_id is not None]
        openings = {place[0]: row for place, row in self.library.find_messages(places).items()}
        # A session that is not indexed yet is read for it: a preview alone may hide a secret.
        for session_id, number in places:
            if session_id not in openings:
                row = self.library.get_message(session_id, number)
                openings |= {} if row is None else {session_id: row}
        return openings

    @contextmanager
    def open_search(
        self,
        query: str,
        *,
        newest_ms: int | None = None,
        source: Sequence[str] | None = None,
        exclude_source: Sequence[str] | None = None,
        project: str | Sequence[str] | None = None,
        status: Any = None,
        **options: Any,
    ) -> Iterator[StoreSearch]:
        """Open one search, with the conditions on sessions that a list has."""
        if newest_ms is None:
            self._index_briefly()
        where = SessionFilter(
            source=None if source is None else tuple(source),
            exclude_source=None if exclude_source is None else tuple(exclude_source),
            project=project if project is None or isinstance(project, str) else tuple(project),
            status=status,
        )
        with self.library.open_search(query, where=where, newest_ms=newest_ms, **options) as search:
            yield search

    def _index_briefly(self) -> None:
        """Index for a moment if the index is not complete, so that a first search has hits."""
        until = time.monotonic() + INDEXING_S
        with suppress(SessionError):  # the search answers from the index as it is
            while not self._is_indexed and time.monotonic() < until:
                self._is_indexed = not self.library.index_pending(_SLICE_S)

    def find_messages(self, hits: Iterable[SearchHit]) -> Mapping[tuple[str, int], MessageRow]:
        """Return the messages of hits, and the replies to them, by session and message id."""
        return self.library.find_messages(list_hit_places(hits))

    def measure_share(self) -> float:
        """Return the share of the bytes that a search sees."""
        return self.library.measure_share()

    def edit_sessions(
        self, session_ids: Sequence[str], values: EditValues, client: str
    ) -> EditedSessions:
        """Edit our labels of sessions in one batch."""
        rows = self._require_editable(session_ids, values)
        batch = self.labels.edit(rows, **_get_label_values(values), client=client)
        return EditedSessions([self.summarize_session(row.id) for row in rows], batch)

    def preview_edit(self, session_ids: Sequence[str], values: EditValues) -> Sequence[ValueChange]:
        """Return the labels that an edit would change."""
        rows = {row.id: row for row in self._require_editable(session_ids, values)}
        changes = self.labels.preview_edit(list(rows.values()), **_get_label_values(values))
        return [
            part for change in changes for part in _list_values(rows[change.session_id], change)
        ]

    def _require_editable(
        self, session_ids: Sequence[str], values: EditValues
    ) -> list[TranscriptSummary]:
        """Return the rows of sessions to edit, and refuse to reopen them."""
        rows = [self.summarize_session(session_id) for session_id in session_ids]
        if values.get("reopen"):
            instead = f"; continue it with `{shlex.join(rows[0].resume)}`" if rows[0].resume else ""
            raise Unsupported(
                f"session {rows[0].id!r:.100} is a transcript of {rows[0].source}, which has no "
                f"end to remove{instead}"
            )
        return rows

    def list_batches(self, limit: int, cursor: str | None) -> Page[Batch]:
        """List the edits of labels that can be undone, newest first."""
        return self.labels.list_batches(self.names, limit, cursor)

    def list_audit_entries(self, limit: int, cursor: str | None) -> Page[AuditEntry]:
        """List the recorded edits of labels, newest first."""
        return self.labels.list_audit_entries(self.names, limit, cursor)

    def measure_coverage(self) -> list[StoreCoverage]:
        """Return the indexed share of each store."""
        return self.library.measure_coverage()


def _format_relatives(name: str, ids: Sequence[str]) -> str:
    """Return a sentence with the newest ids, or nothing."""
    more = [f"and {len(ids) - _MAX_RELATIVES:,} more"] if len(ids) > _MAX_RELATIVES else []
    listed = [*(f"{session_id:.100}" for session_id in ids[-_MAX_RELATIVES:]), *more]
    return f"{name}: {', '.join(listed)}." if ids else ""


def _get_label_values(values: EditValues) -> dict[str, Any]:
    return {name: values.get(name) for name in ("title", "archived", "pinned")}


def _list_values(row: TranscriptSummary, change: LabelChange) -> Iterator[ValueChange]:
    """Yield the values that a session shows now and will show."""
    before, after = change.before, change.after
    if after.title != before.title:
        # The agent's own title is not known while ours is shown.
        title = after.title if after.title is not None else f"(that of {row.source})"
        yield ValueChange(row.id, "title", row.title, title)
    if after.archived != before.archived:
        is_archived = row.status == "archived"
        yield ValueChange(row.id, "archived", is_archived, not is_archived)
    if after.pinned != before.pinned:
        yield ValueChange(row.id, "pinned", row.pinned, not row.pinned)


class TranscriptIndex:
    """Opens the transcripts on first use.

    `watch` lets the kernel report their changes.
    """

    def __init__(self, stores: Sequence[str], *, watch: bool) -> None:
        self._stores = stores
        self._watch = watch
        self._library: TranscriptStore | None = None
        self._labels: Labels | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._worker: threading.Thread | None = None

    def open(self) -> TranscriptStore:
        """Return the library.

        Raises:
            Denied: the folder of the index cannot be written.
        """
        with self._lock:
            if self._library is None:
                self._library = TranscriptStore(stores=self._stores)
                if self._watch:
                    self._library.start_watch()
            return self._library

    def get_labels(self) -> Labels:
        """Return the labels of the sessions, which are stored next to the index."""
        from session_core.ledger import Labels  # noqa: PLC0415 -- reads do not need it

        with self._lock:
            if self._labels is None:
                self._labels = Labels()
            return self._labels

    def index_all(self, report: Callable[[int, int], object] | None) -> None:
        """Index until nothing is left, then copy new parts of sessions for a moment.

        An error ends it, and the next call reports that.
        """
        with suppress(SessionError):
            while self.open().index_pending(_LONG_SLICE_S):
                if report is not None:
                    report(int(self.open().measure_share() * _PARTS), _PARTS)
            self.open().keep.copy_pending(_KEEP_S)

    def start_worker(self) -> None:
        """Start the thread that indexes."""
        if self._worker is None:
            self._worker = threading.Thread(
                target=self._index_until_closed, name="transcripts", daemon=True
            )
            self._worker.start()

    def close(self) -> None:
        """Stop the thread and close the library."""
        self._stopped.set()
        if self._worker is not None:
            self._worker.join(_JOIN_S)
        with self._lock:
            if self._labels is not None:
                self._labels.close()
            if self._library is not None:
                self._library.close()

    def _index_until_closed(self) -> None:
        while not self._stopped.is_set():
            try:
                is_left = self.open().index_pending(
                    _WORKER_SLICE_S
                ) or self.open().keep.copy_pending(_WORKER_SLICE_S)
            except SessionError:  # the next call reports it
                is_left = False
            self._stopped.wait(_PAUSE_S if is_left else _IDLE_S)
