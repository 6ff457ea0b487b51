"""Comparison of kept rows with their databases, because a watermark misses updates.

A round compares all copies of a database that has changed, in slices. Its position is stored, so
that a round ends even if each process runs only for a moment.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from session_core.transcripts.format import DatabaseFormat
from session_core.transcripts.keep.chunks import compute_digest, find_chunk_end
from session_core.transcripts.keep.copies import Copy, KeptCopies, KeptFile, split_rows_path
from session_core.transcripts.keep.copies_database import SQL
from session_core.transcripts.keep.session_rows import read_session_rows
from session_core.transcripts.roots import FileIdentity

if TYPE_CHECKING:
    from session_core.transcripts.catalog import RootCatalog

RenewSession = Callable[["RootCatalog", str, str], bool]
"""Reads a session of a database into the index again. Returns False if that is not possible yet."""

_SLICE_BYTES = 32_000_000
"""The size of a block. Larger sessions are stored in several transactions."""

_PAUSE_S = 600.0
_SETTLED_NS = 50_000_000
_RENEWALS = "renewals"


class _Round(NamedTuple):
    """The progress of comparing the copies of a database."""

    identity: FileIdentity
    is_on: bool
    begun_at: float
    position: str | None
    """The path of the last compared copy, or None after the end."""


class RowComparison:
    """Finds the copies of database sessions that differ from their rows."""

    def __init__(self, copies: KeptCopies, renew: RenewSession) -> None:
        self._copies = copies
        self._renew = renew

    def find_changed_copies(
        self, root: RootCatalog, database: str, until: float, *, is_anew: bool
    ) -> Iterator[Copy]:
        """Yield differing copies until `until`, then store the position.

        A new round begins ten minutes after the last one began, or at once with `is_anew`.
        """
        reader: Any = root.root.format
        place = (root.root.path, database, reader.store)
        copies = self._list_copies(place)
        current = self._begin_round(place, root.sweep.files[database], is_anew=is_anew)
        if current.position is None or not copies:
            return
        position: str | None = current.position
        for path, copy in copies:
            if path <= current.position:
                continue
            if time.monotonic() > until:
                break
            if self._is_different(reader, place, copy):
                yield copy
            position = path
        else:
            position = None
        self._put_setting(_make_key(place), current._replace(position=position))

    def is_round_unfinished(self, root: RootCatalog, database: str) -> bool:
        """Return True if the round of a database has not reached its end."""
        place = (root.root.path, database, root.root.format.store)
        return self._load_round(place).position is not None

    def note_renewal(self, root: RootCatalog, database: str, session_id: str) -> None:
        """Record that the index has to read a session again, before its copy is replaced."""
        name = [root.root.path, database, root.root.format.store, session_id]
        names = self._list_renewals()
        if name not in names:
            self._put_setting(_RENEWALS, [*names, name])

    def renew_sessions(self, root: RootCatalog) -> None:
        """Make the index read the recorded sessions again."""
        left = []
        names = self._list_renewals()
        for name in names:
            path, database, store, session_id = name
            is_own = (path, store) == (root.root.path, root.root.format.store)
            if not is_own or not self._renew(root, database, session_id):
                left.append(name)
        if left != names:
            self._put_setting(_RENEWALS, left)

    def _begin_round(
        self, place: tuple[str, str, str], identity: FileIdentity, *, is_anew: bool
    ) -> _Round:
        before = self._load_round(place)
        # An interrupted round continues. If the database has changed again, the next round sees it.
        if before.position is not None:
            return before
        is_on, now = self._copies.is_on, time.time()
        # Once keeping is off, rows that the copy lacks no longer make a difference.
        is_same = (before.identity, before.is_on) == (identity, is_on)
        if is_same or not (is_anew or abs(now - before.begun_at) > _PAUSE_S):
            return before
        if time.time_ns() - identity.mtime_ns < _SETTLED_NS:
            # A time that no file has, so that another round follows.
            identity = identity._replace(mtime_ns=-1)
        return _Round(identity, is_on, now, "")

    def _list_copies(self, place: tuple[str, str, str]) -> list[tuple[str, Copy]]:
        """Return the complete copies of a database by path, in order."""
        root, database, store = place
        copies = self._copies.list_copies(root, store)
        return sorted(
            (path, copy)
            for path, copy in copies.items()
            if copy.root == root and copy.is_whole and split_rows_path(path)[0] == database
        )

    def _is_different(
        self, reader: DatabaseFormat, place: tuple[str, str, str], copy: Copy
    ) -> bool:
        """Return True if the rows of a session differ from its copy and still exist."""
        digests: list[bytes] = []
        lines = read_session_lines(
            f"{place[0]}/{place[1]}", reader, copy.session_id, self.list_known_digests(copy)
        )
        for data, _, _ in lines:
            digests += map(compute_digest, cut_chunks(data))
        pieces = self._copies.database.read(SQL["list_pieces"], (copy.id, 0, -1))
        # Without rows the session has gone, and its copy is served instead.
        return bool(digests) and [piece[2] for piece in pieces] != digests

    def list_known_digests(self, copy: Copy | None) -> set[bytes] | None:
        """Return the digests of the rows that may be stored, or None for all rows.

        While keeping is off, a copy gets no row that it does not have.
        """
        if copy is None or self._copies.is_on:
            return None
        with KeptFile(self._copies.database, copy) as file:
            return set(map(compute_digest, io.BufferedReader(file)))

    def _load_round(self, place: tuple[str, str, str]) -> _Round:
        stored = self._copies.database.get_setting(_make_key(place))
        if stored is None:
            return _Round(FileIdentity(0, 0, 0, 0), is_on=False, begun_at=0.0, position=None)
        identity, *values = json.loads(stored)
        return _Round(FileIdentity(*identity), *values)

    def _list_renewals(self) -> list[list[str]]:
        names: list[list[str]] = json.loads(self._copies.database.get_setting(_RENEWALS) or "[]")
        return names

    def _put_setting(self, key: str, value: object) -> None:
        with self._copies.database.open_transaction() as db:
            db.execute(SQL["put_setting"], (key, json.dumps(value)))


def _make_key(place: tuple[str, str, str]) -> str:
    return f"compared {json.dumps(place)}"


def read_session_lines(
    path: str, reader: DatabaseFormat, session_id: str, known: set[bytes] | None = None
) -> Iterator[tuple[bytes, bool, bool]]:
    """Yield (block of lines, has messages so far, is last block) of a session.

    With `known`, message rows whose digest is not in it are left out. No block is yielded if the
    session has no rows.
    """
    lines: list[bytes] = []
    size, has_messages, has_rows = 0, False, False
    for line, is_message in read_session_rows(path, reader, session_id):
        has_messages |= is_message
        has_rows |= not line.startswith(b'{"columns"')
        if is_message and known is not None and compute_digest(line) not in known:
            continue
        if size >= _SLICE_BYTES:
            yield b"".join(lines), has_messages, False
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if has_rows:
        yield b"".join(lines), has_messages, True


def cut_chunks(data: bytes) -> Iterator[bytes]:
    """Yield the chunks of a block of lines."""
    start = 0
    while start < len(data):
        end = find_chunk_end(data, start)
        yield data[start:end]
        start = end
