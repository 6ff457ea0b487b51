"""A served home: its database, store and ledger, each opened on first use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mcp_serve.feed import HomeFeed
from mcp_serve.redaction import redaction
from session_core import (
    Corrupt,
    InvalidInput,
    Ledger,
    SessionDB,
    SessionError,
    SessionStore,
    StateFolder,
    find_home,
)

if TYPE_CHECKING:
    from session_core import Compressor, Maintenance

T = TypeVar("T")

# The name of this server in the audit log.
CLIENT_NAME = "mcp-sessions"


class _locked_property(Generic[T]):  # noqa: N801 -- used as a decorator
    """A cached property that is created once, also if several threads read it."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__

    def __get__(self, instance: ServedHome, owner: type[ServedHome]) -> T:
        """Return the value; it is stored in the instance and hides this descriptor."""
        with instance.lock:
            attributes = vars(instance)
            if self._name not in attributes:
                attributes[self._name] = self._make(instance)
            value: T = attributes[self._name]
            return value


class ServedHome:
    """A home and the way it is served; `name` is the name of its store.

    Answers show it (`store_name`) only if several stores are served.

    `path` is the folder of the home or its database file.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str = "own",
        is_one_of_several: bool = False,
        read_only: bool = False,
        redact: bool = True,
        trash: Path | None = None,
        load_extension: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self.name = name
        self.store_name = name if is_one_of_several else None
        self.read_only = read_only
        self.redacts = redact
        self._trash = trash
        self._load_extension = load_extension and not read_only
        self.redact = redaction.redact if redact else redaction.keep_text
        self.now = clock
        self.lock = threading.RLock()
        self.db_path = find_home(path).db_path
        self._file = _get_file_id(self.db_path)

    def is_replaced(self) -> bool:
        """Return True if another database file has taken the place of the served one."""
        file_id = _get_file_id(self.db_path)
        if self._file is None:
            self._file = file_id
        return file_id not in (None, self._file)

    @_locked_property
    def db(self) -> SessionDB:
        """The database; it is opened on first use.

        Raises:
            Corrupt: the file cannot be a database.
        """
        try:
            return SessionDB(
                self.db_path,
                read_only=self.read_only,
                in_hermes_home=True,
                load_extension=self._load_extension,
            )
        except InvalidInput as error:
            raise Corrupt(f"cannot open the database: {error}") from error

    @_locked_property
    def store(self) -> SessionStore:
        """The session store, with the configuration of the home."""
        return SessionStore.open(self.db_path.parent, self.db)

    @_locked_property
    def folder(self) -> StateFolder:
        """The state folder of the home."""
        folder = StateFolder(self.db.path)
        with suppress(SessionError):  # doctor shows the folder of a damaged home too
            folder.load_home_name(self.db)
        return folder

    @_locked_property
    def ledger(self) -> Ledger:
        """The plans, trash and audit log."""
        return Ledger(self.folder, trash_dir=self._trash, reads_anywhere=True)

    def list_own_pins(self) -> Collection[str]:
        """Return sessions pinned in our state folder; empty if the database has a pin column."""
        has_column = "pinned" in self.db.rows.list_columns("sessions")
        return () if has_column else self.ledger.pins.list_pinned()

    @_locked_property
    def feed(self) -> HomeFeed:
        """The change feed."""
        return HomeFeed(self)

    @_locked_property
    def maintenance(self) -> Maintenance:
        """The maintenance; each change names its client."""
        from session_core import Maintenance  # noqa: PLC0415 -- reads do not need it

        return Maintenance(self.db, self.ledger, store=self.store)

    @_locked_property
    def compressor(self) -> Compressor:
        """The compressor; its own texts contain no secrets."""
        from mcp_serve.redaction import messages  # noqa: PLC0415 -- reads do not need it
        from session_core import Compressor  # noqa: PLC0415 -- reads do not need it

        clean = messages.make_summary_cleaner if self.redacts else messages.make_noop_cleaner
        return Compressor(self.db, self.ledger, store=self.store, clean=clean)

    def close(self) -> None:
        """Close all that was opened."""
        opened = vars(self)
        for name in ("maintenance", "ledger", "store", "db"):
            if name in opened:
                opened[name].close()


def _get_file_id(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, or None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
