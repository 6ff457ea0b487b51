"""The files of a ledger: its own, and those with trash on other disks.

Undo batches and the trash of their steps, which is read piece by piece and emptied for good.
"""

from __future__ import annotations

import difflib
import json
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from session_core.errors import Conflict, Corrupt, InvalidInput, NotFound
from session_core.home import is_same_file
from session_core.ledger.codec import DIGEST_BYTES, digest, unpack
from session_core.ledger.database import PACKAGE, File
from session_core.ledger.pins import Pins
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.types import Batch, Emptied, Kept, Step
from session_core.state import cursors
from session_core.state.protocol import StateDatabase
from session_core.state.sqlite import sql_blocks
from session_core.state.sqlite.connection import Handle
from session_core.state.sqlite.opening import size
from session_core.types import Page

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


SQL = sql_blocks.load("batches", PACKAGE)

KEPT_S = 30 * 86_400.0
"""How long what was removed or rewritten can be brought back."""

_IS_APPLIED = SQL["is_applied"]
_HAS_TRASH = "emptied_at IS NULL AND undone_at IS NULL AND count > 0 AND bytes > 0"
_RIPE = f"{_HAS_TRASH} AND NOT underway AND NOT {_IS_APPLIED} AND {{when}}"
_EXPIRED = _RIPE.format(when="expires_at <= :now")
_OLD = _RIPE.format(when="at <= :now - :older_than_s")
_NAMED = _RIPE.format(when="id IN (SELECT value FROM json_each(:batches))")
_FIRST = 1 << 62


class Batches(Shelf):
    """Batches, their steps and their trash."""

    def add_batch(self, what: str) -> Batch:
        """Begin a batch for a change that is made at once, without a plan."""
        now = self._clock()
        return self._file.write(lambda rows: add_batch(rows, what, None, now))

    def batch(self, batch_id: str) -> Batch:
        """Return a batch, also one that cannot be undone any more.

        Raises:
            NotFound: there is none; `nearest` has what may have been meant.
        """
        return self._file.read(lambda rows: batch_of(rows, batch_id))

    def undoable(self, batch_id: str) -> Batch:
        """Return a batch whose trash is still there.

        Raises:
            NotFound: there is none.
            Conflict: it was undone, or its trash has expired or was emptied.
        """
        batch = self.batch(batch_id)
        if batch.undone_at is not None:
            raise Conflict(f"batch {batch_id} was undone already")
        if batch.emptied_at is not None or batch.expires_at <= self._clock():
            raise Conflict(f"batch {batch_id} cannot be undone any more: its trash is gone")
        return batch

    def batches(
        self, limit: int = 20, cursor: str | None = None, *, undone: bool = True
    ) -> Page[Batch]:
        """List what can be undone, and what was `undone`, while it has its trash; newest first.

        What has undone something else is not in it.
        """
        scope = str(self._folder.db_path)
        before = _FIRST if cursor is None else cursors.decode("batches", scope, cursor)
        if limit < 1:
            raise InvalidInput(f"limit is {limit}; at least 1")
        values = {
            "before": before,
            "now": self._clock(),
            "limit": limit + 1,
            "undone": undone,
        }
        found = self._file.read(lambda rows: rows.rows(SQL["list_batches"], values))
        more = len(found) > limit
        page = found[:limit]
        following = cursors.encode("batches", scope, page[-1]["number"]) if more else None
        return Page([_batch(row) for row in page], following)

    def steps(self, batch_id: str) -> list[Step]:
        """Return the steps of a batch that were done, in their order."""
        return self._file.read(
            lambda rows: [as_step(row) for row in rows.rows(SQL["list_steps"], (batch_id,))]
        )

    def step(self, step_id: str) -> Step:
        """Return a step.

        Raises:
            NotFound: there is none.
        """
        return self._file.read(lambda rows: step_of(rows, step_id))

    def tried(self, step_id: str) -> Any:
        """Return what the last undo of a step came to, None where there was none."""
        found = self._file.read(lambda rows: rows.value(SQL["get_tried"], (step_id,)))
        return json.loads(found or "null")

    def holder(self, session_id: str) -> str | None:
        """Return the last batch that has removed a session, and can bring it back."""
        values = {"session": session_id, "now": self._clock()}
        found = self._file.read(lambda rows: rows.value(SQL["get_holder"], values))
        return None if found is None else str(found)

    def trash(self, step_id: str) -> Iterator[Kept]:
        """Return what a step has kept, one by one, in the order in which it was kept.

        Raises:
            NotFound: there is no such step, or its disk is not mounted.
            Conflict: its trash was emptied, or its batch was undone.
            Corrupt: it is damaged.
        """
        step = self.step(step_id)
        self._require_trash(step)
        return unpack(self._pieces(step))

    def _require_trash(self, step: Step) -> None:
        """Raise Conflict if the trash of a step was deleted with that of its batch."""
        batch = self.batch(step.batch)
        if batch.undone_at is not None:
            raise Conflict(f"batch {batch.id} was undone already")
        if batch.emptied_at is not None:
            raise Conflict(f"batch {batch.id} cannot be undone any more: its trash is gone")

    def bytes_used(self) -> int:
        """Return what all trash takes, compressed."""
        return int(self._file.read(lambda rows: rows.value(SQL["count_bytes"])))

    def bytes_on_disk(self) -> int:
        """Return the size of the files with trash, the ledger's own among them."""
        rows = self._file.read(lambda rows: rows.values(SQL["list_locations"]))
        paths = [*filter(None, [self._find()]), *(Path(location) for (location,) in rows)]
        return sum(size(path) + size(Path(f"{path}-wal")) for path in paths)

    def ripe(
        self, older_than_s: float | None = None, *, batches: Iterable[str] | None = None
    ) -> list[Batch]:
        """Return the batches that `empty` would empty, oldest first."""
        ripe, values = self._ripe(older_than_s, batches)
        return self._file.read(
            lambda rows: [
                _batch(row) for row in rows.rows(SQL["list_ripe"].format(ripe=ripe), values)
            ]
        )

    def empty(
        self, older_than_s: float | None = None, *, batches: Iterable[str] | None = None
    ) -> Emptied:
        """Delete the trash that has expired, or that of batches of this age, for good.

        Of `batches` that are named it is theirs, whatever their age. What is on a disk that is not
        mounted is deleted by a later call.
        """
        ripe, values = self._ripe(older_than_s, batches)
        count = self._file.read(
            lambda rows: rows.value(SQL["count_ripe"].format(ripe=ripe), values)
        )
        if count:
            count = self._file.write(
                lambda rows: rows.run(SQL["mark_emptied"].format(ripe=ripe), values)
            )
        return Emptied(count, self.delete_content())

    def delete_content(self) -> int:
        """Delete the trash of all batches that were emptied or undone; return its bytes.

        This finishes a deletion that a crash cut short. The rows of the batches stay.
        """
        steps = self._file.read(
            lambda rows: [as_step(row) for row in rows.rows(SQL["list_emptied"])]
        )
        if steps:
            # Durable before the first piece goes, and with it that the batch was undone.
            ids = encode([step.id for step in steps])
            self._file.write(lambda rows: rows.run(SQL["forget_digests"], (ids,)))
        return self._empty_steps(steps)

    def _ripe(
        self, older_than_s: float | None, batches: Iterable[str] | None
    ) -> tuple[str, dict[str, Any]]:
        """Return the condition of what is emptied, with its values."""
        if older_than_s is not None and not (older_than_s >= 0 and math.isfinite(older_than_s)):
            raise InvalidInput(f"older_than_s is {older_than_s}; at least 0")
        values: dict[str, Any] = {"now": self._clock(), "older_than_s": older_than_s}
        if batches is not None:
            return _NAMED, values | {"batches": encode(list(batches))}
        return _EXPIRED if older_than_s is None else _OLD, values

    def _empty_steps(self, steps: list[Step]) -> int:
        emptied = 0
        for step in steps:
            try:
                self._purge(step)
            except NotFound:
                continue
            emptied += step.bytes
        for location in {step.location for step in steps}:
            self._trash_file(location).give_back()
        return emptied

    def _purge(self, step: Step) -> None:
        """Delete the pieces of a step, and then note that there are none."""
        delete_pieces(self._trash_file(step.location), step.id)
        self._file.write(lambda rows: rows.run(SQL["note_emptied"], (step.id,)))

    def _pieces(self, step: Step) -> Iterator[bytes]:
        file = self._trash_file(step.location)
        digests = self._file.read(lambda rows: rows.value(SQL["get_digests"], (step.id,))) or b""
        for position in range(step.chunks):
            at = (step.id, position)
            piece = file.read(lambda rows, at=at: rows.value(SQL["get_piece"], at))  # type: ignore[misc]
            if piece is None:
                self._require_trash(step)  # another process may have undone or emptied it
                raise Corrupt(f"the trash of step {step.id} is not whole; it cannot be restored")
            if not digests:
                self._require_trash(step)
            if digest(piece) != digests[position * DIGEST_BYTES :][:DIGEST_BYTES]:
                raise Corrupt(
                    f"the trash of step {step.id} is damaged, or somebody has changed it; it "
                    "cannot be restored"
                )
            yield piece


