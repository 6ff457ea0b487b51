"""Routes that lead nowhere: to a session that is not there, or to one with which no chat goes on.

One that the next message would mend is none: a compression is followed to its tip, and a session
that only its agent has left is resumed. Suspended ones stay, and what has to be told first.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Literal

from session_core.errors import NotFound, SessionError
from session_core.maintenance.select import protection
from session_core.maintenance.select.snapshot import NO_FILTER, MaintenanceSnapshot
from session_core.maintenance.types import LostRoute, PlanRequest, ProtectionReason, Selection
from session_core.routing import recovery
from session_core.routing.entries import SessionEntry
from session_core.routing.recovery import CONTINUABLE_REASONS
from session_core.routing.store import SessionStore
from session_core.types import InventoryItem, SessionFilter

LostState = Literal["stale", "dangling"]

_GONE_DAYS = 90
"""A folder that is gone may be on a disk that comes back: so old are entries dropped there too."""

_DAY_S = 86_400.0


def select_lost_routes(scene: MaintenanceSnapshot, wanted: PlanRequest) -> Selection[LostRoute]:
    """Choose the routes that lead nowhere and were not used for so long, or those that are named.

    Raises:
        NotFound: one of those is not there.
    """
    chosen: list[LostRoute] = []
    protected: Counter[ProtectionReason] = Counter()
    if scene.store is None:
        return Selection()
    cutoff, is_meant = scene.get_cutoff(wanted), _build_filter(scene, wanted.where)
    for key, entry in _select_requested(scene.store.load_entries(), wanted).items():
        state, session = find_lost_state(scene, entry)
        if state is None or not is_meant(entry, session):
            continue
        why = find_route_protection(
            scene, scene.store, entry, cutoff if wanted.ids is None else None
        )
        if why is not None:
            protected[why] += 1
            continue
        chosen.append(
            LostRoute(key, _describe_reason(session, entry, scene.now), entry.session_id, entry)
        )
    return Selection.from_items([*chosen, *_iter_gone_folder_routes(scene, wanted)], protected)


def _select_requested(
    entries: Mapping[str, SessionEntry], wanted: PlanRequest
) -> Mapping[str, SessionEntry]:
    if wanted.ids is None:
        return entries
    missing = [key for key in wanted.ids if key not in entries]
    if missing:
        nearest = difflib.get_close_matches(missing[0], entries, n=5)
        raise NotFound(f"there is no route of {missing[0]}", nearest=nearest)
    return {key: entries[key] for key in wanted.ids}


def _build_filter(
    scene: MaintenanceSnapshot, where: SessionFilter
) -> Callable[[SessionEntry, InventoryItem | None], bool]:
    """Return whether a filter is true of a route: of its session, else of what it says itself."""
    allows = scene.build_session_filter(where)
    by_source = where == replace(NO_FILTER, source=where.source)

    def is_meant(entry: SessionEntry, session: InventoryItem | None) -> bool:
        if session is not None:
            return allows(session)
        return by_source and (where.source is None or str(entry.platform) in where.source)

    return is_meant


def find_lost_state(
    scene: MaintenanceSnapshot, entry: SessionEntry
) -> tuple[LostState | None, InventoryItem | None]:
    """Return whether a route leads nowhere, and the session to which it leads."""
    session = scene.conversations.stocks.get(entry.session_id)
    if session is None:
        return "dangling", None
    if session.end_reason == "compression":
        conversation = scene.conversations.find_conversation(session.id)
        session = session if conversation is None else conversation.tip
    goes_on = session.end_reason in CONTINUABLE_REASONS and session.rows > 0
    return (None if session.end_reason is None or goes_on else "stale"), session


def find_route_protection(
    scene: MaintenanceSnapshot,
    store: SessionStore,
    entry: SessionEntry,
    cutoff: float | None = None,
) -> ProtectionReason | None:
    """Return why a route stays although it leads nowhere, None where it may go."""
    if scene.alive.company.gateway is not None or store.has_active_turn(entry):
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
        return f"leads to session {entry.session_id}, which is not there; {used}"
    return f"leads to session {session.id}, which {protection.describe_end(session)}; {used}"


def _iter_gone_folder_routes(
    scene: MaintenanceSnapshot, wanted: PlanRequest
) -> Iterator[LostRoute]:
    """Yield the routes of former folders that this store will not take over any more."""
    db = scene.db
    if scene.store is None or not db.has_routing or wanted.ids is not None:
        return
    if scene.alive.company.gateway is not None:
        return  # it may be about to take them over
    own = str(scene.store.sessions_dir.resolve())
    if not db.load_gateway_routing_entries(scope=own):
        return
    before, is_meant = scene.now - _GONE_DAYS * _DAY_S, _build_filter(scene, wanted.where)
    for scope in db.list_gateway_routing_scopes():
        if scope == own or not recovery.is_gone(scope):
            continue
        for key, text in db.load_gateway_routing_entries(scope=scope).items():
            entry = _parse_entry(text)
            used_at = None if entry is None else protection.get_last_use(entry)
            if entry is None or not is_meant(entry, None):
                continue
            if used_at is not None and used_at < before:
                used = protection.format_age(used_at, scene.now)
                why = f"of the folder {scope}, which is gone; used last {used}"
                yield LostRoute(key, why, entry.session_id, None, scope, text)


def _parse_entry(text: str) -> SessionEntry | None:
    try:
        return SessionEntry.from_dict(json.loads(text))
    except (SessionError, ValueError, TypeError, AttributeError, RecursionError):
        return None
