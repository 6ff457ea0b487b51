"""Sessions that were exported, by us or by Hermes, come into a home.

What is there stays: a session whose id is there is skipped, a title or a parent that cannot be is
left out, and all of it is said. The chat state of the file is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, Literal

from session_core.errors import InvalidInput, NotFound
from session_core.ledger.execute import noting, resume
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import refusals
from session_core.maintenance.transfer import scan
from session_core.maintenance.transfer.format import MESSAGES
from session_core.maintenance.transfer.scan import SESSIONS, Broken, Found
from session_core.maintenance.transfer.store import (
    IMPORT,
    STRANGE,
    STRANGE_DELEGATOR,
    ImportBatch,
    Reading,
    Refused,
    Storing,
)
from session_core.maintenance.transfer.types import Arrivals, Coming, Imported, Tally
from session_core.maintenance.types import CountFn, Skipped, StopFn
from session_core.state.protocol import StateDatabase

_THERE = "it is there already"
_TITLE_TAKEN = "title: somebody else has it by now"
_PARENT_GONE = "parent_session_id: what it refers to is gone"


class Importing:
    """Imports sessions into one home."""

    def __init__(self, db: StateDatabase, ledger: Ledger, *, client: str) -> None:
        self._db = db
        self._ledger = ledger
        self._client = client
        self._storing = Storing(db)

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
            Conflict: the import was taken back meanwhile, or another process imports the file.
        """
        _require(path)
        tally = Tally()
        outcome: Literal["applied", "partial"] = "partial"
        with refusals(path), path.open("rb") as file:
            lines = list(takewhile(lambda _: stop is None or not stop(), _whole(file, tally)))
            batch = ImportBatch(self._db, self._ledger, lines)
            if stop is None or not stop():
                resume(self._db, self._ledger, {IMPORT})
                self._check_writable(lines)
                reading = Reading(file, {each.id: each for each in lines}, tally, batch)
                outcome = self._import_all(reading, progress, stop)
        if outcome == "applied":
            batch.finish()
        result = tally.result(outcome, batch.id)
        self._note(result)
        return result

    def look_into(self, path: Path, *, progress: CountFn | None = None) -> Arrivals:
        """Return what an import of a file would bring, as far as the file and the home tell.

        `progress` is told how many bytes of how many are read.

        Raises:
            NotFound: there is no such file.
        """
        _require(path)
        tally = Tally()
        lines: dict[str, Found] = {}
        with refusals(path), path.open("rb") as file:
            size = path.stat().st_size
            for each in _whole(file, tally):
                lines[each.id] = each
                if progress is not None:
                    progress(min(file.tell(), size), size)
        look = _Look(self._db, self._storing, lines)
        coming = []
        for each in lines.values():
            if each.id in look.there and not self._is_new(each):
                tally.skipped.append(Skipped(each.id, _THERE))
                continue
            coming.append(Coming(each.id, each.title, each.messages))
            tally.take(each)
            tally.left_out += look.left_out(each)
            for table, columns in ((SESSIONS, each.columns), (MESSAGES, each.message_columns)):
                tally.drop(table, sorted(columns - look.columns[table]))
        self._check_writable(lines[each.id] for each in coming)
        return tally.arrivals(coming)

    def _import_all(
        self, reading: Reading, progress: CountFn | None, stop: StopFn | None
    ) -> Literal["applied", "partial"]:
        done = 0
        for group in self._groups(reading.lines.values()):
            if stop is not None and stop():
                return "partial"
            for each in self._import_several(reading, group):
                self._import(reading, each)
            done += sum(map(len, group))
            if progress is not None:
                progress(done, len(reading.lines))
        return "applied"

    def _groups(self, lines: Iterable[Found]) -> Iterator[list[list[Found]]]:
        """Yield the lines in their order, as many short ones at once as one transaction stores."""
        several: list[list[Found]] = []
        room = self._storing.room
        for group in scan.in_order(lines):
            room -= sum(each.bytes for each in group)
            if several and (room < 0 or len(group) > 1):
                yield several
                several, room = [], self._storing.room - sum(each.bytes for each in group)
            several.append(group)
            if len(group) > 1:
                yield several
                several, room = [], self._storing.room
        if several:
            yield several

    def _import_several(
        self, reading: Reading, groups: Sequence[Sequence[Found]]
    ) -> Sequence[Sequence[Found]]:
        """Import new sessions of one line each in one step; return the groups that are left."""
        if len(groups) == 1:  # it may be long, and is stored in pieces
            return groups
        new = {each.id: each for (each,) in groups if self._db.get_session(each.id) is None}
        try:
            if new:
                self._storing.store_several(reading, list(new.values()))
        except (InvalidInput, Refused):
            return groups
        return [[each] for (each,) in groups if each.id not in new]

    def _check_writable(self, found: Iterable[Found]) -> None:
        """Refuse before anything comes in if an index takes no rows of it.

        Raises:
            Unsupported: it does not.
        """
        if self._db.blocked_indexes():
            new = [each for each in found if self._is_new(each)]
            tables = ["sessions"] if new else []
            messages = ["messages"] if any(each.messages for each in new) else []
            self._db.check_rows_writable(tables + messages)

    def _note(self, result: Imported) -> None:
        counts: dict[str, Any] = {
            "sessions": result.sessions,
            "messages": result.messages,
            "skipped": len(result.skipped),
            "broken": len(result.broken) + result.more_broken,
        }
        if result.batch is not None:
            counts["batch"] = result.batch
        with noting("an import"):
            self._ledger.audit(self._client, IMPORT, None, counts)

    def _import(self, reading: Reading, group: Sequence[Found]) -> None:
        """Import a session, or several of which each is an ancestor of the others."""
        tally = reading.tally
        for each in group:
            if not self._is_new(each):
                tally.skipped.append(Skipped(each.id, _THERE))
        new = [each for each in group if self._is_new(each)]
        with _reporting(new, tally):
            if len(new) > 1:
                self._storing.begin_together(reading, new)
            for each in new:
                with _reporting([each], tally):
                    self._storing.store(reading, each)

    def _is_new(self, found: Found) -> bool:
        """Whether a session is not there, or an import of this very line was cut short."""
        return self._db.get_session(found.id) is None or self._storing.stored(found) is not None


