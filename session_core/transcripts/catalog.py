"""The files of all roots as the index knows them and as they are, and the difference.

The catalog is kept in memory and follows the changes that other processes make to the index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from session_core.transcripts.format import FileFormat, SourceFile
from session_core.transcripts.index import SQL, Index
from session_core.transcripts.parts import SourceEntry
from session_core.transcripts.roots import (
    FileIdentity,
    Root,
    Sweep,
    is_database_format,
)
from session_core.transcripts.watch import RootSweeper


@dataclass(slots=True)
class Due:
    """A file with something to read; a new one has an entry without an id."""

    root: RootCatalog
    entry: SourceEntry
    identity: FileIdentity
    """The identity that the sweep saw."""

    @property
    def is_grown(self) -> bool:
        """Return True if the file was read to its end before."""
        return self.entry.is_read


@dataclass(slots=True)
class RootCatalog:
    """The files of one root."""

    root: Root
    entries: dict[str, SourceEntry] = field(default_factory=dict)
    due: dict[str, Due] = field(default_factory=dict)
    gone: list[SourceEntry] = field(default_factory=list)
    moved: list[SourceEntry] = field(default_factory=list)
    is_outdated: bool = True
    """Whether the entries have changed since the last comparison."""
    sweeper: RootSweeper = field(init=False)
    _matches: dict[str, SourceFile | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the sweeper, which knows the files by their names."""
        self.sweeper = RootSweeper(self.root, lambda path: self.match_file(path) is not None)

    @property
    def sweep(self) -> Sweep:
        """The files as they were at the last look."""
        return self.sweeper.sweep

    def match_file(self, path: str) -> SourceFile | None:
        """Return how a file belongs to a session; a database is a file of no session."""
        try:
            return self._matches[path]
        except KeyError:
            self._matches[path] = match = self._compute_match(path)
            return match

    def _compute_match(self, path: str) -> SourceFile | None:
        if not _is_encodable(path):
            return None
        reader = self.root.format
        if is_database_format(reader):
            return SourceFile("") if reader.match_database(path) else None
        return cast("FileFormat", reader).match_file(path)

    def look(self) -> None:
        """Look at the root and find what differs from the index."""
        if self.sweeper.look() or self.is_outdated or self.due:
            self.find_differences()

    def find_differences(self) -> None:
        """Compare the files with the entries."""
        self.is_outdated = False
        files, entries = self.sweep.files, self.entries
        reader = self.root.format
        self.due = {
            path: self._make_due(path, identity)
            for path, identity in files.items()
            if _is_due(entries.get(path), identity, reader.version)
        }
        self.gone, self.moved = [], []
        if len(files) == len(entries) and not self.due:
            return
        gone = [entry for path, entry in entries.items() if path not in files]
        if gone and not self.sweep.unreadable:
            self._find_moved(gone)

    def _find_moved(self, gone: Iterable[SourceEntry]) -> None:
        """Recognise files under another name by their inode; the rest no longer exists."""
        added = {due.identity[:2]: path for path, due in self.due.items() if not due.entry.id}
        for entry in gone:
            path = added.get(entry.identity[:2])
            if path is not None and self._is_same_session(entry.path, path):
                self.moved.append(entry)
                entry.path = path
            else:
                self.gone.append(entry)

    def _is_same_session(self, path: str, other: str) -> bool:
        """Return True if a file that moved is the same session as before."""
        first, second = self.match_file(path), self.match_file(other)
        return first is not None and first == second

    def _make_due(self, path: str, identity: FileIdentity) -> Due:
        """Return what is due of a file; one that is still unread stays the same."""
        entry, known = self.entries.get(path), self.due.get(path)
        is_new = entry is None and known is not None and not known.entry.id
        if is_new and known is not None and known.identity == identity:
            return known
        return Due(self, entry or self._make_entry(path, identity), identity)

    def _make_entry(self, path: str, identity: FileIdentity) -> SourceEntry:
        return SourceEntry(0, self.root.format.store, self.root.path, path, identity)


class Catalog:
    """The files of all roots."""

    def __init__(self, index: Index, roots: Iterable[Root]) -> None:
        self._index = index
        self.roots = {
            (root.path, root.format.store, _get_kind(root)): RootCatalog(root) for root in roots
        }
        self._change = self._removal = -1
        self._data_version = -1
        self._unserved = False
        self._places: dict[int, tuple[RootCatalog, str]] = {}

    def look(self) -> None:
        """Sweep all roots, and take over what other processes have indexed."""
        self.load_changes()
        for root in self.roots.values():
            root.look()

    def iterate_due(self) -> Iterator[Due]:
        """Yield the files with something to read, in no order."""
        for root in self.roots.values():
            yield from root.due.values()

    def list_due(self) -> Iterator[Due]:
        """Yield the files with something to read: those that have grown first, then the newest."""
        due = list(self.iterate_due())
        due.sort(key=lambda item: (not item.is_grown, -item.identity.mtime_ns))
        return iter(due)

    def load_changes(self) -> None:
        """Take over what changed in the index."""
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


def _is_due(entry: SourceEntry | None, identity: FileIdentity, version: int) -> bool:
    return (
        entry is None or entry.identity != identity or not entry.is_read or entry.version != version
    )


def _is_encodable(path: str) -> bool:
    """Return True if a path is valid Unicode; another cannot be stored."""
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
        json.loads(state),
        json.loads(unknown),
        newest_at,
        change,
    )
