"""Undo batches and their trash, in the ledger's own file or in files on other disks."""

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
from session_core.ledger.codec import DIGEST_BYTES, hash_piece, unpack_trash
from session_core.ledger.database import PACKAGE, LedgerDatabase
from session_core.ledger.database_location import open_ledger_database
from session_core.ledger.pins import Pins
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.types import Batch, EmptyResult, Step, TrashItem
from session_core.state import cursors, sql_blocks
from session_core.state.protocol import StateDatabase
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.opening import get_file_bytes
from session_core.types import Page

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

    Subclasses add plans, batches and steps.
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

TRASH_RETENTION_S = 30 * 86_400.0
"""How long a batch can be undone."""

_IS_APPLIED = SQL["is_applied"]
_HAS_TRASH = "emptied_at IS NULL AND undone_at IS NULL AND count > 0 AND bytes > 0"
_EMPTIABLE = f"{_HAS_TRASH} AND NOT underway AND NOT {_IS_APPLIED} AND {{when}}"
_EXPIRED = _EMPTIABLE.format(when="expires_at <= :now")
_OLDER_THAN = _EMPTIABLE.format(when="at <= :now - :older_than_s")
_WITH_IDS = _EMPTIABLE.format(when="id IN (SELECT value FROM json_each(:batches))")
_MAX_ROWID = 1 << 62


