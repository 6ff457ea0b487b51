"""One home that is served: its database, store and ledger, each opened when it is needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_serve import redaction
from mcp_serve.feed import Feed
from session_core import Ledger, SessionDB, SessionStore, StateFolder

if TYPE_CHECKING:
    from session_core import Compressor, Maintenance


class Home:
    """A home, and how it is served; `profile` is its name where several are."""

    def __init__(
        self,
        path: Path,
        *,
        profile: str | None = None,
        read_only: bool = False,
        redact: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self.profile = profile
        self.read_only = read_only
        self.redacts = redact
        self.redact = redaction.redact if redact else redaction.keep
        self.redact_cut = redaction.redact_cut if redact else redaction.keep
        self.now = clock
        self._lock = threading.RLock()
        self._store: SessionStore | None = None

    @cached_property
    def db(self) -> SessionDB:
        """Its database; nothing is opened or made before the first look."""
        return SessionDB(self.path / "state.db", read_only=self.read_only)

    @property
    def store(self) -> SessionStore:
        """Its session store, as its configuration says."""
        with self._lock:
            if self._store is None:
                self._store = SessionStore.open(self.path, self.db)
            return self._store

    @cached_property
    def folder(self) -> StateFolder:
        """Where what is kept about it is."""
        return StateFolder(self.db.path)

    @cached_property
    def ledger(self) -> Ledger:
        """Its plans, trash and audit log."""
        return Ledger(self.folder)

    def our_pins(self) -> Collection[str]:
        """Return the sessions that are pinned by us, where no column says so."""
        has_column = "pinned" in self.db.row_images("sessions", {"id": ""}).columns
        return () if has_column else self.ledger.pins.all()

    @cached_property
    def feed(self) -> Feed:
        """What happens in it."""
        return Feed(self)

    @cached_property
    def maintenance(self) -> Maintenance:
        """What finds, plans, applies and restores."""
        from session_core import Maintenance  # noqa: PLC0415 -- it is not on the path of a read

        return Maintenance(self.db, self.ledger, store=self.store, client="mcp-sessions")

    @cached_property
    def compressor(self) -> Compressor:
        """What compresses, and takes that back."""
        from session_core import Compressor  # noqa: PLC0415 -- it is not on the path of a read

        return Compressor(self.db, self.ledger, store=self.store, client="mcp-sessions")

    def close(self) -> None:
        """Close what was opened."""
        opened = vars(self)
        for name in ("compressor", "maintenance", "ledger"):
            if name in opened:
                opened[name].close()
        if self._store is not None:
            self._store.close()
        if "db" in opened:
            self.db.close()
