"""Digests of sessions, equal for equal content in all engines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from session_core.state.protocol import StateDatabase
from session_core.types import RawText

Columns = Mapping[str, Collection[str]]
"""By table, the columns that count."""

MESSAGES = "messages"
ROOM_BYTES = 1_000_000
"""The size of the pieces in which messages are read."""

UNCOPIED_TABLES = frozenset({"compression_locks"})

_MAX_EXACT = 2**53


def digest_messages(
    db: StateDatabase, session_id: str, columns: Columns, check: Callable[[], object]
) -> str:
    """Return the digest of the messages of a session, in their order and without their ids.

    `check` is called between two pieces, and may raise.
    """
    digest = hashlib.sha256()
    names = [name for name in sorted(columns[MESSAGES]) if name != "id"]
    for row in iter_messages(db, session_id, check=check):
        digest.update(_encode_row(row, names))
    return digest.hexdigest()


def digest_rows(db: StateDatabase, session_id: str, columns: Columns) -> str:
    """Return the digest of the rows of a session except its messages."""
    rows = [
        (table.encode(), _encode_row(row, sorted(columns[table])))
        for table, row in iter_session_rows(db, session_id)
        if table in columns
    ]
    return hashlib.sha256(repr(sorted(rows)).encode()).hexdigest()


def iter_session_rows(db: StateDatabase, session_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a session except messages, each with its table."""
    for image in db.rows.read_session_images(session_id):
        if image.table not in UNCOPIED_TABLES and not image.shared:
            for row in image.rows:
                yield image.table, dict(zip(image.columns, row, strict=True))


def iter_messages(
    db: StateDatabase,
    session_id: str,
    after: int | None = None,
    *,
    check: Callable[[], object],
) -> Iterator[dict[str, Any]]:
    """Yield the messages of a session after an id, live or not."""
    more = True
    while more:
        check()
        image, more = db.rows.read_message_images(session_id, after, ROOM_BYTES)
        for row in image.rows:
            yield dict(zip(image.columns, row, strict=True))
        if image.rows:
            after = image.rows[-1][image.columns.index("id")]


def is_same_content(first: Any, second: Any) -> bool:
    """Return True if two stored values are the same content."""
    return _encode_value(first) == _encode_value(second)


def _encode_row(row: Mapping[str, Any], names: Collection[str]) -> bytes:
    parts = []
    for name in names:
        if row.get(name) is not None:
            value = _encode_value(row[name])
            parts.append(b"%s %d:%s" % (name.encode(), len(value), value))
    return b"%d[%s]" % (len(parts), b"".join(parts))


def _encode_value(value: Any) -> bytes:
    if value is None:
        return b"-"
    if isinstance(value, str):
        return b"t" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, RawText):
        return b"t" + value.stored
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b"b" + bytes(value)
    # An engine with typed columns makes a float of a whole number, and the reverse.
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_EXACT:
        value = int(value)
    return b"n" + repr(value).encode()
