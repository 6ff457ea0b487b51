"""One session of a file that is imported is stored, piece by piece.

Each transaction is short. A long session takes several, and notes in the home how far it is, so
that an import that was stopped goes on with it.

The batch of an import: a plan that names its sessions, and a step for each piece of one.

Another call goes on with an import that was stopped, in the same batch. What a step stores is noted
with it, so that an undo finds each session as the import has left it, or leaves it alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, BinaryIO

from session_core import processes
from session_core.errors import Conflict
from session_core.ledger.execute import clear_marks, run_step, suppress_note_errors
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Member, Step, StoredPlan
from session_core.maintenance.transfer import scan
from session_core.maintenance.transfer.format import MESSAGES_KEY
from session_core.maintenance.transfer.scan import SESSIONS, ScannedSession
from session_core.maintenance.transfer.types import ImportTally
from session_core.maintenance.types import SkippedItem
from session_core.state.batch_size import BatchSize
from session_core.state.protocol import StateDatabase
from session_core.types import PutResult, Revision, RowImages

MARK_PREFIX = "mcp_sessions:import:"
"""How the keys begin under which a home has how much of a session was imported."""

_ROW_BYTES = 200
FOREIGN_DELEGATOR_REASON = (
    "model_config: it works for a session that is there, and is none of this file"
)
FOREIGN_PARENT_REASON = "parent_session_id: it is there, and is none of this file"

_MAX_MESSAGE_ID = 1 << 40
"""Messages above it get other ids: behind the highest that there can be nobody could append."""


class _IdsTaken(Exception):
    """Others have the ids of these messages by now."""


class LineRefused(Exception):
    """What a line has does not fit here."""


@dataclass(frozen=True, slots=True)
class ImportContext:
    """A file that is imported."""

    file: BinaryIO
    lines: Mapping[str, ScannedSession]
    """By session, those that can be imported."""
    tally: ImportTally
    batch: ImportBatch


@dataclass(frozen=True, slots=True)
class _StoreStep:
    """What one transaction stores of a session."""

    found: ScannedSession
    rows: Sequence[RowImages]
    """The row of the session and those of other tables, where they are not stored yet."""
    piece: Sequence[dict[str, Any]]
    at: int
    """How many messages are stored before it."""
    marked: bool
    """Whether the home knows that it was begun."""


class ImportWriter:
    """Stores sessions in one home."""

    def __init__(self, db: StateDatabase) -> None:
        self._db = db
        self._pace = BatchSize()

    def find_progress(self, found: ScannedSession) -> tuple[int, bool] | None:
        """Return how many messages of a line are stored, and whether under other ids."""
        if self._db.get_session(found.id) is None:
            return None
        return found.decode_progress(self._db.get_meta(MARK_PREFIX + found.id))

    def store_session_rows(self, reading: ImportContext, group: Sequence[ScannedSession]) -> None:
        """Store the rows of sessions that are each other's parents, still without messages."""
        left = [each for each in group if self.find_progress(each) is None]
        images = [image for each in left for image in self._read_rows(reading, each)]

        def begin(db: StateDatabase) -> None:
            put = db.put_images(images, of=[each.id for each in left])
            _require_sessions_stored(put)
            for each in left:
                db.set_meta(MARK_PREFIX + each.id, each.encode_progress(0, renumbered=False))
            reading.tally.add_rows(group[0].id, put)

        if left:
            reading.batch.run_change([each.id for each in left], begin)

    def store_session(self, reading: ImportContext, found: ScannedSession) -> None:
        """Store a session, or what is left of it.

        Raises:
            InvalidInput: its line is none that can be read.
            Refused: it does not fit.
        """
        tally = reading.tally
        begun = self.find_progress(found)
        at, renumbered = begun or (0, False)
        rows = [] if begun else self._read_rows(reading, found)
        for piece in self._iter_pieces(reading.file, found, at):
            step = _StoreStep(found, rows, piece, at, begun is not None or at > 0)
            try:
                put = self._store_piece(reading.batch, step, renumbered=renumbered)
            except _IdsTaken:
                renumbered = True  # those behind it as well, so that their order stays
                put = self._store_piece(reading.batch, step, renumbered=True)
            tally.add_session(found.id, put, len(piece))
            at, rows = at + len(piece), []
        tally.ids.append(found.id)

    @property
    def room(self) -> int:
        """How many bytes of lines one transaction stores."""
        return self._pace.room

    def store_sessions(self, reading: ImportContext, lines: Sequence[ScannedSession]) -> None:
        """Store new sessions that fit into one transaction, all of them or none.

        Raises:
            InvalidInput: a line is none that can be read.
            Refused: one of them does not fit.
        """
        tally = ImportTally()
        each_alone = replace(reading, tally=tally)
        steps = [
            _StoreStep(found, self._read_rows(each_alone, found), piece, 0, marked=False)
            for found in lines
            for piece in self._iter_pieces(reading.file, found, 0, whole=True)
        ]

        def store(db: StateDatabase) -> None:
            self._pace.begin()
            for step in steps:
                try:
                    with db.transaction():
                        put = self._write_piece(db, step, renumbered=False)
                except _IdsTaken:
                    put = self._write_piece(db, step, renumbered=True)
                tally.add_session(step.found.id, put, len(step.piece))
                tally.ids.append(step.found.id)

        reading.batch.run_change([each.id for each in lines], store)
        self._pace.end(sum(each.bytes for each in lines))
        reading.tally.merge(tally)

    def can_have_parent(self, lines: Mapping[str, ScannedSession], parent: Any) -> bool:
        """Whether a parent came with the file: no other session is gone on with by what comes."""
        if not isinstance(parent, str):
            return parent is None
        there, line = self._db.get_session(parent), lines.get(parent)
        return there is None or (line is not None and line.started_at == there["started_at"])

    def _store_piece(self, batch: ImportBatch, step: _StoreStep, *, renumbered: bool) -> PutResult:
        """Store a piece of a session, and how far it is, in one transaction."""
        found, end = step.found, step.at + len(step.piece)
        mark = MARK_PREFIX + found.id
        stored: list[PutResult] = []

        def store(db: StateDatabase) -> None:
            self._pace.begin()
            if step.marked and (self.find_progress(found) or (None,))[0] != step.at:
                raise LineRefused("somebody else imports it just now")
            stored.append(self._write_piece(db, step, renumbered=renumbered))
            if end < found.messages:
                db.set_meta(mark, found.encode_progress(end, renumbered=renumbered))
            elif db.get_meta(mark) is not None:
                db.delete_meta(mark)

        batch.run_change([found.id], store)
        if end < found.messages:  # the last one says nothing about how long a full one takes
            self._pace.end()
        return stored[-1]

    def _write_piece(self, db: StateDatabase, step: _StoreStep, *, renumbered: bool) -> PutResult:
        images = [*step.rows, *self._iter_message_images(step, renumbered=renumbered)]
        put = db.put_images(images, of=[step.found.id])
        _require_sessions_stored(put)
        self._require_own_ids(put)
        return put

    def _require_own_ids(self, put: PutResult) -> None:
        """Refuse a piece of which somebody has an id by now."""
        for each in put.refused:
            if each.table == MESSAGES_KEY and self._db.get_message(each.key[0]) is not None:
                raise _IdsTaken

    def _iter_message_images(self, step: _StoreStep, *, renumbered: bool) -> Iterator[RowImages]:
        """Yield the messages of a piece, with the ids that they had or with new ones."""
        piece: Sequence[dict[str, Any]] = step.piece
        if renumbered:
            last = self._find_last_id()
            piece = [{**each, "id": last + place} for place, each in enumerate(piece, 1)]
        elif not all(_is_usable_id(each.get("id")) for each in piece):
            raise _IdsTaken
        for columns, rows in groupby(piece, key=tuple):
            yield RowImages(MESSAGES_KEY, columns, tuple(tuple(each.values()) for each in rows))

    def _read_rows(self, reading: ImportContext, found: ScannedSession) -> list[RowImages]:
        """Return the row of a session, and those of other tables."""
        row, tables = scan.read_session(reading.file, found)
        reading.tally.add_line(found)
        if not self.can_have_parent(reading.lines, row.get("parent_session_id")):
            row["parent_session_id"] = None
            reading.tally.left_out.append(SkippedItem(found.id, FOREIGN_PARENT_REASON))
        if not self.can_have_parent(reading.lines, found.delegator):
            scan.drop_delegator(row)
            reading.tally.left_out.append(SkippedItem(found.id, FOREIGN_DELEGATOR_REASON))
        return [RowImages(SESSIONS, tuple(row), (tuple(row.values()),)), *tables]

    def _find_last_id(self) -> int:
        """Return the highest id that a message has, or had where the engine remembers that."""
        seen = self._db.read_row_images("sqlite_sequence", {"name": MESSAGES_KEY})
        if seen.rows:
            return int(seen.rows[0][seen.columns.index("seq")])
        return max((each.revision.last_id for each in self._db.list_inventory()), default=0)

    def _iter_pieces(
        self, file: BinaryIO, found: ScannedSession, done: int, *, whole: bool = False
    ) -> Iterator[list[dict[str, Any]]]:
        """Yield the messages that are left in pieces for a transaction each, at least one piece.

        The piece is one where it is to be `whole`.
        """
        piece: list[dict[str, Any]] = []
        room, left = self._pace.room, found.messages - done
        for number, message in enumerate(scan.iter_messages(file, found)):
            if number < done:
                continue
            piece.append(message)
            room -= _ROW_BYTES + sum(len(each) for each in message.values() if _is_long_value(each))
            left -= 1
            if room <= 0 and left and not whole:
                yield piece
                piece, room = [], self._pace.room
        if left:
            raise LineRefused("the file has changed meanwhile")
        yield piece


