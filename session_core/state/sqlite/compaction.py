"""Compaction: flag messages as compacted, store a summary, undo it, and lock sessions meanwhile.

Carried rows are copied with all stored columns, including unknown columns.

Rows that a compaction carried are recognized as copies even without their original times. A
compaction stores the rows that replace the live rows in one step: possibly copies of the first
rows, a summary, copies of the last rows, and possibly a note. Its rows without times of their own
are one microsecond apart for each id between them, which separately stored messages never are. A
step counts as a compaction only if its first row is followed by a copy of the very last compacted
row. That is conclusive only if no other live row precedes the step, or if rows with times of their
own lie in between. Otherwise, since an append of several messages looks the same, the last two rows
must be present. In such a step every row that equals an original, in order, is a copy. A message
that a person sent twice is stored in two steps and is never hidden.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from session_core.errors import Conflict, Unsupported
from session_core.state import sql_blocks, validation
from session_core.state.sqlite import fts, lineage, messages, sessions
from session_core.state.sqlite.admin import admin
from session_core.state.sqlite.connection import Connection, quote_name
from session_core.state.sqlite.rows import row_images
from session_core.state.sqlite.store import SqliteOperations
from session_core.types import AppendManyResult, Revision

SQL = sql_blocks.load_blocks("compaction")

# The lifetime that Hermes gives its own locks.
_LOCK_TTL_S = 300.0


class SqliteCompaction(SqliteOperations):
    """Compaction of whole sessions, and the compression lock."""

    def archive_and_compact(
        self, session_id: str, compacted_messages: messages.MessageMappings
    ) -> AppendManyResult:
        """Flag all live rows as compacted and append the messages that replace them.

        The replaced rows stay in the session and are still found by a search. `Compressor` makes
        the same change with a plan and an undo.

        Raises:
            Unsupported: the messages of this home have no such flag.
        """
        encoded = messages.encode_messages(compacted_messages, self._clock())

        def compact_live_rows(handle: Connection) -> AppendManyResult:
            _require_compacted_column(handle)
            before = sessions.get_revision(handle, session_id)
            with messages.keep_trigrams_valid(handle, session_id):
                handle.execute_update(handle.expand_sql(SQL["compact_live"]), (session_id,))
            return messages.insert_replacements(handle, session_id, before, encoded)

        return self._write(compact_live_rows)

    def try_acquire_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = _LOCK_TTL_S
    ) -> bool:
        """Acquire the compression lock of a session, or take over an expired lock.

        Return False if another holder has the lock.

        Raises:
            InvalidInput: the session or the holder has no name.
            Unsupported: this home is older than compression locks.
        """
        return self._write_lock_row("take_lock", session_id, holder, ttl_seconds)

    def refresh_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = _LOCK_TTL_S
    ) -> bool:
        """Extend a lock. Return False if it was lost."""
        return self._write_lock_row("refresh_lock", session_id, holder, ttl_seconds)

    def release_compression_lock(self, session_id: str, holder: str) -> None:
        """Release a lock, unless another holder has taken it over."""

        def delete_lock_row(handle: Connection) -> None:
            if handle.has_column("compression_locks"):
                handle.execute_update(SQL["release_lock"], (session_id, holder))

        self._write(delete_lock_row)

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        """Return the current holder of the compression lock of a session."""
        bounds = {"session": session_id, "now": self._clock()}

        def read_lock_holder(handle: Connection) -> str | None:
            if not handle.has_column("compression_locks"):
                return None
            return cast("str | None", handle.fetch_value(SQL["get_lock"], bounds))

        return self._read(read_lock_holder)

    def _write_lock_row(self, block: str, session_id: str, holder: str, ttl_s: float) -> bool:
        validation.check_name("session_id", session_id)
        validation.check_name("holder", holder)
        validation.check_number("ttl_seconds", ttl_s, needed=True)
        now = self._clock()
        bounds = {"session": session_id, "holder": holder, "now": now, "until": now + ttl_s}

        def update_lock_row(handle: Connection) -> bool:
            if not handle.has_column("compression_locks"):
                raise Unsupported("the schema of this home has no compression locks")
            return handle.execute_update(SQL[block], bounds) > 0

        return self._write(update_lock_row)


class MessageCompactor(SqliteOperations):
    """Compaction of chosen messages, and its undo."""

    def compact_messages(
        self,
        session_id: str,
        message_ids: Sequence[int],
        summary: Iterable[Mapping[str, Any]],
        *,
        carry: Sequence[int] = (),
    ) -> AppendManyResult:
        """Flag messages as compacted, then append a summary and copies of the carried messages.

        Raises:
            Conflict: one of them is no longer a live message of the session.
            Unsupported: the messages of this home have no such flag.
        """
        encoded = messages.encode_messages(summary, self._clock())
        carried_ids = validation.parse_integers("carry", carry)
        flagged_ids = validation.parse_integers("message_ids", message_ids) + carried_ids

        def compact_rows(handle: Connection) -> AppendManyResult:
            _require_compacted_column(handle)
            before = sessions.get_revision(handle, session_id)
            # A message that another process has changed meanwhile is not flipped.
            if _flip_flags(handle, "compact_rows", session_id, flagged_ids) < len(flagged_ids):
                raise Conflict(f"messages of session {session_id} have changed; plan again")
            ids = messages.insert_messages(handle, session_id, encoded)
            ids += _append_copies(handle, carried_ids, session_id)
            return _update_counters(handle, session_id, ids, before)

        return self._write(compact_rows)

    def copy_messages(
        self, session_id: str, message_ids: Sequence[int], to_session_id: str
    ) -> AppendManyResult:
        """Append copies of messages to another session, with every column except the id.

        Raises:
            NotFound: one of the two sessions does not exist.
            Conflict: one of the messages is no longer in the session.
        """
        source_ids = validation.parse_integers("message_ids", message_ids)

        def copy_rows(handle: Connection) -> AppendManyResult:
            sessions.require_session(handle, session_id)
            before = sessions.get_revision(handle, to_session_id)
            if _count_rows(handle, session_id, source_ids) < len(source_ids):
                raise Conflict(f"messages of session {session_id} have changed; plan again")
            ids = _append_copies(handle, source_ids, to_session_id)
            return _update_counters(handle, to_session_id, ids, before)

        return self._write(copy_rows)

    def restore_compacted(
        self,
        session_id: str,
        message_ids: Sequence[int],
        *,
        copies: Mapping[int, int] | None = None,
        flags: Mapping[int, Sequence[int | None]] | None = None,
        drop: Sequence[int] = (),
    ) -> AppendManyResult:
        """Restore compacted messages, and permanently delete the rows that replaced them.

        A message in `copies` gets the present columns of its copy, which may have been edited or
        rewound. `flags` holds the earlier values of `active` and `compacted` of messages that are
        live again.

        Raises:
            Conflict: one of them is no longer compacted, or a row to drop is missing.
        """
        restored_ids = validation.parse_integers("message_ids", message_ids)
        dropped_ids = validation.parse_integers("drop", drop)
        copy_by_original = dict(copies or {})
        flags_by_id = {message_id: tuple(pair) for message_id, pair in (flags or {}).items()}

        def restore_rows(handle: Connection) -> AppendManyResult:
            _require_compacted_column(handle)
            before = sessions.get_revision(handle, session_id)
            if _count_rows(handle, session_id, dropped_ids) < len(dropped_ids):
                raise Conflict(f"messages of session {session_id} were deleted meanwhile")
            flagged_only = [
                message_id for message_id in restored_ids if message_id not in copy_by_original
            ]
            # Before the copies are deleted, which may have later edits.
            restored_count = _restore_originals(handle, session_id, copy_by_original)
            # Before the rows are deleted, because an index needs the old text to remove its words.
            fts.remove_index_entries(handle, dropped_ids)
            fts.repair_entries(handle, dropped_ids)
            handle.execute_update(SQL["delete_rows"], _make_id_bounds(session_id, dropped_ids))
            restored_count += _flip_flags(handle, "revive_rows", session_id, flagged_only)
            if restored_count < len(restored_ids):
                raise Conflict(f"messages of session {session_id} have changed")
            _write_flags(handle, session_id, flags_by_id)
            return _update_counters(handle, session_id, restored_ids, before)

        return self._write(restore_rows)


def _require_compacted_column(handle: Connection) -> None:
    if not handle.has_column("messages", "compacted"):
        raise Unsupported("the schema of this home has no compaction in place")


def _make_id_bounds(session_id: str, ids: Sequence[int]) -> dict[str, Any]:
    return {"session": session_id, "ids": json.dumps(list(ids))}


def _count_rows(handle: Connection, session_id: str, ids: Sequence[int]) -> int:
    return cast("int", handle.fetch_value(SQL["count_of"], _make_id_bounds(session_id, ids)))


def _flip_flags(handle: Connection, block: str, session_id: str, ids: Sequence[int]) -> int:
    """Flip the flags of messages and return the number of changed rows.

    The triggers of Hermes index each of these rows again.
    """
    # Triggers remove and add the entries, so a NUL is blanked before and after.
    fts.repair_entries(handle, ids)
    flipped = handle.execute_update(handle.expand_sql(SQL[block]), _make_id_bounds(session_id, ids))
    fts.repair_entries(handle, ids)
    return flipped


def _append_copies(handle: Connection, ids: Sequence[int], session_id: str) -> list[int]:
    """Append live copies of messages to a session and return their ids."""
    flags = {"session_id": "?", "active": "1", "compacted": "0"}
    columns = [name for name in handle.list_columns("messages") if name != "id"]
    names = ", ".join(map(quote_name, columns))
    values = ", ".join(flags.get(name, quote_name(name)) for name in columns)
    copy = f"INSERT INTO messages ({names}) SELECT {values} FROM messages WHERE id = ?"  # noqa: S608 -- columns that the table has
    # One INSERT for each row, so that the copies get ids in the order of `ids`.
    with row_images.translate_copy_errors(), messages.translate_id_exhaustion(handle):
        copy_ids = [handle.insert_row(copy, (session_id, message_id)) for message_id in ids]
    if copy_ids:
        fts.schedule_indexing(handle, copy_ids[-1])
        fts.repair_entries(handle, copy_ids)
    return copy_ids


def _restore_originals(handle: Connection, session_id: str, copies: Mapping[int, int]) -> int:
    """Copy the columns of copies to their originals and return the number of changed rows."""
    originals = list(copies)
    names = ", ".join(quote_name(name) for name in handle.list_columns("messages") if name != "id")
    statement = handle.expand_sql(SQL["take_back"]).replace("COLUMNS", names)
    fts.repair_entries(handle, originals)
    # The triggers record each of these updates as a change, which `reindex_messages` clears again.
    before = fts.get_change_number(handle)
    fts.remove_index_entries(handle, originals)
    changed = sum(
        handle.execute_update(statement, (copy, original, session_id))
        for original, copy in copies.items()
    )
    fts.reindex_messages(handle, originals, before)
    fts.repair_entries(handle, originals)
    return changed


def _write_flags(handle: Connection, session_id: str, flags: Mapping[int, tuple[Any, ...]]) -> None:
    fts.repair_entries(handle, list(flags))
    for message_id, pair in flags.items():
        handle.execute_update(SQL["set_flags"], (*pair, message_id, session_id))
    fts.repair_entries(handle, list(flags))


def _update_counters(
    handle: Connection, session_id: str, ids: list[int], before: Revision
) -> AppendManyResult:
    """Set the counters to the number of live rows and tool calls."""
    live, _, tool_calls = admin.count_session(handle, session_id)
    admin.set_counters(handle, session_id, live, tool_calls)
    handle.forget_session_counts(session_id)
    return AppendManyResult(tuple(ids), before, sessions.get_revision(handle, session_id))


_MAX_STEP_S = 0.002
"""Longer than any step by its times. Only rows that were stored together are so close."""

_EXTRA_ROWS = 20
_CACHE_KEY = "carried"


@dataclass(frozen=True, slots=True)
class CompactedRow:
    """A row and its content."""

    id: int
    session_id: str
    at: float
    contents: tuple[Any, ...]


def map_copies_to_originals(
    handle: Connection, message_id: int, session_id: str, at: Any
) -> dict[int, CompactedRow]:
    """Map the copies in the step that stored a message to their originals."""
    cache: dict[int, dict[int, CompactedRow]] = handle.seen.setdefault(_CACHE_KEY, {})
    if message_id not in cache:
        bounds = {"session": session_id, "id": message_id, "at": at, "reach": _MAX_STEP_S}
        step = [row[0] for row in handle.fetch_tuples(SQL["list_step"], bounds)]
        originals = _match_step_copies(handle, step, session_id) if len(step) > 1 else {}
        cache.update(dict.fromkeys([message_id, *step], originals))
    return cache[message_id]


def find_copies(
    handle: Connection, rows: Iterable[tuple[int, str, Any]]
) -> dict[int, CompactedRow]:
    """Map the copies among rows, which are sorted by session and id, to their originals."""
    originals: dict[int, CompactedRow] = {}
    for message_id, session_id, at in _iter_steps(rows):
        originals |= map_copies_to_originals(handle, message_id, session_id, at)
    return originals


def find_visible_copy(
    handle: Connection, message_id: int, session_id: str, at: float
) -> dict[str, Any] | None:
    """Return the row that represents a compacted row, or None.

    It is the live copy of the row, else its first original.
    """
    first_id = _find_first_original(handle, CompactedRow(message_id, session_id, at, ()))
    originals = _list_session_copies(handle, "list_first_live", session_id).items()
    live_copies = [
        copy for copy, original in originals if _find_first_original(handle, original) == first_id
    ]
    row = _find_last_visible(handle, live_copies)
    return row if row or first_id == message_id else _find_last_visible(handle, [first_id])


def find_copy_in_child(
    handle: Connection, message_id: int, session_id: str
) -> dict[str, Any] | None:
    """Return the copy of a row at the beginning of a continuation of its session, or None."""
    originals = _list_copies_in_children(handle, session_id).items()
    return _find_last_visible(
        handle, [copy for copy, original in originals if original.id == message_id]
    )


def _find_last_visible(handle: Connection, ids: Sequence[int]) -> dict[str, Any] | None:
    """Return the row of the last id that is not rewound, or None."""
    return (
        handle.fetch_row(handle.expand_sql(SQL["get_shown"]), (json.dumps(ids),)) if ids else None
    )


def _find_first_original(handle: Connection, row: CompactedRow) -> int:
    """Return the id of the first original of a row, which may be a copy of a copy."""
    while True:
        original = map_copies_to_originals(handle, row.id, row.session_id, row.at).get(row.id)
        if original is None or original.session_id != row.session_id:
            return row.id
        row = original


def _list_copies_in_children(handle: Connection, session_id: str) -> dict[int, CompactedRow]:
    originals: dict[int, CompactedRow] = {}
    for child in lineage.list_continuation_links(handle, session_id):
        originals |= _list_session_copies(handle, "list_first_of", child["id"])
    return originals


def _list_session_copies(
    handle: Connection, block: str, session_id: str
) -> dict[int, CompactedRow]:
    key = _CACHE_KEY, block, session_id
    if key not in handle.seen:
        rows = handle.fetch_tuples(handle.expand_sql(SQL[block]), (session_id,))
        handle.seen[key] = find_copies(handle, ((row[0], session_id, row[1]) for row in rows))
    originals: dict[int, CompactedRow] = handle.seen[key]
    return originals


def _iter_steps(rows: Iterable[tuple[int, str, Any]]) -> Iterator[tuple[int, str, Any]]:
    """Yield one row of each step.

    A step may contain rows that kept older times.
    """
    last: tuple[int, str, Any] | None = None
    for row in rows:
        if not isinstance(row[2], (int, float)):
            continue
        if last is not None and row[1] == last[1]:
            if row[2] < last[2]:
                continue
            if _is_in_same_step(last, row):
                yield row
        last = row


def _is_in_same_step(last: tuple[int, str, Any], row: tuple[int, str, Any]) -> bool:
    """Return True if two rows are about one microsecond apart for each id between them."""
    apart = row[0] - last[0]
    return bool(abs((row[2] - last[2]) * 1e6 - apart) <= 0.4 + 0.1 * apart)


def _match_step_copies(
    handle: Connection, step: Sequence[int], session_id: str
) -> dict[int, CompactedRow]:
    """Map the copies in a step to their originals.

    Return no copies if the step was not a compaction.
    """
    tuples = handle.fetch_tuples(handle.expand_sql(SQL["list_contents"]), {"ids": json.dumps(step)})
    stored = [_to_compacted_row(values) for values in tuples]
    bounds = {
        "session": session_id,
        "at": stored[0].at,
        "below": stored[0].id,
        "count": len(stored) + _EXTRA_ROWS,
    }
    source, before = _list_rows_before(handle, bounds)
    if not before:
        return {}
    originals = _match_from_end(stored, before)
    # Gaps in the ids mean that rows with times of their own were stored in between.
    has_foreign_ids = step[-1] - step[0] >= len(step)
    is_only_live = bool(tuples[0][-1]) and not handle.fetch_value(
        handle.expand_sql(SQL["has_live_before"]), bounds
    )
    if not _has_same_end(stored, before, originals, 1 if has_foreign_ids or is_only_live else 2):
        return {}
    first_tuples = handle.fetch_tuples(
        handle.expand_sql(SQL["list_first"]), {**bounds, "session": source}
    )
    for row, original in zip(
        stored, (_to_compacted_row(values) for values in first_tuples), strict=False
    ):
        if row.id in originals or row.contents != original.contents:
            break
        originals[row.id] = original
    return originals


def _list_rows_before(handle: Connection, bounds: dict[str, Any]) -> tuple[str, list[CompactedRow]]:
    """Return the last rows that were compacted before a step, and their session."""
    session_id = bounds["session"]
    block = "list_compacted_before_by_id" if fts.is_own_index(handle) else "list_compacted_before"
    rows = handle.fetch_tuples(handle.expand_sql(SQL[block]), bounds)
    # A continuation begins with copies of rows of the session that it continues.
    parent = None if rows else lineage.find_continued_session(handle, session_id)
    if parent is not None:
        session_id = parent
        bounds = {**bounds, "session": session_id}
        rows = handle.fetch_tuples(handle.expand_sql(SQL["list_visible_before"]), bounds)
    return session_id, sorted(
        (_to_compacted_row(values) for values in rows), key=lambda row: row.id
    )


def _match_from_end(
    stored: Sequence[CompactedRow], before: Sequence[CompactedRow]
) -> dict[int, CompactedRow]:
    """Match the rows of a step, except its first, with equal originals from the end."""
    originals: dict[int, CompactedRow] = {}
    end = len(before)
    for row in reversed(stored[1:]):
        place = next(
            (at for at in range(end - 1, -1, -1) if before[at].contents == row.contents), None
        )
        if place is not None:
            originals[row.id], end = before[place], place
    return originals


def _has_same_end(
    stored: Sequence[CompactedRow],
    before: Sequence[CompactedRow],
    originals: dict[int, CompactedRow],
    count: int,
) -> bool:
    """Return True if the last `count` originals were carried one after another."""
    copy_places = [place for place, row in enumerate(stored) if row.id in originals][-count:]
    expected_ids = [row.id for row in before[-count:]]
    carried_ids = [originals[stored[place].id].id for place in copy_places]
    return carried_ids == expected_ids and copy_places[-1] - copy_places[0] == count - 1


def _to_compacted_row(values: Sequence[Any]) -> CompactedRow:
    message_id, session_id, at, role, content, *rest = values[:7]
    text = content.strip() if isinstance(content, str) else content
    return CompactedRow(message_id, session_id, at, (role, text, *rest))
