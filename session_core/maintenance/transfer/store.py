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
from session_core.ledger.execute import clear_marks, noting, run_step
from session_core.ledger.ledger import Ledger
from session_core.ledger.types import Member, Plan, Step
from session_core.maintenance.transfer import scan
from session_core.maintenance.transfer.format import MESSAGES
from session_core.maintenance.transfer.scan import SESSIONS, Found
from session_core.maintenance.transfer.types import Tally
from session_core.maintenance.types import Skipped
from session_core.state.batch_size import Pace
from session_core.state.protocol import StateDatabase
from session_core.types import Images, Put, Revision

MARK = "mcp_sessions:import:"
"""How the keys begin under which a home has how much of a session was imported."""

_ROW_BYTES = 200
STRANGE_DELEGATOR = "model_config: it works for a session that is there, and is none of this file"
STRANGE = "parent_session_id: it is there, and is none of this file"

_HIGHEST_ID = 1 << 40
"""Messages above it get other ids: behind the highest that there can be nobody could append."""


class _Taken(Exception):
    """Others have the ids of these messages by now."""


class Refused(Exception):
    """What a line has does not fit here."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A file that is imported."""

    file: BinaryIO
    lines: Mapping[str, Found]
    """By session, those that can be imported."""
    tally: Tally
    batch: ImportBatch


@dataclass(frozen=True, slots=True)
class _Step:
    """What one transaction stores of a session."""

    found: Found
    rows: Sequence[Images]
    """The row of the session and those of other tables, where they are not stored yet."""
    piece: Sequence[dict[str, Any]]
    at: int
    """How many messages are stored before it."""
    marked: bool
    """Whether the home knows that it was begun."""


