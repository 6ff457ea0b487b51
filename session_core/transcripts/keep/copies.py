"""Kept copies as the catalog sees them: they replace sources that have disappeared.

The view is kept in memory and follows the changes that other processes make. An error of the file
of copies is recorded and makes no answer fail.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from session_core.errors import SessionError
from session_core.transcripts.database_feed import open_snapshot
from session_core.transcripts.format import Query
from session_core.transcripts.keep.chunks import decompress_chunk
from session_core.transcripts.keep.copies_database import SQL, KeptDatabase
from session_core.transcripts.keep.session_rows import has_message_rows, open_rows
from session_core.transcripts.roots import FileIdentity, is_database_format
from session_core.transcripts.sources import Source, open_plain_source

if TYPE_CHECKING:
    from session_core.transcripts.catalog import RootCatalog
    from session_core.transcripts.index import Index
    from session_core.transcripts.parts import SourcePart

CopyKind = Literal["file", "sidecar", "rows"]
WHOLE_STORE = ""
"""The session id that means a whole store in an exclusion."""

_ZSTD_SUFFIX = ".zst"
_PRESENT_IDS = "SELECT native_id FROM sessions WHERE source_id = ? AND messages > 0"
_FACT_IDS = "SELECT native_id FROM facts WHERE source_id = ?"


@dataclass(frozen=True, slots=True)
class Copy:
    """A kept file, sidecar, or the rows of a session, as far as it was kept."""

    id: int
    store: str
    root: str
    path: str
    session_id: str
    kind: CopyKind
    identity: FileIdentity
    """The identity of the source when it was kept, with the size of the kept bytes."""
    is_whole: bool
    is_unchecked: bool
    change: int

    @property
    def full_path(self) -> str:
        """The path of the source. For rows it ends with the session."""
        return f"{self.root}/{self.path}"


def make_rows_path(database: str, session_id: str) -> str:
    """Return the path under which the rows of a session are kept."""
    return f"{database}#{session_id}"


def split_rows_path(path: str) -> tuple[str, str | None]:
    """Return the database in a path, and the session if the path belongs to kept rows."""
    database, mark, session_id = path.partition("#")
    return database, session_id if mark else None


class KeptCopies:
    """The kept copies of all roots, and the forgotten sessions."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.database = KeptDatabase(index.path.parent)
        self.problem: SessionError | None = None
        """The error that prevented reading the copies at the last call, or None."""
        self.is_changed = False
        """Whether copies have changed since the last scan of the catalog."""
        self.served_roots = frozenset[str]()
        self.is_on = False
        self.unfinished = 0
        """The remaining work after sessions were forgotten: `MUST_CLEAR`, `MUST_PURGE` or 0."""
        self.exclusions = frozenset[tuple[str, str]]()
        self._copies: dict[str, Copy] = {}
        self._paths: dict[int, str] = {}
        self._roots: dict[tuple[str, str], dict[str, Copy]] = {}
        self._missing: dict[int, dict[str, Copy]] = {}
        """The copies that replace missing sources, by root and path."""
        self._stand_ins: dict[str, Copy] = {}
        self._change = self._removal = -1
        self._data_version = -1
        self._is_excluding = False
        """Whether the exclusions were read."""
        self._lock = threading.RLock()

    def load_changes(self) -> None:
        """Load the changes that any process has made to the copies."""
        self.problem = None
        try:
            with self._lock:
                if not self.database.exists():
                    return
                version = self.database.get_data_version()
                if version != self._data_version:
                    self._load_copies()
                    self._data_version = version
        except SessionError as error:
            self.problem = error

    @property
    def fault(self) -> SessionError | None:
        """The error that prevented reading the list of forgotten sessions, or None."""
        return None if self._is_excluding else self.problem

    def _load_copies(self) -> None:
        # Before the copies, some of which may be damaged.
        rows = self.database.read(SQL["list_exclusions"])
        self.exclusions = frozenset((store, session_id) for store, session_id, *_ in rows)
        self._is_excluding = self.is_changed = True
        # A removal leaves no row with a newer change, so after one all copies are loaded again.
        removal = int(self.database.get_setting("removal") or 0)
        if removal != self._removal:
            self._removal, self._change = removal, -1
            self._copies, self._paths, self._roots = {}, {}, {}
        for row in self.database.read(SQL["list_changed_copies"], (self._change,)):
            copy = _parse_copy_row(row)
            self._change = copy.change
            self._put_copy(copy)
        self.unfinished = int(self.database.get_setting("unfinished") or 0)
        self.is_on = self.database.get_setting("mode") == "on"

    def _put_copy(self, copy: Copy) -> None:
        old_path = self._paths.get(copy.id)
        if old_path is not None and old_path != copy.full_path:
            old = self._copies.pop(old_path)
            self._roots[old.root, old.store].pop(old.path, None)
        self._paths[copy.id] = copy.full_path
        self._copies[copy.full_path] = copy
        self._roots.setdefault((copy.root, copy.store), {})[copy.path] = copy

    def is_excluded(self, store: str, session_id: str, parent_id: str | None = None) -> bool:
        """Return True if a session, its parent or its store was forgotten."""
        if not self.exclusions:
            return False
        names = (session_id, WHOLE_STORE) if parent_id is None else (session_id, parent_id, "")
        return any((store, name) in self.exclusions for name in names)

    def remove_forgotten(self, part: SourcePart) -> bool:
        """Remove forgotten sessions from a part.

        Return False if none of it may be stored.
        """
        store, file = part.after.store, part.file
        if file is not None:
            return not self.is_excluded(store, file.session_id, file.parent_id)
        for session_id in [name for name in part.sessions if self.is_excluded(store, name)]:
            del part.sessions[session_id]
        return True

    def find_copy(self, root: str, path: str) -> Copy | None:
        """Return the copy of a source, or None."""
        return self._copies.get(f"{root}/{path}")

    def list_copies(self, root: str, store: str) -> dict[str, Copy]:
        """Return the copies of a root by path, including copies of a root that it replaced.

        A folder of an agent may have been a link to another place, or named by a variable.
        """
        with self._lock:
            copies_by_path: dict[str, Copy] = {}
            for (other, name), copies in self._roots.items():
                is_replaced = (
                    other not in self.served_roots
                    and os.path.basename(other) == os.path.basename(root)  # noqa: PTH119 -- os.path avoids building a Path
                    # A root that is not served but exists belongs to another configuration, with
                    # its own files.
                    and not os.path.isdir(other)  # noqa: PTH112 -- os.path avoids building a Path
                )
                if name == store and (other == root or is_replaced):
                    copies_by_path = (
                        copies | copies_by_path if is_replaced else copies_by_path | copies
                    )
            return copies_by_path

    def has_store(self, store: str) -> bool:
        """Return True if copies of a store exist."""
        return any(name == store for _, name in list(self._roots))

    def list_gone_sessions(self, store: str) -> set[str]:
        """Return the sessions whose source has gone, as of the last scan."""
        stand_ins = list(self._stand_ins.values())
        return {copy.session_id for copy in stand_ins if copy.store == store}

    def is_read_from_copy(self, full_path: str) -> bool:
        """Return True if a source has gone and its copy is read instead."""
        return full_path in self._stand_ins

    def add_missing_files(
        self, root: RootCatalog, siblings: Iterable[RootCatalog]
    ) -> dict[str, FileIdentity]:
        """Return the files of a root, and the copies of files that have gone.

        `siblings` are all roots of the store, to which a file may have been moved.
        """
        files = root.sweep.files
        copies = self.list_copies(root.root.path, root.root.format.store)
        is_database = is_database_format(root.root.format)
        find_missing = self._find_missing_rows if is_database else self._find_missing_files
        missing = find_missing(root, copies) if copies else {}
        if missing and not is_database:
            missing = _exclude_moved_files(missing, siblings)
        prefix = f"{root.root.path}/"
        self._missing[id(root)] = {prefix + path: copy for path, copy in missing.items()}
        self._stand_ins = {
            path: copy for copies in self._missing.values() for path, copy in copies.items()
        }
        if not missing:
            return files
        return files | {path: copy.identity for path, copy in missing.items()}

    def _find_missing_files(self, root: RootCatalog, copies: dict[str, Copy]) -> dict[str, Copy]:
        """Return the copies of files that are missing or were emptied."""
        files = root.sweep.files
        return {
            path: copy
            for path, copy in copies.items()
            if copy.kind == "file"
            # An emptied file counts as deleted; any other change is one of the owner, and is
            # followed.
            and (path not in files or files[path].size == 0 < copy.identity.size)
            and root.match_file(path) is not None
        }

    def _find_missing_rows(self, root: RootCatalog, copies: dict[str, Copy]) -> dict[str, Copy]:
        """Return the copies of sessions that their database no longer contains."""
        missing: dict[str, Copy] = {}
        present: dict[str, set[str] | None] = {}
        for path, copy in copies.items():
            database, session_id = split_rows_path(path)
            if copy.kind != "rows" or self.is_excluded(copy.store, copy.session_id):
                continue
            if database not in present:
                present[database] = self._find_present_ids(root, database)
            known = present[database]
            if known is not None and session_id not in known:
                missing[path] = copy
        return missing

    def _find_present_ids(self, root: RootCatalog, database: str) -> set[str] | None:
        """Return the sessions in a database, or None if it was not read to its end."""
        if database not in root.sweep.files:
            return set()
        entry = root.entries.get(database)
        # Before the end of the database a session that was not met yet is not lost.
        if entry is None or not entry.is_read:
            return None
        present = {row[0] for row in self._index.read(_PRESENT_IDS, (entry.id,))}
        reader: Any = root.root.format
        for (name,) in self._index.read(_FACT_IDS, (entry.id,)):
            if self.find_copy(root.root.path, make_rows_path(database, name)) is None or (
                has_message_rows(entry.full_path, reader, name)
            ):
                present.add(name)
        return present

    @contextmanager
    def open_source(self, path: str, *, is_zstd: bool = False) -> Iterator[Source]:
        """Open a file, or its copy if the file has gone.

        Raises:
            OSError: neither the file nor a copy exists.
        """
        source = self._open_source(path, is_zstd=is_zstd)
        try:
            yield source
        finally:
            source.close()

    def _open_source(self, path: str, *, is_zstd: bool) -> Source:
        copy = self._stand_ins.get(path)
        if copy is None:
            try:
                return open_plain_source(path, is_zstd=is_zstd)
            except FileNotFoundError:
                # Deleted since the last scan: the copy is as good as the file was.
                copy = self._copies.get(path)
                if copy is None:
                    raise
        return Source(KeptFile(self.database, copy), copy.identity, is_zstd=is_zstd)

    @contextmanager
    def open_snapshot(self, path: str) -> Iterator[Query]:
        """Open a database, or the kept rows of a session that it no longer contains."""
        copy = self._stand_ins.get(path)
        if copy is None:
            with open_snapshot(path) as query:
                yield query
        else:
            with KeptFile(self.database, copy) as file, open_rows(io.BufferedReader(file)) as query:
                yield query

    def close(self) -> None:
        """Close the file of copies."""
        self.database.close()


