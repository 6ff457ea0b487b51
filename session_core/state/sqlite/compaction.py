"""Compaction: rows flagged as summarised away, what stands in their place, its undo; its lock.

Rows that are carried on are copied column by column as they are stored, also those that we know
nothing of.

Which rows are copies that a compaction carried on, where they did not keep their times.

A compaction stores in one step what stands for the live rows: perhaps copies of the first ones, a
summary, copies of the last ones, maybe another note. Its rows without times of their own are a
microsecond apart for each id between them, which nothing is that was said one by one.
A step is taken for one only if behind its first row comes a copy of the very last row that was
summarised away, and that is certain only where it left no other live row before it, or has rows
with times of their own in between. Else, as an append of several messages looks like that too, the
last two rows have to come. In such a step every row that equals an original, in their order, is a
copy. What a person said twice is stored in two steps, and never hidden.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from session_core.errors import Conflict, Unsupported
from session_core.state import validation
from session_core.state.sqlite import admin, fts, lineage, messages, sessions, sql_blocks
from session_core.state.sqlite.connection import Handle, quoted
from session_core.state.sqlite.connections import Store
from session_core.state.sqlite.rows import read
from session_core.types import AppendedMany, Revision

SQL = sql_blocks.load("compaction")

_LOCK_S = 300.0


class Compaction(Store):
    """Summaries in the place of messages."""

    def archive_and_compact(
        self, session_id: str, compacted_messages: messages.Rows
    ) -> AppendedMany:
        """Flag all live rows as compacted and append others in their place.

        Raises:
            Unsupported: the messages of this home have no such flag.
        """
        encoded = messages.encode_all(compacted_messages, self._clock())

        def step(handle: Handle) -> AppendedMany:
            _require_flag(handle)
            before = sessions.revision(handle, session_id)
            with messages.touching(handle, session_id):
                handle.run(handle.sql(SQL["compact_live"]), (session_id,))
            return messages.put_in_place(handle, session_id, before, encoded)

        return self._write(step)

    def compact_messages(
        self,
        session_id: str,
        message_ids: Sequence[int],
        summary: Iterable[Mapping[str, Any]],
        *,
        carry: Sequence[int] = (),
    ) -> AppendedMany:
        """Flag messages as compacted, append a summary and behind it copies of those to carry.

        Raises:
            Conflict: one of them is no live message of the session any more.
            Unsupported: the messages of this home have no such flag.
        """
        encoded = messages.encode_all(summary, self._clock())
        carried = validation.whole_numbers("carry", carry)
        flagged = validation.whole_numbers("message_ids", message_ids) + carried

        def step(handle: Handle) -> AppendedMany:
            _require_flag(handle)
            before = sessions.revision(handle, session_id)
            if _flip(handle, "compact_rows", session_id, flagged) < len(flagged):
                raise Conflict(f"messages of session {session_id} were changed since; plan again")
            ids = messages.insert(handle, session_id, encoded)
            ids += _copy(handle, carried, session_id)
            return _counted(handle, session_id, ids, before)

        return self._write(step)

    def copy_messages(
        self, session_id: str, message_ids: Sequence[int], to_session_id: str
    ) -> AppendedMany:
        """Append copies of messages to another session, with every column but the id.

        Raises:
            NotFound: one of the two sessions is not there.
            Conflict: one of them is no message of the session any more.
        """
        chosen = validation.whole_numbers("message_ids", message_ids)

        def step(handle: Handle) -> AppendedMany:
            sessions.require(handle, session_id)
            before = sessions.revision(handle, to_session_id)
            if _number_of(handle, session_id, chosen) < len(chosen):
                raise Conflict(f"messages of session {session_id} were changed since; plan again")
            ids = _copy(handle, chosen, to_session_id)
            return _counted(handle, to_session_id, ids, before)

        return self._write(step)

    def restore_compacted(
        self,
        session_id: str,
        message_ids: Sequence[int],
        *,
        copies: Mapping[int, int] | None = None,
        flags: Mapping[int, Sequence[int | None]] | None = None,
        drop: Sequence[int] = (),
    ) -> AppendedMany:
        """Bring compacted messages back, and delete for good what had been put in their place.

        What `copies` names becomes what its copy is by now, changed or rewound. `flags` are those
        of `active` and `compacted` that a message had which is live again.

        Raises:
            Conflict: one of them is not compacted any more, or one to drop is not there.
        """
        chosen = validation.whole_numbers("message_ids", message_ids)
        dropped = validation.whole_numbers("drop", drop)
        carried = dict(copies or {})
        unfit = {each: tuple(pair) for each, pair in (flags or {}).items()}

        def step(handle: Handle) -> AppendedMany:
            _require_flag(handle)
            before = sessions.revision(handle, session_id)
            if _number_of(handle, session_id, dropped) < len(dropped):
                raise Conflict(f"messages of session {session_id} were deleted since")
            plain = [each for each in chosen if each not in carried]
            back = _take_back(handle, session_id, carried)
            fts.forget(handle, dropped)
            fts.mend(handle, dropped)
            handle.run(SQL["delete_rows"], _bounds(session_id, dropped))
            back += _flip(handle, "revive_rows", session_id, plain)
            if back < len(chosen):
                raise Conflict(f"messages of session {session_id} were changed since")
            _put_flags(handle, session_id, unfit)
            return _counted(handle, session_id, chosen, before)

        return self._write(step)

    def try_acquire_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = _LOCK_S
    ) -> bool:
        """Take the compression lock of a session, or one that has run out; say whether that was.

        Raises:
            InvalidInput: the session or the holder has no name.
            Unsupported: this home is older than compression locks.
        """
        return self._hold("take_lock", session_id, holder, ttl_seconds)

    def refresh_compression_lock(
        self, session_id: str, holder: str, ttl_seconds: float = _LOCK_S
    ) -> bool:
        """Keep a lock for longer; say no where it was lost."""
        return self._hold("refresh_lock", session_id, holder, ttl_seconds)

    def release_compression_lock(self, session_id: str, holder: str) -> None:
        """Give a lock back; one that somebody else has taken over stays."""

        def step(handle: Handle) -> None:
            if handle.has("compression_locks"):
                handle.run(SQL["release_lock"], (session_id, holder))

        self._write(step)

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        """Return who compresses a session just now."""
        bounds = {"session": session_id, "now": self._clock()}

        def look(handle: Handle) -> str | None:
            if not handle.has("compression_locks"):
                return None
            return cast("str | None", handle.value(SQL["get_lock"], bounds))

        return self._read(look)

    def _hold(self, block: str, session_id: str, holder: str, ttl_s: float) -> bool:
        validation.check_name("session_id", session_id)
        validation.check_name("holder", holder)
        validation.check_number("ttl_seconds", ttl_s, needed=True)
        now = self._clock()
        bounds = {"session": session_id, "holder": holder, "now": now, "until": now + ttl_s}

        def step(handle: Handle) -> bool:
            if not handle.has("compression_locks"):
                raise Unsupported("this home is older than compression locks")
            return handle.run(SQL[block], bounds) > 0

        return self._write(step)


def _require_flag(handle: Handle) -> None:
    if not handle.has("messages", "compacted"):
        raise Unsupported("this home is older than compaction in place")


def _bounds(session_id: str, ids: Sequence[int]) -> dict[str, Any]:
    return {"session": session_id, "ids": json.dumps(list(ids))}


def _number_of(handle: Handle, session_id: str, ids: Sequence[int]) -> int:
    return cast("int", handle.value(SQL["count_of"], _bounds(session_id, ids)))


def _flip(handle: Handle, block: str, session_id: str, ids: Sequence[int]) -> int:
    """Flip flags, at which the triggers of Hermes index every row anew."""
    fts.mend(handle, ids)
    flipped = handle.run(handle.sql(SQL[block]), _bounds(session_id, ids))
    fts.mend(handle, ids)
    return flipped


def _copy(handle: Handle, ids: Sequence[int], session_id: str) -> list[int]:
    """Append live copies of messages to a session; return their ids."""
    flags = {"session_id": "?", "active": "1", "compacted": "0"}
    columns = [name for name in handle.columns("messages") if name != "id"]
    names = ", ".join(map(quoted, columns))
    values = ", ".join(flags.get(name, quoted(name)) for name in columns)
    copy = f"INSERT INTO messages ({names}) SELECT {values} FROM messages WHERE id = ?"  # noqa: S608 -- columns that the table has
    with read.copying(), messages.numbering(handle):
        made = [
            cast("int", handle.connection.execute(copy, (session_id, each)).lastrowid)
            for each in ids
        ]
    if made:
        fts.appended(handle, made[-1])
        fts.mend(handle, made)
    return made


def _take_back(handle: Handle, session_id: str, copies: Mapping[int, int]) -> int:
    """Write the columns of copies onto what they were copied from; return how many there were."""
    originals = list(copies)
    names = ", ".join(quoted(name) for name in handle.columns("messages") if name != "id")
    take = handle.sql(SQL["take_back"]).replace("COLUMNS", names)
    fts.mend(handle, originals)
    before = fts.change_number(handle)
    fts.forget(handle, originals)
    taken = sum(handle.run(take, (copy, each, session_id)) for each, copy in copies.items())
    fts.remember(handle, originals, before)
    fts.mend(handle, originals)
    return taken


def _put_flags(handle: Handle, session_id: str, flags: Mapping[int, tuple[Any, ...]]) -> None:
    fts.mend(handle, list(flags))
    values = [(*pair, each, session_id) for each, pair in flags.items()]
    handle.connection.executemany(SQL["set_flags"], values)
    fts.mend(handle, list(flags))


def _counted(handle: Handle, session_id: str, ids: list[int], before: Revision) -> AppendedMany:
    """Set the counters to what is live now."""
    live, _, tool_calls = admin.count_session(handle, session_id)
    admin.set_counters(handle, session_id, live, tool_calls)
    handle.touched(session_id)
    return AppendedMany(tuple(ids), before, sessions.revision(handle, session_id))


_REACH_S = 0.002
"""Longer than any step is by its times; only rows that were stored together are so near."""

_SLACK = 20
_SEEN = "carried"


@dataclass(frozen=True, slots=True)
class Row:
    """A row, and what it says."""

    id: int
    session_id: str
    at: float
    said: tuple[Any, ...]


def originals(handle: Handle, message_id: int, session_id: str, at: Any) -> dict[int, Row]:
    """Return the copies among the rows that were stored together with a message, by their ids."""
    known: dict[int, dict[int, Row]] = handle.seen.setdefault(_SEEN, {})
    if message_id not in known:
        bounds = {"session": session_id, "id": message_id, "at": at, "reach": _REACH_S}
        step = [row[0] for row in handle.values(SQL["list_step"], bounds)]
        found = _copies(handle, step, session_id) if len(step) > 1 else {}
        known.update(dict.fromkeys([message_id, *step], found))
    return known[message_id]


def of_rows(handle: Handle, rows: Iterable[tuple[int, str, Any]]) -> dict[int, Row]:
    """Return the copies among all the rows of a session, or its first ones, in their order."""
    found: dict[int, Row] = {}
    for message_id, session_id, at in _together(rows):
        found |= originals(handle, message_id, session_id, at)
    return found


def stand_in(handle: Handle, message_id: int, session_id: str, at: float) -> dict[str, Any] | None:
    """Return the row that is shown for a compacted one: its live copy, else the first of all."""
    first = _first(handle, Row(message_id, session_id, at, ()))
    copies = _of_session(handle, "list_first_live", session_id).items()
    live = [copy for copy, original in copies if _first(handle, original) == first]
    found = _shown(handle, live)
    return found if found or first == message_id else _shown(handle, [first])


def in_child(handle: Handle, message_id: int, session_id: str) -> dict[str, Any] | None:
    """Return the copy of a row with which a continuation of its session began."""
    copies = _copies_in_children(handle, session_id).items()
    return _shown(handle, [copy for copy, original in copies if original.id == message_id])


def _shown(handle: Handle, ids: Sequence[int]) -> dict[str, Any] | None:
    """Return the last of these rows that is not rewound."""
    return handle.row(handle.sql(SQL["get_shown"]), (json.dumps(ids),)) if ids else None


def _first(handle: Handle, row: Row) -> int:
    """Return of which row of the session this is a copy, of a copy perhaps."""
    while True:
        original = originals(handle, row.id, row.session_id, row.at).get(row.id)
        if original is None or original.session_id != row.session_id:
            return row.id
        row = original


def _copies_in_children(handle: Handle, session_id: str) -> dict[int, Row]:
    found: dict[int, Row] = {}
    for child in lineage.continuations(handle, session_id):
        found |= _of_session(handle, "list_first_of", child["id"])
    return found


def _of_session(handle: Handle, block: str, session_id: str) -> dict[int, Row]:
    key = _SEEN, block, session_id
    if key not in handle.seen:
        rows = handle.values(handle.sql(SQL[block]), (session_id,))
        handle.seen[key] = of_rows(handle, ((row[0], session_id, row[1]) for row in rows))
    found: dict[int, Row] = handle.seen[key]
    return found


def _together(rows: Iterable[tuple[int, str, Any]]) -> Iterator[tuple[int, str, Any]]:
    """Yield a row of each step; among its rows may be some that kept older times."""
    last: tuple[int, str, Any] | None = None
    for row in rows:
        if not isinstance(row[2], (int, float)):
            continue
        if last is not None and row[1] == last[1]:
            if row[2] < last[2]:
                continue
            if _is_next(last, row):
                yield row
        last = row


def _is_next(last: tuple[int, str, Any], row: tuple[int, str, Any]) -> bool:
    apart = row[0] - last[0]
    return bool(abs((row[2] - last[2]) * 1e6 - apart) <= 0.4 + 0.1 * apart)


def _copies(handle: Handle, step: Sequence[int], session_id: str) -> dict[int, Row]:
    """Return the copies in a step, none where it was no compaction."""
    listed = handle.values(handle.sql(SQL["list_contents"]), {"ids": json.dumps(step)})
    stored = [_row(values) for values in listed]
    bounds = {
        "session": session_id,
        "at": stored[0].at,
        "below": stored[0].id,
        "count": len(stored) + _SLACK,
    }
    source, before = _before(handle, bounds)
    if not before:
        return {}
    found = _matched(stored, before)
    mixed = step[-1] - step[0] >= len(step)
    alone = bool(listed[0][-1]) and not handle.value(handle.sql(SQL["has_live_before"]), bounds)
    if not _ends_alike(stored, before, found, 1 if mixed or alone else 2):
        return {}
    first = handle.values(handle.sql(SQL["list_first"]), {**bounds, "session": source})
    for row, original in zip(stored, (_row(values) for values in first), strict=False):
        if row.id in found or row.said != original.said:
            break
        found[row.id] = original
    return found


def _before(handle: Handle, bounds: dict[str, Any]) -> tuple[str, list[Row]]:
    """Return the last rows that were summarised away before a step, and in which session."""
    session_id = bounds["session"]
    block = "list_compacted_before_by_id" if fts.is_ours(handle) else "list_compacted_before"
    rows = handle.values(handle.sql(SQL[block]), bounds)
    parent = None if rows else lineage.continued_by(handle, session_id)
    if parent is not None:
        session_id = parent
        bounds = {**bounds, "session": session_id}
        rows = handle.values(handle.sql(SQL["list_visible_before"]), bounds)
    return session_id, sorted((_row(values) for values in rows), key=lambda row: row.id)


def _matched(stored: Sequence[Row], before: Sequence[Row]) -> dict[int, Row]:
    """Return which rows of a step, all but its first, equal which originals, from the end."""
    found: dict[int, Row] = {}
    rest = len(before)
    for row in reversed(stored[1:]):
        place = next((at for at in range(rest - 1, -1, -1) if before[at].said == row.said), None)
        if place is not None:
            found[row.id], rest = before[place], place
    return found


def _ends_alike(
    stored: Sequence[Row], before: Sequence[Row], found: dict[int, Row], least: int
) -> bool:
    """Whether the last originals, so many of them, were carried on one behind the other."""
    copies = [place for place, row in enumerate(stored) if row.id in found][-least:]
    wanted = [row.id for row in before[-least:]]
    carried = [found[stored[place].id].id for place in copies]
    return carried == wanted and copies[-1] - copies[0] == least - 1


def _row(values: Sequence[Any]) -> Row:
    message_id, session_id, at, role, content, *rest = values[:7]
    said = content.strip() if isinstance(content, str) else content
    return Row(message_id, session_id, at, (role, said, *rest))
