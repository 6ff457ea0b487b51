"""Recovery of a lost route: which session a chat continues, and missing folders of routes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from datetime import datetime

from session_core.chats import SessionSource, get_key_profile
from session_core.state.protocol import StateDatabase
from session_core.types import SessionRow

RESUMABLE_REASONS = ("agent_close", "ws_orphan_reap", "superseded_by_resume", "startup_orphan_reap")
"""End reasons that closed the agent but not the conversation."""

_CUT_SHORT_REASONS = ("compression", "session_switch")
"""End reasons of sessions that were left without the route of this chat: the process died before it
stored the continuation or the route, or another chat left the session that both shared.
"""

CONTINUABLE_REASONS = (*RESUMABLE_REASONS, *_CUT_SHORT_REASONS)
"""End reasons after which a chat continues the session of its route."""

_UNFINISHED_REASONS = (*RESUMABLE_REASONS, "compression")

_POLICY_REASONS = ("idle", "daily")

_REQUESTED_REASONS = ("session_reset", "new_session")
"""End reasons of requested resets; no earlier session is continued."""


def find_session(
    db: StateDatabase,
    session_key: str,
    source: SessionSource,
    routed: str | None = None,
    profile: str = "",
    *,
    kept: bool = False,
) -> SessionRow | None:
    """Return the session that a chat can continue, or None if it starts a new session.

    The candidates are, in this order:

    - the newest session of the chat;
    - the session of the route: the chat was switched to it, its row names no chat, or it is `kept`
      although other chats ended it;
    - the newest session that is open or resumable, back to the last reset of the chat or of its
      route;
    - the newest session whose compression was interrupted before its continuation.

    A session that ended by compression is replaced by its tip, even if the tip has no session key.
    If the profile of a session is neither the profile of the key nor the profile of the home, the
    session belongs to another conversation.
    """
    profiles = {get_key_profile(session_key), profile}
    newest = _find_newest(db, session_key, source)
    routed_row = None if routed is None else db.get_session(routed)

    def can_continue(row: SessionRow, resumable: Collection[str | None]) -> bool:
        return (
            _has_profile(row, profiles)
            and not _is_before_reset(row, routed_row)
            and _can_continue(db, row, resumable)
        )

    if newest is not None and can_continue(newest, RESUMABLE_REASONS):
        return newest
    if routed_row is not None and _can_continue(
        db, routed_row, (routed_row["end_reason"],) if kept else CONTINUABLE_REASONS
    ):
        return routed_row
    cut_short = None
    for row in _iter_since_reset(db, session_key, source):
        if can_continue(row, RESUMABLE_REASONS):
            return row
        if cut_short is None and can_continue(row, _CUT_SHORT_REASONS):
            cut_short = row
    return cut_short


def is_finally_ended(row: SessionRow | None) -> bool:
    """Return True if a session ended for good, so that its ender delivers the end."""
    return (
        row is not None
        and row["ended_at"] is not None
        and row["end_reason"] not in _UNFINISHED_REASONS
    )


def is_ended_by_policy(row: SessionRow) -> bool:
    """Return True if the reset policy of one of its chats ended a session."""
    # A user's reset has the same reason; only a watcher marks the row as finalized.
    if row["end_reason"] == "session_reset":
        return bool(row.get("expiry_finalized"))
    return row["end_reason"] in _POLICY_REASONS


def parse_start_time(row: SessionRow) -> datetime | None:
    """Return the start time of a session, or None if it is not a valid time."""
    try:
        return datetime.fromtimestamp(row["started_at"])  # noqa: DTZ006 -- entries store local time
    except (OverflowError, OSError, ValueError, TypeError):
        return None


def is_folder_missing(folder: str) -> bool:
    """Return True only if an absolute folder certainly does not exist."""
    # A relative name depends on the working folder of the process that stored it.
    if not os.path.isabs(folder):  # noqa: PTH117 -- os.path avoids building a Path
        return False
    try:
        os.stat(folder)  # noqa: PTH116 -- os.stat avoids building a Path
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def _is_before_reset(row: SessionRow, routed: SessionRow | None) -> bool:
    """Return True if a session began before the session of the route, which was reset."""
    if routed is None or routed["end_reason"] not in _REQUESTED_REASONS:
        return False
    started_at, reset_started_at = parse_start_time(row), parse_start_time(routed)
    return (
        started_at is not None and reset_started_at is not None and started_at <= reset_started_at
    )


def _has_profile(row: SessionRow, profiles: Collection[str]) -> bool:
    return get_key_profile(row.get("session_key") or "") in {"", *profiles}


def _iter_since_reset(
    db: StateDatabase, session_key: str, source: SessionSource
) -> Iterator[SessionRow]:
    """Yield open, resumable and compressed sessions, newest first, back to the last reset."""
    ended_as = (*RESUMABLE_REASONS, "compression", *_REQUESTED_REASONS)
    older_than, seen_ids = None, set()
    while True:
        row = _find_latest(db, session_key, source, ended_as, older_than)
        tip = row and _find_tip(db, row)
        if row is None or tip is None or tip["end_reason"] in _REQUESTED_REASONS:
            return
        # Several compressed sessions of a chat lead to the same tip.
        if tip["id"] not in seen_ids:
            yield tip
        older_than = row["id"]
        seen_ids.add(tip["id"])


def _find_newest(db: StateDatabase, session_key: str, source: SessionSource) -> SessionRow | None:
    newest = _find_latest(db, session_key, source)
    return newest and _find_tip(db, newest)


def _find_latest(
    db: StateDatabase,
    session_key: str,
    source: SessionSource,
    ended_as: Collection[str] | None = None,
    older_than: str | None = None,
) -> SessionRow | None:
    return db.routes.find_latest_session(
        source=str(source.platform),
        session_key=session_key,
        user_id=source.user_id,
        chat_id=source.chat_id,
        chat_type=source.chat_type,
        thread_id=source.thread_id,
        ended_as=ended_as,
        older_than=older_than,
    )


def _find_tip(db: StateDatabase, row: SessionRow) -> SessionRow | None:
    if row["end_reason"] != "compression":
        return row
    return db.get_session(db.get_compression_tip(row["id"]))


def _can_continue(db: StateDatabase, row: SessionRow, resumable: Collection[str | None]) -> bool:
    if row["ended_at"] is not None and row["end_reason"] not in resumable:
        return False
    # A session without messages has nothing to continue, and the chat may have left it.
    return db.message_count(row["id"]) > 0
