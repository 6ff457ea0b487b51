"""`TranscriptStore`: the sessions of other agents as one store, read in place.

Each call scans the roots first, so that its answer contains all that was written before the call.
The text of an answer comes from the transcripts; the index only has the places.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from session_core._typing import Self
from session_core.errors import InvalidInput, NotFound, SessionError
from session_core.state.cursors import decode_cursor, encode_cursor
from session_core.state.polling import ChangePoller
from session_core.state.protocol import StopSignal
from session_core.state.store_search import StoreSearch
from session_core.state.validation import check_limit, check_text
from session_core.transcripts import label_view, listing
from session_core.transcripts.change_feed import ChangeFeed
from session_core.transcripts.coverage import measure_coverage
from session_core.transcripts.formats import load_formats
from session_core.transcripts.index import Index
from session_core.transcripts.indexer import Indexer
from session_core.transcripts.keep.session_forgetter import SessionAccess
from session_core.transcripts.keep.transcript_copies import TranscriptCopies
from session_core.transcripts.listing import Condition, SummaryRow
from session_core.transcripts.places import find_index_folder, list_seen_stores, remember_stores
from session_core.transcripts.raw_source import RawSource, open_raw_source
from session_core.transcripts.roots import AnyFormat, find_roots, is_database_format
from session_core.transcripts.types import StoreCoverage, TranscriptSummary
from session_core.transcripts.unindexed_sessions import UnindexedSessions
from session_core.transcripts.windows import UnreadPart, WindowReader, check_window
from session_core.types import (
    EventPage,
    MessageRow,
    MessageView,
    MessageWindow,
    Page,
    SearchMode,
    SearchOrder,
    SearchResult,
    SearchUnit,
    SessionFilter,
)

if TYPE_CHECKING:
    from session_core.transcripts.candidates import SearchRequest

_REFRESH_S = 0.3
_READ_ENDS_S = 0.01
_MAX_READ_ENDS_S = 2.0
"""The time limit of a list for reading files that are not indexed."""
_MAX_NEAREST = 5
_LEAST_NEEDLE = 3
_SCAN_SLICE_S = 0.2
SCAN_S = 1.0
"""The time limit of a first page for searching files that are not indexed."""


class TranscriptStore:
    """Lists, reads and searches the transcripts of other agents.

    The transcripts are read in place and never changed.

    Args:
        folder: the folder of the index, which is created; by default, in the state folder.
        stores: the names of the stores to read; by default, all stores on this machine.
        environ: the environment in which agents and the state folder are found.
        formats: the formats of transcripts; by default, the formats of this package.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        stores: Collection[str] | None = None,
        environ: Mapping[str, str] | None = None,
        formats: Sequence[AnyFormat] | None = None,
    ) -> None:
        place = find_index_folder(environ) if folder is None else Path(folder)
        if formats is None:
            wanted = load_formats(stores)
        else:
            wanted = [reader for reader in formats if stores is None or reader.store in stores]
        self._roots = find_roots(wanted, environ)
        self._index = Index(place.absolute())
        self._indexer = Indexer(self._index, self._roots)
        self._windows = WindowReader(self._index, self._indexer.catalog)
        self._changes = ChangeFeed(self._index, self._windows)
        self._unindexed = UnindexedSessions(place.absolute() / label_view.FILE_NAME)
        access = SessionAccess(self._select_rows, self._require_named_row, self._make_summary)
        self.keep = TranscriptCopies(self._index, self._indexer, access)
        """The kept copies, which replace sources that have gone."""
        self._selected: tuple[str, ...] | None = None
        # A scan is fresh only for the calls of its own block, which is in one thread.
        self._blocks = threading.local()
        self._remembered: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the index and stop watching."""
        self._indexer.close()
        self.keep.close()
        self._index.close()
        self._unindexed.close()

    @property
    def problem(self) -> SessionError | None:
        """The error that prevented writing the index at the last call, or None.

        Answers may then be incomplete.
        """
        return self._indexer.problem

    def start_watch(self) -> bool:
        """Watch the roots through the kernel.

        Return False if that is not possible. Without a watch, each call scans all files. A watch is
        useful in long-running processes.
        """
        return self._indexer.start_watch()

    def index_pending(self, budget_s: float = 0.5) -> bool:
        """Index new data for about `budget_s`.

        Return True if some is left.
        """
        is_left = self._indexer.index_pending(budget_s)
        self.keep.finish_forgetting()
        if not is_left:
            self._remember_stores()
            self._index.remove_abandoned()
        return is_left

    def measure_share(self) -> float:
        """Return the share of the bytes that is indexed, as of the last scan."""
        return self._indexer.measure_share()

    def _remember_stores(self) -> None:
        """Record the stores that have sessions, so that a moved store is noticed."""
        rows = self._index.read("SELECT DISTINCT store FROM sessions WHERE messages > 0")
        new = {row[0] for row in rows} - self._remembered
        if new:
            with suppress(OSError):  # the note is a convenience
                remember_stores(self._index.path.parent, sorted(new))
            self._remembered |= new

    def rebuild(self) -> None:
        """Clear the index, so that the next calls rebuild it."""
        self._indexer.clear_index()

    def select_stores(self, stores: Collection[str]) -> TranscriptStore:
        """Return a view of some of the stores.

        The view shares the index and is closed with this store.
        """
        view = copy.copy(self)
        view._selected = tuple(stores)  # noqa: SLF001 -- the same class
        return view

    @contextmanager
    def open_block(self) -> Iterator[None]:
        """Scan the roots only once for all calls of this thread in the `with` block."""
        if getattr(self._blocks, "is_fresh", None) is not None:
            yield
            return
        self._blocks.is_fresh = False
        try:
            yield
        finally:
            self._blocks.is_fresh = None

    def _refresh_index(self, budget_s: float) -> None:
        is_fresh = getattr(self._blocks, "is_fresh", None)
        if is_fresh:
            return
        self._index.update_labels()
        self._indexer.refresh_index(budget_s)
        if is_fresh is not None:
            self._blocks.is_fresh = True

    def list_sessions(
        self,
        where: SessionFilter | None = None,
        *,
        order: str = "recent",
        limit: int = 20,
        cursor: str | None = None,
        below: tuple[float, str, str] | None = None,
        delegates: bool = False,
    ) -> Page[TranscriptSummary]:
        """List sessions, newest first.

        Without a status, archived sessions are left out. Sessions of subagents are left out, as in
        a home, unless `delegates` is set. `below` is a position after which the list begins: the
        value of the order, the store and the id; times are in seconds.
        """
        check_limit(limit)
        now = time.time()
        where = where or SessionFilter()
        scope = [repr(where), order, delegates]
        position = None if cursor is None else decode_cursor("transcripts", scope, cursor)
        if below is not None:
            position = listing.make_position(order, below)
        conditions = [*listing.build_conditions(where, now), *self._build_selection()]
        if not delegates:
            conditions.append(listing.NO_DELEGATES)
        rows = self._list_rows(conditions, order, limit + 1, position)
        items = [self._make_summary(row, now) for row in rows[:limit]]
        if len(rows) <= limit:
            return Page(items)
        last = rows[limit - 1]
        place = [last["value"], last["store"], last["session_id"]]
        return Page(items, encode_cursor("transcripts", scope, place))

    def _list_rows(
        self, conditions: Sequence[Condition], order: str, limit: int, position: Any
    ) -> list[SummaryRow]:
        glance_sql = listing.build_list_sql(conditions, order, limit, position)
        with self._index.writing:
            self._refresh_index(0)
            index_sql = listing.build_list_sql(
                [*conditions, *self._build_scope()], order, limit, position
            )
            until = time.monotonic() + _MAX_READ_ENDS_S
            new = self._unindexed.list_new_files(self._indexer.catalog)
            while True:
                border = self._unindexed.read_new_files(new, self._indexer.feeds, _READ_ENDS_S)
                stored_rows = (*self._index.read(*index_sql), *self._unindexed.read(*glance_sql))
                rows = [listing.make_row(row) for row in stored_rows]
                # A page ends before all unread files, so that the next page misses nothing.
                is_full = (
                    order == "recent" and sum(r["value"] >= (border or 0) for r in rows) >= limit
                )
                if border is None or is_full or time.monotonic() > until:
                    break
        listing.sort_rows(rows)
        return rows[:limit]

    def list_folders(self) -> list[str]:
        """Return the working folders of all sessions, each once."""
        with self._index.writing:
            self._refresh_index(0)
            new = self._unindexed.list_new_files(self._indexer.catalog)
            self._unindexed.read_new_files(new, self._indexer.feeds, _MAX_READ_ENDS_S)
            rows = [
                *self._index.read(*listing.build_folders_sql(self._build_scope())),
                *self._unindexed.read(*listing.build_folders_sql(self._build_selection())),
            ]
        return sorted({row[0] for row in rows})

    def get_session(self, session_id: str) -> TranscriptSummary | None:
        """Return a session by its id, or None."""
        row = self._find_row(session_id)
        return None if row is None else self._make_summary(row, time.time())

    def resolve_session_id(self, session: str) -> str | None:
        """Return the id of a session given by id, unique prefix or exact title, or None.

        Raises:
            InvalidInput: the text names several sessions.
        """
        check_text("session", session, needed=True)
        row = self._find_row(session)
        if row is not None:
            return str(row["session_id"])
        prefix = Condition("substr(s.session_id, 1, ?) = ?", (len(session), session))
        title = Condition("s.title = ? COLLATE NOCASE", (session,))
        for condition in (prefix, title):
            rows = self._select_rows([condition], limit=_MAX_NEAREST + 1) if session else []
            if len(rows) > 1:
                ids = ", ".join(row["session_id"] for row in rows[:_MAX_NEAREST])
                raise InvalidInput(f"{session!r:.80} names several sessions: {ids}; pass a full id")
            if rows:
                return str(rows[0]["session_id"])
        return None

    def read_window(
        self,
        session_id: str,
        *,
        before: int | None = None,
        after: int | None = None,
        around: int | None = None,
        limit: int = 50,
        roles: Sequence[str] | None = None,
        view: MessageView = "live",
    ) -> MessageWindow:
        """Return messages next to a message id, or the newest messages without an id.

        Pass only one of `before`, `after` and `around`. `view="full"` includes messages that a
        compaction has replaced.
        """
        check_limit(limit)
        check_window(before, after, around)
        row = self._require_row(session_id)
        place = {"before": before, "after": after, "around": around}
        part = None if row["is_read"] else self._find_unread_part(row)
        page = None if part is None else part.read_window(**place, limit=limit, roles=roles)
        if page is not None:
            return page
        with self._index.open_snapshot():
            page = self._windows.read_window(row, **place, limit=limit, roles=roles, view=view)
        if part is None or page.more_after or (after, around) == (None, None):
            return page
        # The index ends here, and the session does not.
        following = part.read_window(
            before=None, after=part.first_id - 1, around=None, limit=limit, roles=roles
        )
        if page.messages or following is None:
            return replace(page, more_after=following is not None)
        return following

    def _find_unread_part(self, row: SummaryRow) -> UnreadPart | None:
        """Return the part of a long file that is not indexed yet, or None."""
        place = self._indexer.catalog.find_source(row["source_id"])
        if place is None or is_database_format(place[0].root.format):
            return None
        root, path = place
        entry = root.entries.get(path)
        return None if entry is None else UnreadPart(root, path, row, entry.offset)

    def get_message(self, session_id: str, message_id: int) -> MessageRow | None:
        """Return a message of a session by its id, or None."""
        row = self._require_row(session_id)
        message = self._windows.find_message(row, message_id)
        if message is None and not row["is_read"]:
            part = self._find_unread_part(row)
            page = None
            if part is not None:
                page = part.read_window(
                    before=None, after=message_id - 1, around=None, limit=1, roles=None
                )
            candidate = page.messages[0] if page and page.messages else None
            message = candidate if candidate is not None and candidate["id"] == message_id else None
        return message

    def find_messages(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], MessageRow]:
        """Return messages by session and message id. Missing messages are left out.

        The ids must come from a recent answer, because the roots are not scanned.
        """
        wanted: dict[str, list[int]] = {}
        for session_id, message_id in places:
            wanted.setdefault(session_id, []).append(message_id)
        messages: dict[tuple[str, int], MessageRow] = {}
        for row in self._select_rows([listing.match_any("s.session_id", list(wanted))]):
            session_id = row["session_id"]
            for message in self._windows.find_messages(row, wanted[session_id]):
                messages[session_id, message["id"]] = message
        return messages

    def open_raw_source(self, session_id: str) -> RawSource:
        """Open the bytes of a session as its agent has written them.

        Raises:
            NotFound: the session does not exist.
        """
        row = self._require_row(session_id)
        return open_raw_source(self._indexer.catalog, row["source_id"], row["native_id"])

    def list_children(self, session_id: str) -> list[TranscriptSummary]:
        """Return the forks and subagents of a session, oldest first."""
        row = self._require_row(session_id)
        condition = Condition("s.parent_id = ? AND s.store = ?", (row["native_id"], row["store"]))
        now = time.time()
        return [self._make_summary(child, now) for child in self._select_rows([condition])][::-1]

    def search(
        self,
        query: str,
        *,
        mode: SearchMode = "words",
        per: SearchUnit = "conversation",
        session: str | None = None,
        where: SessionFilter | None = None,
        roles: Sequence[str] | None = None,
        tool: str | None = None,
        since: float | None = None,
        until: float | None = None,
        order: SearchOrder = "relevance",
        limit: int = 20,
        cursor: str | None = None,
    ) -> SearchResult:
        """Search the messages.

        Return the best hits first. With `per="conversation"` each session has one hit, with
        `per="message"` each message. `mode="substring"` searches for the text as it is written.
        `where` limits the sessions; `roles`, `tool`, `since` and `until` (epoch seconds) limit the
        messages. The age of a message is measured at the time of the first page.
        """
        from session_core.state.merged_search import MergedPosition, MergedSearch  # noqa: PLC0415 -- slow to import, only searches need it

        check_limit(limit)
        lists = (list(roles or ()), tool, since, until, order)
        scope = [query, mode, per, session, repr(where), *lists]
        stored = None if cursor is None else decode_cursor("transcript-search", scope, cursor)
        moment, place = stored or (int(time.time()), None)
        position = None if place is None else MergedPosition.decode(place, moment * 1000)
        newest_ms = None if position is None else position.newest_ms
        options = {"mode": mode, "per": per, "session": session, "where": where, "roles": roles}
        times = {"since": since, "until": until, "moment": moment, "newest_ms": newest_ms}
        with self.open_search(query, **options, **times, tool=tool, order=order) as search:  # type: ignore[arg-type]
            # After the scan, which may have found messages of this moment.
            newest = int(time.time() * 1000)
            merged = MergedSearch([search], query, mode=mode, order=order, newest_ms=newest)
            page = merged.read_page(position, limit)
            hits = search.add_replies([merged.hit for merged in page.hits])
        next_cursor = None
        if page.position is not None:
            following = [moment, page.position.encode(moment * 1000)]
            next_cursor = encode_cursor("transcript-search", scope, following)
        return SearchResult(list(hits), page.matched, page.searched_back_to, next_cursor)

    @contextmanager
    def open_search(
        self,
        query: str,
        *,
        moment: float,
        newest_ms: int | None = None,
        mode: SearchMode = "words",
        per: SearchUnit = "conversation",
        session: str | None = None,
        where: SessionFilter | None = None,
        roles: Sequence[str] | None = None,
        tool: str | None = None,
        since: float | None = None,
        until: float | None = None,
        order: SearchOrder = "relevance",
    ) -> Iterator[StoreSearch]:
        """Open a search for `MergedSearch`, whose reads in the block see one state.

        The age of messages is measured at `moment`; messages after `newest_ms` are left out.
        """
        from session_core.state.query import parse_query  # noqa: PLC0415 -- slow to import, only searches need it
        from session_core.transcripts.candidates import SearchRequest  # noqa: PLC0415 -- as above
        from session_core.transcripts.search import TranscriptSearch  # noqa: PLC0415 -- as above

        check_text("query", query, needed=True)
        self._refresh_index(_REFRESH_S)
        conditions = [] if where is None else listing.build_conditions(where, moment)
        conditions += self._build_scope()
        if session is not None:
            conditions.append(self._build_session_condition(session))
        conditions += listing.build_message_conditions(roles, tool, since, until)
        if newest_ms is not None:
            conditions.append(Condition("coalesce(m.at, 0) <= ?", (newest_ms,)))
        request = SearchRequest(
            parse_query(query),
            conditions,
            per_session=per == "conversation",
            now=moment,
            order=order,
            newest_ms=newest_ms,
            substring=query if mode == "substring" else None,
        )
        scanned = self._index_matching_files(request) if newest_ms is None else set[str]()
        unread_at = self._indexer.find_unread_time(scanned)
        with self._index.open_snapshot():
            yield TranscriptSearch(self._index, self._windows, request, unread_at)

    def _index_matching_files(self, request: SearchRequest) -> set[str]:
        """Index the unread files that contain the longest word of a query.

        Return the files that do not contain it. Bytes are searched a hundred times faster than they
        are indexed, so that the first query is answered from files that were not read before.
        """
        looked: dict[str, bool] = {}
        needle = request.find_needle()
        until = time.monotonic() + SCAN_S
        if len(needle) >= _LEAST_NEEDLE:
            with suppress(SessionError):  # the search answers from the index
                while time.monotonic() < until:
                    if not self._indexer.read_matching(needle, _SCAN_SLICE_S, looked):
                        break
        return {path for path, is_without in looked.items() if is_without}

    def read_changes(
        self,
        cursor: str | None = None,
        *,
        session: str | None = None,
        limit: int = 100,
        timeout_s: float = 0.0,
        stop: StopSignal | None = None,
    ) -> EventPage:
        """Return the messages written since a cursor.

        Without a cursor, return only a cursor for now. If there are none yet, wait until `stop` is
        set or the time limit has passed.
        """
        check_limit(limit)
        poller = ChangePoller(cursor, timeout_s, stop)
        pause = time.sleep if stop is None else stop.wait
        while True:
            page = poller.poll_once(lambda cursor: self._read_changes(cursor, session, limit))
            if page is not None:
                return page
            pause(poller.pause_s)

    def _read_changes(self, cursor: str | None, session: str | None, limit: int) -> EventPage:
        self._refresh_index(_REFRESH_S)
        conditions = self._build_scope()
        if session is not None:
            conditions.append(Condition("s.id = ?", (self._require_row(session)["id"],)))
        return self._changes.read_changes(cursor, conditions, session, limit)

    def measure_coverage(self) -> list[StoreCoverage]:
        """Return how much of each store is indexed."""
        self._refresh_index(_REFRESH_S)
        self._remember_stores()
        seen = list_seen_stores(self._index.path.parent)
        stores = measure_coverage(self._index, self._indexer.catalog, seen, time.time())
        return [part for part in stores if self._selected is None or part.store in self._selected]

    def _build_session_condition(self, session: str) -> Condition:
        """Return the condition for one session, with its range of message ids."""
        row = self._require_row(session)
        ids = "SELECT min(id), max(id) FROM messages WHERE session = ?"
        low, high = self._index.read(ids, (row["id"],))[0]
        return Condition("s.id = ? AND m.id BETWEEN ? AND ?", (row["id"], low, high))

    def _build_scope(self) -> list[Condition]:
        """Return the conditions that leave out roots that are not served."""
        if not self._indexer.catalog.has_unserved():
            return self._build_selection()
        served = [f"{root.path}\n{root.format.store}" for root in self._roots]
        marks = ", ".join("?" * len(served))
        sql = (
            f"s.source_id IN (SELECT id FROM sources WHERE root || char(10) || store IN ({marks}))"  # noqa: S608 -- only question marks are inserted
        )
        return [Condition(sql, tuple(served)), *self._build_selection()]

    def _build_selection(self) -> list[Condition]:
        """Return the condition on the stores of a view."""
        return [] if self._selected is None else [listing.match_any("s.store", self._selected)]

    def _find_row(self, session_id: str) -> SummaryRow | None:
        """Return the row of a session, after reading its file to the end if needed."""
        self._refresh_index(_REFRESH_S)
        rows = self._select_rows([Condition("s.session_id = ?", (session_id,))])
        if not rows or not rows[0]["is_read"]:
            self._indexer.read_session(session_id)
            rows = self._select_rows([Condition("s.session_id = ?", (session_id,))])
        if len(rows) > 1:
            stores = ", ".join(row["store"] for row in rows)
            raise InvalidInput(f"{session_id!r:.80} exists in several stores: {stores}; name one")
        return rows[0] if rows else None

    def _require_row(self, session_id: str) -> SummaryRow:
        row = self._find_row(session_id)
        if row is None:
            raise NotFound(f"session {session_id!r:.80} does not exist")
        return row

    def _require_named_row(self, session: str) -> SummaryRow:
        """Return the row of a session given by its id, a prefix or a title."""
        return self._require_row(self.resolve_session_id(session) or session)

    def _select_rows(
        self, conditions: Sequence[Condition], limit: int = 10_000
    ) -> list[SummaryRow]:
        sql, values = listing.build_list_sql(
            [*conditions, *self._build_scope()], "recent", limit, None
        )
        return [listing.make_row(row) for row in self._index.read(sql, values)]

    def _make_summary(self, row: SummaryRow, now: float) -> TranscriptSummary:
        is_kept = self._indexer.catalog.is_read_from_copy(row["source_id"])
        reader = next(root.format for root in self._roots if root.format.store == row["store"])
        # A name with a leading dash would be an option of the agent; no agent makes such ids.
        is_option = row["resume_id"].startswith("-")
        resume = None if is_option or is_kept else reader.build_resume_command(row["resume_id"])
        return listing.make_summary(row, resume, now, is_kept=is_kept)
