"""The session of a chat whose route was lost or leads nowhere."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from session_core.keys import SessionSource, profile_of
from session_core.models import SessionRow
from session_core.state.contract import StateDatabase

RESUMABLE = ("agent_close", "ws_orphan_reap", "superseded_by_resume", "startup_orphan_reap")
"""Ends that mean that only the agent was closed, not the conversation."""

_BEGUN = ("compression", "session_switch")
"""Ends of what somebody went on from, but not this chat, whose route still leads there: that died
before its continuation or the route was stored, or another chat has left the session they shared.
"""

GOES_ON = (*RESUMABLE, *_BEGUN)
"""Ends after which a chat goes on with the session that its route leads to."""

_NOT_OVER = (*RESUMABLE, "compression")

_BY_THE_CLOCK = ("idle", "daily")

_ASKED_FOR = ("session_reset", "new_session")
"""Ends that somebody has asked for, before which nothing is gone on with."""


def find_session(
    db: StateDatabase,
    session_key: str,
    source: SessionSource,
    routed: str | None = None,
    profile: str = "",
    *,
    kept: bool = False,
) -> SessionRow | None:
    """Return the session that a chat can go on with, None where it begins afresh.

    First the newest session of the chat; then the one that the route led to, since somebody had
    switched to it, nothing says whose it is, or it was `kept` though others have ended it; then the
    newest that lives or can be resumed, down to the last reset, of the chat or of its route; and
    last the newest whose compression died before its continuation. One that ended by compression
    stands for its tip, whoever wrote that without the key of the chat. That of another profile than
    the key's or the home's is somebody else's conversation.
    """
    profiles = {profile_of(session_key), profile}
    newest = _newest(db, session_key, source)
    own = None if routed is None else db.get_session(routed)

    def goes_on(row: SessionRow, resumable: Collection[str | None]) -> bool:
        return _is_of(row, profiles) and not _is_behind(row, own) and _can_go_on(db, row, resumable)

    if newest is not None and goes_on(newest, RESUMABLE):
        return newest
    if own is not None and _can_go_on(db, own, (own["end_reason"],) if kept else GOES_ON):
        return own
    cut_short = None
    for row in _since_last_reset(db, session_key, source):
        if goes_on(row, RESUMABLE):
            return row
        if cut_short is None and goes_on(row, _BEGUN):
            cut_short = row
    return cut_short


def is_over(row: SessionRow | None) -> bool:
    """Whether a session has ended for good, which is told by whoever has ended it."""
    return row is not None and row["ended_at"] is not None and row["end_reason"] not in _NOT_OVER


def was_ended_by_the_clock(row: SessionRow) -> bool:
    """Whether a policy has ended a session, by whichever of the chats that are in it."""
    if row["end_reason"] == "session_reset":
        return bool(row.get("expiry_finalized"))  # as a watcher leaves it
    return row["end_reason"] in _BY_THE_CLOCK


def started_at(row: SessionRow) -> datetime | None:
    """Return when a session began, where that is a time that a calendar has."""
    try:
        return datetime.fromtimestamp(row["started_at"])  # noqa: DTZ006 -- local, as stored
    except (OverflowError, OSError, ValueError, TypeError):
        return None


def _is_behind(row: SessionRow, routed: SessionRow | None) -> bool:
    """Whether a session began before the one that the route leads to, and that was reset."""
    if routed is None or routed["end_reason"] not in _ASKED_FOR:
        return False
    began, reset_began = started_at(row), started_at(routed)
    return began is not None and reset_began is not None and began <= reset_began


def _is_of(row: SessionRow, profiles: Collection[str]) -> bool:
    return profile_of(row.get("session_key") or "") in {"", *profiles}


def _since_last_reset(
    db: StateDatabase, session_key: str, source: SessionSource
) -> Iterator[SessionRow]:
    """Yield what lives, can be resumed or was compressed, newest first, down to a reset."""
    ended_as = (*RESUMABLE, "compression", *_ASKED_FOR)
    older_than, seen = None, set()
    while True:
        found = _latest(db, session_key, source, ended_as, older_than)
        tip = found and _tip(db, found)
        if found is None or tip is None or tip["end_reason"] in _ASKED_FOR:
            return
        if tip["id"] not in seen:
            yield tip
        older_than = found["id"]
        seen.add(tip["id"])


def _newest(db: StateDatabase, session_key: str, source: SessionSource) -> SessionRow | None:
    newest = _latest(db, session_key, source)
    return newest and _tip(db, newest)


def _latest(
    db: StateDatabase,
    session_key: str,
    source: SessionSource,
    ended_as: Collection[str] | None = None,
    older_than: str | None = None,
) -> SessionRow | None:
    return db.find_latest_session_for_peer(
        source=str(source.platform),
        session_key=session_key,
        user_id=source.user_id,
        chat_id=source.chat_id,
        chat_type=source.chat_type,
        thread_id=source.thread_id,
        ended_as=ended_as,
        older_than=older_than,
    )


def _tip(db: StateDatabase, row: SessionRow) -> SessionRow | None:
    if row["end_reason"] != "compression":
        return row
    return db.get_session(db.get_compression_tip(row["id"]))


def _can_go_on(db: StateDatabase, row: SessionRow, resumable: Collection[str | None]) -> bool:
    if row["ended_at"] is not None and row["end_reason"] not in resumable:
        return False
    return db.message_count(row["id"]) > 0