class Storing:
    """Stores sessions in one home."""

    def __init__(self, db: StateDatabase) -> None:
        self._db = db
        self._pace = Pace()

    def stored(self, found: Found) -> tuple[int, bool] | None:
        """Return how many messages of a line are stored, and whether under other ids."""
        if self._db.get_session(found.id) is None:
            return None
        return found.how_far(self._db.get_meta(MARK + found.id))

    def begin_together(self, reading: Reading, group: Sequence[Found]) -> None:
        """Store the rows of sessions that are each other's parents, still without messages."""
        left = [each for each in group if self.stored(each) is None]
        images = [image for each in left for image in self._rows(reading, each)]

        def begin(db: StateDatabase) -> None:
            put = db.put_images(images, of=[each.id for each in left])
            _require_sessions(put)
            for each in left:
                db.set_meta(MARK + each.id, each.noted(0, renumbered=False))
            reading.tally.add(group[0].id, put)

        if left:
            reading.batch.run([each.id for each in left], begin)

    def store(self, reading: Reading, found: Found) -> None:
        """Store a session, or what is left of it.

        Raises:
            InvalidInput: its line is none that can be read.
            Refused: it does not fit.
        """
        tally = reading.tally
        begun = self.stored(found)
        at, renumbered = begun or (0, False)
        rows = [] if begun else self._rows(reading, found)
        for piece in self._pieces(reading.file, found, at):
            step = _Step(found, rows, piece, at, begun is not None or at > 0)
            try:
                put = self._store(reading.batch, step, renumbered=renumbered)
            except _Taken:
                renumbered = True  # those behind it as well, so that their order stays
                put = self._store(reading.batch, step, renumbered=True)
            tally.add_session(found.id, put, len(piece))
            at, rows = at + len(piece), []
        tally.ids.append(found.id)

    @property
    def room(self) -> int:
        """How many bytes of lines one transaction stores."""
        return self._pace.room

    def store_several(self, reading: Reading, lines: Sequence[Found]) -> None:
        """Store new sessions that fit into one transaction, all of them or none.

        Raises:
            InvalidInput: a line is none that can be read.
            Refused: one of them does not fit.
        """
        tally = Tally()
        each_alone = replace(reading, tally=tally)
        steps = [
            _Step(found, self._rows(each_alone, found), piece, 0, marked=False)
            for found in lines
            for piece in self._pieces(reading.file, found, 0, whole=True)
        ]

        def store(db: StateDatabase) -> None:
            self._pace.begin()
            for step in steps:
                try:
                    with db.transaction():
                        put = self._put(db, step, renumbered=False)
                except _Taken:
                    put = self._put(db, step, renumbered=True)
                tally.add_session(step.found.id, put, len(step.piece))
                tally.ids.append(step.found.id)

        reading.batch.run([each.id for each in lines], store)
        self._pace.end(sum(each.bytes for each in lines))
        reading.tally.extend(tally)

    def may_have(self, lines: Mapping[str, Found], parent: Any) -> bool:
        """Whether a parent came with the file: no other session is gone on with by what comes."""
        if not isinstance(parent, str):
            return parent is None
        there, line = self._db.get_session(parent), lines.get(parent)
        return there is None or (line is not None and line.started_at == there["started_at"])

    def _store(self, batch: ImportBatch, step: _Step, *, renumbered: bool) -> Put:
        """Store a piece of a session, and how far it is, in one transaction."""
        found, end = step.found, step.at + len(step.piece)
        mark = MARK + found.id
        stored: list[Put] = []

        def store(db: StateDatabase) -> None:
            self._pace.begin()
            if step.marked and (self.stored(found) or (None,))[0] != step.at:
                raise Refused("somebody else imports it just now")
            stored.append(self._put(db, step, renumbered=renumbered))
            if end < found.messages:
                db.set_meta(mark, found.noted(end, renumbered=renumbered))
            elif db.get_meta(mark) is not None:
                db.delete_meta(mark)

        batch.run([found.id], store)
        if end < found.messages:  # the last one says nothing about how long a full one takes
            self._pace.end()
        return stored[-1]

    def _put(self, db: StateDatabase, step: _Step, *, renumbered: bool) -> Put:
        images = [*step.rows, *self._images(step, renumbered=renumbered)]
        put = db.put_images(images, of=[step.found.id])
        _require_sessions(put)
        self._require_own_ids(put)
        return put

    def _require_own_ids(self, put: Put) -> None:
        """Refuse a piece of which somebody has an id by now."""
        for each in put.refused:
            if each.table == MESSAGES and self._db.get_message(each.key[0]) is not None:
                raise _Taken

    def _images(self, step: _Step, *, renumbered: bool) -> Iterator[Images]:
        """Yield the messages of a piece, with the ids that they had or with new ones."""
        piece: Sequence[dict[str, Any]] = step.piece
        if renumbered:
            last = self._last_id()
            piece = [{**each, "id": last + place} for place, each in enumerate(piece, 1)]
        elif not all(_is_usual(each.get("id")) for each in piece):
            raise _Taken
        for columns, rows in groupby(piece, key=tuple):
            yield Images(MESSAGES, columns, tuple(tuple(each.values()) for each in rows))

    def _rows(self, reading: Reading, found: Found) -> list[Images]:
        """Return the row of a session, and those of other tables."""
        row, tables = scan.session(reading.file, found)
        reading.tally.take(found)
        if not self.may_have(reading.lines, row.get("parent_session_id")):
            row["parent_session_id"] = None
            reading.tally.left_out.append(Skipped(found.id, STRANGE))
        if not self.may_have(reading.lines, found.delegator):
            scan.drop_delegator(row)
            reading.tally.left_out.append(Skipped(found.id, STRANGE_DELEGATOR))
        return [Images(SESSIONS, tuple(row), (tuple(row.values()),)), *tables]

    def _last_id(self) -> int:
        """Return the highest id that a message has, or had where the engine remembers that."""
        seen = self._db.row_images("sqlite_sequence", {"name": MESSAGES})
        if seen.rows:
            return int(seen.rows[0][seen.columns.index("seq")])
        return max((each.revision.last_id for each in self._db.inventory()), default=0)

    def _pieces(
        self, file: BinaryIO, found: Found, done: int, *, whole: bool = False
    ) -> Iterator[list[dict[str, Any]]]:
        """Yield the messages that are left in pieces for a transaction each, at least one piece.

        The piece is one where it is to be `whole`.
        """
        piece: list[dict[str, Any]] = []
        room, left = self._pace.room, found.messages - done
        for number, message in enumerate(scan.messages(file, found)):
            if number < done:
                continue
            piece.append(message)
            room -= _ROW_BYTES + sum(len(each) for each in message.values() if _is_long(each))
            left -= 1
            if room <= 0 and left and not whole:
                yield piece
                piece, room = [], self._pace.room
        if left:
            raise Refused("the file has changed meanwhile")
        yield piece


