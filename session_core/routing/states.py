"""In what state a route is: what a person would be told of a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from session_core.routing.recovery import GOES_ON

if TYPE_CHECKING:
    from session_core.routing.entries import SessionEntry
    from session_core.routing.store import SessionStore

RouteState = Literal["active", "suspended", "resume_pending", "expired", "stale", "dangling"]


def state_of(store: SessionStore, entry: SessionEntry) -> RouteState:
    """Return the state of a route; one that the next message would mend is none that is lost."""
    lost = _lost(store, entry)
    if lost is not None:
        return lost
    if entry.suspended:
        return "suspended"
    if entry.resume_pending:
        return "resume_pending"
    return "expired" if store.is_session_expired(entry) else "active"


def _lost(store: SessionStore, entry: SessionEntry) -> RouteState | None:
    if store.db is None:
        return None
    row = store.db.get_session(entry.session_id)
    if row is None:
        return "dangling"
    if row["end_reason"] == "compression":
        row = store.db.get_session(store.db.get_compression_tip(entry.session_id)) or row
    ended = row["end_reason"] is not None and row["end_reason"] not in GOES_ON
    return "stale" if ended and not store.is_kept(entry) else None
