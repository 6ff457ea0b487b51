"""What is in a home: one light row of every session, read in one moment.

Messages are counted in their indexes, so that no text is read; only which of the inactive rows are
compacted stands in no index of Hermes. Every row of `sessions` is looked at, since no index has
when it ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from session_core.models import LinkKind, Revision, Stock
from session_core.state.sqlite import blocks, lineage
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.store import Store

SQL = blocks.load("inventory")

_COLUMNS = (
    "id",
    "source",
    "title",
    "parent_session_id",
    "session_key",
    "started_at",
    "ended_at",
    "end_reason",
    "archived",
    "pinned",
    "api_call_count",
    "expiry_finalized",
    "message_count",
    "rewind_count",
)
_MARKS = (
    "CASE WHEN instr(model_config, '_delegate_from') OR parent_session_id IS NOT NULL"
    " THEN model_config END"
)
_REPLACED = "\N{REPLACEMENT CHARACTER}"


class Inventory(Store):
    """Takes stock of a home."""

    def inventory(self) -> list[Stock]:
        """Return every session, one light row each, all of one moment.

        A row whose id nobody could ask for, since it is no text, is left out.
        """
        return self._read(take_stock)


@dataclass(slots=True)
class _Counted:
    """What the messages of a session are, counted."""

    live: int = 0
    rows: int = 0
    last_id: int = 0
    compacted: int = 0
    last_at: float | None = None


_NOTHING = _Counted()


def take_stock(handle: Handle) -> list[Stock]:
    """Return every session as of the open snapshot."""
    rows = {row[0]: row for row in _rows(handle) if _can_be_asked_for(handle, row[0])}
    counts = _count(handle)
    parents = {session_id: _text(row[_PARENT]) for session_id, row in rows.items()}
    for row in rows.values():
        _link_by_mark(row, parents)
    return [
        _stock(row, parents[row[0]], rows, counts.get(row[0], _NOTHING)) for row in rows.values()
    ]


def _link_by_mark(row: tuple[Any, ...], parents: dict[str, str | None]) -> None:
    """Give a delegate without a link the parent that its mark names, unless that came from it."""
    session_id, marks = row[0], row[-1]
    if parents[session_id] is not None or marks is None:
        return
    delegator = above = lineage.get_delegator(marks)
    seen = {session_id}
    while above is not None and above not in seen:
        seen.add(above)
        above = parents.get(above)
    if delegator in parents and above is None:
        parents[session_id] = delegator


def _rows(handle: Handle) -> list[tuple[Any, ...]]:
    columns = [name if handle.has("sessions", name) else f"NULL AS {name}" for name in _COLUMNS]
    listed = ", ".join([*columns, _MARKS])
    return handle.values(SQL["list_sessions"].replace("{columns}", listed))


def _count(handle: Handle) -> dict[str, _Counted]:
    found: dict[str, _Counted] = {}
    for session_id, active, count, last_id, compacted, last_at in handle.connection.execute(
        handle.sql(SQL["count_messages"])
    ):
        counted = found.get(session_id)
        if counted is None:
            counted = found[session_id] = _Counted(last_at=last_at)
        counted.rows += count
        counted.last_id = max(counted.last_id, last_id)
        counted.compacted += compacted
        if active == 1 or active is None:
            counted.live += count
    return found


def _can_be_asked_for(handle: Handle, session_id: Any) -> bool:
    """Whether an id is text, and stored as it reads."""
    if not isinstance(session_id, str):
        return False
    if _REPLACED not in session_id:
        return True
    return handle.value("SELECT 1 FROM sessions WHERE id = ?", (session_id,)) is not None


def _stock(
    row: tuple[Any, ...], parent_id: str | None, rows: Mapping[str, Any], counted: _Counted
) -> Stock:
    (
        session_id, source, title, stored_parent, key, started, ended, reason,
        archived, pinned, api_calls, finalized, count, rewinds, _,
    ) = row  # fmt: skip
    started_at = _number(started)
    return Stock(
        id=session_id,
        source=_text(source) or "",
        title=_text(title),
        parent_id=parent_id,
        link=_link(row, rows.get(stored_parent)),
        session_key=_text(key),
        started_at=started_at or 0.0,
        ended_at=None if ended is None else _number(ended) or 0.0,
        end_reason=_text(reason),
        archived=bool(archived),
        pinned=bool(pinned),
        api_calls=api_calls,
        expiry_finalized=bool(finalized),
        last_active_at=started_at if counted.last_at is None else _number(counted.last_at),
        live=counted.live,
        rows=counted.rows,
        counted=count,
        revision=Revision(counted.last_id, counted.live, counted.compacted, rewinds, ended),
    )


def _link(row: tuple[Any, ...], parent: tuple[Any, ...] | None) -> LinkKind | None:
    return lineage.kind(
        {
            "parent_session_id": row[_PARENT],
            "model_config": row[-1],
            "source": row[_SOURCE],
            "started_at": _number(row[_STARTED]) or 0.0,
            "parent_reason": parent and parent[_REASON],
            "parent_ended_at": parent and _number(parent[_ENDED]),
        }
    )


_SOURCE, _PARENT, _STARTED, _ENDED, _REASON = map(
    _COLUMNS.index, ("source", "parent_session_id", "started_at", "ended_at", "end_reason")
)


def _number(stored: Any) -> float | None:
    """Return a time of a row; a careless writer may have left what is none."""
    return stored if isinstance(stored, (int, float)) and isfinite(stored) else None


def _text(stored: Any) -> str | None:
    return stored if stored is None or isinstance(stored, str) else str(stored)
