"""One home that is served: its database, store and ledger, each opened when it is needed."""

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

CLIENT_NAME = "mcp-sessions"
"""How the log names this server."""


class _locked_property(Generic[T]):  # noqa: N801 -- it stands for a keyword
    """What is made when it is first asked for, and once, whichever threads ask for it."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__

    def __get__(self, instance: ServedHome, owner: type[ServedHome]) -> T:
        """Return it; from then on it stands in the instance and this is not asked any more."""
        with instance.lock:
            made = vars(instance)
            if self._name not in made:
                made[self._name] = self._make(instance)
            found: T = made[self._name]
            return found


class ServedHome:
    """A home, and how it is served; `profile` is its name where several are.

    `path` is its folder, or the file of its database.
    """

    def __init__(
        self,
        path: Path,
        *,
        profile: str | None = None,
        read_only: bool = False,
        redact: bool = True,
        trash: Path | None = None,
        load_extension: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self.profile = profile
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
        """Whether another database has taken the place of the one that is served."""
        seen = _get_file_id(self.db_path)
        if self._file is None:
            self._file = seen
        return seen not in (None, self._file)

    @_locked_property
    def db(self) -> SessionDB:
        """Its database; nothing is opened or made before the first look.

        Raises:
            Corrupt: what has its name can be none.
        """
        try:
            return SessionDB(
                self.db_path,
                read_only=self.read_only,
                in_hermes_home=True,
                load_extension=self._load_extension,
            )
        except InvalidInput as error:
            raise Corrupt(f"no database can be served here: {error}") from error

    @_locked_property
    def store(self) -> SessionStore:
        """Its session store, as its configuration says."""
        return SessionStore.open(self.db_path.parent, self.db)

    @_locked_property
    def folder(self) -> StateFolder:
        """Where what is kept about it is."""
        folder = StateFolder(self.db.path)
        with suppress(SessionError):  # doctor shows the folder of a damaged home too
            folder.load_home_name(self.db)
        return folder

    @_locked_property
    def ledger(self) -> Ledger:
        """Its plans, trash and audit log."""
        return Ledger(self.folder, trash_dir=self._trash, reads_anywhere=True)

    def list_own_pins(self) -> Collection[str]:
        """Return the sessions that are pinned by us, where no column says so."""
        has_column = "pinned" in self.db.read_row_images("sessions", {"id": ""}).columns
        return () if has_column else self.ledger.pins.list_pinned()

    @_locked_property
    def feed(self) -> HomeFeed:
        """What happens in it."""
        return HomeFeed(self)

    @_locked_property
    def maintenance(self) -> Maintenance:
        """What finds and plans."""
        return self.make_maintenance(CLIENT_NAME)

    def make_maintenance(self, client: str) -> Maintenance:
        """Return what applies and restores, for one whom the log is to name."""
        from session_core import Maintenance  # noqa: PLC0415 -- it is not on the path of a read

        return Maintenance(self.db, self.ledger, store=self.store, client=client)

    def make_compressor(self, client: str) -> Compressor:
        """Return what compresses; no secret is in what it writes by itself."""
        from mcp_serve.redaction import messages  # noqa: PLC0415 -- as below
        from session_core import Compressor  # noqa: PLC0415 -- it is not on the path of a read

        clean = messages.make_summary_cleaner if self.redacts else messages.make_noop_cleaner
        return Compressor(self.db, self.ledger, store=self.store, clean=clean, client=client)

    def close(self) -> None:
        """Close what was opened."""
        opened = vars(self)
        for name in ("maintenance", "ledger", "store", "db"):
            if name in opened:
                opened[name].close()


def _get_file_id(path: Path) -> tuple[int, int] | None:
    """Return which file has a name, None where none has."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
