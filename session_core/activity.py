"""The activity in a home at one moment: gateway, leases, turns, locks and open databases.

A positive sign of activity is trusted. A missing sign proves nothing, so routes, other holders of
the database and sessions of unknown age count as active too.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from session_core import processes
from session_core.routing import recovery
from session_core.routing.session_store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.types import Claim, Holder, Lease

RECENT_ACTIVITY_S = 3600.0
"""If another process has the database open, a session this recent counts as active."""

_START_TOLERANCE_S = 0.05
"""The time that a new process may share the open files of its parent."""

_HEARTBEAT_TIMEOUT_S = 300.0
"""A gateway without a heartbeat for this long counts as dead."""


@dataclass(frozen=True, slots=True)
class HomeActivity:
    """The other processes that use a home."""

    at: float
    gateway: str | None = None
    """A description of the live gateway."""
    leases: Mapping[str, Lease] = field(default_factory=dict)
    turns: Mapping[str, str] = field(default_factory=dict)
    """The holder of an active turn, by session."""
    holders: tuple[Holder, ...] = ()

    def describe_active_user(self, session_id: str, active_at: Any, *, routed: bool) -> str | None:
        """Return a description of the process that may be using a session, or None.

        A session with an unknown time of activity counts as active.
        """
        if self.gateway is not None and routed:
            return f"{self.gateway} has a chat in this session"
        lease = self.leases.get(session_id)
        if lease is not None:
            return f"{lease.surface or 'a program'} (pid {lease.pid}) has this session open"
        if session_id in self.turns:
            return f"{self.turns[session_id]} is at a turn in this session"
        # A live process without a lease may still append to a session that was just in use.
        last_active = processes.parse_number(active_at)
        active = last_active is None or self.at - last_active < RECENT_ACTIVITY_S
        if active and self.holders:
            others = ", ".join(map(str, self.holders))
            return f"it was active within the hour, and {others} has the database open"
        return None


@dataclass(frozen=True, slots=True)
class ActivitySnapshot:
    """Everything that may protect a session from changes, at one moment."""

    company: HomeActivity
    routes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The session keys of the chats in a session, by session."""
    suspended: frozenset[str] = frozenset()
    """Sessions of suspended chats."""
    compressing: Mapping[str, str] = field(default_factory=dict)
    """The holder of the compression lock, by session."""
    pinned: frozenset[str] = frozenset()
    """Sessions pinned in our state folder, if the home has no column for pins."""


def load_home_activity(db: StateDatabase, now: float, homes: Collection[Path] = ()) -> HomeActivity:
    """Return the other processes that use a home.

    `homes` are the homes of its routes, if they differ.
    """
    now += db.admin.get_clock_offset()
    return _build_home_activity(db, now, homes, _list_live_claims(db, now))


def _build_home_activity(
    db: StateDatabase, now: float, homes: Collection[Path], claims: Collection[Claim]
) -> HomeActivity:
    folders = homes or ([db.folder] if db.folder is not None else [])
    return HomeActivity(
        at=now,
        gateway=_describe_live_gateway(folders, claims),
        leases={
            lease.session_id: lease for home in folders for lease in processes.list_leases(home)
        },
        turns=_map_claim_holders(claims, "turn"),
        holders=_list_steady_holders(db),
    )


def _list_steady_holders(db: StateDatabase) -> tuple[Holder, ...]:
    """Return the processes that have the database open in two reads, a moment apart.

    A process that another thread is starting shares all open files of this process for a moment.
    """
    holders = db.admin.list_holders()
    if holders:
        time.sleep(_START_TOLERANCE_S)
        pids = {holder.pid for holder in db.admin.list_holders()}
        holders = [holder for holder in holders if holder.pid in pids]
    return tuple(holders)


def gather_activity(
    db: StateDatabase, store: SessionStore | None, now: float, pinned: Collection[str] = ()
) -> ActivitySnapshot:
    """Return everything that may protect a session from changes at this moment."""
    homes = [] if store is None else processes.list_candidate_homes(store.sessions_dir, db.folder)
    now += db.admin.get_clock_offset()
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
    """Return True if the holder of a claim may still be active.

    A claim without an end is trusted. A gateway needs a recent heartbeat and a live process.
    """
    if claim.kind != "gateway":
        return claim.expires_at is None or claim.expires_at > now
    if claim.at is not None and now - claim.at > _HEARTBEAT_TIMEOUT_S:
        return False
    is_local = claim.host in ("", platform.node())
    # A pid of another host does not identify a process of this host.
    return claim.pid is None or not is_local or processes.is_alive(claim.pid)


def _list_live_claims(db: StateDatabase, now: float) -> list[Claim]:
    return [claim for claim in db.admin.list_claims() if is_live_claim(claim, now)]


def _map_claim_holders(claims: Collection[Claim], kind: str) -> dict[str, str]:
    matching = (claim for claim in claims if claim.kind == kind)
    return {claim.session_id: claim.holder for claim in matching if claim.session_id is not None}


def _describe_live_gateway(homes: Collection[Path], claims: Collection[Claim]) -> str | None:
    """Return a description of a live gateway of these homes or among the claims, or None."""
    for home in homes:
        live = processes.find_gateway(home)
        if live is not None:
            return f"a gateway (pid {live.pid})"
    beats = (claim for claim in claims if claim.kind == "gateway")
    return next((f"a gateway (pid {claim.pid or claim.holder})" for claim in beats), None)


def _iter_used_routes(
    db: StateDatabase, store: SessionStore | None
) -> Iterator[tuple[str, str, bool]]:
    """Yield key, session and suspension of every route that may be in use.

    Routes of another folder count if the folder exists, since another store may use them. A damaged
    route counts if it names a session.
    """
    if store is not None:
        for key, entry in store.load_entries().items():
            yield key, entry.session_id, entry.suspended
    for scope in db.routes.list_scopes() if db.routes.is_available else ():
        # No store can write routes of a folder that does not exist.
        if recovery.is_folder_missing(scope):
            continue
        for key, text in db.routes.load_entries(scope=scope).items():
            fields = _parse_entry(text)
            session_id = fields.get("session_id")
            if isinstance(session_id, str) and key[:1] != "_":
                yield key, session_id, bool(fields.get("suspended"))


def _parse_entry(text: str) -> dict[str, Any]:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}
