"""Store the sessions of an imported file, piece by piece, as steps of one batch.

Each transaction is short. A long session takes several, and a mark in the home records its
progress, so that a later call continues a stopped import.

The batch has a plan with its sessions as members, and a step for each piece. A later call continues
a stopped import in the same batch. Each step records the state of the sessions that it has stored,
so that an undo removes only unchanged ones.
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
from session_core.ledger.execute import delete_step_marks, run_step, suppress_note_errors
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Member, Step, StoredPlan
from session_core.maintenance.transfer import scan
from session_core.maintenance.transfer.export_format import MESSAGES_KEY
from session_core.maintenance.transfer.import_results import ImportTally
from session_core.maintenance.transfer.scan import SESSIONS, ScannedSession
from session_core.maintenance.types import SkippedItem
from session_core.state.batch_size import BatchSize
from session_core.state.protocol import StateDatabase
from session_core.types import PutResult, Revision, RowImages

MARK_PREFIX = "mcp_sessions:import:"
"""The prefix of the keys in a home that record the progress of an import, by session."""

_ROW_BYTES = 200
FOREIGN_DELEGATOR_REASON = "model_config: its delegator exists and is not part of this file"
FOREIGN_PARENT_REASON = "parent_session_id: the session exists and is not part of this file"

_MAX_MESSAGE_ID = 1 << 40
"""Messages above it get new ids: after the highest possible id no message could be appended."""


class _IdsTaken(Exception):
    """Other messages have taken the ids of the imported messages."""


class LineRefused(Exception):
    """The data of a line does not fit in this home."""


@dataclass(frozen=True, slots=True)
class ImportContext:
    """A file during its import."""

    file: BinaryIO
    lines: Mapping[str, ScannedSession]
    """The importable lines, by session."""
    tally: ImportTally
    batch: ImportBatch


@dataclass(frozen=True, slots=True)
class _StoreStep:
    """The data of a session that one transaction stores."""

    line: ScannedSession
    rows: Sequence[RowImages]
    """The row of the session and those of other tables, if they are not stored yet."""
    piece: Sequence[dict[str, Any]]
    at: int
    """The number of messages stored before it."""
    marked: bool
    """True if the home has a progress mark of the session."""


class ImportWriter:
    """Stores sessions in one home."""

    def __init__(self, db: StateDatabase) -> None:
        self._db = db
        self._batch_size = BatchSize()

    def find_progress(self, line: ScannedSession) -> tuple[int, bool] | None:
        """Return the number of stored messages of a session, and True if they have new ids."""
        if self._db.get_session(line.id) is None:
            return None
        return line.decode_progress(self._db.get_meta(MARK_PREFIX + line.id))

    def store_session_rows(self, context: ImportContext, group: Sequence[ScannedSession]) -> None:
        """Store the rows of sessions that are each other's parents, without messages yet."""
        remaining = [line for line in group if self.find_progress(line) is None]
        images = [image for line in remaining for image in self._read_rows(context, line)]

        def store_rows(db: StateDatabase) -> None:
            result = db.rows.put_images(images, of=[line.id for line in remaining])
            _require_sessions_stored(result)
            # With the rows: without the mark a later call would take them for sessions of this
            # home.
            for line in remaining:
                db.set_meta(MARK_PREFIX + line.id, line.encode_progress(0, renumbered=False))
            context.tally.add_rows(group[0].id, result)

        if remaining:
            context.batch.run_change([line.id for line in remaining], store_rows)

    def store_session(self, context: ImportContext, line: ScannedSession) -> None:
        """Store a session, or continue one that an earlier call began.

        Raises:
            InvalidInput: its line cannot be read.
            LineRefused: it does not fit.
        """
        tally = context.tally
        progress = self.find_progress(line)
        stored, renumbered = progress or (0, False)
        rows = [] if progress else self._read_rows(context, line)
        for piece in self._iter_message_batches(context.file, line, stored):
            step = _StoreStep(line, rows, piece, stored, progress is not None or stored > 0)
            try:
                result = self._store_piece(context.batch, step, renumbered=renumbered)
            except _IdsTaken:
                renumbered = True  # all later messages too, to keep their order
                result = self._store_piece(context.batch, step, renumbered=True)
            tally.add_session(line.id, result, len(piece))
            stored, rows = stored + len(piece), []
        tally.ids.append(line.id)

    @property
    def transaction_bytes(self) -> int:
        """The number of bytes of lines that one transaction stores."""
        return self._batch_size.max_bytes

    def store_sessions(self, context: ImportContext, lines: Sequence[ScannedSession]) -> None:
        """Store new sessions in one transaction, all of them or none.

        Raises:
            InvalidInput: a line cannot be read.
            LineRefused: a session does not fit.
        """
        tally = ImportTally()
        step_context = replace(context, tally=tally)
        steps = [
            _StoreStep(line, self._read_rows(step_context, line), piece, 0, marked=False)
            for line in lines
            for piece in self._iter_message_batches(context.file, line, 0, whole=True)
        ]

        def store_all(db: StateDatabase) -> None:
            self._batch_size.begin_batch()
            for step in steps:
                try:
                    # A savepoint: taken ids undo only this session.
                    with db.transaction():
                        result = self._write_piece(db, step, renumbered=False)
                except _IdsTaken:
                    result = self._write_piece(db, step, renumbered=True)
                tally.add_session(step.line.id, result, len(step.piece))
                tally.ids.append(step.line.id)

        context.batch.run_change([item.id for item in lines], store_all)
        self._batch_size.end_batch(sum(item.bytes for item in lines))
        # After the commit: if the step fails, its sessions are stored and counted one by one.
        context.tally.merge(tally)

    def can_have_parent(self, lines: Mapping[str, ScannedSession], parent: Any) -> bool:
        """Return True if a parent came with the file.

        An import does not continue existing sessions.
        """
        if not isinstance(parent, str):
            return parent is None
        existing, line = self._db.get_session(parent), lines.get(parent)
        return existing is None or (line is not None and line.started_at == existing["started_at"])

    def _store_piece(self, batch: ImportBatch, step: _StoreStep, *, renumbered: bool) -> PutResult:
        """Store a piece of a session and its progress in one transaction."""
        line, end = step.line, step.at + len(step.piece)
        mark = MARK_PREFIX + line.id
        stored: list[PutResult] = []

        def store_piece(db: StateDatabase) -> None:
            self._batch_size.begin_batch()
            # Inside the transaction: another process may have stored this piece.
            if step.marked and (self.find_progress(line) or (None,))[0] != step.at:
                raise LineRefused("another process is importing it")
            # Its mark follows in the same transaction, so that a killed import continues exactly
            # here.
            stored.append(self._write_piece(db, step, renumbered=renumbered))
            if end < line.messages:
                db.set_meta(mark, line.encode_progress(end, renumbered=renumbered))
            elif db.get_meta(mark) is not None:
                db.delete_meta(mark)

        batch.run_change([line.id], store_piece)
        if end < line.messages:  # the last piece is no measure of a full one
            self._batch_size.end_batch()
        return stored[-1]

    def _write_piece(self, db: StateDatabase, step: _StoreStep, *, renumbered: bool) -> PutResult:
        images = [*step.rows, *self._iter_message_images(step, renumbered=renumbered)]
        result = db.rows.put_images(images, of=[step.line.id])
        _require_sessions_stored(result)
        self._require_free_ids(result)
        return result

    def _require_free_ids(self, result: PutResult) -> None:
        """Refuse a piece with a message id that another message has taken."""
        for mismatch in result.refused:
            if mismatch.table == MESSAGES_KEY and self._db.get_message(mismatch.key[0]) is not None:
                raise _IdsTaken

    def _iter_message_images(self, step: _StoreStep, *, renumbered: bool) -> Iterator[RowImages]:
        """Yield the messages of a piece, with their own ids or with new ones."""
        piece: Sequence[dict[str, Any]] = step.piece
        if renumbered:
            last_id = self._find_last_id()
            piece = [{**message, "id": last_id + offset} for offset, message in enumerate(piece, 1)]
        elif not all(_is_usable_id(message.get("id")) for message in piece):
            raise _IdsTaken
        # One image has rows with the same columns in the same order.
        for columns, rows in groupby(piece, key=tuple):
            yield RowImages(
                MESSAGES_KEY, columns, tuple(tuple(message.values()) for message in rows)
            )

    def _read_rows(self, context: ImportContext, line: ScannedSession) -> list[RowImages]:
        """Return the row of a session, and its rows of other tables."""
        row, tables = scan.read_session(context.file, line)
        context.tally.add_line(line)
        if not self.can_have_parent(context.lines, row.get("parent_session_id")):
            row["parent_session_id"] = None
            context.tally.left_out.append(SkippedItem(line.id, FOREIGN_PARENT_REASON))
        if not self.can_have_parent(context.lines, line.delegator):
            scan.mark_delegate_orphaned(row)
            context.tally.left_out.append(SkippedItem(line.id, FOREIGN_DELEGATOR_REASON))
        return [RowImages(SESSIONS, tuple(row), (tuple(row.values()),)), *tables]

    def _find_last_id(self) -> int:
        """Return the highest id of a message, or of a deleted one if the engine records it."""
        sequence = self._db.rows.read_row_images("sqlite_sequence", {"name": MESSAGES_KEY})
        # AUTOINCREMENT never uses an id again, not even that of a deleted message.
        if sequence.rows:
            return int(sequence.rows[0][sequence.columns.index("seq")])
        return max(
            (session.revision.last_id for session in self._db.admin.list_inventory()), default=0
        )

    def _iter_message_batches(
        self, file: BinaryIO, line: ScannedSession, done: int, *, whole: bool = False
    ) -> Iterator[list[dict[str, Any]]]:
        """Yield the remaining messages in pieces, one for each transaction, but at least one piece.

        If `whole` is True, yield a single piece.
        """
        piece: list[dict[str, Any]] = []
        room, remaining = self._batch_size.max_bytes, line.messages - done
        for number, message in enumerate(scan.iter_messages(file, line)):
            if number < done:
                continue
            piece.append(message)
            room -= _ROW_BYTES + sum(
                len(value) for value in message.values() if _is_long_value(value)
            )
            remaining -= 1
            if room <= 0 and remaining and not whole:
                yield piece
                piece, room = [], self._batch_size.max_bytes
        if remaining:
            raise LineRefused("the file has changed during the import")
        yield piece