def _require_sessions_stored(put: PutResult) -> None:
    for each in put.refused:
        if each.table == SESSIONS:
            raise LineRefused(f"its row is not taken: {each.why}")


def _is_usable_id(number: Any) -> bool:
    """Whether this is the id of a message, and leaves room for those that come after it."""
    return isinstance(number, int) and 0 < number <= _MAX_MESSAGE_ID


def _is_long_value(value: Any) -> bool:
    return isinstance(value, (str, bytes))


IMPORT_KIND = "import"
"""The kind of the plan, and the name of the batch."""

_JSON_TYPES = (int, float, str, type(None))

_BROUGHT_KEY = "brought"
"""In the result of a step: the sessions that it has stored a part of, as it has left them."""


class ImportBatch:
    """The batch of one import that is under way."""

    def __init__(self, db: StateDatabase, ledger: Ledger, lines: Sequence[ScannedSession]) -> None:
        self._db = db
        self._ledger = ledger
        self._lines = lines
        self._plan: StoredPlan | None = None
        self._open: set[str] = set()
        self.id: str | None = None
        """The batch that takes back what came in; None if nothing did."""

    def run_change(
        self, session_ids: Iterable[str], change: Callable[[StateDatabase], None]
    ) -> None:
        """Run a change that stores these sessions or parts of them, as one step.

        Raises:
            Conflict: the import was taken back meanwhile, or another process imports the file.
        """
        batch = self.id or self._begin_batch()
        ids = list(session_ids)
        claimed = [each for each in ids if each in self._open]

        def store(db: StateDatabase) -> dict[str, Any]:
            change(db)
            return {_BROUGHT_KEY: {each: _read_state(db, each) for each in ids}}

        run_step(self._db, self._ledger, batch, before=lambda _: (), change=store, members=claimed)
        self._open.difference_update(claimed)

    def finish_plan(self) -> None:
        """End the plan: all of the file was imported, skipped or refused."""
        if self._plan is not None:
            clear_marks(self._db, self._ledger)
            with suppress_note_errors(f"the import {self.id}"), suppress(Conflict):
                self._ledger.finish_plan(self._plan.handle, None)

    def _begin_batch(self) -> str:
        """Begin the batch of the file, or go on with the one that an earlier call has begun."""
        digest = _compute_digest(self._lines)
        begun = self._ledger.list_applied_plans(IMPORT_KIND)
        mine = (
            plan
            for plan in begun
            if plan.about["digest"] == digest and _is_resumable(self._ledger, plan)
        )
        self._plan = next(mine, None) or self._ledger.add_plan(
            IMPORT_KIND, [Member(line.id) for line in self._lines], {"digest": digest}
        )
        self._open = {member.id for member in self._plan.remaining}
        self.id = self._ledger.begin_plan(self._plan.handle).id
        return self.id


