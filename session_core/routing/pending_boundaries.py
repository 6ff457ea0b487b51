"""`PendingBoundary`: a boundary with pending hook calls, as the entry of its chat stores it.

`outbox` explains boundaries and their states.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from session_core.chats import check_session_id
from session_core.errors import InvalidInput
from session_core.routing.entries import PENDING_FIELD, SessionEntry


@dataclass(frozen=True, slots=True)
class PendingBoundary:
    """A boundary with pending hook calls, which the process `holder` took at `since`."""

    id: str
    holder: str
    since: str
    new_session_id: str
    reason: str
    old_session_id: str | None = None
    """The session to finalize, or None if that call has begun or is not needed."""

    used_at: str | None = None
    """The last use of the old session, as `get_last_use` returns it."""


def list_pending_boundaries(entry: SessionEntry) -> list[PendingBoundary]:
    """Return the pending boundaries of an entry, oldest first.

    Unreadable boundaries are left out.
    """
    stored = entry.extra.get(PENDING_FIELD)
    boundaries = (_parse_boundary(item) for item in stored) if isinstance(stored, list) else ()
    return [boundary for boundary in boundaries if boundary is not None]


def add_pending_boundary(entry: SessionEntry, boundary: PendingBoundary) -> None:
    """Append a boundary to the pending boundaries of an entry."""
    _write_pending_boundaries(entry, [*list_pending_boundaries(entry), boundary])


def transfer_pending_boundary(
    entry: SessionEntry, *, boundary: PendingBoundary, transferred: PendingBoundary
) -> bool:
    """Replace `boundary` by `transferred`, which has another holder.

    Return False if the boundary was changed or removed meanwhile.
    """
    if boundary not in list_pending_boundaries(entry):
        return False
    return _change_pending_boundary(entry, boundary, lambda _: transferred)


def record_finalize_begun(entry: SessionEntry, boundary: PendingBoundary) -> bool:
    """Record that the finalize call of a boundary begins.

    Return False if the call has begun already, or if another process has taken the boundary over.
    """
    pending = list_pending_boundaries(entry)
    if not any(current.id == boundary.id and current.old_session_id for current in pending):
        return False
    return _change_pending_boundary(
        entry, boundary, lambda current: replace(current, old_session_id=None)
    )


def record_reset_begun(entry: SessionEntry, boundary: PendingBoundary) -> bool:
    """Remove a boundary because its reset call, which is its last call, begins.

    Return False if the boundary was removed already, or if another process has taken it over.
    """
    return _change_pending_boundary(entry, boundary, lambda _: None)


def merge_pending_boundaries(entry: SessionEntry, current: SessionEntry) -> None:
    """Copy the pending boundaries of the stored entry `current` into a caller's `entry`.

    Nothing is copied if any other field was changed meanwhile.
    """
    if (
        strip_pending_boundaries(entry.stored) == strip_pending_boundaries(current.stored)
        and entry.stored is not None
    ):
        entry.stored = current.stored
        _write_pending_boundaries(entry, list_pending_boundaries(current))


def strip_pending_boundaries(text: str | None) -> str | None:
    """Return the text of an entry without its pending boundaries."""
    if text is None or PENDING_FIELD not in text:
        return text
    stored = json.loads(text)
    stored.pop(PENDING_FIELD, None)
    return json.dumps(stored)


def _change_pending_boundary(
    entry: SessionEntry,
    boundary: PendingBoundary,
    change: Callable[[PendingBoundary], PendingBoundary | None],
) -> bool:
    """Replace a boundary by the result of `change`, or remove it if that is None.

    Return False if another process has taken the boundary over.
    """
    pending = list_pending_boundaries(entry)
    is_match = [
        (current.id, current.holder) == (boundary.id, boundary.holder) for current in pending
    ]
    if not any(is_match):
        return False
    changed = (
        change(current) if matches else current
        for current, matches in zip(pending, is_match, strict=True)
    )
    _write_pending_boundaries(entry, [current for current in changed if current is not None])
    return True


def _write_pending_boundaries(entry: SessionEntry, boundaries: list[PendingBoundary]) -> None:
    entry.extra.pop(PENDING_FIELD, None)
    if boundaries:
        entry.extra[PENDING_FIELD] = [
            {name: value for name, value in asdict(boundary).items() if value}
            for boundary in boundaries
        ]


def _parse_boundary(item: Any) -> PendingBoundary | None:
    try:
        boundary = PendingBoundary(**item)
        for session_id in (boundary.new_session_id, boundary.old_session_id):
            if session_id is not None:
                check_session_id(session_id)
    # Fields of another version, or an id that is not safe as the name of a file.
    except (TypeError, InvalidInput):
        return None
    values = [value for value in asdict(boundary).values() if value is not None]
    return boundary if all(isinstance(value, str) for value in values) else None