def _require_sessions_stored(result: PutResult) -> None:
    for mismatch in result.refused:
        if mismatch.table == SESSIONS:
            raise LineRefused(f"its row was refused: {mismatch.why}")


def _is_usable_id(number: Any) -> bool:
    """Return True if a number can be the id of a message, and leaves room for later ids."""
    return isinstance(number, int) and 0 < number <= _MAX_MESSAGE_ID


def _is_long_value(value: Any) -> bool:
    return isinstance(value, (str, bytes))


IMPORT_KIND = "import"
"""The kind of the plan, and the name of the batch."""

_JSON_TYPES = (int, float, str, type(None))

_BROUGHT_KEY = "brought"
"""The key in a step's result with the stored sessions and their state after the step."""


class ImportBatch:
    """The batch of one import in progress."""

    def __init__(self, db: StateDatabase, ledger: Ledger, lines: Sequence[ScannedSession]) -> None:
        self._db = db
        self._ledger = ledger
        self._lines = lines
        self._plan: StoredPlan | None = None
        self._open: set[str] = set()
        self.id: str | None = None
        """The batch that `restore` undoes; None if the import has stored nothing."""

    def run_change(
        self, session_ids: Iterable[str], change: Callable[[StateDatabase], None]
    ) -> None:
        """Run a change that stores sessions or parts of sessions, as one step.

        Raises:
            Conflict: the import was restored meanwhile, or another process imports the file.
        """
        batch = self.id or self._begin_batch()
        ids = list(session_ids)
        # The first step of a session claims it; the later pieces are of a claimed one.
        claimed = [session_id for session_id in ids if session_id in self._open]

        def store_with_state(db: StateDatabase) -> dict[str, Any]:
            change(db)
            return {_BROUGHT_KEY: {session_id: _read_state(db, session_id) for session_id in ids}}

        run_step(
            self._db,
            self._ledger,
            batch,
            before=lambda _: (),
            change=store_with_state,
            members=claimed,
        )
        self._open.difference_update(claimed)

    def finish_plan(self) -> None:
        """End the plan after all lines of the file were imported, skipped or refused."""
        if self._plan is not None:
            delete_step_marks(self._db, self._ledger)
            with suppress_note_errors(f"the import {self.id}"), suppress(Conflict):
                self._ledger.finish_plan(self._plan.handle, None)

    def _begin_batch(self) -> str:
        """Begin the batch of the file, or continue the batch of an earlier call."""
        # The same file may have another name or place in the next call.
        digest = _compute_digest(self._lines)
        applied = self._ledger.list_applied_plans(IMPORT_KIND)
        resumable = (
            plan
            for plan in applied
            if plan.about["digest"] == digest and _is_resumable(self._ledger, plan)
        )
        self._plan = next(resumable, None) or self._ledger.add_plan(
            IMPORT_KIND, [Member(line.id) for line in self._lines], {"digest": digest}
        )
        self._open = {member.id for member in self._plan.remaining}
        self.id = self._ledger.begin_plan(self._plan.handle).batch_id
        return self.id