def delete_pieces(file: File, step_id: str) -> None:
    """Delete the trash of a step, a few pieces at a time, so that nobody waits long."""
    while file.write(lambda rows: rows.run(SQL["delete_pieces"], (step_id,))):
        pass


def add_batch(rows: Handle, what: str, plan: str | None, now: float) -> Batch:
    """Begin a batch."""
    batch_id = handle_of("b")
    rows.run(SQL["add_batch"], (batch_id, what, plan, now, now + KEPT_S))
    return batch_of(rows, batch_id)


def batch_of(rows: Handle, batch_id: str) -> Batch:
    """Return a batch, which must be there."""
    found = rows.row(SQL["get_batch"], (batch_id,))
    if found is None:
        raise missing(rows, "batch", batch_id, SQL["list_names"])
    return _batch(found)


def step_of(rows: Handle, step_id: str) -> Step:
    """Return a step, which must be there."""
    found = rows.row(SQL["get_step"], (step_id,))
    if found is None:
        raise NotFound(f"there is no step {step_id!r}")
    return as_step(found)


def as_step(row: Mapping[str, Any]) -> Step:
    """Return the value for a row of a step."""
    return Step(
        **{name: row[name] for name in ("id", "batch", "state", "at", "undoes", "undone_at")},
        **{name: row[name] for name in ("bytes", "chunks", "location")},
        members=tuple(json.loads(row["members"])),
        result=json.loads(row["result"] or "null"),
        owner=(row["pid"], row["started_at"]),
    )


def _batch(row: Mapping[str, Any]) -> Batch:
    names = ("id", "what", "plan", "at", "expires_at", "undone_at", "emptied_at", "count", "bytes")
    return Batch(**{name: row[name] for name in names})
