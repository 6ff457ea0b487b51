"""Import sessions that were exported by this library or by Hermes.

Existing data stays: a session with an existing id is skipped, a title or a parent that does not fit
is left out, and both are reported. The chat state of the file is dropped.
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
from session_core.ledger.state_folder import translate_os_errors
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.transfer import scan
from session_core.maintenance.transfer.export_format import MESSAGES_KEY
from session_core.maintenance.transfer.import_results import (
    ImportedSession,
    ImportPreview,
    ImportResult,
    ImportTally,
)
from session_core.maintenance.transfer.import_writer import (
    FOREIGN_DELEGATOR_REASON,
    FOREIGN_PARENT_REASON,
    IMPORT_KIND,
    ImportBatch,
    ImportContext,
    ImportWriter,
    LineRefused,
)
from session_core.maintenance.transfer.scan import SESSIONS, BrokenLine, ScannedSession
from session_core.maintenance.types import CountFn, SkippedItem, StopFn
from session_core.state.protocol import StateDatabase

_PRESENT_REASON = "it exists already"
_TITLE_TAKEN_REASON = "title: another row has it now"
_PARENT_GONE_REASON = "parent_session_id: the row that it refers to is gone"


class Importer:
    """Imports sessions into one home."""

    def __init__(self, home: HomeContext, client: str) -> None:
        self._db = home.db
        self._ledger = home.ledger
        self._client = client
        self._writer = ImportWriter(home.db)

    def import_file(
        self,
        path: Path,
        *,
        progress: CountFn | None = None,
        stop: StopFn | None = None,
    ) -> ImportResult:
        """Import the lines of a file.

        `progress` is called with the number of finished sessions and their total.

        Raises:
            NotFound: the file does not exist.
            Conflict: the import was restored meanwhile, or another process imports the file.
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
                # A step of a killed import has to be settled before its progress is read.
                resume_steps(self._db, self._ledger, {IMPORT_KIND})
                self._check_writable(lines)
                context = ImportContext(file, {line.id: line for line in lines}, tally, batch)
                outcome = self._import_all(context, progress, stop)
        if outcome == "applied":
            batch.finish_plan()
        result = tally.build_result(outcome, batch.id)
        self._add_audit_entry(result)
        return result

    def preview_file(self, path: Path, *, progress: CountFn | None = None) -> ImportPreview:
        """Return the sessions that an import would add, judged by the file and the home.

        `progress` is called with the number of bytes read and their total.

        Raises:
            NotFound: the file does not exist.
        """
        _require_file(path)
        tally = ImportTally()
        lines: dict[str, ScannedSession] = {}
        with translate_os_errors(path), path.open("rb") as file:
            size = path.stat().st_size
            for line in _iter_importable(file, tally):
                lines[line.id] = line
                if progress is not None:
                    progress(min(file.tell(), size), size)
        state = _PreviewState(self._db, self._writer, lines)
        coming = []
        for line in lines.values():
            if line.id in state.there and not self._is_new(line):
                tally.skipped.append(SkippedItem(line.id, _PRESENT_REASON))
                continue
            coming.append(ImportedSession(line.id, line.title, line.messages))
            tally.add_line(line)
            tally.left_out += state.iter_left_out(line)
            for table, columns in ((SESSIONS, line.columns), (MESSAGES_KEY, line.message_columns)):
                tally.add_dropped_columns(table, sorted(columns - state.columns[table]))
        self._check_writable(lines[line.id] for line in coming)
        return tally.build_preview(coming)

    def _import_all(
        self, context: ImportContext, progress: CountFn | None, stop: StopFn | None
    ) -> Literal["applied", "partial"]:
        done_count = 0
        for group in self._iter_groups(context.lines.values()):
            if stop is not None and stop():
                return "partial"
            for remaining in self._import_new_sessions(context, group):
                self._import_group(context, remaining)
            done_count += sum(map(len, group))
            if progress is not None:
                progress(done_count, len(context.lines))
        return "applied"

    def _iter_groups(self, lines: Iterable[ScannedSession]) -> Iterator[list[list[ScannedSession]]]:
        """Yield the lines in order, short lines in groups as large as one transaction stores."""
        batch: list[list[ScannedSession]] = []
        room = self._writer.transaction_bytes
        for group in scan.order_sessions(lines):
            room -= sum(line.bytes for line in group)
            if batch and (room < 0 or len(group) > 1):
                yield batch
                batch, room = [], self._writer.transaction_bytes - sum(line.bytes for line in group)
            batch.append(group)
            if len(group) > 1:
                yield batch
                batch, room = [], self._writer.transaction_bytes
        if batch:
            yield batch

    def _import_new_sessions(
        self, context: ImportContext, groups: Sequence[Sequence[ScannedSession]]
    ) -> Sequence[Sequence[ScannedSession]]:
        """Import the new sessions of groups in one step, and return the remaining groups."""
        if len(groups) == 1:  # a long session is stored in pieces
            return groups
        new = {line.id: line for (line,) in groups if self._db.get_session(line.id) is None}
        try:
            if new:
                self._writer.store_sessions(context, list(new.values()))
        # One bad line must not refuse other lines: store each group by itself.
        except (InvalidInput, LineRefused):
            return groups
        return [[line] for (line,) in groups if line.id not in new]

    def _check_writable(self, lines: Iterable[ScannedSession]) -> None:
        """Refuse an import before any change if an index cannot be updated for its rows.

        Raises:
            Unsupported: an index needs an extension that is not loaded.
        """
        if self._db.admin.list_blocked_indexes():
            new = [line for line in lines if self._is_new(line)]
            tables = ["sessions"] if new else []
            messages = ["messages"] if any(line.messages for line in new) else []
            self._db.rows.check_rows_writable(tables + messages)

    def _add_audit_entry(self, result: ImportResult) -> None:
        counts: dict[str, Any] = {
            "sessions": result.sessions,
            "messages": result.messages,
            "skipped": len(result.skipped),
            "broken": len(result.broken) + result.more_broken,
        }
        if result.batch is not None:
            counts["batch"] = result.batch
        with suppress_note_errors("the import"):
            self._ledger.add_audit_entry(self._client, IMPORT_KIND, None, counts)

    def _import_group(self, context: ImportContext, group: Sequence[ScannedSession]) -> None:
        """Import a session, or several sessions that are each other's ancestors."""
        tally = context.tally
        for line in group:
            if not self._is_new(line):
                tally.skipped.append(SkippedItem(line.id, _PRESENT_REASON))
        new = [line for line in group if self._is_new(line)]
        with _record_refusals(new, tally):
            if len(new) > 1:
                self._writer.store_session_rows(context, new)
            for line in new:
                with _record_refusals([line], tally):
                    self._writer.store_session(context, line)

    def _is_new(self, line: ScannedSession) -> bool:
        """Return True if a session is missing, or an import of this very line was interrupted."""
        return self._db.get_session(line.id) is None or self._writer.find_progress(line) is not None