def encode_state(revision: Revision, title: Any, archived: Any) -> list[Any]:
    """Return the state of a session, which an undo compares with the state it finds.

    A session with another state was used since.
    """
    # A value that another program has stored may be bytes.
    values = [*revision, title, bool(archived)]
    return [value if isinstance(value, _JSON_TYPES) else str(value) for value in values]


def collect_imported(steps: Iterable[Step]) -> dict[str, list[Any]]:
    """Return the sessions that steps of an import have stored, with their last state."""
    imported: dict[str, list[Any]] = {}
    for step in steps:
        imported |= (step.result or {}).get(_BROUGHT_KEY, {})
    return imported


def _read_state(db: StateDatabase, session_id: str) -> list[Any]:
    row: Mapping[str, Any] = db.get_session(session_id) or {}
    return encode_state(db.get_revision(session_id), row.get("title"), row.get("archived"))


def _compute_digest(lines: Iterable[ScannedSession]) -> str:
    """Return a digest of the lines of a file, without its name."""
    return hashlib.sha256("".join(line.digest for line in lines).encode()).hexdigest()


def _is_resumable(ledger: Ledger, plan: StoredPlan) -> bool:
    """Return True if no step of a batch is undone, and no other process runs it."""
    steps = ledger.list_steps(plan.batch or "")
    if any(step.undone_at is not None for step in steps):
        return False
    owners = {step.owner for step in steps[-1:]}
    return not any(
        pid != os.getpid() and processes.is_alive(pid, started_at) for pid, started_at in owners
    )
