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
from session_core import Corrupt, InvalidInput, Ledger, SessionDB, SessionStore, StateFolder

if TYPE_CHECKING:
    from session_core import Compressor, Maintenance

DATABASE = "state.db"

CLIENT = "mcp-sessions"
"""How the log names this server."""


class Home:
    """A home, and how it is served; `profile` is its name where several are."""

    def __init__(
        self,
        path: Path,
        *,
        profile: str | None = None,
        read_only: bool = False,
        redact: bool = True,
        trash: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self.profile = profile
        self.read_only = read_only
        self.redacts = redact
        self._trash = trash
        self.redact = redaction.redact if redact else redaction.keep
        self.redact_cut = redaction.redact_cut if redact else redaction.keep
        self.now = clock
        self._lock = threading.RLock()
        self._store: SessionStore | None = None
        self._file = _file(path / DATABASE)

    def is_replaced(self) -> bool:
        """Whether another database has taken the place of the one that is served."""
        seen = _file(self.path / DATABASE)
        if self._file is None:
            self._file = seen
        return seen not in (None, self._file)

    @cached_property
    def db(self) -> SessionDB:
        """Its database; nothing is opened or made before the first look.

        Raises:
            Corrupt: what has its name can be none.
        """
        try:
            return SessionDB(self.path / DATABASE, read_only=self.read_only)
        except InvalidInput as error:
            raise Corrupt(f"no database can be served here: {error}") from error

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
        return Ledger(self.folder, trash_dir=self._trash)

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
        """What finds and plans."""
        return self.maintenance_for(CLIENT)

    def maintenance_for(self, client: str) -> Maintenance:
        """Return what applies and restores, for one whom the log is to name."""
        from session_core import Maintenance  # noqa: PLC0415 -- it is not on the path of a read

        return Maintenance(self.db, self.ledger, store=self.store, client=client)

    def compressor_for(self, client: str) -> Compressor:
        """Return what compresses; no secret is in what it writes by itself."""
        from mcp_serve import cleaning  # noqa: PLC0415 -- as below
        from session_core import Compressor  # noqa: PLC0415 -- it is not on the path of a read

        clean = cleaning.clean if self.redacts else cleaning.keep
        return Compressor(self.db, self.ledger, store=self.store, clean=clean, client=client)

    def close(self) -> None:
        """Close what was opened."""
        opened = vars(self)
        for name in ("maintenance", "ledger"):
            if name in opened:
                opened[name].close()
        if self._store is not None:
            self._store.close()
        if "db" in opened:
            self.db.close()


def _file(path: Path) -> tuple[int, int] | None:
    """Return which file has a name, None where none has."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