def encode_state(revision: Revision, title: Any, archived: Any) -> list[Any]:
    """Return what an undo compares: a session that is otherwise has been used since."""
    # What a foreign program has stored may be bytes.
    values = [*revision, title, bool(archived)]
    return [each if isinstance(each, _JSON_TYPES) else str(each) for each in values]


def collect_imported(steps: Iterable[Step]) -> dict[str, list[Any]]:
    """Return the sessions that steps of an import have stored, as the last of them left each."""
    brought: dict[str, list[Any]] = {}
    for step in steps:
        brought |= (step.result or {}).get(_BROUGHT_KEY, {})
    return brought


def _read_state(db: StateDatabase, session_id: str) -> list[Any]:
    row = db.get_session(session_id) or {}
    return encode_state(db.get_revision(session_id), row.get("title"), row.get("archived"))


def _compute_digest(lines: Iterable[ScannedSession]) -> str:
    """Return what a file is known by: its lines, whatever its name."""
    return hashlib.sha256("".join(each.digest for each in lines).encode()).hexdigest()


def _is_resumable(ledger: Ledger, plan: StoredPlan) -> bool:
    """Return whether a batch can be gone on with: nothing of it is undone, and nobody is at it."""
    steps = ledger.list_steps(plan.batch or "")
    if any(step.undone_at is not None for step in steps):
        return False
    owners = {step.owner for step in steps[-1:]}
    return not any(pid != os.getpid() and processes.is_alive(pid, at) for pid, at in owners)