class _Look:
    """The home as a preview compares a file with it, at one moment."""

    def __init__(self, db: StateDatabase, storing: Storing, lines: Mapping[str, Found]) -> None:
        stocks = db.inventory()
        self.there = {stock.id for stock in stocks}
        self._titles = {stock.title for stock in stocks}
        self._db = db
        self._storing = storing
        self._lines = lines

    def left_out(self, line: Found) -> Iterator[Skipped]:
        """Yield what of a session cannot stand in this home, and take the title that can."""
        if line.title is not None and line.title in self._titles:
            yield Skipped(line.id, _TITLE_TAKEN)
        self._titles.add(line.title)
        if not self._storing.may_have(self._lines, line.delegator):
            yield Skipped(line.id, STRANGE_DELEGATOR)
        if line.parent is None:
            return
        if not self._storing.may_have(self._lines, line.parent):
            yield Skipped(line.id, STRANGE)
        elif line.parent not in self.there and line.parent not in self._lines:
            yield Skipped(line.id, _PARENT_GONE)

    @cached_property
    def columns(self) -> Mapping[str, frozenset[str]]:
        """By table, the columns that this home has."""
        sessions = self._db.row_images(SESSIONS, {"id": ""})
        messages = self._db.row_images(MESSAGES, {"id": 0})
        return {each.table: frozenset(each.columns) for each in (sessions, messages)}


def _require(path: Path) -> None:
    if not path.is_file():
        raise NotFound(f"{path} is not there, or no file")


def _whole(file: BinaryIO, tally: Tally) -> Iterator[Found]:
    """Yield the lines that can be imported; the others are noted."""
    seen: dict[str, int] = {}
    for each in scan.survey_file(file):
        if isinstance(each, Broken):
            tally.refuse(each)
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
    except (InvalidInput, Refused) as error:
        for each in group:
            tally.refuse(Broken(each.number, str(error)))
