"""The session of a chat whose route was lost or leads nowhere."""

from __future__ import annotations

from collections.abc import Collection

from session_core.keys import SessionSource
from session_core.models import SessionRow
from session_core.state.contract import StateDatabase

RESUMABLE = ("agent_close", "ws_orphan_reap", "superseded_by_resume", "startup_orphan_reap")
"""Ends that mean that only the agent was closed, not the conversation."""


def find(
    db: StateDatabase, session_key: str, source: SessionSource, routed: str | None = None
) -> SessionRow | None:
    """Return the session that a chat can go on with, None where it begins afresh.

    The newest session of the chat decides, so that a reset is never undone by an older one. One
    that ended by compression stands for its tip, whoever wrote that without the key of the chat.
    Where the newest cannot be gone on with, the one that the route led to may be: somebody had
    switched to it, or nothing says whose it is.
    """
    newest = _newest(db, session_key, source)
    if newest is not None and _can_go_on(db, newest, RESUMABLE):
        return newest
    # A compression that died before it stored its continuation has ended nothing.
    own = None if routed is None else db.get_session(routed)
    return own if own is not None and _can_go_on(db, own, (*RESUMABLE, "compression")) else None


def _newest(db: StateDatabase, session_key: str, source: SessionSource) -> SessionRow | None:
    newest = db.find_latest_session_for_peer(
        source=str(source.platform),
        session_key=session_key,
        user_id=source.user_id,
        chat_id=source.chat_id,
        chat_type=source.chat_type,
        thread_id=source.thread_id,
    )
    if newest is not None and newest["end_reason"] == "compression":
        return db.get_session(db.get_compression_tip(newest["id"]))
    return newest


def _can_go_on(db: StateDatabase, row: SessionRow, resumable: Collection[str | None]) -> bool:
    if row["ended_at"] is not None and row["end_reason"] not in resumable:
        return False
    return db.message_count(row["id"]) > 0
