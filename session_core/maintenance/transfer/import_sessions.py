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
from session_core.ledger.execute import resume_steps, suppress_note_errors
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import translate_os_errors
from session_core.maintenance.transfer import scan
from session_core.maintenance.transfer.format import MESSAGES_KEY
from session_core.maintenance.transfer.scan import SESSIONS, BrokenLine, ScannedSession
from session_core.maintenance.transfer.store import (
    FOREIGN_DELEGATOR_REASON,
    FOREIGN_PARENT_REASON,
    IMPORT_KIND,
    ImportBatch,
    ImportContext,
    ImportWriter,
    LineRefused,
)
from session_core.maintenance.transfer.types import (
    ImportedSession,
    ImportPreview,
    ImportResult,
    ImportTally,
)
from session_core.maintenance.types import CountFn, SkippedItem, StopFn
from session_core.state.protocol import StateDatabase

_PRESENT_REASON = "it is there already"
_TITLE_TAKEN_REASON = "title: another row has it now"
_PARENT_GONE_REASON = "parent_session_id: the row that it refers to is gone"


class Importer:
    """Imports sessions into one home."""

    def __init__(self, db: StateDatabase, ledger: Ledger, *, client: str) -> None:
        self._db = db
        self._ledger = ledger
        self._client = client
        self._storing = ImportWriter(db)

    def import_file(
        self,
        path: Path,
        *,
        progress: CountFn | None = None,
        stop: StopFn | None = None,
    ) -> ImportResult:
        """Import the lines of a file; `progress` is told how many sessions of how many are done.

        Raises:
            NotFound: there is no such file.
            Conflict: the import was taken back meanwhile, or another process imports the file.
        """
        _require_file(path)
        tally = ImportTally()
        outcome: Literal["applied", "partial"] = "partial"
        with translate_os_errors(path), path.open("rb") as file:
            lines = list(
                takewhile(lambda _: stop is None or not stop(), _iter_importable(file, tally))
            )
            batch = ImportBatch(self._db, self._ledger, lines)
            if stop is None or not stop():
                resume_steps(self._db, self._ledger, {IMPORT_KIND})
                self._check_writable(lines)
                reading = ImportContext(file, {each.id: each for each in lines}, tally, batch)
                outcome = self._import_all(reading, progress, stop)
        if outcome == "applied":
            batch.finish_plan()
        result = tally.build_result(outcome, batch.id)
        self._add_audit_entry(result)
        return result

    def preview_file(self, path: Path, *, progress: CountFn | None = None) -> ImportPreview:
        """Return what an import of a file would bring, as far as the file and the home tell.

        `progress` is told how many bytes of how many are read.

        Raises:
            NotFound: there is no such file.
        """
        _require_file(path)
        tally = ImportTally()
        lines: dict[str, ScannedSession] = {}
        with translate_os_errors(path), path.open("rb") as file:
            size = path.stat().st_size
            for each in _iter_importable(file, tally):
                lines[each.id] = each
                if progress is not None:
                    progress(min(file.tell(), size), size)
        look = _PreviewState(self._db, self._storing, lines)
        coming = []
        for each in lines.values():
            if each.id in look.there and not self._is_new(each):
                tally.skipped.append(SkippedItem(each.id, _PRESENT_REASON))
                continue
            coming.append(ImportedSession(each.id, each.title, each.messages))
            tally.add_line(each)
            tally.left_out += look.iter_left_out(each)
            for table, columns in ((SESSIONS, each.columns), (MESSAGES_KEY, each.message_columns)):
                tally.add_dropped_columns(table, sorted(columns - look.columns[table]))
        self._check_writable(lines[each.id] for each in coming)
        return tally.build_preview(coming)

    def _import_all(
        self, reading: ImportContext, progress: CountFn | None, stop: StopFn | None
    ) -> Literal["applied", "partial"]:
        done = 0
        for group in self._iter_groups(reading.lines.values()):
            if stop is not None and stop():
                return "partial"
            for each in self._import_new_sessions(reading, group):
                self._import_group(reading, each)
            done += sum(map(len, group))
            if progress is not None:
                progress(done, len(reading.lines))
        return "applied"

    def _iter_groups(self, lines: Iterable[ScannedSession]) -> Iterator[list[list[ScannedSession]]]:
        """Yield the lines in their order, as many short ones at once as one transaction stores."""
        several: list[list[ScannedSession]] = []
        room = self._storing.room
        for group in scan.order_sessions(lines):
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

    def _import_new_sessions(
        self, reading: ImportContext, groups: Sequence[Sequence[ScannedSession]]
    ) -> Sequence[Sequence[ScannedSession]]:
        """Import new sessions of one line each in one step; return the groups that are left."""
        if len(groups) == 1:  # it may be long, and is stored in pieces
            return groups
        new = {each.id: each for (each,) in groups if self._db.get_session(each.id) is None}
        try:
            if new:
                self._storing.store_sessions(reading, list(new.values()))
        except (InvalidInput, LineRefused):
            return groups
        return [[each] for (each,) in groups if each.id not in new]

    def _check_writable(self, found: Iterable[ScannedSession]) -> None:
        """Refuse before anything comes in if an index takes no rows of it.

        Raises:
            Unsupported: it does not.
        """
        if self._db.list_blocked_indexes():
            new = [each for each in found if self._is_new(each)]
            tables = ["sessions"] if new else []
            messages = ["messages"] if any(each.messages for each in new) else []
            self._db.check_rows_writable(tables + messages)

    def _add_audit_entry(self, result: ImportResult) -> None:
        counts: dict[str, Any] = {
            "sessions": result.sessions,
            "messages": result.messages,
            "skipped": len(result.skipped),
            "broken": len(result.broken) + result.more_broken,
        }
        if result.batch is not None:
            counts["batch"] = result.batch
        with suppress_note_errors("an import"):
            self._ledger.add_audit_entry(self._client, IMPORT_KIND, None, counts)

    def _import_group(self, reading: ImportContext, group: Sequence[ScannedSession]) -> None:
        """Import a session, or several of which each is an ancestor of the others."""
        tally = reading.tally
        for each in group:
            if not self._is_new(each):
                tally.skipped.append(SkippedItem(each.id, _PRESENT_REASON))
        new = [each for each in group if self._is_new(each)]
        with _note_refusals(new, tally):
            if len(new) > 1:
                self._storing.store_session_rows(reading, new)
            for each in new:
                with _note_refusals([each], tally):
                    self._storing.store_session(reading, each)

    def _is_new(self, found: ScannedSession) -> bool:
        """Whether a session is not there, or an import of this very line was cut short."""
        return (
            self._db.get_session(found.id) is None or self._storing.find_progress(found) is not None
        )


