"""Check again, before and inside a step, that planned sessions are unchanged and not in use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from session_core import processes
from session_core.activity import ActivitySnapshot, is_live_claim
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
    """Return the row of a session from its row images."""
    for image in images:
        if image.table == "sessions" and not image.shared and image.rows:
            return dict(zip(image.columns, image.rows[0], strict=True))
    return None


def require_unchanged(
    db: StateDatabase,
    group: SessionGroup,
    session_ids: Iterable[str],
    progress: PlanProgress,
    activity: ActivitySnapshot,
    *,
    removed: bool,
    exempt: Collection[ProtectionReason] = (),
) -> None:
    """Require that sessions of a member are unchanged since the plan and may be modified."""
    for session_id in session_ids:
        expected = progress.get_expected_revision(group, session_id)
        row = db.get_session(session_id)
        if row is None:
            raise MemberOutdated(group.member, f"session {session_id} does not exist any more")
        require_revision(db, group.member, session_id, expected)
        require_unprotected(group.member, row, expected, activity, removed=removed, exempt=exempt)
        require_no_new_use_signs(group, row)


def require_revision(db: StateDatabase, member: str, session_id: str, expected: Revision) -> None:
    """Require that a session is at a revision."""
    if not is_at_revision(db, session_id, expected):
        raise MemberOutdated(member, f"session {session_id} was changed since")


def is_at_revision(db: StateDatabase, session_id: str, expected: Revision) -> bool:
    """Return True if a session exists and is at a revision."""
    try:
        return db.get_revision(session_id) == expected
    except NotFound:
        return False


def require_unprotected(
    member: str,
    row: Mapping[str, Any],
    revision: Revision,
    activity: ActivitySnapshot,
    *,
    removed: bool,
    exempt: Collection[ProtectionReason] = (),
) -> None:
    """Require that a selected session has not become protected."""
    item = _build_inventory_row(row, revision)
    reason = protection.find_protection((item,), activity, removed=removed, exempt=exempt)
    if reason is not None:
        raise MemberOutdated(member, f"session {item.id}: {PROTECTION_REASONS[reason]}")


def require_no_new_use_signs(group: SessionGroup, row: RowMapping) -> None:
    """Require that a session has no new sign of use, such as a title."""
    session_id = row["id"]
    for sign in list_use_signs(row.get("title"), row.get("archived"), row.get("api_call_count")):
        if sign not in group.signs.get(session_id, ()):
            raise MemberOutdated(group.member, f"session {session_id}: {sign} since")


def _build_inventory_row(row: Mapping[str, Any], revision: Revision) -> InventoryItem:
    """Return the inventory item that the protection check reads.

    Recent activity was judged when the plan was made, and the revision is still the same.
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
    """Return the children of a session, each of which must be known to the plan.

    Raises:
        MemberOutdated: the session has a new child.
    """
    children = [str(row["id"]) for row in db.list_children(session_id)]
    for child in children:
        if child not in group.left_behind and child not in group.sessions:
            raise MemberOutdated(
                group.member, f"session {child} was created from {session_id} since"
            )
    return children


def require_not_in_use(
    db: StateDatabase,
    member_by_session: Mapping[str, str],
    activity: ActivitySnapshot,
    pinned: Collection[str],
    *,
    exempt: Collection[ProtectionReason] = (),
) -> None:
    """Check locks, turns, our own pins and routes again, inside the step."""
    for claim in db.admin.list_claims():
        member = member_by_session.get(claim.session_id or "")
        if member is not None and is_live_claim(claim, activity.company.at):
            raise MemberOutdated(member, f"session {claim.session_id}: in use by {claim.holder}")
    # Our own pins are in a file, so that no row of the home shows them.
    for session_id in member_by_session.keys() & pinned:
        raise MemberOutdated(
            member_by_session[session_id], f"session {session_id}: {PROTECTION_REASONS['pinned']}"
        )
    # One query covers the routes of all sessions; the session of a route is rarely needed.
    for session_id in (
        member_by_session
        if "routed" not in exempt and _list_live_routes(db, *member_by_session)
        else ()
    ):
        if _list_live_routes(db, session_id):
            raise MemberOutdated(
                member_by_session[session_id],
                f"session {session_id}: {PROTECTION_REASONS['routed']}",
            )


def _list_live_routes(db: StateDatabase, *session_ids: str) -> list[dict[str, Any]]:
    """Return the routes to sessions that may be in use."""
    rows = db.rows.list_routing_rows(*session_ids)
    return [
        row
        for row in rows
        if _is_scope_in_home(db, row["scope"]) or not recovery.is_folder_missing(row["scope"])
    ]


def _is_scope_in_home(db: StateDatabase, scope: str) -> bool:
    """Return True if a scope is a folder in the home, which a store creates with its first file."""
    return db.folder is not None and PurePath(scope).is_relative_to(db.folder)
