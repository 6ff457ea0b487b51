"""The files of a ledger, its handles, and the rows of its batches and steps."""

from __future__ import annotations

import difflib
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from session_core.errors import InvalidInput, NotFound
from session_core.home import is_same_file
from session_core.ledger.database import PACKAGE, LedgerDatabase
from session_core.ledger.database_location import open_ledger_database
from session_core.ledger.pins import Pins
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.types import Batch, Step
from session_core.state import sql_blocks
from session_core.state.protocol import StateDatabase
from session_core.state.sqlite.connection import Connection

LEDGER_FILE = "ledger.db"

_HANDLE_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"
"""Letters and digits that are not easily confused with each other."""

_HANDLE_LENGTH = 8
_STEP_ID_LENGTH = 20


def make_handle(letter: str) -> str:
    """Return a handle that is short enough to type and too long to guess."""
    return f"{letter}-" + "".join(secrets.choice(_HANDLE_LETTERS) for _ in range(_HANDLE_LENGTH))


def make_step_id() -> str:
    """Return a new step id, long enough to stay unique in a home for years."""
    return "s-" + "".join(secrets.choice(_HANDLE_LETTERS) for _ in range(_STEP_ID_LENGTH))


class LedgerStorage:
    """The files of a ledger: its own, and files with trash on other disks.

    Subclasses add trash, batches, steps and plans.
    """

    def __init__(
        self,
        folder: StateFolder,
        *,
        clock: Callable[[], float] = time.time,
        trash_dir: Path | None = None,
        patience_s: float = 20.0,
        reads_anywhere: bool = False,
    ) -> None:
        self._folder = folder
        self._reads_anywhere = reads_anywhere
        self._clock = clock
        self._trash_dir = trash_dir
        self._patience_s = patience_s
        paths = self._find_path, self._make_path
        self._file = open_ledger_database(folder, *paths, patience_s)
        # A second connection to the same file: its reads do not wait for another thread's write.
        self._read_file = open_ledger_database(folder, *paths, patience_s)
        self.pins = Pins(folder)
        """Pins of a home whose `sessions` table has no column for them."""
        self._lock = threading.Lock()
        self._elsewhere: dict[str, LedgerDatabase] = {}

    @property
    def folder(self) -> StateFolder:
        """Return the state folder that holds the ledger."""
        return self._folder

    @property
    def shares_transactions(self) -> bool:
        """True if a write inside a transaction of the home is part of that transaction."""
        return self._folder.shares_transactions

    def check_home(self, db: StateDatabase) -> None:
        """Check that this is the ledger of a database.

        A database in memory may use the ledger of a file.

        Raises:
            InvalidInput: the ledger belongs to another home.
            Denied: the ledger would write into a Hermes home.
        """
        if db.path is None:
            if not self._folder.has_files:
                self._folder.load_home_name(db)
            return
        own = self._folder.db_path
        if not is_same_file(db.path, own):
            raise InvalidInput(
                f"the ledger of {own} cannot be used for {db.path}, which is another home; "
                "open it with Ledger.open(db)"
            )
        self._folder.load_home_name(db)
        if not (self._reads_anywhere or db.read_only):
            self._folder.check_place(self._trash_dir)

    def _close_files(self) -> None:
        self.pins.close()
        for file in (self._file, self._read_file, *self._elsewhere.values()):
            file.close()

    def _find_path(self) -> Path | None:
        folder = self._folder.find()
        return folder / LEDGER_FILE if folder else None

    def _make_path(self) -> Path:
        return self._folder.make() / LEDGER_FILE

    def _get_trash_path(self) -> str | None:
        """Return the path of the file for new trash, or None for the ledger's own file."""
        if self._trash_dir is None:
            return None
        self._folder.check_place(self._trash_dir)
        return str(self._trash_dir.absolute() / f"{self._folder.trash_name}.db")

    def _get_trash_file(self, location: str | None) -> LedgerDatabase:
        if location is None:
            return self._file
        with self._lock:
            if location not in self._elsewhere:
                # Never created: without its disk, the trash would begin anew in the empty mount
                # point.
                find = partial(_require_mounted, Path(location))
                self._elsewhere[location] = LedgerDatabase(find, find, self._patience_s)
            return self._elsewhere[location]


def _require_mounted(path: Path) -> Path:
    if not path.parent.is_dir():
        raise NotFound(f"the trash folder {path.parent} is missing; mount its disk")
    return path


def encode_json(value: Any) -> str:
    """Return a value as compact JSON."""
    try:
        return json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the value is not valid JSON: {error}") from error


_NEXT_ACTIONS = {"plan": "plan anew", "batch": "list what can be undone"}


def make_not_found(rows: Connection, what: str, name: str, names_sql: str) -> NotFound:
    """Return a NotFound error that lists the closest existing names."""
    names: Sequence[str] = [str(row[0]) for row in rows.fetch_tuples(names_sql)]
    near = difflib.get_close_matches(str(name), names, n=5)
    hint = f"did you mean {', '.join(near)}" if near else _NEXT_ACTIONS.get(what)
    return NotFound(f"there is no {what} {name!r}" + (f"; {hint}" if hint else ""), nearest=near)


SQL = sql_blocks.load_blocks("batches", PACKAGE)


def read_batch(rows: Connection, batch_id: str) -> Batch:
    """Return a batch, or raise NotFound if it is missing."""
    row = rows.fetch_row(SQL["get_batch"], (batch_id,))
    if row is None:
        raise make_not_found(rows, "batch", batch_id, SQL["list_names"])
    return parse_batch(row)


def read_step(rows: Connection, step_id: str) -> Step:
    """Return a step, or raise NotFound if it is missing."""
    row = rows.fetch_row(SQL["get_step"], (step_id,))
    if row is None:
        raise NotFound(f"there is no step {step_id!r}")
    return parse_step(row)


def parse_step(row: Mapping[str, Any]) -> Step:
    """Return the Step for a row."""
    return Step(
        **{name: row[name] for name in ("id", "batch", "state", "at", "undoes", "undone_at")},
        **{name: row[name] for name in ("bytes", "chunks", "location")},
        members=tuple(json.loads(row["members"])),
        result=json.loads(row["result"] or "null"),
        owner=(row["pid"], row["started_at"]),
    )


def parse_batch(row: Mapping[str, Any]) -> Batch:
    """Return the Batch for a row."""
    names = ("id", "what", "plan", "at", "expires_at", "undone_at", "emptied_at", "count", "bytes")
    return Batch(**{name: row[name] for name in names})