def _require_sessions(put: Put) -> None:
    for each in put.refused:
        if each.table == SESSIONS:
            raise Refused(f"its row is not taken: {each.why}")


def _is_usual(number: Any) -> bool:
    """Whether this is the id of a message, and leaves room for those that come after it."""
    return isinstance(number, int) and 0 < number <= _HIGHEST_ID


def _is_long(value: Any) -> bool:
    return isinstance(value, (str, bytes))


IMPORT = "import"
"""The kind of the plan, and the name of the batch."""

_JSON = (int, float, str, type(None))

_BROUGHT = "brought"
"""In the result of a step: the sessions that it has stored a part of, as it has left them."""


class ImportBatch:
    """The batch of one import that is under way."""

    def __init__(self, db: StateDatabase, ledger: Ledger, lines: Sequence[Found]) -> None:
        self._db = db
        self._ledger = ledger
        self._lines = lines
        self._plan: Plan | None = None
        self._open: set[str] = set()
        self.id: str | None = None
        """The batch that takes back what came in; None if nothing did."""

    def run(self, session_ids: Iterable[str], change: Callable[[StateDatabase], None]) -> None:
        """Run a change that stores these sessions or parts of them, as one step.

        Raises:
            Conflict: the import was taken back meanwhile, or another process imports the file.
        """
        batch = self.id or self._begin()
        ids = list(session_ids)
        claimed = [each for each in ids if each in self._open]

        def store(db: StateDatabase) -> dict[str, Any]:
            change(db)
            return {_BROUGHT: {each: _stored(db, each) for each in ids}}

        run_step(self._db, self._ledger, batch, before=lambda _: (), change=store, members=claimed)
        self._open.difference_update(claimed)

    def finish(self) -> None:
        """End the plan: all of the file was imported, skipped or refused."""
        if self._plan is not None:
            clear_marks(self._db, self._ledger)
            with noting(f"the import {self.id}"), suppress(Conflict):
                self._ledger.finish(self._plan.handle, None)

    def _begin(self) -> str:
        """Begin the batch of the file, or go on with the one that an earlier call has begun."""
        digest = _digest(self._lines)
        begun = self._ledger.applied(IMPORT)
        mine = (
            plan
            for plan in begun
            if plan.about["digest"] == digest and _is_free(self._ledger, plan)
        )
        self._plan = next(mine, None) or self._ledger.add_plan(
            IMPORT, [Member(line.id) for line in self._lines], {"digest": digest}
        )
        self._open = {member.id for member in self._plan.remaining}
        self.id = self._ledger.begin(self._plan.handle).id
        return self.id


def state_of(revision: Revision, title: Any, archived: Any) -> list[Any]:
    """Return what an undo compares: a session that is otherwise has been used since."""
    # What a foreign program has stored may be bytes.
    values = [*revision, title, bool(archived)]
    return [each if isinstance(each, _JSON) else str(each) for each in values]


def brought_by(steps: Iterable[Step]) -> dict[str, list[Any]]:
    """Return the sessions that steps of an import have stored, as the last of them left each."""
    brought: dict[str, list[Any]] = {}
    for step in steps:
        brought |= (step.result or {}).get(_BROUGHT, {})
    return brought


def _stored(db: StateDatabase, session_id: str) -> list[Any]:
    row = db.get_session(session_id) or {}
    return state_of(db.revision(session_id), row.get("title"), row.get("archived"))


def _digest(lines: Iterable[Found]) -> str:
    """Return what a file is known by: its lines, whatever its name."""
    return hashlib.sha256("".join(each.digest for each in lines).encode()).hexdigest()


def _is_free(ledger: Ledger, plan: Plan) -> bool:
    """Return whether a batch can be gone on with: nothing of it is undone, and nobody is at it."""
    steps = ledger.steps(plan.batch or "")
    if any(step.undone_at is not None for step in steps):
        return False
    owners = {step.owner for step in steps[-1:]}
    return not any(pid != os.getpid() and processes.alive(pid, at) for pid, at in owners)
