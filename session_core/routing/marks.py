"""What is noted of the ends of sessions where entries may not be marked: on a Hermes home.

Here it is kept by the process; `session_core.ledger.marks` keeps it in a file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

Noted = dict[str, Any]

Change = Callable[[Noted], "Noted | None"]
"""Is given what is noted, and returns what is to be; None where nothing is to change."""


class Marks:
    """Marks by session that end with their process; each step is atomic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[str, Noted] = {}

    def get(self, session_id: str) -> Noted:
        """Return what is noted of a session."""
        with self._lock:
            return dict(self._noted.get(session_id, {}))

    def change(self, session_id: str, change: Change) -> bool:
        """Change what is noted of a session; return whether it was."""
        with self._lock:
            noted = change(dict(self._noted.get(session_id, {})))
            if noted is not None:
                self._noted[session_id] = noted
            return noted is not None

    def forget(self, session_id: str) -> None:
        """Forget what is noted of a session, which goes on."""
        with self._lock:
            self._noted.pop(session_id, None)

    def keep(self, session_ids: Collection[str]) -> None:
        """Forget what is noted of all others."""
        with self._lock:
            self._noted = {key: noted for key, noted in self._noted.items() if key in session_ids}

    def close(self) -> None:
        """Let go of what is open; what was noted stays."""
