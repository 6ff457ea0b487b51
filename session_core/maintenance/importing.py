"""Sessions that were exported, by us or by Hermes, come into a home.

What is there stays: a session whose id is there is skipped, a title or a parent that cannot be is
left out, and all of it is said. Each transaction is short. A long session takes several, and notes
in the home how far it is, so that an import that was stopped goes on with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Literal

from session_core.errors import InvalidInput, NotFound
from session_core.ledger.folder import refusals
from session_core.ledger.ledger import Ledger
from session_core.ledger.steps import noting
from session_core.maintenance import arriving
from session_core.maintenance.answers import Skipped, StopFn
from session_core.maintenance.arriving import SESSIONS, Broken, Found
from session_core.maintenance.carrying import MESSAGES
from session_core.maintenance.exporting import CountFn
from session_core.maintenance.imported import Imported, Tally
from session_core.models import Images, Put
from session_core.state.contract import StateDatabase
from session_core.state.pace import Pace

WHAT = "import"

MARK = "mcp_sessions:import:"
"""How the keys begin under which a home has how much of a session was imported."""

_ROW_BYTES = 200
_THERE = "it is there already"
_STRANGE = "parent_session_id: it is there, and is none of this file"

_HIGHEST_ID = 1 << 40
"""Messages above it get other ids: behind the highest that there can be nobody could append."""


class _Taken(Exception):
    """Others have the ids of these messages by now."""


class _Refused(Exception):
    """What a line has does not fit here."""


class Importing:
    """Imports sessions into one home."""

    def __init__(self, db: StateDatabase, ledger: Ledger, *, client: str) -> None:
        self._db = db
        self._ledger = ledger
        self._client = client
        self._pace = Pace()

    def read_file(
        self,
        path: Path,
        *,
        progress: CountFn | None = None,
        stop: StopFn | None = None,
    ) -> Imported:
        """Import the lines of a file; `progress` is told how many sessions of how many are done.

        Raises:
            NotFound: there is no such file.
        """
        if not path.is_file():
            raise NotFound(f"{path} is not there, or no file")
        tally = Tally()
        outcome: Literal["applied", "partial"] = "applied"
        with refusals(path), path.open("rb") as file:
            found = list(_whole(file, tally))
            done = 0
            reading = _Reading(file, {each.id: each for each in found}, tally)
            for group in arriving.in_order(found):
                if stop is not None and stop():
                    outcome = "partial"
                    break
                self._import(reading, group)
                done += len(group)
                if progress is not None:
                    progress(done, len(found))
        result = tally.result(outcome)
        self._note(result)
        return result

    def _note(self, result: Imported) -> None:
        counts = {
            "sessions": result.sessions,
            "messages": result.messages,
            "skipped": len(result.skipped),
            "broken": len(result.broken),
        }
        with noting(WHAT):
            self._ledger.audit(self._client, WHAT, None, counts)

    def _import(self, reading: _Reading, group: Sequence[Found]) -> None:
        """Import a session, or several of which each is an ancestor of the others."""
        tally = reading.tally
        for each in group:
            if not self._is_new(each):
                tally.skipped.append(Skipped(each.id, _THERE))
        new = [each for each in group if self._is_new(each)]
        with _reporting(new, tally):
            if len(new) > 1:
                self._begin_together(reading, new)
            for each in new:
                with _reporting([each], tally):
                    self._import_one(reading, each)

    def _is_new(self, found: Found) -> bool:
        """Whether a session is not there, or an import of this very line was cut short."""
        return self._db.get_session(found.id) is None or self._stored(found) is not None

    def _stored(self, found: Found) -> tuple[int, bool] | None:
        """Return how many messages of a line are stored, and whether under other ids."""
        if self._db.get_session(found.id) is None:
            return None
        return found.how_far(self._db.get_meta(MARK + found.id))

    def _begin_together(self, reading: _Reading, group: Sequence[Found]) -> None:
        """Store the rows of sessions that are each other's parents, still without messages."""
        left = [each for each in group if self._stored(each) is None]
        images = [image for each in left for image in self._rows(reading, each)]
        with self._db.transaction():
            put = self._db.put_images(images, of=[each.id for each in left])
            _require_sessions(put)
            for each in left:
                self._db.set_meta(MARK + each.id, each.noted(0, renumbered=False))
        reading.tally.add(group[0].id, put)

    def _import_one(self, reading: _Reading, found: Found) -> None:
        tally = reading.tally
        begun = self._stored(found)
        at, renumbered = begun or (0, False)
        rows = [] if begun else self._rows(reading, found)
        for piece in self._pieces(reading.file, found, at):
            step = _Step(found, rows, piece, at, begun is not None or at > 0)
            try:
                put = self._store(step, renumbered=renumbered)
            except _Taken:
                renumbered = True  # those behind it as well, so that their order stays
                put = self._store(step, renumbered=True)
            tally.add(found.id, put)
            tally.messages += len(piece)
            at, rows = at + len(piece), []
        tally.ids.append(found.id)

    def _store(self, step: _Step, *, renumbered: bool) -> Put:
        """Store a piece of a session, and how far it is, in one transaction."""
        found, end = step.found, step.at + len(step.piece)
        mark = MARK + found.id
        with self._db.transaction():
            self._pace.begin()
            if step.marked and (self._stored(found) or (None,))[0] != step.at:
                raise _Refused("somebody else imports it just now")
            images = [*step.rows, *self._images(step, renumbered=renumbered)]
            put = self._db.put_images(images, of=[found.id])
            _require_sessions(put)
            self._require_own_ids(put)
            if end < found.messages:
                self._db.set_meta(mark, found.noted(end, renumbered=renumbered))
            elif self._db.get_meta(mark) is not None:
                self._db.delete_meta(mark)
        if (
            end < found.messages
        ):  # one that is not full says nothing about how long a full one takes
            self._pace.end()
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

    def _rows(self, reading: _Reading, found: Found) -> list[Images]:
        """Return the row of a session, and those of other tables."""
        row, tables = arriving.session(reading.file, found)
        if not self._may_have(reading, row.get("parent_session_id")):
            row["parent_session_id"] = None
            reading.tally.left_out.append(Skipped(found.id, _STRANGE))
        return [Images(SESSIONS, tuple(row), (tuple(row.values()),)), *tables]

    def _may_have(self, reading: _Reading, parent: Any) -> bool:
        """Whether a parent came with the file: no other session is gone on with by what comes."""
        if not isinstance(parent, str):
            return parent is None
        there, line = self._db.get_session(parent), reading.lines.get(parent)
        return there is None or (line is not None and line.started_at == there["started_at"])

    def _last_id(self) -> int:
        """Return the highest id that a message has, or had where the engine remembers that."""
        seen = self._db.row_images("sqlite_sequence", {"name": MESSAGES})
        if seen.rows:
            return int(seen.rows[0][seen.columns.index("seq")])
        return max((each.revision.last_id for each in self._db.inventory()), default=0)

    def _pieces(self, file: BinaryIO, found: Found, done: int) -> Iterator[list[dict[str, Any]]]:
        """Yield the messages that are left in pieces for a transaction each, at least one piece."""
        piece: list[dict[str, Any]] = []
        room, left = self._pace.room, found.messages - done
        for number, message in enumerate(arriving.messages(file, found)):
            if number < done:
                continue
            piece.append(message)
            room -= _ROW_BYTES + sum(len(each) for each in message.values() if _is_long(each))
            left -= 1
            if room <= 0 and left:
                yield piece
                piece, room = [], self._pace.room
        if left:
            raise _Refused("the file has changed meanwhile")
        yield piece


