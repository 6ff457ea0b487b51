"""Writes parts into the index, each batch as one transaction.

A part is skipped if its source has changed in the index since it was read: another process was
first. Row ids are private. They fall for history and rise for what is appended, so that their
order is about the order of time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from session_core import _sqlite3
from session_core.transcripts.index import SQL, Index
from session_core.transcripts.keep.copies import KeptCopies
from session_core.transcripts.parts import IndexedMessage, SourceEntry, SourcePart
from session_core.transcripts.sessions import (
    PendingSession,
    get_number,
    remove_session,
    resolve_sessions,
)
from session_core.transcripts.words import build_words

FIRST_ID = 1 << 27
"""The id of the first message; ids of history fall from it and still take four bytes."""

_MAX_BLOCK_ROWS = 1000


class IndexWriter:
    """Applies parts and removals to an index."""

    def __init__(self, index: Index, copies: KeptCopies) -> None:
        self._index = index
        self._copies = copies

    def apply_parts(self, parts: Sequence[SourcePart], *, is_history: bool) -> list[SourceEntry]:
        """Write parts, the oldest first; return the entries that were written."""
        with self._index.open_transaction() as db:
            # A session that was forgotten since it was read must not come back.
            self._copies.load_changes()
            change = _advance(db, "change")
            written, pending, repeated = [], list[PendingSession](), list[PendingSession]()
            for part in parts:
                if _is_current(db, part.before) and self._copies.admit_part(part):
                    entry = replace(part.after, change=change)
                    entry.id = part.before.id or int(
                        db.execute(SQL["get_next_source"]).fetchone()[0]
                    )
                    _put_source(db, entry)
                    sessions = resolve_sessions(db, part, entry)
                    pending += sessions
                    repeated += [_split_repeated(session) for session in sessions]
                    written.append(entry)
            _insert_messages(db, repeated, is_history=True)
            _insert_messages(db, pending, is_history=is_history)
        return written

    def touch_source(self, entry: SourceEntry) -> bool:
        """Store the identity and the path of a source whose read part is unchanged."""
        with self._index.open_transaction() as db:
            if not _is_current(db, entry):
                return False
            entry.change = _advance(db, "change")
            flags = (entry.is_read, entry.is_unchecked, entry.change, entry.id)
            db.execute(SQL["touch_source"], (entry.root, entry.path, *entry.identity, *flags))
        return True

    def remove_sources(self, entries: Iterable[SourceEntry]) -> None:
        """Remove sources that no longer exist, with their sessions."""
        with self._index.open_transaction() as db:
            _advance(db, "removal")
            for entry in entries:
                for session, _ in db.execute(SQL["list_source_sessions"], (entry.id,)).fetchall():
                    remove_session(db, session)
                db.execute(SQL["delete_facts"], (entry.id,))
                db.execute(SQL["delete_source"], (entry.id,))

    def clear(self) -> None:
        """Remove everything, also the words of messages that were removed before."""
        with self._index.open_transaction() as db:
            _advance(db, "removal")
            for table in ("messages", "sessions", "facts", "sources", "blocks", "tools"):
                db.execute(f"DELETE FROM {table}")  # noqa: S608 -- names of our own
            db.execute("INSERT INTO words (words) VALUES ('delete-all')")
            db.execute(SQL["put_meta"], ("dead", 0))
            # `next_id` goes on rising, since cursors of the change feed are ids.
            db.execute(SQL["put_meta"], ("first_id", FIRST_ID))


def _advance(db: _sqlite3.Connection, key: str) -> int:
    """Return the next value of a counter that other processes watch."""
    number = get_number(db, key) + 1
    db.execute(SQL["put_meta"], (key, number))
    return number


def _is_current(db: _sqlite3.Connection, entry: SourceEntry) -> bool:
    """Return True if the index still has the source as it was when it was read."""
    if entry.id:
        row = db.execute(SQL["get_source_change"], (entry.id,)).fetchone()
        return row is not None and row[0] == entry.change
    place = (entry.root, entry.path, entry.store)
    return db.execute(SQL["find_source"], place).fetchone() is None


def _put_source(db: _sqlite3.Connection, entry: SourceEntry) -> None:
    state, unknown = json.dumps(entry.state), json.dumps(entry.unknown)
    db.execute(
        SQL["put_source"],
        (
            *(entry.id, entry.store, entry.root, entry.path, *entry.identity),
            *(entry.offset, entry.checksum, entry.is_read, entry.is_unchecked, entry.version),
            *(state, unknown, entry.newest_at, entry.change),
        ),
    )


def _split_repeated(session: PendingSession) -> PendingSession:
    """Take out of a session the messages that it had before, and return them."""
    if not session.before:
        return PendingSession(session.row, [], set())
    repeated, new = list[IndexedMessage](), list[IndexedMessage]()
    for item in session.items:
        known = (item.number if item.key is None else item.key) in session.before
        (repeated if known else new).append(item)
    session.items = new
    return PendingSession(session.row, repeated, set())


def _insert_messages(
    db: _sqlite3.Connection, pending: Sequence[PendingSession], *, is_history: bool
) -> None:
    count = sum(len(session.items) for session in pending)
    if not count:
        return
    number = first = _take_ids(db, count, is_history=is_history)
    tools = _Tools(db)
    rows, words, times = [], [], list[int | None]()
    for session in pending:
        session_number = session.row["id"]
        for item in session.items:
            tool = None if item.tool is None else tools.get_id(item.tool)
            rows.append(
                (
                    *(number, session_number, item.number, item.place, item.length),
                    *(item.at, item.flags, tool, item.key),
                )
            )
            words.append((number, build_words(item.text)))
            times.append(item.at)
            number += 1
    db.executemany(SQL["put_message"], rows)
    db.executemany(SQL["put_words"], words)
    for start in range(0, count, _MAX_BLOCK_ROWS):
        part = times[start : start + _MAX_BLOCK_ROWS]
        _put_block(db, first + start, part)


def _take_ids(db: _sqlite3.Connection, count: int, *, is_history: bool) -> int:
    """Return the first of `count` unused ids: below all others, or above them."""
    key = "first_id" if is_history else "next_id"
    at = get_number(db, key, FIRST_ID)
    first = at - count if is_history else at
    db.execute(SQL["put_meta"], (key, first if is_history else first + count))
    return first


def _put_block(db: _sqlite3.Connection, first: int, times: Sequence[int | None]) -> None:
    """Store the times of a block of ids; small blocks at the end become one."""
    last, known = first + len(times) - 1, [time for time in times if time is not None]
    newest, oldest = (max(known), min(known)) if known else (None, None)
    end = db.execute(SQL["get_block"]).fetchone()
    if end is not None and end[1] + 1 == first and last - end[0] < _MAX_BLOCK_ROWS:
        first = end[0]
        newest = max((time for time in (newest, end[2]) if time is not None), default=None)
        oldest = min((time for time in (oldest, end[3]) if time is not None), default=None)
    db.execute(SQL["put_block"], (first, last, newest, oldest))


class _Tools:
    """The numbers of tool names."""

    def __init__(self, db: _sqlite3.Connection) -> None:
        self._db = db
        self._ids = {name: number for number, name in db.execute(SQL["list_tools"])}

    def get_id(self, name: str) -> int:
        number = self._ids.get(name)
        if number is None:
            number = self._ids[name] = len(self._ids) + 1
            self._db.execute(SQL["put_tool"], (number, name))
        return number
