"""Who is alive beside us, gathered at one moment: the one place that judges it.

What says that somebody is at work is believed; that nothing says so proves nothing, so routes,
other holders of the database and a session of unknown age count as well.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from session_core import presence, processes
from session_core.presence import Lease
from session_core.routing import recovery
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import Claim, Holder

RECENT_ACTIVITY_S = 3600.0
"""Beside another holder, a session in which something was said so lately is at work."""

_START_TOLERANCE_S = 0.05
"""So long may a process take to become what it is started as."""

_HEARTBEAT_TIMEOUT_S = 300.0
"""A gateway that has not said for so long that it lives is taken for dead."""


@dataclass(frozen=True, slots=True)
class HomeActivity:
    """Who else has this home in hand."""

    at: float
    gateway: str | None = None
    """The live gateway, as a sentence names it."""
    leases: Mapping[str, Lease] = field(default_factory=dict)
    turns: Mapping[str, str] = field(default_factory=dict)
    """Who is at a turn in a session."""
    holders: tuple[Holder, ...] = ()

    def describe_active_user(self, session_id: str, active_at: Any, *, routed: bool) -> str | None:
        """Return who may be at work in a session just now, if anybody.

        A session of which nobody knows when it was active is taken for active.
        """
        if self.gateway is not None and routed:
            return f"{self.gateway} has a chat in this session"
        lease = self.leases.get(session_id)
        if lease is not None:
            return f"{lease.surface or 'a program'} (pid {lease.pid}) has this session open"
        if session_id in self.turns:
            return f"{self.turns[session_id]} is at a turn in this session"
        known = processes.parse_number(active_at)
        active = known is None or self.at - known < RECENT_ACTIVITY_S
        if active and self.holders:
            others = ", ".join(map(str, self.holders))
            return f"it was active within the hour, and {others} has the database open"
        return None


@dataclass(frozen=True, slots=True)
class ActivitySnapshot:
    """All that may keep a session from being touched, as of one moment."""

    company: HomeActivity
    routes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By session, the keys of the chats that are in it."""
    suspended: frozenset[str] = frozenset()
    """Sessions whose chat is suspended."""
    compressing: Mapping[str, str] = field(default_factory=dict)
    """By session, who holds its compression lock."""
    pinned: frozenset[str] = frozenset()
    """Sessions that are pinned by us, where the home has no column for it."""


def load_home_activity(db: StateDatabase, now: float, homes: Collection[Path] = ()) -> HomeActivity:
    """Return who else has a home in hand; `homes` are those of its routes, where not its own."""
    return _build_home_activity(db, now, homes, _list_live_claims(db, now))


def _build_home_activity(
    db: StateDatabase, now: float, homes: Collection[Path], claims: Collection[Claim]
) -> HomeActivity:
    folders = homes or ([db.folder] if db.folder is not None else [])
    return HomeActivity(
        at=now,
        gateway=_find_live_gateway(folders, claims),
        leases={
            lease.session_id: lease for home in folders for lease in presence.list_leases(home)
        },
        turns=_map_claim_holders(claims, "turn"),
        holders=_list_open_holders(db),
    )


def _list_open_holders(db: StateDatabase) -> tuple[Holder, ...]:
    """Return who has the database open, and still has it when asked again.

    What another thread of this process starts just now has all that is open here, for a moment.
    """
    found = db.list_holders()
    if found:
        time.sleep(_START_TOLERANCE_S)
        still = {holder.pid for holder in db.list_holders()}
        found = [holder for holder in found if holder.pid in still]
    return tuple(found)


def gather_activity(
    db: StateDatabase, store: SessionStore | None, now: float, pinned: Collection[str] = ()
) -> ActivitySnapshot:
    """Return all that may keep a session from being touched just now."""
    homes = [] if store is None else presence.list_route_homes(store.sessions_dir, db.folder)
    claims = _list_live_claims(db, now)
    routes: dict[str, dict[str, None]] = {}
    suspended: set[str] = set()
    for key, session_id, is_suspended in _iter_used_routes(db, store):
        routes.setdefault(session_id, {})[key] = None
        if is_suspended:
            suspended.add(session_id)
    return ActivitySnapshot(
        company=_build_home_activity(db, now, homes, claims),
        routes={session_id: tuple(keys) for session_id, keys in routes.items()},
        suspended=frozenset(suspended),
        compressing=_map_claim_holders(claims, "compression"),
        pinned=frozenset(pinned),
    )


def is_live_claim(claim: Claim, now: float) -> bool:
    """Whether somebody still is at what he noted; one without an end is believed.

    A gateway has to say that it lives again and again, and its process has to be there.
    """
    if claim.kind != "gateway":
        return claim.expires_at is None or claim.expires_at > now
    if claim.at is not None and now - claim.at > _HEARTBEAT_TIMEOUT_S:
        return False
    here = claim.host in ("", platform.node())
    return claim.pid is None or not here or processes.is_alive(claim.pid)


def _list_live_claims(db: StateDatabase, now: float) -> list[Claim]:
    return [claim for claim in db.list_claims() if is_live_claim(claim, now)]


def _map_claim_holders(claims: Collection[Claim], kind: str) -> dict[str, str]:
    found = (claim for claim in claims if claim.kind == kind)
    return {claim.session_id: claim.holder for claim in found if claim.session_id is not None}


def _find_live_gateway(homes: Collection[Path], claims: Collection[Claim]) -> str | None:
    for home in homes:
        live = presence.find_gateway(home)
        if live is not None:
            return f"a gateway (pid {live.pid})"
    beats = (claim for claim in claims if claim.kind == "gateway")
    return next((f"a gateway (pid {claim.pid or claim.holder})" for claim in beats), None)


def _iter_used_routes(
    db: StateDatabase, store: SessionStore | None
) -> Iterator[tuple[str, str, bool]]:
    """Yield the key, the session and whether it is suspended of every route that may be in use.

    Those of another folder count as long as that is there: another store may have them. So does one
    that cannot be read as a whole, where it names a session.
    """
    if store is not None:
        for key, entry in store.load_entries().items():
            yield key, entry.session_id, entry.suspended
    for scope in db.list_gateway_routing_scopes() if db.has_routing else ():
        if recovery.is_gone(scope):
            continue
        for key, text in db.load_gateway_routing_entries(scope=scope).items():
            said = _parse_entry(text)
            session_id = said.get("session_id")
            if isinstance(session_id, str) and key[:1] != "_":
                yield key, session_id, bool(said.get("suspended"))


def _parse_entry(text: str) -> dict[str, Any]:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}
