"""What a step checks again: sessions are still what was planned, and nobody is in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from session_core import activity, processes
from session_core.activity import Alive
from session_core.errors import NotFound
from session_core.maintenance.members import Group, Outdated, Progress, signs_of
from session_core.maintenance.select import protection
from session_core.maintenance.types import WHY_PROTECTED, Why
from session_core.routing import recovery
from session_core.state.protocol import StateDatabase
from session_core.types import Images, Revision, Stock

Row = Mapping[str, Any]


def row_of(images: Sequence[Images]) -> Row | None:
    """Return the row of a session from what was imaged of it."""
    for image in images:
        if image.table == "sessions" and not image.shared and image.rows:
            return dict(zip(image.columns, image.rows[0], strict=True))
    return None


def require_unchanged(
    db: StateDatabase,
    group: Group,
    session_ids: Iterable[str],
    progress: Progress,
    there: Alive,
    *,
    removed: bool,
    but: Collection[Why] = (),
) -> None:
    """Make sure that sessions of a member are what was planned, and may be touched."""
    for session_id in session_ids:
        expected = progress.expected(group, session_id)
        row = db.get_session(session_id)
        if row is None:
            raise Outdated(group.member, f"session {session_id} is not there any more")
        require_revision(db, group.member, session_id, expected)
        require_unprotected(group.member, row, expected, there, removed=removed, but=but)
        require_no_signs(group, row)


def require_revision(db: StateDatabase, member: str, session_id: str, expected: Revision) -> None:
    """Make sure that a session is at a revision."""
    if not is_at(db, session_id, expected):
        raise Outdated(member, f"session {session_id} was changed since")


def is_at(db: StateDatabase, session_id: str, expected: Revision) -> bool:
    """Whether a session is there, at a revision."""
    try:
        return db.revision(session_id) == expected
    except NotFound:
        return False


def require_unprotected(
    member: str,
    row: Mapping[str, Any],
    revision: Revision,
    there: Alive,
    *,
    removed: bool,
    but: Collection[Why] = (),
) -> None:
    """Make sure that a session that was chosen is not protected by now."""
    stock = _stock(row, revision)
    why = protection.of_sessions((stock,), there, removed=removed, but=but)
    if why is not None:
        raise Outdated(member, f"session {stock.id}: {WHY_PROTECTED[why]}")


def require_no_signs(group: Group, row: Row) -> None:
    """Make sure that nothing says that somebody has come to care for a session since."""
    session_id = row["id"]
    for sign in signs_of(row.get("title"), row.get("archived"), row.get("api_call_count")):
        if sign not in group.signs.get(session_id, ()):
            raise Outdated(group.member, f"session {session_id}: {sign} since")


def _stock(row: Mapping[str, Any], revision: Revision) -> Stock:
    """Return what protection looks at.

    That nothing was said lately was judged when it was planned, and its revision is still the same.
    """
    return Stock(
        id=row["id"],
        source=str(row["source"]),
        title=None,
        parent_id=None,
        link=None,
        session_key=None,
        started_at=0.0,
        ended_at=processes.number(row.get("ended_at")),
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


def left_behind(db: StateDatabase, session_id: str, group: Group) -> list[str]:
    """Return the children of a session; whatever has come since is none that may lose its parent.

    Raises:
        Outdated: it was gone on with.
    """
    children = [str(row["id"]) for row in db.children(session_id)]
    for child in children:
        if child not in group.left_behind and child not in group.sessions:
            raise Outdated(group.member, f"session {child} came from {session_id} since")
    return children


def require_nobody_came(
    db: StateDatabase,
    whose: Mapping[str, str],
    there: Alive,
    pinned: Collection[str],
    *,
    but: Collection[Why] = (),
) -> None:
    """Look once more, inside the step: at locks and turns, at our pins and at routes."""
    for claim in db.claims():
        member = whose.get(claim.session_id or "")
        if member is not None and activity.is_live(claim, there.company.at):
            raise Outdated(member, f"session {claim.session_id}: {claim.holder} is at it")
    for session_id in whose.keys() & pinned:
        raise Outdated(whose[session_id], f"session {session_id}: {WHY_PROTECTED['pinned']}")
    # One look at the routes, however many sessions there are; who is in which is rarely asked.
    for session_id in whose if "routed" not in but and _routes(db, *whose) else ():
        if _routes(db, session_id):
            raise Outdated(whose[session_id], f"session {session_id}: {WHY_PROTECTED['routed']}")


def _routes(db: StateDatabase, *session_ids: str) -> list[dict[str, Any]]:
    """Return the routes to sessions that may be in use."""
    rows = db.routing_rows(*session_ids)
    return [row for row in rows if _is_here(db, row["scope"]) or not recovery.is_gone(row["scope"])]


def _is_here(db: StateDatabase, scope: str) -> bool:
    """Whether this is a folder in the home, which a store makes with its first file."""
    return db.folder is not None and PurePath(scope).is_relative_to(db.folder)