class KeptFile(io.RawIOBase):
    """The bytes of a copy, as a readable and seekable file.

    A read raises OSError if the copy was forgotten or replaced in the meantime.
    """

    def __init__(self, database: KeptDatabase, copy: Copy) -> None:
        super().__init__()
        self._database = database
        # Ids are used again after a removal, changes are not.
        self._version, self._size = (copy.id, copy.change), copy.identity.size
        self._position = 0
        self._chunk, self._chunk_at = b"", 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read until the buffer is full or the file ends."""
        view, filled = memoryview(buffer).cast("B"), 0
        while filled < len(view) and self._position < self._size:
            self._load_chunk()
            start = self._position - self._chunk_at
            data = self._chunk[start : start + min(len(view) - filled, self._size - self._position)]
            view[filled : filled + len(data)] = data
            filled += len(data)
            self._position += len(data)
        return filled

    def _load_chunk(self) -> None:
        if self._chunk_at <= self._position < self._chunk_at + len(self._chunk):
            return
        try:
            pieces = self._database.read(SQL["read_piece"], (*self._version, self._position))
        except SessionError as error:
            raise OSError(str(error)) from error
        if not pieces:
            raise FileNotFoundError("the kept copy has been removed or replaced")
        self._chunk_at, length, data = pieces[0]
        self._chunk = decompress_chunk(data, length)
        if self._position >= self._chunk_at + len(self._chunk):
            raise FileNotFoundError("the kept copy has become shorter")


def _exclude_moved_files(
    missing: dict[str, Copy], siblings: Iterable[RootCatalog]
) -> dict[str, Copy]:
    """Return the missing files that were neither renamed nor compressed by their agent."""
    inodes = {copy.identity[:2]: copy for copy in missing.values()}
    names = {get_plain_name(path): copy for path, copy in missing.items()}
    moved: set[str] = set()
    for root in siblings:
        for path, identity in root.sweep.files.items():
            for copy in (inodes.get(identity[:2]), names.get(get_plain_name(path))):
                if copy is not None and identity.size and is_moved(copy, path, identity, root):
                    moved.add(copy.path)
    return {path: copy for path, copy in missing.items() if path not in moved}


def is_moved(copy: Copy, path: str, identity: FileIdentity, root: RootCatalog) -> bool:
    """Return True if a file is the source of a copy under another name."""
    file = root.match_file(path)
    if file is None or file.session_id != copy.session_id:
        return False
    is_compressed = copy.path.endswith(_ZSTD_SUFFIX) != path.endswith(_ZSTD_SUFFIX)
    is_same_name = get_plain_name(path) == get_plain_name(copy.path)
    return identity[:2] == copy.identity[:2] or (is_compressed and is_same_name)


def get_plain_name(path: str) -> str:
    """Return the name of a file without the suffix of a compressed file."""
    return path.rpartition("/")[2].removesuffix(_ZSTD_SUFFIX)


def _parse_copy_row(row: tuple[Any, ...]) -> Copy:
    number, store, root, path, session_id, kind, *identity, is_whole, is_unchecked, change = row
    whole, unchecked = bool(is_whole), bool(is_unchecked)
    place = (number, store, root, path, session_id, kind)
    return Copy(*place, FileIdentity(*identity), whole, unchecked, change)