class _PreviewState:
    """The home as a preview compares a file with it, at one moment."""

    def __init__(
        self, db: StateDatabase, storing: ImportWriter, lines: Mapping[str, ScannedSession]
    ) -> None:
        stocks = db.list_inventory()
        self.there = {stock.id for stock in stocks}
        self._titles = {stock.title for stock in stocks}
        self._db = db
        self._storing = storing
        self._lines = lines

    def iter_left_out(self, line: ScannedSession) -> Iterator[SkippedItem]:
        """Yield what of a session cannot stand in this home, and take the title that can."""
        if line.title is not None and line.title in self._titles:
            yield SkippedItem(line.id, _TITLE_TAKEN_REASON)
        self._titles.add(line.title)
        if not self._storing.can_have_parent(self._lines, line.delegator):
            yield SkippedItem(line.id, FOREIGN_DELEGATOR_REASON)
        if line.parent is None:
            return
        if not self._storing.can_have_parent(self._lines, line.parent):
            yield SkippedItem(line.id, FOREIGN_PARENT_REASON)
        elif line.parent not in self.there and line.parent not in self._lines:
            yield SkippedItem(line.id, _PARENT_GONE_REASON)

    @cached_property
    def columns(self) -> Mapping[str, frozenset[str]]:
        """By table, the columns that this home has."""
        sessions = self._db.read_row_images(SESSIONS, {"id": ""})
        messages = self._db.read_row_images(MESSAGES_KEY, {"id": 0})
        return {each.table: frozenset(each.columns) for each in (sessions, messages)}


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise NotFound(f"{path} is not there, or no file")


def _iter_importable(file: BinaryIO, tally: ImportTally) -> Iterator[ScannedSession]:
    """Yield the lines that can be imported; the others are noted."""
    seen: dict[str, int] = {}
    for each in scan.scan_file(file):
        if isinstance(each, BrokenLine):
            tally.add_broken(each)
        elif each.id in seen:
            why = f"line {each.number} has it once more, after line {seen[each.id]}"
            tally.skipped.append(SkippedItem(each.id, why))
        else:
            seen[each.id] = each.number
            yield each


@contextmanager
def _note_refusals(group: Sequence[ScannedSession], tally: ImportTally) -> Iterator[None]:
    """Note lines that do not fit, and go on with the next."""
    try:
        yield
    except (InvalidInput, LineRefused) as error:
        for each in group:
            tally.add_broken(BrokenLine(each.number, str(error)))
