"""The files of a ledger: its own, and those with trash on other disks."""

from __future__ import annotations

import difflib
import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from session_core.errors import InvalidInput, NotFound
from session_core.home import is_same_file
from session_core.ledger.file import File
from session_core.ledger.folder import StateFolder
from session_core.ledger.pins import Pins
from session_core.state.contract import StateDatabase
from session_core.state.sqlite.handle import Handle

DATABASE = "ledger.db"

_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"
"""What nobody takes for another."""

_SHORT = 8
_LONG = 20


def handle_of(letter: str) -> str:
    """Return a name that a person can type and nobody can guess."""
    return f"{letter}-" + "".join(secrets.choice(_LETTERS) for _ in range(_SHORT))


def new_step_id() -> str:
    """Return the name of a step, which a home may meet again years later."""
    return "s-" + "".join(secrets.choice(_LETTERS) for _ in range(_LONG))


class Shelf:
    """Where a ledger is kept; plans, batches and steps are added by its subclasses."""

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
        self._file = File(self._find, self._make, patience_s)
        self._beside = File(self._find, self._make, patience_s)
        """The same file for looks that another thread's change of it must not hold up."""
        self.pins = Pins(folder)
        """The pins of a home whose sessions have no column for them."""
        self._lock = threading.Lock()
        self._elsewhere: dict[str, File] = {}

    @property
    def folder(self) -> StateFolder:
        """The state folder that it is kept in."""
        return self._folder

    def check_home(self, db: StateDatabase) -> None:
        """Make sure that this is the ledger of that database; one in no file is believed.

        Raises:
            InvalidInput: it is that of another home.
            Denied: it would write into a Hermes home.
        """
        if db.path is None:
            return
        own = self._folder.db_path
        if not is_same_file(db.path, own):
            raise InvalidInput(
                f"the ledger of {own} cannot be used for {db.path}, which is another home; "
                "open it with Ledger.open(db)"
            )
        self._folder.ask(db)
        if not (self._reads_anywhere or db.read_only):
            self._folder.check_place(self._trash_dir)

    def _close(self) -> None:
        self.pins.close()
        for file in (self._file, self._beside, *self._elsewhere.values()):
            file.close()

    def _find(self) -> Path | None:
        folder = self._folder.find()
        return folder / DATABASE if folder else None

    def _make(self) -> Path:
        return self._folder.make() / DATABASE

    def _location(self) -> str | None:
        """Return the file for new trash, None where that is the ledger itself."""
        if self._trash_dir is None:
            return None
        self._folder.check_place(self._trash_dir)
        return str(self._trash_dir.absolute() / f"{self._folder.trash_name}.db")

    def _trash_file(self, location: str | None) -> File:
        if location is None:
            return self._file
        with self._lock:
            if location not in self._elsewhere:
                find = partial(_on_its_disk, Path(location))
                self._elsewhere[location] = File(find, find, self._patience_s)
            return self._elsewhere[location]


def _on_its_disk(path: Path) -> Path:
    if not path.parent.is_dir():
        raise NotFound(f"{path.parent}, where this trash is, is not there; mount its disk")
    return path


def encode(value: Any) -> str:
    """Return a value as the JSON that is stored."""
    try:
        return json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"a ledger keeps JSON values only: {error}") from error


_INSTEAD = {"plan": "plan anew", "batch": "list what can be undone"}


def missing(handle: Handle, what: str, name: str, known: str) -> NotFound:
    """Return the error for a name that is not there, with those that are near."""
    names: Sequence[str] = [str(found) for (found,) in handle.values(known)]
    near = difflib.get_close_matches(str(name), names, n=5)
    hint = f"did you mean {', '.join(near)}" if near else _INSTEAD.get(what)
    return NotFound(f"there is no {what} {name!r}" + (f"; {hint}" if hint else ""), nearest=near)
