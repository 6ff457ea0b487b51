"""The indexer: finds changed files, reads them in slices, and writes each slice.

A slice is read without a lock and written in one short transaction. A kill between two slices
leaves a shorter index, and the next call continues from there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from typing import cast

from session_core.errors import SessionError
from session_core.transcripts.catalog import Catalog, PendingFile, RootCatalog
from session_core.transcripts.database_feed import DatabaseFeed, find_database_identity
from session_core.transcripts.file_feed import FileFeed
from session_core.transcripts.format import FileFormat
from session_core.transcripts.index import SQL, Index
from session_core.transcripts.index_writer import IndexWriter
from session_core.transcripts.keep.session_rows import open_rows, read_session_rows
from session_core.transcripts.parts import SourcePart
from session_core.transcripts.roots import Root, is_database_format
from session_core.transcripts.sources import BLOCK_BYTES

SLICE_BYTES = 8_000_000
"""Text of several files to write at once: about 0.4 s, in which the write lock is held."""

_PART_BYTES = 5_000_000
"""Bytes to read of one file at once; reading and writing them takes less than half a second."""

_SCAN_INTERVAL_S = 2.0
MIN_REMOVED_MESSAGES = 20_000
_LONG_REST_BYTES = 100_000_000
"""The unread rest from which a file is left to idle work. A call would not reach its end, and its
pages are read in place.
"""

SESSION_S = 2.0
"""The time limit for reading the session of a call. The rest of its page is read in place."""

_MAX_SLICE_FILES = 500
_MAX_WAIT_S = 2.0
"""The time limit for reading recent changes, which a burst of gigabytes may exceed."""


class Indexer:
    """Reads the stores of the roots into an index."""

    def __init__(self, index: Index, roots: Sequence[Root]) -> None:
        self._index = index
        self.catalog = Catalog(index, roots)
        copies = self.catalog.copies
        self._writer = IndexWriter(index, copies)
        self.feeds: dict[int, FileFeed] = {}
        self._database_feeds: dict[int, DatabaseFeed] = {}
        for root in self.catalog.roots.values():
            reader = root.root.format
            if is_database_format(reader):
                self._database_feeds[id(root)] = DatabaseFeed(reader, copies.open_snapshot)
            else:
                files = cast("FileFormat", reader)
                self.feeds[id(root)] = FileFeed(root.root.path, files, copies.open_source)
        self._scanned_at = -math.inf
        self.problem: SessionError | None = None
        """The error that prevented writing the index at the last scan, or None."""

    def refresh_index(self, budget_s: float) -> None:
        """Scan all roots, read recent changes, and read history for about `budget_s`.

        With a budget of 0 no history is read. If the scan or a write fails, the index stays as it
        was, answers come from it, and `problem` is set.
        """
        self.problem = None
        with self._index.writing:
            try:
                self._scan_files()
                self._write_removals()
                begun = time.monotonic()
                self._read_pending(begun + budget_s, begun + _MAX_WAIT_S, has_minimum=budget_s > 0)
            except SessionError as error:
                self.problem = error

    def index_pending(self, budget_s: float) -> bool:
        """Read pending files for about `budget_s`.

        Return True if some are left.

        Raises:
            Busy: another process holds the write lock.
            StorageFull: the disk is full.
            StorageError: the list of forgotten sessions cannot be read.
        """
        with self._index.writing:
            # A scan of many files costs more than a slice, so reading continues from the last scan.
            is_recent = time.monotonic() - self._scanned_at < _SCAN_INTERVAL_S
            if not (is_recent and self._has_unread()):
                self._scan_files()
            until = time.monotonic() + budget_s
            self._write_removals()
            self._read_pending(until, until)
            self._verify_prefixes(until)
            if self._needs_rebuild():
                self._writer.clear_index()
                self._scan_files()
            return self._has_unread() or self._index.release_space()

    def scan_files(self) -> None:
        """Scan all roots without reading their files."""
        with self._index.writing:
            self._scan_files()

    def _scan_files(self) -> None:
        self.catalog.scan_files()
        self._scanned_at = time.monotonic()

    def _has_unread(self) -> bool:
        """Return True if a file was not read to its end yet."""
        return any(not pending.is_grown for pending in self.catalog.iter_pending())

    def measure_share(self) -> float:
        """Return the share of the bytes of all files that was read, as of the last scan."""
        with self._index.writing:
            pending = list(self.catalog.iter_pending())
            left = sum(
                max(0, item.identity.size - (item.stored.offset if item.stored else 0))
                for item in pending
                if not item.is_grown
            )
            if not left:
                return 1.0
            roots = self.catalog.roots.values()
            total = sum(file.size for root in roots for file in root.files.values())
            return max(0.0, 1.0 - left / total) if total else 1.0

    def read_session(self, session_id: str) -> None:
        """Read the new part of the files of one session, for at most `SESSION_S`."""
        until = time.monotonic() + SESSION_S
        with self._index.writing:
            batch = _Batch(self._writer)
            for pending in self.catalog.list_pending_files():
                file = pending.root.match_file(pending.path)
                feed = self.feeds.get(id(pending.root))
                is_meant = file is not None and file.session_id == session_id
                if is_meant and feed is not None and not _has_long_rest(pending):
                    self._read_file(feed, pending, batch, until, is_history=not pending.is_grown)
            batch.write_parts()
            self.catalog.load_changes()

    def read_matching(self, needle: bytes, budget_s: float, looked: dict[str, bool]) -> bool:
        """Read the unread files that contain `needle`, newest first, for about `budget_s`.

        `looked` maps each file that was searched to True if its end was reached without a match; it
        is updated. Return True if files are left to search.
        """
        until = time.monotonic() + budget_s
        with self._index.writing:
            batch, is_left = _Batch(self._writer), False
            for pending in self.catalog.list_pending_files():
                feed, file = self.feeds.get(id(pending.root)), pending.root.match_file(pending.path)
                path = f"{pending.root.root.path}/{pending.path}"
                if feed is None or file is None or path in looked:
                    continue
                if time.monotonic() >= until:
                    is_left = True
                    break
                # A file that is longer than the budget is searched once, within the budget.
                offset = 0 if pending.stored is None else pending.stored.offset
                has_text = self._has_text(path, needle, offset, until, is_zstd=file.is_zstd)
                looked[path] = has_text is False
                if has_text:
                    self._read_file(feed, pending, batch, until, is_history=not pending.is_grown)
            batch.write_parts()
            self._refresh_outdated_roots()
            return is_left

    def _has_text(
        self, path: str, needle: bytes, offset: int, until: float, *, is_zstd: bool
    ) -> bool | None:
        """Return whether a file contains bytes from an offset on, ignoring case.

        None means that the time limit passed before the end, or that the file cannot be read.
        """
        overlap = len(needle) - 1
        try:
            with self.catalog.copies.open_source(path, is_zstd=is_zstd) as source:
                while True:
                    data = source.read(offset, BLOCK_BYTES)
                    if needle in data.lower():
                        return True
                    if len(data) < BLOCK_BYTES:
                        return False
                    if time.monotonic() >= until:
                        return None
                    offset += len(data) - overlap
        except OSError:
            return None

    def find_unread_time(self, scanned: Collection[str]) -> float | None:
        """Return the time of the newest file that was neither read nor searched, or None."""
        with self._index.writing:
            times = [
                pending.identity.mtime_ns / 1e9
                for pending in self.catalog.iter_pending()
                if not pending.is_grown
                and f"{pending.root.root.path}/{pending.path}" not in scanned
            ]
        return max(times, default=None)

    def renew_session(self, root: RootCatalog, path: str, session_id: str) -> bool:
        """Read a session of a database again.

        Return False if the index is behind the database. For a database that the index does not
        have, nothing is done and True is returned.
        """
        with self._index.writing:
            entry, reader = root.entries.get(path), root.root.format
            if entry is None or not is_database_format(reader):
                return True
            full_path = entry.full_path
            lines = (line for line, _ in read_session_rows(full_path, reader, session_id))
            if not entry.is_read or find_database_identity(full_path) != entry.identity:
                return False
            part = self._database_feeds[id(root)].reread_session(
                entry, session_id, open_rows(lines)
            )
            # Rows that were committed meanwhile may be in the part, but come after the watermark.
            if part is None or find_database_identity(full_path) != entry.identity:
                return False
            written = self._writer.apply_parts([part], is_history=False)
            self.catalog.load_changes()
            return bool(written)

    def start_watch(self) -> bool:
        """Watch all roots through the kernel.

        Return True if all can be watched.
        """
        with self._index.writing:
            watched = [root.sweeper.start_watch() for root in self.catalog.roots.values()]
            return all(watched)

    def close(self) -> None:
        """Stop watching the roots."""
        for root in self.catalog.roots.values():
            root.sweeper.stop_watch()

    def clear_index(self) -> None:
        """Remove all data from the index, so that it is read again."""
        with self._index.writing:
            self._writer.clear_index()

    def _write_removals(self) -> None:
        """Store the new paths of moved files, and remove the sources of deleted files."""
        for root in self.catalog.roots.values():
            for entry in root.moved:
                self._writer.touch_source(entry)
            if root.gone:
                self._writer.remove_sources(root.gone)
            if root.moved or root.gone:
                root.moved, root.gone = [], []
                self.catalog.load_changes()
                root.find_differences()

    def _read_pending(self, until: float, until_fresh: float, *, has_minimum: bool = True) -> None:
        """Read pending files: history until `until`, recent changes until `until_fresh`.

        The newest files come first, so that all files after the first file of history are history.
        With `has_minimum`, one file is read even if the time is over, so that each call makes
        progress.
        """
        batch, is_first = _Batch(self._writer), has_minimum
        newest = self._index.read("SELECT max(newest_at) FROM blocks")[0][0]
        for pending in self.catalog.list_pending_files():
            # The rest of a file that was begun is history, or a long one would delay each call.
            is_fresh = pending.is_grown or (
                pending.is_new
                and newest is not None
                and pending.identity.mtime_ns // 1_000_000 >= newest
            )
            limit = until_fresh if is_fresh else until
            if time.monotonic() >= limit and not is_first:
                break
            is_first = False
            feed = self.feeds.get(id(pending.root))
            if feed is not None:
                self._read_file(feed, pending, batch, limit, is_history=not is_fresh)
            else:
                self._read_database(pending, limit, is_history=not pending.is_grown)
        batch.write_parts()
        self._refresh_outdated_roots()

    def _refresh_outdated_roots(self) -> None:
        """Load index changes, then compare the outdated roots again."""
        self.catalog.load_changes()
        for root in self.catalog.roots.values():
            if root.is_outdated:
                root.find_differences()

    def _read_file(
        self, feed: FileFeed, pending: PendingFile, batch: _Batch, until: float, *, is_history: bool
    ) -> None:
        """Read a file to its end, or until the time limit."""
        file = pending.root.match_file(pending.entry.path)
        entry = pending.entry
        while file is not None:
            part = feed.read_part(entry, file, min(_PART_BYTES, SLICE_BYTES))
            if part is None:
                return
            batch.add_part(part, is_history=is_history)
            if part.after.is_read:
                return
            # Before the next slice, which continues from the entry that this one stores.
            batch.write_parts()
            self.catalog.load_changes()
            stored = pending.root.entries.get(entry.path)
            # Another process was faster: the next scan continues from the entry that it stored.
            if stored is None or stored.offset != part.after.offset or time.monotonic() >= until:
                return
            entry = stored

    def _needs_rebuild(self) -> bool:
        """Return True if removed messages make up a third of the indexed words.

        Words of single messages cannot be removed from a table that does not store the text.
        """
        dead = self._index.read(SQL["get_meta"], ("dead",))
        if not dead or dead[0][0] < MIN_REMOVED_MESSAGES:
            return False
        return bool(dead[0][0] * 2 > self._index.read("SELECT count(*) FROM messages")[0][0])

    def _read_database(self, pending: PendingFile, until: float, *, is_history: bool) -> None:
        """Read a database to its end, or until the time limit."""
        feed, entry = self._database_feeds[id(pending.root)], pending.entry
        while True:
            part = feed.read_part(entry, pending.identity)
            if part is None:
                return
            written = self._writer.apply_parts([part], is_history=is_history)
            self.catalog.load_changes()
            if part.after.is_read or not written or time.monotonic() >= until:
                return
            entry = written[0]

    def _verify_prefixes(self, until: float) -> None:
        """Verify the checksums of long files that have grown."""
        for root in self.catalog.roots.values():
            for entry in list(root.entries.values()):
                if time.monotonic() >= until:
                    return
                if entry.is_unchecked:
                    self._verify_prefix(root, entry.path)

    def _verify_prefix(self, root: RootCatalog, path: str) -> None:
        file, feed = root.match_file(path), self.feeds.get(id(root))
        if file is not None and feed is not None:
            part = feed.read_part(root.entries[path], file, SLICE_BYTES, is_deep=True)
            if part is not None:
                self._writer.apply_parts([part], is_history=False)
                self.catalog.load_changes()


def _has_long_rest(pending: PendingFile) -> bool:
    """Return True if the unread rest of a file is too long for one call."""
    stored = pending.stored
    return stored is not None and pending.identity.size - stored.offset > _LONG_REST_BYTES


class _Batch:
    """Parts of several files that are written in one transaction."""

    def __init__(self, writer: IndexWriter) -> None:
        self._writer = writer
        self._parts: dict[bool, list[SourcePart]] = {True: [], False: []}
        self._size = 0

    def add_part(self, part: SourcePart, *, is_history: bool) -> None:
        """Add a part, and write the batch if it is large enough."""
        self._parts[is_history].append(part)
        self._size += part.text_size + 1000
        is_full = len(self._parts[is_history]) >= _MAX_SLICE_FILES
        if self._size >= SLICE_BYTES or is_full:
            self.write_parts()

    def write_parts(self) -> None:
        """Write the parts, newest last, so that ids rise with time."""
        for is_history, parts in self._parts.items():
            if parts:
                self._writer.apply_parts(parts[::-1], is_history=is_history)
                parts.clear()
        self._size = 0