@dataclass(frozen=True, slots=True)
class _Reading:
    """A file that is imported."""

    file: BinaryIO
    lines: Mapping[str, Found]
    """By session, those that can be imported."""
    tally: Tally


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


def _whole(file: BinaryIO, tally: Tally) -> Iterator[Found]:
    """Yield the lines that can be imported; the others are noted."""
    seen: dict[str, int] = {}
    for each in arriving.survey(file):
        if isinstance(each, Broken):
            tally.broken.append(each)
        elif each.id in seen:
            why = f"line {each.number} has it once more, after line {seen[each.id]}"
            tally.skipped.append(Skipped(each.id, why))
        else:
            seen[each.id] = each.number
            yield each


@contextmanager
def _reporting(group: Sequence[Found], tally: Tally) -> Iterator[None]:
    """Note lines that do not fit, and go on with the next."""
    try:
        yield
    except (InvalidInput, _Refused) as error:
        tally.broken += [Broken(each.number, str(error)) for each in group]


def _require_sessions(put: Put) -> None:
    for each in put.refused:
        if each.table == SESSIONS:
            raise _Refused(f"its row is not taken: {each.why}")


def _is_usual(number: Any) -> bool:
    """Whether this is the id of a message, and leaves room for those that come after it."""
    return isinstance(number, int) and 0 < number <= _HIGHEST_ID


def _is_long(value: Any) -> bool:
    return isinstance(value, (str, bytes))
