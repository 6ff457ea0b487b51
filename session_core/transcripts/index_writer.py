"""Writes of parts into the index, one transaction per batch.

A part is skipped if its source has changed in the index since the part was read, because another
process has written it. Row ids are private. They fall for history and rise for appended messages,
so that their order is roughly the order of time. The records of a part change the rows of its
sessions before the remaining messages are inserted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from session_core import _sqlite3
from session_core.transcripts.format import Rewind, Usage
from session_core.transcripts.index import SQL, Index
from session_core.transcripts.keep.copies import KeptCopies
from session_core.transcripts.parts import (
    PROMPT_FLAG,
    IndexedMessage,
    SessionPart,
    SourceEntry,
    SourcePart,
    hash_key,
)
from session_core.transcripts.words import build_words

FIRST_ID = 1 << 27
"""The id of the first message. Ids of history fall from it and fit four bytes."""

_MAX_BLOCK_ROWS = 1000

_MAX_COUNT = 2**53
"""The largest total of tokens, because a transcript may state any number."""

_FACT_COLUMNS = (
    "title",
    "title_rank",
    "folder",
    "branch",
    "model",
    "agent_version",
    "link",
    "resume_id",
)
_USAGE_COLUMNS = tuple(Usage._fields)

Row = dict[str, Any]


class IndexWriter:
    """Writes parts to an index, and removes sources from it."""

    def __init__(self, index: Index, copies: KeptCopies) -> None:
        self._index = index
        self._copies = copies

    def apply_parts(self, parts: Sequence[SourcePart], *, is_history: bool) -> list[SourceEntry]:
        """Write parts, oldest first.

        Return the entries that were written.
        """
        with self._index.open_transaction() as db:
            # A session that was forgotten since it was read must not come back.
            self._copies.load_changes()
            change = _increment_counter(db, "change")
            written, pending, repeated = [], list[PendingSession](), list[PendingSession]()
            for part in parts:
                if _is_current(db, part.before) and self._copies.remove_forgotten(part):
                    state, unknown = json.dumps(part.state), json.dumps(part.unknown)
                    entry = replace(part.after, change=change, state=state, unknown=unknown)
                    entry.id = part.before.id or int(
                        db.execute(SQL["get_next_source"]).fetchone()[0]
                    )
                    _put_source(db, entry)
                    sessions = _resolve_sessions(db, part, entry)
                    pending += sessions
                    repeated += [_split_repeated(session) for session in sessions]
                    written.append(entry)
            _insert_messages(db, repeated, is_history=True)
            _insert_messages(db, pending, is_history=is_history)
        return written

    def touch_source(self, entry: SourceEntry) -> bool:
        """Store the new identity and path of a source whose content is unchanged.

        Return False if another process has changed the source.
        """
        with self._index.open_transaction() as db:
            if not _is_current(db, entry):
                return False
            entry.change = _increment_counter(db, "change")
            flags = (entry.is_read, entry.is_unchecked, entry.change, entry.id)
            db.execute(SQL["touch_source"], (entry.root, entry.path, *entry.identity, *flags))
        return True

    def remove_sources(self, entries: Iterable[SourceEntry]) -> None:
        """Remove sources that no longer exist, with their sessions."""
        with self._index.open_transaction() as db:
            _increment_counter(db, "removal")
            for entry in entries:
                for session, _ in db.execute(SQL["list_source_sessions"], (entry.id,)).fetchall():
                    _remove_session(db, session)
                db.execute(SQL["delete_facts"], (entry.id,))
                db.execute(SQL["delete_source"], (entry.id,))

    def clear_index(self) -> None:
        """Remove all data, including the words of messages that were removed before."""
        with self._index.open_transaction() as db:
            _increment_counter(db, "removal")
            for table in ("messages", "sessions", "facts", "sources", "blocks", "tools"):
                db.execute(f"DELETE FROM {table}")  # noqa: S608 -- the names are constants
            db.execute("INSERT INTO words (words) VALUES ('delete-all')")
            db.execute(SQL["put_meta"], ("dead", 0))
            # `next_id` continues to rise, because cursors of the change feed are ids.
            db.execute(SQL["put_meta"], ("first_id", FIRST_ID))


def _increment_counter(db: _sqlite3.Connection, key: str) -> int:
    """Increment a counter that other processes watch, and return its value."""
    number = _get_meta_number(db, key) + 1
    db.execute(SQL["put_meta"], (key, number))
    return number


def _is_current(db: _sqlite3.Connection, entry: SourceEntry) -> bool:
    """Return True if the index entry of a source is unchanged since `entry` was read."""
    if entry.id:
        row = db.execute(SQL["get_source_change"], (entry.id,)).fetchone()
        return row is not None and row[0] == entry.change
    place = (entry.root, entry.path, entry.store)
    return db.execute(SQL["find_source"], place).fetchone() is None


def _put_source(db: _sqlite3.Connection, entry: SourceEntry) -> None:
    db.execute(
        SQL["put_source"],
        (
            *(entry.id, entry.store, entry.root, entry.path, *entry.identity),
            *(entry.offset, entry.checksum, entry.is_read, entry.is_unchecked, entry.version),
            *(entry.state, entry.unknown, entry.newest_at, entry.change),
        ),
    )


def _split_repeated(session: PendingSession) -> PendingSession:
    """Move messages that were indexed before from `session` into a new PendingSession."""
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
    number = first = _reserve_ids(db, count, is_history=is_history)
    tools = _ToolIds(db)
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


def _reserve_ids(db: _sqlite3.Connection, count: int, *, is_history: bool) -> int:
    """Reserve `count` ids below or above all others, and return the first."""
    key = "first_id" if is_history else "next_id"
    at = _get_meta_number(db, key, FIRST_ID)
    first = at - count if is_history else at
    db.execute(SQL["put_meta"], (key, first if is_history else first + count))
    return first


def _put_block(db: _sqlite3.Connection, first: int, times: Sequence[int | None]) -> None:
    """Store the times of a block of ids, joining small blocks at the end."""
    last, known = first + len(times) - 1, [time for time in times if time is not None]
    newest, oldest = (max(known), min(known)) if known else (None, None)
    end = db.execute(SQL["get_block"]).fetchone()
    if end is not None and end[1] + 1 == first and last - end[0] < _MAX_BLOCK_ROWS:
        first = end[0]
        newest = max((time for time in (newest, end[2]) if time is not None), default=None)
        oldest = min((time for time in (oldest, end[3]) if time is not None), default=None)
    db.execute(SQL["put_block"], (first, last, newest, oldest))


class _ToolIds:
    """The numbers of tool names, which are assigned at first use."""

    def __init__(self, db: _sqlite3.Connection) -> None:
        self._db = db
        self._ids = {name: number for number, name in db.execute(SQL["list_tools"])}

    def get_id(self, name: str) -> int:
        number = self._ids.get(name)
        if number is None:
            number = self._ids[name] = len(self._ids) + 1
            self._db.execute(SQL["put_tool"], (number, name))
        return number


@dataclass(slots=True)
class PendingSession:
    """A session, and the messages to insert into it."""

    row: Row
    items: list[IndexedMessage]
    before: set[int]
    """Keys, or else numbers, of the messages that the session had before it was read again."""


def _resolve_sessions(
    db: _sqlite3.Connection, part: SourcePart, entry: SourceEntry
) -> list[PendingSession]:
    """Update the sessions of a part, and return the messages to insert."""
    before: dict[str, set[int]] = {}
    for session, native_id in db.execute(SQL["list_source_sessions"], (entry.id,)).fetchall():
        # Read before they are removed: messages that come again are no events.
        is_dropped = part.is_reset or native_id == part.renewed_id
        if is_dropped:
            places = db.execute(SQL["list_places"], (session,))
            before[native_id] = {number if key is None else key for number, key in places}
        if is_dropped or (part.present_ids is not None and native_id not in part.present_ids):
            _remove_session(db, session)
    pending = []
    for added in part.sessions.values():
        if part.file is None and _put_facts(db, added, entry):
            continue
        row = _load_session(db, added.native_id, part, entry)
        _merge_session(row, added)
        items = _resolve_items(db, row, added)
        row["is_read"] = int(entry.is_read)
        newest = row["newest_at"] or 0
        # A session that was not read to its end is as new as its file.
        row["active_at"] = newest if entry.is_read and newest else entry.identity.mtime_ns // 10**6
        row["messages"] += len(items)
        db.execute(SQL["put_session"], row)
        if row["messages"] == len(items):
            _assign_ids(db, added.native_id, entry.store)
        pending.append(PendingSession(row, items, before.get(added.native_id, set())))
    if part.file is None and entry.is_read:
        db.execute(SQL["finish_sessions"], (entry.id,))
    return pending


def _load_session(
    db: _sqlite3.Connection, native_id: str, part: SourcePart, entry: SourceEntry
) -> Row:
    cursor = db.execute(SQL["get_session_state"], (entry.id, native_id))
    stored = cursor.fetchone()
    if stored is not None:
        return dict(zip((column[0] for column in cursor.description), stored, strict=True))
    names = [column[0] for column in cursor.description]
    row: Row = dict.fromkeys(names)
    row |= dict.fromkeys(("archived", "messages", "compacted_to", *_USAGE_COLUMNS), 0)
    row |= {"source_id": entry.id, "store": entry.store, "native_id": native_id}
    row["id"] = db.execute(SQL["get_next_session"]).fetchone()[0]
    if part.file is not None:
        row |= {"parent_id": part.file.parent_id, "link": part.file.link}
        row["archived"] = int(part.file.archived)
    row["session_id"] = _make_distinct_id(native_id, entry.full_path)
    for (stored,) in db.execute(SQL["find_facts"], (native_id, entry.store)).fetchall():
        _merge_session(row, SessionPart(native_id, json.loads(stored)))
    return row


def _put_facts(db: _sqlite3.Connection, part: SessionPart, entry: SourceEntry) -> bool:
    """Store facts of a database about a session whose messages are in a file.

    Return False if the session has messages in the database.
    """
    place = (entry.id, part.native_id)
    if part.items or db.execute(SQL["get_session_state"], place).fetchone() is not None:
        return False
    others = db.execute(SQL["list_other_sessions"], (part.native_id, entry.store, entry.id))
    names = [column[0] for column in others.description]
    for stored in others.fetchall():
        row = dict(zip(names, stored, strict=True))
        _merge_session(row, part)
        db.execute(SQL["put_session"], row)
    facts = json.dumps({name: value for name, value in part.facts.items() if name != "usage"})
    db.execute(SQL["put_facts"], (part.native_id, entry.store, entry.id, facts))
    return True


def _assign_ids(db: _sqlite3.Connection, native_id: str, store: str) -> None:
    """Assign different ids to sessions that have the same native id.

    The session with the first path gets the native id itself; files without messages come last. The
    result does not depend on the order in which the sessions were indexed.
    """
    rivals = db.execute(SQL["find_native_sessions"], (native_id, store)).fetchall()
    rivals.sort(key=lambda rival: (not rival[3], rival[2]))
    wanted = [
        (native_id if position == 0 else _make_distinct_id(native_id, path), number, session_id)
        for position, (number, session_id, path, _) in enumerate(rivals)
    ]
    # Through names that no session has, since two sessions may swap their ids.
    changed = [(new, number) for new, number, old in wanted if new != old]
    db.executemany(SQL["rename_session"], [(f"{native_id}~{n}~", n) for _, n in changed])
    db.executemany(SQL["rename_session"], changed)


def _make_distinct_id(native_id: str, path: str) -> str:
    """Return an id for a session whose native id another file has, from its path alone."""
    return f"{native_id}~{hashlib.sha256(path.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def _merge_session(row: Row, part: SessionPart) -> None:
    facts = part.facts
    has_worse_title = row["title"] is not None and facts.get("title_rank", 0) > (
        row["title_rank"] or 0
    )
    for column in _FACT_COLUMNS:
        is_title = column in ("title", "title_rank")
        if column in facts and not (is_title and (has_worse_title or "title" not in facts)):
            row[column] = facts[column]  # type: ignore[literal-required]
    # A session that names itself as its parent would be a cycle.
    if "parent_id" in facts and facts["parent_id"] != row["native_id"]:
        row["parent_id"] = facts["parent_id"]
    if "archived" in facts:
        row["archived"] = int(facts["archived"])
    if "started_at" in facts:
        row["started_at"] = int(facts["started_at"] * 1000)
    if part.compacted_to is not None:
        row["compacted_to"] = part.compacted_to
    for usage in part.usage:
        _add_usage(row, usage)


def _add_usage(row: Row, usage: Usage) -> None:
    for column, number in zip(_USAGE_COLUMNS, usage, strict=True):
        row[column] = min(max(row[column] + number, 0), _MAX_COUNT)


def _resolve_items(db: _sqlite3.Connection, row: Row, part: SessionPart) -> list[IndexedMessage]:
    """Return the messages to insert, after applying copies, replacements and rewinds."""
    is_new = not row["messages"]
    items: dict[int, IndexedMessage] = {}
    numbers_by_key: dict[int, int] = {}
    for item in part.items:
        if isinstance(item, Rewind):
            _remove_rewound(db, row, items, numbers_by_key, item)
            continue
        if item.key is not None:
            earlier = numbers_by_key.get(item.key)
            stored = None
            # A new session has no stored keys, which saves a look-up for each message.
            if earlier is None and not is_new:
                stored = db.execute(SQL["find_key"], (item.key, row["id"])).fetchone()
            if not item.replaces and (earlier is not None or stored is not None):
                continue
            if earlier is not None:
                items.pop(earlier, None)
            elif stored is not None:
                _remove_message(db, row, stored[0])
            numbers_by_key[item.key] = item.number
        items[item.number] = item
        _update_row(row, item)
    return list(items.values())


def _update_row(row: Row, item: IndexedMessage) -> None:
    """Update the columns of a session that depend on its messages."""
    if item.usage is not None:
        _add_usage(row, item.usage)
    if item.preview is not None and row["preview"] is None:
        row["preview"], row["preview_number"] = item.preview, item.number
    if item.at is not None:
        if row["started_at"] is None:
            row["started_at"] = item.at
        row["newest_at"] = max(item.at, row["newest_at"] or 0)


def _remove_rewound(
    db: _sqlite3.Connection,
    row: Row,
    items: dict[int, IndexedMessage],
    numbers_by_key: dict[int, int],
    rewind: Rewind,
) -> None:
    """Remove the messages of a rewind from the messages to insert and from the index."""
    number = _find_rewind_number(db, row, items, rewind)
    for later in [other for other in items if other >= number]:
        key = items.pop(later).key
        if key is not None:
            numbers_by_key.pop(key, None)
    removed = db.execute(SQL["count_messages_from"], (row["id"], number)).fetchone()[0]
    if removed:
        db.execute(SQL["delete_messages_from"], (row["id"], number))
        row["messages"] -= removed
        _add_dead_count(db, removed)
    if row["preview_number"] is not None and row["preview_number"] >= number:
        row["preview"] = row["preview_number"] = None


def _find_rewind_number(
    db: _sqlite3.Connection, row: Row, items: dict[int, IndexedMessage], rewind: Rewind
) -> int:
    """Return the number of the first message that a rewind removes."""
    if rewind.turns:
        prompts = [item.number for item in items.values() if item.flags & PROMPT_FLAG]
        if len(prompts) >= rewind.turns:
            return prompts[-rewind.turns]
        more = (row["id"], rewind.turns - len(prompts) - 1)
        stored = db.execute(SQL["find_last_prompts"], more).fetchone()
        return 0 if stored is None else int(stored[0])
    if rewind.key is None:
        return 0
    key = hash_key(rewind.key)
    for item in items.values():
        if item.key == key:
            return item.number
    stored = db.execute(SQL["find_key"], (key, row["id"])).fetchone()
    return 0 if stored is None else int(stored[1])


def _remove_session(db: _sqlite3.Connection, session: int) -> None:
    """Remove a session with its messages, and give its id to the next session with that id."""
    _add_dead_count(db, db.execute(SQL["delete_messages_from"], (session, -1)).rowcount)
    native, store = db.execute(SQL["get_session_id"], (session,)).fetchone()
    db.execute(SQL["delete_session"], (session,))
    _assign_ids(db, native, store)


def _remove_message(db: _sqlite3.Connection, row: Row, message_id: int) -> None:
    db.execute(SQL["delete_message"], (message_id,))
    row["messages"] -= 1
    _add_dead_count(db, 1)


def _add_dead_count(db: _sqlite3.Connection, count: int) -> None:
    """Count removed messages, whose words stay until the index is rebuilt."""
    if count:
        db.execute(SQL["put_meta"], ("dead", _get_meta_number(db, "dead") + count))


def _get_meta_number(db: _sqlite3.Connection, key: str, default: int = 0) -> int:
    """Return a number of the table `meta`, or the default."""
    row = db.execute(SQL["get_meta"], (key,)).fetchone()
    return default if row is None else int(row[0])
