"""Primitives of upkeep: finalise, delete, count, check. Those that change something act at once.

They protect nobody: whether a session may be touched is for the plans above to say. Rows that
belong to a session go with it; routes and files of a home do not, they are the session store's.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from functools import partial

from session_core.models import BlockedIndex, Finding, Sizes
from session_core.state import arguments
from session_core.state.contract import Step
from session_core.state.pace import Pace
from session_core.state.sqlite import blocks, checks, extension, lineage, sessions, sizes
from session_core.state.sqlite.deletion import Unlinked, delete_row, delete_some, there
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.store import Store

SQL = blocks.load("upkeep")

_WEEK_S = 604_800
_DAY_S = 86_400
_CHUNK = 200
_TRIES = 3
_CHOSEN = " AND id IN (SELECT value FROM json_each(:ids))"
"""What is looked at again, in the transaction that changes it."""


class Upkeep(Store):
    """What keeps a home small and right."""

    def finalize_orphaned_compression_sessions(self) -> int:
        """End continuations that never ran; return how many. Acts at once.

        One that has no accounted call, has not ended, began more than a week ago, continues a
        parent that was compressed, and has a message.
        """
        before = self._clock() - _WEEK_S
        orphans = self._read(lambda handle: list_orphans(handle, before))
        return sum(
            self._write(partial(_finalize, ids=chunk, now=self._clock(), before=before))
            for chunk in _chunks(orphans)
        )

    def prune_empty_ghost_sessions(self) -> int:
        """Delete empty sessions of the terminal without children. Acts at once.

        One that has no title and no message, has ended, and began more than a day ago.
        """
        before = self._clock() - _DAY_S
        ghosts = self._read(lambda handle: list_ghosts(handle, before))
        return sum(
            self._write(partial(_prune, ids=chunk, before=before)) for chunk in _chunks(ghosts)
        )

    def delete_session(self, session_id: str) -> bool:
        """Delete a session, its delegates and all rows that belong to them. Acts at once.

        Its other children lose their parent. One transaction, or where it is too large for one
        that is short, several: messages first, the row of the session at the very last, so that
        a delete that was cut short can be called again. Routes and files stay.
        """
        return self.delete_sessions([session_id]) == 1

    def delete_sessions(self, session_ids: Sequence[str]) -> int:
        """Delete several sessions as `delete_session` does; return how many. Acts at once."""
        rest = self._read(partial(there, session_ids=session_ids))
        wanted, gone, pace = set(rest), set[str](), Pace()
        unlinked = self._read(lineage.list_unlinked_delegates)
        while rest:
            with self.transaction():
                done, removed = self._write(
                    partial(_delete, ids=rest, unlinked=unlinked, pace=pace)
                )
            pace.end()
            gone |= removed
            rest = rest[done:]
        return len(gone & wanted)

    def recount_session(self, session_id: str) -> bool:
        """Set the counters to what the rows say; return whether they had drifted.

        Raises:
            NotFound: there is no such session.
        """
        for _ in range(_TRIES):
            counted = self._read(lambda handle: count_session(handle, session_id))
            drifted = self._write(partial(_recount, session_id=session_id, counted=counted))
            if drifted is not None:
                return drifted
        return self._write(
            lambda handle: bool(_recount(handle, session_id, count_session(handle, session_id)))
        )

    def drifted_sessions(self, limit: int = 1000) -> list[str]:
        """Return sessions whose number of messages is not what the rows say."""
        arguments.check_limit(limit)
        return self._read(
            lambda handle: [
                row[0] for row in handle.values(handle.sql(SQL["list_drifted"]), (limit,))
            ]
        )

    def check_integrity(self, *, deep: bool = False, step: Step | None = None) -> list[Finding]:
        """Return what is wrong with the file; `deep` also checks the search index, on a copy."""
        self._check_alive()
        with self._errors():
            folder = self.path.parent if self._loads and self.kind == "hermes" else None
            return checks.check(self.path, deep=deep, step=step, extension_of=folder)

    def blocked_indexes(self) -> list[BlockedIndex]:
        """Return the search indexes that this process cannot write."""
        return self._read(extension.list_blocked)

    def check_rows_writable(self, tables: Collection[str]) -> None:
        """Refuse a change that would insert or delete rows of these tables and fail."""
        for index in self.blocked_indexes():
            if not set(tables).isdisjoint(index.tables):
                raise extension.refuse(self.path, index, requested=self._loads)

    def sizes(self, *, exact: bool = False, step: Step | None = None) -> Sizes:
        """Return bytes by table: estimates at once, or counted in a child process."""
        estimated = self._read(lambda handle: sizes.estimate(handle, self.path))
        if not exact:
            return estimated
        return sizes.count(estimated, self._read(sizes.layout), self.path, step)


def list_orphans(handle: Handle, before: float) -> list[str]:
    """Return the continuations that never ran."""
    if not handle.has("sessions", "api_call_count"):
        return []
    return [row[0] for row in handle.values(SQL["list_orphans"], {"before": before})]


def list_ghosts(handle: Handle, before: float) -> list[str]:
    """Return the empty sessions of the terminal that have no child."""
    return [row[0] for row in handle.values(SQL["list_ghosts"], {"before": before})]


def count_session(handle: Handle, session_id: str) -> tuple[int, int, int]:
    """Return a session's live rows, the highest id of them, and the tool calls in them."""
    live, last_id = _count_live(handle, session_id)
    return live, last_id, handle.value(handle.sql(SQL["count_tool_calls"]), (session_id,))


def set_counters(handle: Handle, session_id: str, messages: int, tool_calls: int) -> None:
    """Store how many messages and tool calls a session has."""
    counts = {"id": session_id, "messages": messages, "tool_calls": tool_calls}
    handle.run(SQL["set_counters"], counts)


def _count_live(handle: Handle, session_id: str) -> tuple[int, int]:
    live, last_id = handle.values(handle.sql(SQL["count_live"]), (session_id,))[0]
    return live, last_id


def _finalize(handle: Handle, ids: Sequence[str], now: float, before: float) -> int:
    chosen = {"ids": json.dumps(ids), "before": before}
    orphans = [row[0] for row in handle.values(SQL["list_orphans"] + _CHOSEN, chosen)]
    for orphan in orphans:
        handle.touched(orphan)
    return handle.run(SQL["finalize"], {"ids": json.dumps(orphans), "now": now})


def _prune(handle: Handle, ids: Sequence[str], before: float) -> int:
    chosen = {"ids": json.dumps(ids), "before": before}
    ghosts = [row[0] for row in handle.values(SQL["list_ghosts"] + _CHOSEN, chosen)]
    for ghost in ghosts:
        delete_row(handle, ghost)
    return len(ghosts)


def _delete(
    handle: Handle, ids: Sequence[str], unlinked: Unlinked, pace: Pace
) -> tuple[int, set[str]]:
    pace.begin()
    return delete_some(handle, ids, unlinked, pace.room)


def _recount(handle: Handle, session_id: str, counted: tuple[int, int, int]) -> bool | None:
    """Store the counters; return None where the rows have changed since they were counted."""
    found = handle.values(SQL["get_counters"], (session_id,))
    if not found:
        raise sessions.missing(handle, session_id)
    live, last_id, tool_calls = counted
    if _count_live(handle, session_id) != (live, last_id):
        return None
    if found[0] == (live, tool_calls):
        return False
    set_counters(handle, session_id, live, tool_calls)
    return True


def _chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK))
