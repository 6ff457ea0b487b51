"""The home that is maintained, with its database, ledger, session store, hooks and clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from session_core import activity
from session_core.activity import ActivitySnapshot
from session_core.errors import Unsupported
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.routing.session_store import SessionStore
from session_core.state.protocol import StateDatabase


@dataclass(frozen=True, slots=True)
class HomeContext:
    """A home: its database, ledger, session store, hooks and clock."""

    db: StateDatabase
    ledger: Ledger
    store: SessionStore | None = None
    hooks: Hooks = field(default_factory=Hooks)
    clock: Callable[[], float] = time.time

    @property
    def session_folder(self) -> Path | None:
        """The folder with the files of sessions."""
        return get_session_folder(self.db, self.store)

    def require_session_folder(self) -> Path:
        """Return the folder with the files of sessions.

        Raises:
            Unsupported: the home has none.
        """
        folder = self.session_folder
        if folder is None:
            raise Unsupported("this home has no session files, since its database has no folder")
        return folder

    def require_store(self) -> SessionStore:
        """Return the session store.

        Raises:
            Unsupported: the home has none.
        """
        if self.store is None:
            raise Unsupported("this home has no routes, since its database has no folder")
        return self.store

    def list_pinned(self) -> Collection[str]:
        """Return the sessions pinned in our own pin file."""
        return self.ledger.pins.list_pinned()

    def gather_activity(self) -> ActivitySnapshot:
        """Return the current activity: holders, gateway, leases and routes."""
        return activity.gather_activity(self.db, self.store, self.clock(), self.list_pinned())


def get_session_folder(db: StateDatabase, store: SessionStore | None) -> Path | None:
    """Return the folder with the files of sessions."""
    if store is not None:
        return store.sessions_dir
    return None if db.folder is None else db.folder / "sessions"
