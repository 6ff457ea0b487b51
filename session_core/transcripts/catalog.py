"""The catalog: the files of all roots, their index entries, and the differences.

The catalog is kept in memory and follows the changes that other processes make to the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, cast

from session_core.transcripts.format import FileFormat, SourceFile
from session_core.transcripts.index import SQL, Index
from session_core.transcripts.keep.copies import WHOLE_STORE, KeptCopies, split_rows_path
from session_core.transcripts.parts import SourceEntry
from session_core.transcripts.root_watch import RootSweeper
from session_core.transcripts.roots import (
    FileIdentity,
    Root,
    Sweep,
    is_database_format,
)

_GET_TIME = attrgetter("identity.mtime_ns")
_IS_GROWN = attrgetter("is_grown")


@dataclass(slots=True)
class PendingFile:
    """A file with unread data, and its index entry."""

    root: RootCatalog
    path: str
    identity: FileIdentity
    """The identity of the file in the sweep."""
    stored: SourceEntry | None
    """The entry of the index, or None for a new file."""
    _added: SourceEntry | None = None

    @property
    def entry(self) -> SourceEntry:
        """The entry of the index. A new file has an entry with the id 0."""
        if self.stored is not None:
            return self.stored
        if self._added is None:
            root = self.root.root
            self._added = SourceEntry(0, root.format.store, root.path, self.path, self.identity)
        return self._added

    @property
    def is_new(self) -> bool:
        """True if the index does not have the file."""
        return self.stored is None

    @property
    def is_grown(self) -> bool:
        """True if the file was read to its end before."""
        return self.stored is not None and self.stored.is_read


@dataclass(slots=True)
class RootCatalog:
    """The files of one root and their index entries."""

    root: Root
    copies: KeptCopies
    entries: dict[str, SourceEntry] = field(default_factory=dict)
    pending: dict[str, PendingFile] = field(default_factory=dict)
    gone: list[SourceEntry] = field(default_factory=list)
    moved: list[SourceEntry] = field(default_factory=list)
    is_outdated: bool = True
    """Whether the entries have changed since the last comparison."""
    sweeper: RootSweeper = field(init=False)
    siblings: list[RootCatalog] = field(default_factory=list)
    """All roots of the store, including this one."""
    files: dict[str, FileIdentity] = field(default_factory=dict)
    """The files of the sweep, and the kept copies of files that have gone."""
    _matches: dict[str, SourceFile | None] = field(default_factory=dict)
    _is_database: bool = field(init=False)

    def __post_init__(self) -> None:
        """Create the sweeper, which needs to match file names."""
        self._is_database = is_database_format(self.root.format)
        self.sweeper = RootSweeper(self.root, self._is_wanted)

    def has_store(self, store: str) -> bool:
        """Return True if the root belongs to a store."""
        return self.root.format.store == store

    @property
    def sweep(self) -> Sweep:
        """The result of the last scan."""
        return self.sweeper.sweep

    def _is_wanted(self, path: str) -> bool:
        """Return True if a path is a file of the store. Paths of kept rows are not files."""
        is_rows = self._is_database and split_rows_path(path)[1] is not None
        return not is_rows and self.match_file(path) is not None

    def match_file(self, path: str) -> SourceFile | None:
        """Return how a file belongs to a session, or None.

        A database belongs to no session.
        """
        try:
            return self._matches[path]
        except KeyError:
            # None is an answer too, which `get` could not tell from a file that was not matched
            # yet.
            self._matches[path] = match = self._compute_match(path)
            return match

    def _compute_match(self, path: str) -> SourceFile | None:
        if not _is_encodable(path):
            return None
        reader = self.root.format
        if is_database_format(reader):
            database, session_id = split_rows_path(path)
            is_excluded = self.copies.is_excluded(reader.store, session_id or WHOLE_STORE)
            # A database whose store was forgotten is not opened at all.
            is_known = reader.match_database(database) and not is_excluded
            return SourceFile("") if is_known else None
        file = cast("FileFormat", reader).match_file(path)
        if file and self.copies.is_excluded(reader.store, file.session_id, file.parent_id):
            return None
        return file

    def forget_matches(self) -> None:
        """Match all files again, after the set of forgotten sessions has changed."""
        self._matches.clear()
        self.sweeper.forget_sweep()

    def scan_files(self) -> None:
        """Scan the root, and compare it with the index if something has changed."""
        if self.sweeper.scan_files() or self.is_outdated or self.pending:
            self.find_differences()

    def find_differences(self) -> None:
        """Compare the files with the index entries, and set the differences."""
        self.is_outdated = False
        self.files = files = self.copies.add_missing_files(self, self.siblings)
        entries, version, pending = self.entries, self.root.format.version, dict[str, PendingFile]()
        for path, identity in files.items():
            entry = entries.get(path)
            # Not a function: twenty thousand calls would take twice as long as the loop.
            if (
                entry is None
                or entry.identity != identity
                or not entry.is_read
                or entry.version != version
            ):
                pending[path] = self._make_pending_file(path, identity)
        self.pending = pending
        self.gone, self.moved = [], []
        if len(files) - sum(item.is_new for item in pending.values()) == len(entries):
            return  # each entry has its file
        gone = [entry for path, entry in entries.items() if path not in files]
        # A file below an unreadable folder may still be there, so nothing counts as gone.
        if gone and not self.sweep.unreadable:
            self._sort_vanished_files(gone)

    def _sort_vanished_files(self, gone: Iterable[SourceEntry]) -> None:
        """Sort vanished files into moved files (same inode) and deleted files."""
        added = {
            pending.identity[:2]: path for path, pending in self.pending.items() if pending.is_new
        }
        for entry in gone:
            # Device and inode alone: a file that was moved may have grown since.
            path = added.get(entry.identity[:2])
            if path is not None and self._is_path_of_same_session(entry.path, path):
                self.moved.append(entry)
                entry.path = path
            else:
                self.gone.append(entry)

    def _is_path_of_same_session(self, path: str, other: str) -> bool:
        """Return True if both paths belong to the same session in the same way."""
        first, second = self.match_file(path), self.match_file(other)
        return first is not None and first == second

    def _make_pending_file(self, path: str, identity: FileIdentity) -> PendingFile:
        """Return the pending file of a path, reusing the object of a file that is unread still."""
        entry, known = self.entries.get(path), self.pending.get(path)
        if entry is None and known is not None and known.is_new and known.identity == identity:
            return known
        return PendingFile(self, path, identity, entry)


class Catalog:
    """The catalogs of all roots, and the kept copies."""

    def __init__(self, index: Index, roots: Iterable[Root]) -> None:
        self._index = index
        self.copies = KeptCopies(index)
        self.roots = {
            (root.path, root.format.store, _get_kind(root)): RootCatalog(root, self.copies)
            for root in roots
        }
        for root in self.roots.values():
            store = root.root.format.store
            root.siblings = [other for other in self.roots.values() if other.has_store(store)]
        self.copies.served_roots = frozenset(root.root.path for root in self.roots.values())
        self._exclusions = self.copies.exclusions
        self._change = self._removal = -1
        self._data_version = -1
        self._unserved = False
        self._places: dict[int, tuple[RootCatalog, str]] = {}

    def scan_files(self) -> None:
        """Scan all roots, and load changes that other processes made to index and copies.

        Raises:
            StorageError: the list of forgotten sessions cannot be read.
        """
        self.load_changes()
        self._load_copies()
        for root in self.roots.values():
            root.scan_files()

    def _load_copies(self) -> None:
        """Load the changes of the copies, and outdate all roots if there are any."""
        self.copies.load_changes()
        if self.copies.fault is not None:
            raise self.copies.fault
        if self.copies.is_changed:
            self.copies.is_changed = False
            is_excluding = self.copies.exclusions != self._exclusions
            self._exclusions = self.copies.exclusions
            for root in self.roots.values():
                root.is_outdated = True
                if is_excluding:
                    root.forget_matches()

    def is_read_from_copy(self, source_id: int) -> bool:
        """Return True if a source has gone and its kept copy is read instead."""
        root, path = self._places.get(source_id, (None, ""))
        return root is not None and self.copies.is_read_from_copy(f"{root.root.path}/{path}")

    def iter_pending(self) -> Iterator[PendingFile]:
        """Yield the pending files of all roots, in no order."""
        for root in self.roots.values():
            yield from root.pending.values()

    def list_pending_files(self) -> Iterator[PendingFile]:
        """Yield the pending files: grown files first, then the newest."""
        pending = sorted(self.iter_pending(), key=_GET_TIME, reverse=True)
        # The sort is stable. Grown files are likely to be requested next; history can wait.
        pending.sort(key=_IS_GROWN, reverse=True)
        return iter(pending)

    def load_changes(self) -> None:
        """Load changes that were made to the index since the last call."""
        version = self._index.get_data_version()
        if version == self._data_version:
            return
        self._data_version = version
        removal = int((self._index.read(SQL["get_meta"], ("removal",)) or [(0,)])[0][0])
        if removal != self._removal:
            self._removal, self._change = removal, -1
            for root in self.roots.values():
                root.entries.clear()
                root.is_outdated = True
            self._places.clear()
        for row in self._index.read(SQL["list_changed_sources"], (self._change,)):
            entry = _make_stored_entry(row)
            self._change = entry.change
            self._put_loaded(entry)

    def find_source(self, source_id: int) -> tuple[RootCatalog, str] | None:
        """Return the root and the path of a source, or None if it is not served."""
        return self._places.get(source_id)

    def has_unserved(self) -> bool:
        """Return True if the index has sources of roots that this process does not serve."""
        return self._unserved

    def _put_loaded(self, entry: SourceEntry) -> None:
        old = self._places.pop(entry.id, None)
        if old is not None:
            old[0].entries.pop(old[1], None)
            old[0].is_outdated = True
        for (path, store, _), root in self.roots.items():
            if (path, store) == (entry.root, entry.store) and root.match_file(entry.path):
                root.entries[entry.path] = entry
                root.is_outdated = True
                self._places[entry.id] = (root, entry.path)
                return
        self._unserved = True


def _get_kind(root: Root) -> str:
    return "database" if is_database_format(root.format) else "files"


def _is_encodable(path: str) -> bool:
    """Return True if a path is valid Unicode, so that it can be stored."""
    if path.isascii():
        return True
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _make_stored_entry(row: tuple[Any, ...]) -> SourceEntry:
    (number, store, root, path, device, inode, size, mtime, offset, checksum, *rest) = row
    is_read, is_unchecked, version, state, unknown, newest_at, change = rest
    return SourceEntry(
        number,
        store,
        root,
        path,
        FileIdentity(device, inode, size, mtime),
        offset,
        checksum,
        bool(is_read),
        bool(is_unchecked),
        version,
        state,
        unknown,
        newest_at,
        change,
    )
