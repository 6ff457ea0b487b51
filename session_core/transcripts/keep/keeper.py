"""`Keeper`: compares copies with their sources and stores new parts.

A slice is read without a lock and stored in one transaction, so that after a kill the copies are
shorter than their sources and otherwise correct.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from session_core.errors import SessionError, StorageError
from session_core.transcripts.keep.chunks import MAX_CHUNK_BYTES, compute_digest, find_chunk_end
from session_core.transcripts.keep.comparison import RenewSession
from session_core.transcripts.keep.copies import (
    Copy,
    CopyKind,
    KeptCopies,
    KeptFile,
    get_plain_name,
    is_moved,
)
from session_core.transcripts.keep.copies_database import SQL
from session_core.transcripts.keep.copy_changes import (
    CopyChange,
    apply_change,
    remove_copy,
    rename_copy,
)
from session_core.transcripts.keep.database_keeper import DatabaseKeeper
from session_core.transcripts.places import remember_kept_stores
from session_core.transcripts.roots import FileIdentity, is_database_format
from session_core.transcripts.sources import Source, open_source

if TYPE_CHECKING:
    from session_core.transcripts.catalog import Catalog, RootCatalog

SLICE_BYTES = 4_000_000
MAX_CHECKED_BYTES = 16_000_000
"""The longest copy that a call compares as a whole. Idle work compares longer copies."""

_LIST_S = 2.0
_SETTLED_NS = 50_000_000
_IDLE_NS = 600 * 10**9
_MAX_SLICE_FILES = 200
_PIECES_READ = 256
_TAIL_PIECES = 2


class Task(NamedTuple):
    """A file to compare with its copy."""

    root: RootCatalog
    path: str
    session_id: str
    kind: CopyKind
    identity: FileIdentity


class Keeper:
    """Stores new parts of the sources of a catalog."""

    def __init__(self, catalog: Catalog, copies: KeptCopies, renew: RenewSession) -> None:
        self._catalog = catalog
        self._copies = copies
        self._tasks: deque[Task] = deque()
        self._listed_at = float("-inf")
        self._checked: dict[str, tuple[int, int]] = {}
        """The progress of comparing a long copy, by path: its change and the offset."""
        self._complete_sources: dict[str, tuple[int, FileIdentity]] = {}
        """The files that contain all bytes of their copy, by path, while keeping is off."""
        self._databases = DatabaseKeeper(copies, renew)
        self._working = threading.Lock()
        self.problem: SessionError | None = None
        """The error that prevented keeping at the last call, or None."""

    def copy_pending(self, budget_s: float, *, is_listed_anew: bool = False) -> bool:
        """Copy new parts of sources for about `budget_s`.

        Return True if some are left. All files are compared with their copies every two seconds,
        and updated rows every ten minutes. With `is_listed_anew`, both are compared now.
        """
        if is_listed_anew:
            self._listed_at = float("-inf")
        if not self._copies.database.exists() or not self._working.acquire(blocking=False):
            return False
        self.problem = None
        try:
            return self._copy_pending(time.monotonic() + budget_s, is_anew=is_listed_anew)
        except SessionError as error:
            self.problem = error
            return False
        finally:
            self._working.release()

    def measure_share(self) -> float:
        """Return the share of the bytes of all files that is kept, as of the last scan."""
        files = [file for root in self._list_file_roots() for file in root.sweep.files.values()]
        total = sum(file.size for file in files)
        left = sum(task.identity.size for task in list(self._tasks))
        return max(0.0, 1.0 - left / total) if total else 1.0

    def list_tasks(self) -> list[Task]:
        """Return the files whose copies are not up to date, newest first."""
        tasks: list[Task] = []
        for root in self._list_file_roots():
            tasks += self._list_root_tasks(root)
        return sorted(tasks, key=lambda task: -task.identity.mtime_ns)

    def _copy_pending(self, until: float, *, is_anew: bool) -> bool:
        if not self._tasks and time.monotonic() - self._listed_at > _LIST_S:
            self._tasks = deque(self.list_tasks())
            self._follow_moved_files()
            self._listed_at = time.monotonic()
        changes: list[CopyChange] = []
        size = 0
        while self._tasks and time.monotonic() < until:
            change, is_done = self._read_task(self._tasks[0])
            if change is not None:
                changes.append(change)
                size += sum(map(len, change.chunks))
            if is_done:
                self._tasks.popleft()
            # A file continues from the copy that is stored.
            if not is_done or size >= SLICE_BYTES or len(changes) >= _MAX_SLICE_FILES:
                self._store_changes(changes)
                size = 0
        self._store_changes(changes)
        is_left = bool(self._tasks)
        for root in self._catalog.roots.values():
            if is_database_format(root.root.format):
                is_left |= self._databases.copy_pending(
                    root, until, self._store_changes, is_anew=is_anew
                )
        return is_left

    def _list_root_tasks(self, root: RootCatalog) -> Iterator[Task]:
        copies = self._copies.list_copies(root.root.path, root.root.format.store)
        for path, identity in list(root.sweep.files.items()):
            file = root.match_file(path)
            copy = copies.get(path)
            # An emptied file leaves its copy, as a deleted one does.
            if file is None or (identity.size == 0 and copy is not None):
                continue
            if self._is_due(copy, identity) or (copy is not None and _is_idle(copy)):
                yield Task(root, path, file.session_id, "file", identity)
            for sidecar in file.sidecars:
                yield from self._list_sidecar(root, sidecar, file.session_id, copies.get(sidecar))

    def _list_sidecar(
        self, root: RootCatalog, path: str, session_id: str, copy: Copy | None
    ) -> Iterator[Task]:
        try:
            with open_source(f"{root.root.path}/{path}") as source:
                identity = source.identity
        except OSError:
            return
        if identity.size and self._is_due(copy, identity):
            yield Task(root, path, session_id, "sidecar", identity)

    def _is_due(self, copy: Copy | None, identity: FileIdentity) -> bool:
        """Return True if a file has to be compared with its copy.

        While keeping is off, only files with a copy are compared.
        """
        if copy is None:
            return self._copies.is_on
        if self._copies.is_on:
            return not copy.is_whole or copy.identity != identity
        is_known = self._complete_sources.get(copy.full_path) == (copy.change, identity)
        is_short = copy.identity.size <= MAX_CHECKED_BYTES
        is_settled = is_short or time.time_ns() - identity.mtime_ns > _IDLE_NS
        return copy.identity != identity and not is_known and is_settled

    def _read_task(self, task: Task) -> tuple[CopyChange | None, bool]:
        """Return the next change of a copy, and True if the file is done."""
        try:
            with open_source(f"{task.root.root.path}/{task.path}") as source:
                if self._copies.is_on:
                    return self._read_change(source, task)
                return self._read_truncation(source, task), True
        except OSError:
            return None, True

    def _read_change(self, source: Source, task: Task) -> tuple[CopyChange | None, bool]:
        copy = self._copies.find_copy(task.root.root.path, task.path)
        identity = source.identity
        if identity.size == 0 and copy is not None:
            return None, True
        offset, is_unchecked = 0, False
        if copy is not None:
            difference = self._find_difference(source, copy)
            if difference is None:
                return None, False  # compared for a while, and not to the end
            offset, is_unchecked = difference
        change = CopyChange(
            copy,
            task.root.root.format.store,
            task.root.root.path,
            task.path,
            task.session_id,
            task.kind,
            identity,
            offset,
            is_unchecked=is_unchecked,
        )
        if not _read_chunks(source, change):
            return None, True  # truncated since it was opened: the next scan sees its size
        if time.time_ns() - identity.mtime_ns < _SETTLED_NS:
            # A time that no file has, so that the next scan compares it again.
            change.identity = identity._replace(mtime_ns=-1)
        return change, change.is_whole

    def _read_truncation(self, source: Source, task: Task) -> CopyChange | None:
        """Return the change that truncates a copy at its first difference, or None."""
        copy = self._copies.find_copy(task.root.root.path, task.path)
        if copy is None or source.identity.size == 0:
            return None
        offset, is_equal = self._compare_pieces(source, copy, 0, copy.identity.size)
        if is_equal:
            self._complete_sources[copy.full_path] = (copy.change, source.identity)
            return None
        # A time that no file has, so that the copy is compared again once keeping is on.
        identity = source.identity._replace(mtime_ns=-1)
        with KeptFile(self._copies.database, copy) as file:
            file.seek(offset)
            kept = file.read(MAX_CHUNK_BYTES)
        equal = _find_equal_lines(kept, source.read(offset, len(kept)))
        place = (copy.store, copy.root, copy.path, copy.session_id, copy.kind)
        chunks = [equal] if equal else []
        return CopyChange(copy, *place, identity, offset, chunks, is_cut=True)

    def _find_difference(self, source: Source, copy: Copy) -> tuple[int, bool] | None:
        """Return the offset where a copy differs, and whether a part was not compared.

        None means that the comparison continues with the next call.
        """
        size = copy.identity.size
        is_same = copy.identity[:2] == source.identity[:2]
        if not copy.is_whole and copy.identity[3] == source.identity[3] and is_same:
            return self._find_last_piece(copy), copy.is_unchecked
        if size <= MAX_CHECKED_BYTES:
            return self._compare_pieces(source, copy, 0, size)[0], False
        if copy.identity == source.identity and copy.is_unchecked:
            return self._compare_long(source, copy)
        tail = max(0, self._find_last_piece(copy) - _TAIL_PIECES * MAX_CHUNK_BYTES)
        begin = self._find_piece(copy, tail)
        offset, is_equal = self._compare_pieces(source, copy, begin, size)
        # A long copy that differs in its last chunks is compared from its beginning.
        return (
            (offset, True) if is_equal else (self._compare_pieces(source, copy, 0, size)[0], False)
        )

    def _compare_long(self, source: Source, copy: Copy) -> tuple[int, bool] | None:
        """Compare the next part of a long copy."""
        change, offset = self._checked.pop(copy.full_path, (copy.change, 0))
        if change != copy.change:
            offset = 0
        end = offset + 4 * SLICE_BYTES
        equal_end, is_equal = self._compare_pieces(source, copy, offset, end)
        if not is_equal or equal_end >= copy.identity.size:
            return (equal_end if not is_equal else self._find_last_piece(copy)), False
        self._checked[copy.full_path] = (copy.change, equal_end)
        return None

    def _compare_pieces(self, source: Source, copy: Copy, begin: int, end: int) -> tuple[int, bool]:
        """Return the offset up to which the pieces are equal, and whether all pieces are.

        The last of the equal pieces counts as different, because a file that has grown extends it.
        """
        offset = last = begin
        while offset < end:
            pieces = self._copies.database.read(SQL["list_pieces"], (copy.id, offset, _PIECES_READ))
            for at, length, digest in pieces:
                if compute_digest(source.read(at, length)) != digest:
                    return at, False
                last, offset = at, at + length
                if offset >= end:
                    break
            if not pieces:
                break
        return (last if offset >= copy.identity.size else offset), True

    def _find_last_piece(self, copy: Copy) -> int:
        rows = self._copies.database.read(SQL["find_last_piece"], (copy.id,))
        return int(rows[0][0] or 0)

    def _find_piece(self, copy: Copy, offset: int) -> int:
        rows = self._copies.database.read(SQL["find_piece"], (copy.id, offset))
        return int(rows[0][0]) if rows else 0

    def _follow_moved_files(self) -> None:
        """Rename copies of renamed files, and drop copies whose bytes another copy contains."""
        missing = [
            (root, copy)
            for root in self._list_file_roots()
            for path, copy in self._copies.list_copies(
                root.root.path, root.root.format.store
            ).items()
            if copy.kind == "file" and path not in root.sweep.files
        ]
        if not missing:
            return
        living: dict[object, tuple[RootCatalog, str, FileIdentity]] = {}
        for root in self._list_file_roots():
            for path, identity in root.sweep.files.items():
                living[identity[:2]] = living[get_plain_name(path)] = (root, path, identity)
        for own, copy in missing:
            for key in (copy.identity[:2], get_plain_name(copy.path)):
                if key in living and is_moved(copy, living[key][1], living[key][2], living[key][0]):
                    self._rename_or_remove_copy(own, copy, *living[key])
                    break

    def _list_file_roots(self) -> list[RootCatalog]:
        roots = self._catalog.roots.values()
        return [root for root in roots if not is_database_format(root.root.format)]

    def _rename_or_remove_copy(
        self, own: RootCatalog, copy: Copy, root: RootCatalog, path: str, identity: FileIdentity
    ) -> None:
        """Rename the copy of a renamed file, or drop it if the other copy contains it."""
        kept = self._copies.find_copy(root.root.path, path)
        if kept is None and identity[:2] == copy.identity[:2]:
            self._rename_copy(copy, root.root.path, path)
        elif kept is not None and kept.is_whole and self._contains_copy(root, path, own, copy):
            self._remove_copy(copy)

    def _contains_copy(self, root: RootCatalog, path: str, own: RootCatalog, copy: Copy) -> bool:
        """Return True if a file begins with all bytes of a copy, both uncompressed."""
        file, before = root.match_file(path), own.match_file(copy.path)
        if file is None or before is None:
            return False
        try:
            with (
                open_source(f"{root.root.path}/{path}", is_zstd=file.is_zstd) as source,
                self._copies.open_source(copy.full_path, is_zstd=before.is_zstd) as kept,
            ):
                return _begins_with(source, kept)
        except OSError:
            return False

    def _rename_copy(self, copy: Copy, root: str, path: str) -> None:
        with self._copies.database.open_transaction() as db:
            rename_copy(db, copy, root, path)
        self._copies.load_changes()

    def _remove_copy(self, copy: Copy) -> None:
        with self._copies.database.open_transaction() as db:
            remove_copy(db, copy)
        self._copies.load_changes()

    def _store_changes(self, changes: list[CopyChange]) -> None:
        """Store changes in one transaction, and clear the list."""
        if not changes:
            return
        self._remember_stores({change.store for change in changes})
        with self._copies.database.open_transaction() as db:
            is_on = db.execute(SQL["get_setting"], ("mode",)).fetchone() == ("on",)
            excluded = {(row[0], row[1]) for row in db.execute(SQL["list_exclusions"])}
            for change in changes:
                names = ((change.store, change.session_id), (change.store, ""))
                if (is_on or change.is_cut) and not excluded.intersection(names):
                    apply_change(db, change)
        changes.clear()
        self._copies.load_changes()

    def _remember_stores(self, stores: set[str]) -> None:
        """Record the stores before their copies, so that a kill leaves no unrecorded copy."""
        folder = self._copies.database.path.parent
        try:
            remember_kept_stores(folder, sorted(stores))
        except OSError as error:
            raise StorageError(f"{folder} cannot be written: {error.strerror}") from error


def _read_chunks(source: Source, change: CopyChange) -> bool:
    """Read about a slice of chunks.

    Return False if the file became shorter.
    """
    size, offset = source.identity.size, change.offset
    wanted = min(SLICE_BYTES + MAX_CHUNK_BYTES, size - offset)
    data = source.read(offset, wanted)
    if len(data) < wanted:
        return False
    is_end = offset + len(data) >= size
    start = 0
    while start < len(data):
        end = find_chunk_end(data, start)
        if end == len(data) and not is_end:
            break  # the rest of the chunk is in the next slice
        change.chunks.append(data[start:end])
        start = end
    change.is_whole = is_end
    return True


def _find_equal_lines(first: bytes, second: bytes) -> bytes:
    """Return the lines with which both texts begin."""
    pairs = zip(first.splitlines(keepends=True), second.splitlines(keepends=True), strict=False)
    return b"".join(line for line, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _is_idle(copy: Copy) -> bool:
    """Return True for a long unverified copy whose source has not changed lately."""
    return copy.is_unchecked and time.time_ns() - copy.identity.mtime_ns > _IDLE_NS


def _begins_with(source: Source, kept: Source) -> bool:
    offset = 0
    while data := kept.read(offset, MAX_CHUNK_BYTES):
        if source.read(offset, len(data)) != data:
            return False
        offset += len(data)
    return True
