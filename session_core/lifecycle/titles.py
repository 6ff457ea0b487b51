"""Titles that were asked for before their session was there."""

from __future__ import annotations

import threading

from session_core.isolated import Report
from session_core.state.contract import StateDatabase


class PendingTitles:
    """Titles by session key, until they are set or refused."""

    def __init__(self, db: StateDatabase, report: Report) -> None:
        self._db = db
        self._report = report
        self._lock = threading.Lock()
        self._titles: dict[str, str] = {}

    def ask(self, session_key: str, title: str) -> None:
        """Remember a title, in place of one that was asked for before."""
        with self._lock:
            self._titles[session_key] = title

    def drop(self, session_key: str) -> None:
        """Forget it: the chat is in another session now."""
        with self._lock:
            self._titles.pop(session_key, None)

    def apply(self, session_key: str, session_id: str) -> None:
        """Set the title of a session that is there; after a fault it is tried at the next turn.

        One that is refused is dropped, or nobody could ever ask for another.
        """
        with self._lock:
            title = self._titles.get(session_key)
        if title is not None and self._is_settled(session_key, session_id, title):
            with self._lock:
                if self._titles.get(session_key) == title:
                    del self._titles[session_key]

    def _is_settled(self, session_key: str, session_id: str, title: str) -> bool:
        try:
            return self._db.set_session_title(session_id, title)
        except ValueError as error:
            self._report(f"the title of {session_key} was refused", error)
            return True
        except Exception as error:  # noqa: BLE001 -- a title is worth no reply
            self._report(f"the title of {session_key} is not set yet", error)
            return False