class _PreviewState:
    """The home at one moment, for the comparison with a file."""

    def __init__(
        self, db: StateDatabase, writer: ImportWriter, lines: Mapping[str, ScannedSession]
    ) -> None:
        inventory = db.admin.list_inventory()
        self.there = {session.id for session in inventory}
        self._titles = {session.title for session in inventory}
        self._db = db
        self._writer = writer
        self._lines = lines

    def iter_left_out(self, line: ScannedSession) -> Iterator[SkippedItem]:
        """Yield the values of a session that do not fit, and reserve its title if it fits."""
        if line.title is not None and line.title in self._titles:
            yield SkippedItem(line.id, _TITLE_TAKEN_REASON)
        self._titles.add(line.title)
        if not self._writer.can_have_parent(self._lines, line.delegator):
            yield SkippedItem(line.id, FOREIGN_DELEGATOR_REASON)
        if line.parent is None:
            return
        if not self._writer.can_have_parent(self._lines, line.parent):
            yield SkippedItem(line.id, FOREIGN_PARENT_REASON)
        elif line.parent not in self.there and line.parent not in self._lines:
            yield SkippedItem(line.id, _PARENT_GONE_REASON)

    @cached_property
    def columns(self) -> Mapping[str, frozenset[str]]:
        """The columns of this home, by table."""
        tables = SESSIONS, MESSAGES_KEY
        return {table: frozenset(self._db.rows.list_columns(table)) for table in tables}


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise NotFound(f"{path} does not exist or is not a file")


def _iter_importable(file: BinaryIO, tally: ImportTally) -> Iterator[ScannedSession]:
    """Yield the lines that can be imported, and record the other lines in the tally."""
    numbers: dict[str, int] = {}
    for line in scan.scan_file(file):
        if isinstance(line, BrokenLine):
            tally.add_broken(line)
        # The first line of an id wins.
        elif line.id in numbers:
            reason = f"line {line.number} has it once more, after line {numbers[line.id]}"
            tally.skipped.append(SkippedItem(line.id, reason))
        else:
            numbers[line.id] = line.number
            yield line


@contextmanager
def _record_refusals(group: Sequence[ScannedSession], tally: ImportTally) -> Iterator[None]:
    """Record a line that does not fit instead of raising its error."""
    try:
        yield
    except (InvalidInput, LineRefused) as error:
        for line in group:
            tally.add_broken(BrokenLine(line.number, str(error)))
