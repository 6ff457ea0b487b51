"""Compaction: rows flagged as summarised away, what stands in their place, its undo; its lock.

Rows that are carried on are copied column by column as they are stored, also those that we know
nothing of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from session_core.errors import Conflict, Unsupported
from session_core.models import AppendedMany, Revision
from session_core.state import arguments
from session_core.state.sqlite import blocks, index, messages, rows, sessions, trigram, upkeep
from session_core.state.sqlite.handle import Handle, quoted
from session_core.state.sqlite.store import Store

SQL = blocks.load("compaction")

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
        carried = arguments.whole_numbers("carry", carry)
        flagged = arguments.whole_numbers("message_ids", message_ids) + carried

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
        chosen = arguments.whole_numbers("message_ids", message_ids)

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
        chosen = arguments.whole_numbers("message_ids", message_ids)
        dropped = arguments.whole_numbers("drop", drop)
        carried = dict(copies or {})
        unfit = {each: tuple(pair) for each, pair in (flags or {}).items()}

        def step(handle: Handle) -> AppendedMany:
            _require_flag(handle)
            before = sessions.revision(handle, session_id)
            if _number_of(handle, session_id, dropped) < len(dropped):
                raise Conflict(f"messages of session {session_id} were deleted since")
            plain = [each for each in chosen if each not in carried]
            back = _take_back(handle, session_id, carried)
            index.forget(handle, dropped)
            trigram.mend(handle, dropped)
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
        arguments.check_name("session_id", session_id)
        arguments.check_name("holder", holder)
        arguments.check_number("ttl_seconds", ttl_s, needed=True)
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
    trigram.mend(handle, ids)
    flipped = handle.run(handle.sql(SQL[block]), _bounds(session_id, ids))
    trigram.mend(handle, ids)
    return flipped


def _copy(handle: Handle, ids: Sequence[int], session_id: str) -> list[int]:
    """Append live copies of messages to a session; return their ids."""
    flags = {"session_id": "?", "active": "1", "compacted": "0"}
    columns = [name for name in handle.columns("messages") if name != "id"]
    names = ", ".join(map(quoted, columns))
    values = ", ".join(flags.get(name, quoted(name)) for name in columns)
    copy = f"INSERT INTO messages ({names}) SELECT {values} FROM messages WHERE id = ?"  # noqa: S608 -- columns that the table has
    with rows.copying(), messages.numbering(handle):
        made = [
            cast("int", handle.connection.execute(copy, (session_id, each)).lastrowid)
            for each in ids
        ]
    if made:
        index.appended(handle, made[-1])
        trigram.mend(handle, made)
    return made


def _take_back(handle: Handle, session_id: str, copies: Mapping[int, int]) -> int:
    """Write the columns of copies onto what they were copied from; return how many there were."""
    originals = list(copies)
    names = ", ".join(quoted(name) for name in handle.columns("messages") if name != "id")
    take = handle.sql(SQL["take_back"]).replace("COLUMNS", names)
    trigram.mend(handle, originals)
    before = index.change_number(handle)
    index.forget(handle, originals)
    taken = sum(handle.run(take, (copy, each, session_id)) for each, copy in copies.items())
    index.remember(handle, originals, before)
    trigram.mend(handle, originals)
    return taken


def _put_flags(handle: Handle, session_id: str, flags: Mapping[int, tuple[Any, ...]]) -> None:
    trigram.mend(handle, list(flags))
    values = [(*pair, each, session_id) for each, pair in flags.items()]
    handle.connection.executemany(SQL["set_flags"], values)
    trigram.mend(handle, list(flags))


def _counted(handle: Handle, session_id: str, ids: list[int], before: Revision) -> AppendedMany:
    """Set the counters to what is live now."""
    live, _, tool_calls = upkeep.count_session(handle, session_id)
    upkeep.set_counters(handle, session_id, live, tool_calls)
    handle.touched(session_id)
    return AppendedMany(tuple(ids), before, sessions.revision(handle, session_id))
