"""The session of a chat whose route was lost or leads nowhere."""

from __future__ import annotations

from session_core.keys import SessionSource
from session_core.models import SessionRow
from session_core.state.contract import StateDatabase

RESUMABLE = ("agent_close", "ws_orphan_reap", "superseded_by_resume", "startup_orphan_reap")
"""Ends that mean that only the agent was closed, not the conversation."""


def find(db: StateDatabase, session_key: str, source: SessionSource) -> SessionRow | None:
    """Return the session that a chat can go on with, None where it begins afresh.

    The newest session of the chat decides, so that a reset is never undone by an older one. One
    that ended by compression stands for its tip, whoever wrote that without the key of the chat.
    """
    newest = db.find_latest_session_for_peer(
        source=str(source.platform),
        session_key=session_key,
        user_id=source.user_id,
        chat_id=source.chat_id,
        chat_type=source.chat_type,
        thread_id=source.thread_id,
    )
    if newest is None:
        return None
    if newest["end_reason"] == "compression":
        newest = db.get_session(db.get_compression_tip(newest["id"]))
    return newest if newest is not None and _can_go_on(db, newest) else None


def _can_go_on(db: StateDatabase, row: SessionRow) -> bool:
    if row["ended_at"] is not None and row["end_reason"] not in RESUMABLE:
        return False
    return db.message_count(row["id"]) > 0
