"""Select routes that lead to a missing session, or to an ended one that cannot be continued.

A route that the next message would repair is not selected: a compression is followed to its tip,
and a session that only its agent has left is resumed. Suspended routes stay, and so do routes with
a pending delivery.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Literal

from session_core.errors import NotFound, SessionError
from session_core.maintenance.members import PlanDraft
from session_core.maintenance.select import protection
from session_core.maintenance.select.snapshot import NO_FILTER, MaintenanceSnapshot
from session_core.maintenance.types import LostRoute, PlanRequest, ProtectionReason, Selection
from session_core.routing import recovery
from session_core.routing.entries import SessionEntry
from session_core.routing.recovery import CONTINUABLE_REASONS
from session_core.routing.session_store import SessionStore
from session_core.types import InventoryItem, SessionFilter

LostState = Literal["stale", "dangling"]

_GONE_DAYS = 90
"""The minimum age of entries of a missing folder, which may be on a disk that returns."""

_DAY_S = 86_400.0


def select_lost_routes(snapshot: MaintenanceSnapshot, request: PlanRequest) -> Selection[LostRoute]:
    """Select the named lost routes, or all lost routes that were not used since the cutoff.

    Raises:
        NotFound: a named route does not exist.
    """
    selected: list[LostRoute] = []
    protected: Counter[ProtectionReason] = Counter()
    if snapshot.store is None:
        return Selection()
    cutoff, matches = snapshot.get_cutoff(request), _build_filter(snapshot, request.where)
    for key, entry in _select_requested(snapshot.store.load_entries(), request).items():
        state, session = find_lost_state(snapshot, entry)
        if state is None or not matches(entry, session):
            continue
        reason = find_route_protection(
            snapshot, snapshot.store, entry, cutoff if request.ids is None else None
        )
        if reason is not None:
            protected[reason] += 1
            continue
        selected.append(
            LostRoute(key, _describe_reason(session, entry, snapshot.now), entry.session_id, entry)
        )
    return Selection.from_items(
        [*selected, *_iter_gone_folder_routes(snapshot, request)], protected
    )


def add_lost_routes(draft: PlanDraft, request: PlanRequest) -> None:
    """Add the lost routes to a plan."""
    selected = select_lost_routes(draft.snapshot, request)
    for route in selected.items:
        name = f"{route.scope}/{route.id}" if route.scope else route.id
        record = {
            "key": route.id,
            "session": route.session_id,
            "scope": route.scope,
            "stored": route.stored if route.entry is None else route.entry.stored,
        }
        draft.add_member("routes", name, record, route.why, title=route.title)
    draft.protected.update(selected.protected)


def _select_requested(
    entries: Mapping[str, SessionEntry], request: PlanRequest
) -> Mapping[str, SessionEntry]:
    if request.ids is None:
        return entries
    missing = [key for key in request.ids if key not in entries]
    if missing:
        nearest = difflib.get_close_matches(missing[0], entries, n=5)
        raise NotFound(f"route {missing[0]} does not exist", nearest=nearest)
    return {key: entries[key] for key in request.ids}


def _build_filter(
    snapshot: MaintenanceSnapshot, where: SessionFilter
) -> Callable[[SessionEntry, InventoryItem | None], bool]:
    """Return a function that matches a route by its session, else by its own entry."""
    matches_session = snapshot.build_session_filter(where)
    by_source = where == replace(NO_FILTER, source=where.source)

    def matches(entry: SessionEntry, session: InventoryItem | None) -> bool:
        if session is not None:
            return matches_session(session)
        return by_source and (where.source is None or str(entry.platform) in where.source)

    return matches


def find_lost_state(
    snapshot: MaintenanceSnapshot, entry: SessionEntry
) -> tuple[LostState | None, InventoryItem | None]:
    """Return the state of a lost route, or None if it is not lost, and the session it leads to."""
    session = snapshot.conversations.sessions.get(entry.session_id)
    if session is None:
        return "dangling", None
    if session.end_reason == "compression":
        conversation = snapshot.conversations.find_conversation(session.id)
        session = session if conversation is None else conversation.tip
    is_continuable = session.end_reason in CONTINUABLE_REASONS and session.rows > 0
    return (None if session.end_reason is None or is_continuable else "stale"), session


def find_route_protection(
    snapshot: MaintenanceSnapshot,
    store: SessionStore,
    entry: SessionEntry,
    cutoff: float | None = None,
) -> ProtectionReason | None:
    """Return the reason to keep a lost route, or None if it may be removed."""
    if snapshot.activity.company.gateway is not None or store.has_active_turn(entry):
        return "live"
    if entry.suspended:
        return "suspended"
    if entry.expiry_finalized:
        return "told with its next message"
    used_at = protection.get_last_use(entry)
    if cutoff is not None and used_at is None:
        return "no known age"
    return "fresh" if cutoff is not None and used_at is not None and used_at >= cutoff else None


def _describe_reason(session: InventoryItem | None, entry: SessionEntry, now: float) -> str:
    used = f"used last {protection.format_age(protection.get_last_use(entry), now)}"
    if session is None:
        return f"leads to session {entry.session_id}, which does not exist; {used}"
    return f"leads to session {session.id}, which {protection.describe_end(session)}; {used}"


def _iter_gone_folder_routes(
    snapshot: MaintenanceSnapshot, request: PlanRequest
) -> Iterator[LostRoute]:
    """Yield the routes of missing folders that this store will not adopt any more."""
    db = snapshot.db
    if snapshot.store is None or not db.routes.is_available or request.ids is not None:
        return
    if snapshot.activity.company.gateway is not None:
        return  # it may be about to adopt them
    own = snapshot.store.scope
    # An empty table of our own may mean that the home was moved: the store adopts the other folder
    # then.
    if not db.routes.load_entries(scope=own):
        return
    cutoff, matches = snapshot.now - _GONE_DAYS * _DAY_S, _build_filter(snapshot, request.where)
    for scope in db.routes.list_scopes():
        if scope == own or not recovery.is_folder_missing(scope):
            continue
        for key, text in db.routes.load_entries(scope=scope).items():
            entry = _parse_entry(text)
            used_at = None if entry is None else protection.get_last_use(entry)
            if entry is None or not matches(entry, None):
                continue
            if used_at is not None and used_at < cutoff:
                age = protection.format_age(used_at, snapshot.now)
                reason = f"of the folder {scope}, which is gone; used last {age}"
                yield LostRoute(key, reason, entry.session_id, None, scope, text)


def _parse_entry(text: str) -> SessionEntry | None:
    try:
        return SessionEntry.from_dict(json.loads(text))
    except (SessionError, ValueError, TypeError, AttributeError, RecursionError):
        return None
