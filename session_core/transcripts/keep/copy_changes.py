"""Changes of copies, written in the transaction of the caller.

A change is dropped if another process has changed the copy since its source was read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from session_core import _sqlite3
from session_core.transcripts.keep.chunks import compress_chunk, compute_digest
from session_core.transcripts.keep.copies import Copy, CopyKind
from session_core.transcripts.keep.copies_database import SQL, increment_counter
from session_core.transcripts.roots import FileIdentity


@dataclass(slots=True)
class CopyChange:
    """New bytes of a copy from an offset on, which replace all bytes after the offset."""

    before: Copy | None
    store: str
    root: str
    path: str
    session_id: str
    kind: CopyKind
    identity: FileIdentity
    offset: int
    chunks: list[bytes] = field(default_factory=list)
    is_whole: bool = False
    is_unchecked: bool = False
    is_cut: bool = False
    """Whether the change only removes bytes that the source no longer has."""

    @property
    def size(self) -> int:
        """The size of the copy after the change."""
        return self.offset + sum(map(len, self.chunks))


def apply_change(db: _sqlite3.Connection, change: CopyChange) -> None:
    """Write a change, unless another process has changed the copy since it was read."""
    copy = change.before
    if not _is_current(db, copy, change.store, change.root, change.path):
        return
    if copy is not None and not change.size:
        remove_copy(db, copy)
        return
    values = (change.store, change.root, change.path, change.session_id, change.kind)
    identity = change.identity._replace(size=change.size)
    flags = {"is_whole": change.is_whole, "is_unchecked": change.is_unchecked}
    if copy is None:
        number = _insert_copy(db, (*values, *identity), **flags)
    else:
        number = copy.id
        _update_copy(db, number, (*values, *identity), **flags)
    replaced = [row[0] for row in db.execute(SQL["list_chunks_from"], (number, change.offset))]
    db.execute(SQL["delete_pieces_from"], (number, change.offset))
    offset = change.offset
    for data in change.chunks:
        db.execute(SQL["put_piece"], (number, offset, _put_chunk(db, data)))
        offset += len(data)
    # Last, since the new pieces may use some of the replaced chunks again.
    db.executemany(SQL["delete_unused_chunk"], [(chunk, chunk) for chunk in replaced])


def rename_copy(db: _sqlite3.Connection, copy: Copy, root: str, path: str) -> None:
    """Store the new path of a copy's source."""
    if _is_current(db, copy, copy.store, copy.root, copy.path):
        values = (copy.store, root, path, copy.session_id, copy.kind, *copy.identity)
        _update_copy(db, copy.id, values, is_whole=copy.is_whole, is_unchecked=copy.is_unchecked)


def remove_copy(db: _sqlite3.Connection, copy: Copy) -> None:
    """Remove a copy that has not changed since it was read."""
    if _is_current(db, copy, copy.store, copy.root, copy.path):
        delete_copy(db, copy.id)
        increment_counter(db, "removal")


def delete_copy(db: _sqlite3.Connection, number: int) -> None:
    """Delete a copy, and the chunks that no other copy has."""
    chunks = [row[0] for row in db.execute(SQL["list_chunks_from"], (number, 0))]
    db.execute(SQL["delete_pieces_from"], (number, 0))
    db.execute(SQL["delete_copy"], (number,))
    db.executemany(SQL["delete_unused_chunk"], [(chunk, chunk) for chunk in chunks])


def _is_current(
    db: _sqlite3.Connection, copy: Copy | None, store: str, root: str, path: str
) -> bool:
    row = db.execute(SQL["get_copy_change"], (root, path, store)).fetchone()
    # Each write of a copy takes a new number of changes, so an equal number means the same bytes.
    return row is None if copy is None else row == (copy.id, copy.change)


def _insert_copy(
    db: _sqlite3.Connection, values: tuple[object, ...], *, is_whole: bool, is_unchecked: bool
) -> int:
    state = (is_whole, is_unchecked, time.time(), increment_counter(db, "change"))
    return int(db.execute(SQL["add_copy"], (*values, *state)).lastrowid or 0)


def _update_copy(
    db: _sqlite3.Connection,
    number: int,
    values: tuple[object, ...],
    *,
    is_whole: bool,
    is_unchecked: bool,
) -> None:
    state = (is_whole, is_unchecked, time.time(), increment_counter(db, "change"))
    db.execute(SQL["update_copy"], (*values, *state, number))


def _put_chunk(db: _sqlite3.Connection, data: bytes) -> int:
    digest = compute_digest(data)
    row = db.execute(SQL["find_chunk"], (digest,)).fetchone()
    if row is not None:
        return int(row[0])
    added = db.execute(SQL["add_chunk"], (digest, len(data), compress_chunk(data)))
    return int(added.lastrowid or 0)
