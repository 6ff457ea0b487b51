"""What a step checks again: sessions are still what was planned, and nobody is in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from session_core import activity, processes
from session_core.activity import ActivitySnapshot
from session_core.errors import NotFound
from session_core.maintenance.members import (
    MemberOutdated,
    PlanProgress,
    SessionGroup,
    list_use_signs,
)
from session_core.maintenance.select import protection
from session_core.maintenance.types import PROTECTION_REASONS, ProtectionReason
from session_core.routing import recovery
from session_core.state.protocol import StateDatabase
from session_core.types import InventoryItem, Revision, RowImages

RowMapping = Mapping[str, Any]


def find_session_row(images: Sequence[RowImages]) -> RowMapping | None:
    """Return the row of a session from what was imaged of it."""
    for image in images:
        if image.table == "sessions" and not image.shared and image.rows:
            return dict(zip(image.columns, image.rows[0], strict=True))
    return None


def require_unchanged(
    db: StateDatabase,
    group: SessionGroup,
    session_ids: Iterable[str],
    progress: PlanProgress,
    there: ActivitySnapshot,
    *,
    removed: bool,
    but: Collection[ProtectionReason] = (),
) -> None:
    """Make sure that sessions of a member are what was planned, and may be touched."""
    for session_id in session_ids:
        expected = progress.get_expected_revision(group, session_id)
        row = db.get_session(session_id)
        if row is None:
            raise MemberOutdated(group.member, f"session {session_id} is not there any more")
        require_revision(db, group.member, session_id, expected)
        require_unprotected(group.member, row, expected, there, removed=removed, but=but)
        require_no_new_signs(group, row)


def require_revision(db: StateDatabase, member: str, session_id: str, expected: Revision) -> None:
    """Make sure that a session is at a revision."""
    if not is_at_revision(db, session_id, expected):
        raise MemberOutdated(member, f"session {session_id} was changed since")


def is_at_revision(db: StateDatabase, session_id: str, expected: Revision) -> bool:
    """Whether a session is there, at a revision."""
    try:
        return db.get_revision(session_id) == expected
    except NotFound:
        return False


def require_unprotected(
    member: str,
    row: Mapping[str, Any],
    revision: Revision,
    there: ActivitySnapshot,
    *,
    removed: bool,
    but: Collection[ProtectionReason] = (),
) -> None:
    """Make sure that a session that was chosen is not protected by now."""
    stock = _build_inventory_row(row, revision)
    why = protection.find_protection((stock,), there, removed=removed, but=but)
    if why is not None:
        raise MemberOutdated(member, f"session {stock.id}: {PROTECTION_REASONS[why]}")


def require_no_new_signs(group: SessionGroup, row: RowMapping) -> None:
    """Make sure that nothing says that somebody has come to care for a session since."""
    session_id = row["id"]
    for sign in list_use_signs(row.get("title"), row.get("archived"), row.get("api_call_count")):
        if sign not in group.signs.get(session_id, ()):
            raise MemberOutdated(group.member, f"session {session_id}: {sign} since")


def _build_inventory_row(row: Mapping[str, Any], revision: Revision) -> InventoryItem:
    """Return what protection looks at.

    That nothing was said lately was judged when it was planned, and its revision is still the same.
    """
    return InventoryItem(
        id=row["id"],
        source=str(row["source"]),
        title=None,
        parent_id=None,
        link=None,
        session_key=None,
        started_at=0.0,
        ended_at=processes.parse_number(row.get("ended_at")),
        end_reason=row.get("end_reason"),
        archived=False,
        pinned=bool(row.get("pinned")),
        api_calls=None,
        expiry_finalized=False,
        last_active_at=0.0,
        live=0,
        rows=0,
        counted=None,
        revision=revision,
    )


def list_planned_children(db: StateDatabase, session_id: str, group: SessionGroup) -> list[str]:
    """Return the children of a session; whatever has come since is none that may lose its parent.

    Raises:
        Outdated: it was gone on with.
    """
    children = [str(row["id"]) for row in db.list_children(session_id)]
    for child in children:
        if child not in group.left_behind and child not in group.sessions:
            raise MemberOutdated(group.member, f"session {child} came from {session_id} since")
    return children


def require_not_in_use(
    db: StateDatabase,
    whose: Mapping[str, str],
    there: ActivitySnapshot,
    pinned: Collection[str],
    *,
    but: Collection[ProtectionReason] = (),
) -> None:
    """Look once more, inside the step: at locks and turns, at our pins and at routes."""
    for claim in db.list_claims():
        member = whose.get(claim.session_id or "")
        if member is not None and activity.is_live_claim(claim, there.company.at):
            raise MemberOutdated(member, f"session {claim.session_id}: {claim.holder} is at it")
    for session_id in whose.keys() & pinned:
        raise MemberOutdated(
            whose[session_id], f"session {session_id}: {PROTECTION_REASONS['pinned']}"
        )
    # One look at the routes, however many sessions there are; who is in which is rarely asked.
    for session_id in whose if "routed" not in but and _list_live_routes(db, *whose) else ():
        if _list_live_routes(db, session_id):
            raise MemberOutdated(
                whose[session_id], f"session {session_id}: {PROTECTION_REASONS['routed']}"
            )


def _list_live_routes(db: StateDatabase, *session_ids: str) -> list[dict[str, Any]]:
    """Return the routes to sessions that may be in use."""
    rows = db.list_routing_rows(*session_ids)
    return [
        row for row in rows if _is_in_home(db, row["scope"]) or not recovery.is_gone(row["scope"])
    ]


def _is_in_home(db: StateDatabase, scope: str) -> bool:
    """Whether this is a folder in the home, which a store makes with its first file."""
    return db.folder is not None and PurePath(scope).is_relative_to(db.folder)
