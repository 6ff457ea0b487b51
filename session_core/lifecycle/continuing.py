"""Whether the session that an agent names goes on from the one in which its chat is."""

from __future__ import annotations

from session_core.errors import InvalidInput, NotFound
from session_core.keys import check_session_id
from session_core.models import SessionRow
from session_core.routing.store import SessionStore
from session_core.state.contract import StateDatabase


def check_continues(
    store: SessionStore, db: StateDatabase, session_key: str, old: str, new: str
) -> None:
    """Refuse a session in which the chat would lose its conversation, or be in that of another.

    Raises:
        InvalidInput: the id is not safe, or the session is that of another chat.
        NotFound: there is no such session.
    """
    row = db.get_session(check_session_id(new))
    if row is None:
        raise NotFound(f"no session {new!r} to go on in; store it before it is named")
    if old in {row["parent_session_id"], *db.get_compression_lineage(new)}:
        return
    if not _is_free(store, row, session_key):
        raise InvalidInput(f"session {new!r} is that of another chat and continues not {old!r}")


def _is_free(store: SessionStore, row: SessionRow, session_key: str) -> bool:
    """Whether a session belongs to this chat or to none."""
    if row.get("session_key"):
        return row["session_key"] == session_key
    led = store.lookup_by_session_id(row["id"])
    return led is None or led.key == session_key
