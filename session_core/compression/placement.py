"""In which of the two shapes a session may be compressed, given who else is there."""

from __future__ import annotations

from typing import Any, Literal, get_args

from session_core import alive, processes
from session_core.compression.boundaries import Refused
from session_core.errors import InvalidInput
from session_core.models import MessageRow, SessionRow
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase

Shape = Literal["in_place", "continuation"]
Wanted = Literal["auto", "in_place", "continuation"]

MOST_S = 0.5
"""In place only where the write lock is held for less than this, by estimate."""

_ROW_S = {"hermes": 0.00017, "own": 0.00003}
"""What a flagged or added row costs; the triggers of Hermes index it twice."""


def check(wanted: str) -> None:
    """Make sure that this is a shape.

    Raises:
        InvalidInput: it is none.
    """
    if wanted not in get_args(Wanted):
        raise InvalidInput(f"shape is {wanted!r}; one of {', '.join(get_args(Wanted))}")


def choose(
    db: StateDatabase,
    row: SessionRow,
    rows: list[MessageRow],
    part: tuple[int, int],
    *,
    wanted: Wanted,
    routed: bool,
    now: float,
) -> Shape | Refused:
    """Return the shape in which `rows[start:end]` may be compressed, or why in none."""
    touched = len(rows) - part[0] + len(rows) - part[1]
    fits = touched * _ROW_S.get(db.kind, _ROW_S["hermes"]) < MOST_S
    possible = fits and "compacted" in rows[0]
    if possible and wanted != "continuation":
        return "in_place"
    if wanted == "in_place":
        large = f"{_too_large(touched)}: use continuation, or keep less with keep_last"
        return Refused("too_large", large if "compacted" in rows[0] else _TOO_OLD)
    if row.get("source") == "tool":
        return Refused("tool", _NO_TIP)
    at_work = beside(db, row, last_at(rows), routed=routed, now=now)
    if at_work is None:
        return "continuation"
    if wanted == "continuation" and possible:
        return Refused("live", f"{at_work}; it would go on in the ended session: use in_place")
    no_room = f", and {_too_large(touched)}" if "compacted" in rows[0] else ""
    return Refused("live", f"{at_work}{no_room}: stop it, then try again")


def beside(
    db: StateDatabase, row: SessionRow, active_at: Any, *, routed: bool, now: float
) -> str | None:
    """Return who may be at work in a session just now, if anybody."""
    return alive.company(db, now).at_work(row["id"], active_at, routed=routed)


def last_at(rows: list[MessageRow]) -> float | None:
    """Return the time of the last message that has one."""
    times = (processes.number(row["timestamp"]) for row in reversed(rows))
    return next((time for time in times if time is not None), None)


def route_of(store: SessionStore | None, row: SessionRow) -> str | None:
    """Return the key of the chat that is in a session."""
    if store is None:
        return None
    key = row.get("session_key")
    entry = store.get(key) if key else None
    if entry is None or entry.session_id != row["id"]:
        entry = store.lookup_by_session_id(row["id"])
    return None if entry is None else entry.session_key


_NO_TIP = "nobody would take another session for what continues one of a tool: use in_place"

_TOO_OLD = "this home is older than compression in place: use continuation"


def _too_large(rows: int) -> str:
    return f"in place it would hold the write lock over {rows:,} rows, for half a second or more"