class Batches(LedgerStorage):
    """Batches, their steps and their trash."""

    def add_batch(self, what: str) -> Batch:
        """Begin a batch for a change without a plan."""
        now = self._clock()
        return self._file.write(lambda rows: insert_batch(rows, what, None, now))

    def get_batch(self, batch_id: str) -> Batch:
        """Return a batch, even if it can no longer be undone.

        Raises:
            NotFound: the batch does not exist; `nearest` lists similar ids.
        """
        return self._file.read(lambda rows: read_batch(rows, batch_id))

    def get_undoable_batch(self, batch_id: str) -> Batch:
        """Return a batch whose trash still exists.

        Raises:
            NotFound: the batch does not exist.
            Conflict: the batch was undone, or its trash has expired or was emptied.
        """
        batch = self.get_batch(batch_id)
        if batch.undone_at is not None:
            raise Conflict(f"batch {batch_id} was undone already")
        if batch.emptied_at is not None or batch.expires_at <= self._clock():
            raise Conflict(f"batch {batch_id} cannot be undone any more: its trash is gone")
        return batch

    def list_batches(
        self, limit: int = 20, cursor: str | None = None, *, undone: bool = True
    ) -> Page[Batch]:
        """List batches that still have their trash, newest first.

        Batches that were undone are included unless `undone` is False. Batches that undid another
        batch are left out.
        """
        scope = self._folder.scope
        before = _MAX_ROWID if cursor is None else cursors.decode_cursor("batches", scope, cursor)
        if limit < 1:
            raise InvalidInput(f"limit must be an integer >= 1, got {limit}")
        values = {
            "before": before,
            "now": self._clock(),
            "limit": limit + 1,
            "undone": undone,
        }
        batch_rows = self._file.read(lambda rows: rows.fetch_rows(SQL["list_batches"], values))
        has_more = len(batch_rows) > limit
        page = batch_rows[:limit]
        next_cursor = (
            cursors.encode_cursor("batches", scope, page[-1]["number"]) if has_more else None
        )
        return Page([_parse_batch(row) for row in page], next_cursor)

    def list_steps(self, batch_id: str) -> list[Step]:
        """Return the finished steps of a batch in order."""
        return self._file.read(
            lambda rows: [
                parse_step(row) for row in rows.fetch_rows(SQL["list_steps"], (batch_id,))
            ]
        )

    def get_step(self, step_id: str) -> Step:
        """Return a step.

        Raises:
            NotFound: the step does not exist.
        """
        return self._file.read(lambda rows: read_step(rows, step_id))

    def get_last_attempt(self, step_id: str) -> Any:
        """Return the result of the last undo of a step, or None."""
        stored = self._file.read(lambda rows: rows.fetch_value(SQL["get_tried"], (step_id,)))
        return json.loads(stored or "null")

    def find_batch_of_session(self, session_id: str) -> str | None:
        """Return the newest batch that removed a session and can restore it."""
        values = {"session": session_id, "now": self._clock()}
        batch_id = self._file.read(lambda rows: rows.fetch_value(SQL["get_holder"], values))
        return None if batch_id is None else str(batch_id)

    def read_trash(self, step_id: str) -> Iterator[TrashItem]:
        """Yield the trash of a step in the order in which it was stored.

        Raises:
            NotFound: the step does not exist, or its disk is not mounted.
            Conflict: the trash was emptied, or the batch was undone.
            Corrupt: the trash is damaged.
        """
        step = self.get_step(step_id)
        self._require_trash(step)
        return unpack_trash(self._read_pieces(step))

    def _require_trash(self, step: Step) -> None:
        """Raise Conflict if the trash of a step was deleted with its batch."""
        batch = self.get_batch(step.batch)
        if batch.undone_at is not None:
            raise Conflict(f"batch {batch.id} was undone already")
        if batch.emptied_at is not None:
            raise Conflict(f"batch {batch.id} cannot be undone any more: its trash is gone")

    def count_trash_bytes(self) -> int:
        """Return the compressed size of all trash."""
        return int(self._file.read(lambda rows: rows.fetch_value(SQL["count_bytes"])))

    def count_disk_bytes(self) -> int:
        """Return the size of all files with trash, including the ledger's own."""
        rows = self._file.read(lambda rows: rows.fetch_tuples(SQL["list_locations"]))
        paths = [*filter(None, [self._find_path()]), *(Path(location) for (location,) in rows)]
        return sum(get_file_bytes(path) + get_file_bytes(Path(f"{path}-wal")) for path in paths)

    def list_expired_batches(
        self, older_than_s: float | None = None, *, batches: Iterable[str] | None = None
    ) -> list[Batch]:
        """Return the batches that `empty_trash` would empty, oldest first."""
        condition, values = self._build_condition(older_than_s, batches)
        return self._file.read(
            lambda rows: [
                _parse_batch(row)
                for row in rows.fetch_rows(SQL["list_ripe"].format(ripe=condition), values)
            ]
        )

    def empty_trash(
        self, older_than_s: float | None = None, *, batches: Iterable[str] | None = None
    ) -> EmptyResult:
        """Delete expired trash for good, or the trash of batches older than `older_than_s`.

        With `batches`, delete the trash of these batches at any age. Trash on a disk that is not
        mounted is deleted by a later call.
        """
        condition, values = self._build_condition(older_than_s, batches)
        count = self._file.read(
            lambda rows: rows.fetch_value(SQL["count_ripe"].format(ripe=condition), values)
        )
        # A write would create the ledger of a home that has none.
        if count:
            count = self._file.write(
                lambda rows: rows.execute_update(SQL["mark_emptied"].format(ripe=condition), values)
            )
        return EmptyResult(count, self.delete_content())

    def delete_content(self) -> int:
        """Delete the trash of all emptied or undone batches and return its size in bytes.

        This also finishes a deletion that a crash interrupted. The rows of the batches stay.
        """
        steps = self._file.read(
            lambda rows: [parse_step(row) for row in rows.fetch_rows(SQL["list_emptied"])]
        )
        if steps:
            # This write is durable before the first piece is deleted, and so is the earlier,
            # unsynced note that the batch was undone.
            ids = encode_json([step.id for step in steps])
            self._file.write(lambda rows: rows.execute_update(SQL["forget_digests"], (ids,)))
        return self._empty_steps(steps)

    def _build_condition(
        self, older_than_s: float | None, batches: Iterable[str] | None
    ) -> tuple[str, dict[str, Any]]:
        """Return the SQL condition for batches to empty, with its values."""
        if older_than_s is not None and not (older_than_s >= 0 and math.isfinite(older_than_s)):
            raise InvalidInput(f"older_than_s must be a number >= 0, got {older_than_s}")
        values: dict[str, Any] = {"now": self._clock(), "older_than_s": older_than_s}
        if batches is not None:
            return _WITH_IDS, values | {"batches": encode_json(list(batches))}
        return _EXPIRED if older_than_s is None else _OLDER_THAN, values

    def _empty_steps(self, steps: list[Step]) -> int:
        emptied = 0
        for step in steps:
            try:
                self._delete_step_trash(step)
            except NotFound:  # its disk is not mounted
                continue
            emptied += step.bytes
        for location in {step.location for step in steps}:
            self._get_trash_file(location).reclaim_space()
        return emptied

    def _delete_step_trash(self, step: Step) -> None:
        """Delete the pieces of a step, then note that it has no trash."""
        # In this order: after a crash in between, the next call deletes the rest.
        delete_pieces(self._get_trash_file(step.location), step.id)
        self._file.write(lambda rows: rows.execute_update(SQL["note_emptied"], (step.id,)))

    def _read_pieces(self, step: Step) -> Iterator[bytes]:
        file = self._get_trash_file(step.location)
        digests = (
            self._file.read(lambda rows: rows.fetch_value(SQL["get_digests"], (step.id,))) or b""
        )
        # The digests are in the ledger's own file, because other users may reach a trash disk.
        for position in range(step.chunks):
            at = (step.id, position)
            piece = file.read(lambda rows, at=at: rows.fetch_value(SQL["get_piece"], at))  # type: ignore[misc]
            if piece is None:
                # Another process may have undone or emptied the batch since.
                self._require_trash(step)
                raise Corrupt(f"the trash of step {step.id} is incomplete; it cannot be restored")
            if not digests:
                self._require_trash(step)
            if hash_piece(piece) != digests[position * DIGEST_BYTES :][:DIGEST_BYTES]:
                raise Corrupt(
                    f"the trash of step {step.id} is damaged or was modified; it cannot be restored"
                )
            yield piece


def delete_pieces(file: LedgerDatabase, step_id: str) -> None:
    """Delete the trash of a step, a few pieces per transaction to keep each one short."""
    while file.write(lambda rows: rows.execute_update(SQL["delete_pieces"], (step_id,))):
        pass


def insert_batch(rows: Connection, what: str, plan: str | None, now: float) -> Batch:
    """Insert a batch and return it."""
    batch_id = make_handle("b")
    rows.execute_update(SQL["add_batch"], (batch_id, what, plan, now, now + TRASH_RETENTION_S))
    return read_batch(rows, batch_id)


def read_batch(rows: Connection, batch_id: str) -> Batch:
    """Return a batch, or raise NotFound if it is missing."""
    row = rows.fetch_row(SQL["get_batch"], (batch_id,))
    if row is None:
        raise make_not_found(rows, "batch", batch_id, SQL["list_names"])
    return _parse_batch(row)


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


def _parse_batch(row: Mapping[str, Any]) -> Batch:
    names = ("id", "what", "plan", "at", "expires_at", "undone_at", "emptied_at", "count", "bytes")
    return Batch(**{name: row[name] for name in names})
