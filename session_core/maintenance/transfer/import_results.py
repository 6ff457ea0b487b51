"""The results of an import: imported sessions, and everything left out with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from session_core.maintenance.transfer.scan import BrokenLine, ScannedSession
from session_core.maintenance.types import SkippedItem
from session_core.types import PutResult, RowMismatch

MAX_BROKEN_LINES = 1_000
"""The most broken lines that are listed: a file that is not an export has only those."""


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """A session that an import would add."""

    id: str
    title: str | None
    messages: int


@dataclass(frozen=True, slots=True)
class ImportPreview:
    """The sessions that an import would add, and everything that it would leave out.

    Rows of tables other than sessions and messages are checked only when they are stored.
    """

    sessions: tuple[ImportedSession, ...]
    skipped: tuple[SkippedItem, ...]
    """Sessions that exist already, and lines that repeat one."""
    broken: tuple[BrokenLine, ...]
    left_out: tuple[SkippedItem, ...]
    """Titles, parents and messages that this home does not accept, by session."""
    dropped_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns that this home does not have, by table."""
    chat_state: Mapping[str, int] = field(default_factory=dict)
    """Routes, chats and hand-offs in the file, with the number of sessions; all are dropped."""
    more_broken: int = 0
    """The number of broken lines that `broken` does not list."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of an import.

    If it is `partial`, the same call continues the import.
    """

    outcome: Literal["applied", "partial"]
    sessions: int
    messages: int
    skipped: tuple[SkippedItem, ...]
    """Sessions that existed already."""
    broken: tuple[BrokenLine, ...]
    left_out: tuple[SkippedItem, ...]
    """Values and rows that this home does not accept, by session."""
    dropped_columns: Mapping[str, tuple[str, ...]]
    """Columns that this home does not have, by table."""
    ids: tuple[str, ...] = ()
    """The sessions that this call has completed."""
    chat_state: Mapping[str, int] = field(default_factory=dict)
    """Routes, chats and hand-offs in the file, with the number of sessions; all were dropped."""
    more_broken: int = 0
    """The number of broken lines that `broken` does not list."""
    batch: str | None = None
    """The batch that `restore` undoes; None if the import has stored nothing."""


@dataclass(slots=True)
class ImportTally:
    """The counts of an import so far."""

    ids: list[str] = field(default_factory=list)
    messages: int = 0
    skipped: list[SkippedItem] = field(default_factory=list)
    broken: list[BrokenLine] = field(default_factory=list)
    left_out: list[SkippedItem] = field(default_factory=list)
    dropped: dict[str, dict[str, None]] = field(default_factory=dict)
    chat_state: Counter[str] = field(default_factory=Counter)
    more_broken: int = 0

    def merge(self, other: ImportTally) -> None:
        """Add the counts of another tally, which has further lines of the file."""
        self.ids += other.ids
        self.messages += other.messages
        self.left_out += other.left_out
        self.chat_state.update(other.chat_state)
        for table, names in other.dropped.items():
            self.add_dropped_columns(table, names)

    def add_broken(self, broken: BrokenLine) -> None:
        """Add a line that cannot be imported."""
        if len(self.broken) < MAX_BROKEN_LINES:
            self.broken.append(broken)
        else:
            self.more_broken += 1

    def add_line(self, line: ScannedSession) -> None:
        """Add the parts of an imported line that are dropped."""
        self.chat_state.update(list(dict.fromkeys(line.chat_state)))
        if line.unfit:
            reason = (
                f"messages: {line.unfit:,} without a role or a timestamp, "
                f"the first is message {line.first_unfit}"
            )
            self.left_out.append(SkippedItem(line.id, reason))

    def add_dropped_columns(self, table: str, names: Iterable[str]) -> None:
        """Add columns that this home does not have."""
        columns = dict.fromkeys(names)
        if columns:
            self.dropped.setdefault(table, {}).update(columns)

    def add_session(self, session_id: str, result: PutResult, messages: int) -> None:
        """Add the result for the rows of a session, of which `messages` are messages."""
        self.messages += messages - sum(mismatch.table == "messages" for mismatch in result.refused)
        self.add_rows(session_id, result)

    def add_rows(self, session_id: str, result: PutResult) -> None:
        """Add the result for some rows."""
        mismatches = [*result.refused, *result.emptied]
        self.left_out += [
            SkippedItem(session_id, _describe_misfit(mismatch)) for mismatch in mismatches
        ]
        for table, names in result.dropped_columns.items():
            self.add_dropped_columns(table, names)

    @property
    def broken_lines(self) -> tuple[BrokenLine, ...]:
        """The broken lines in the order of the file."""
        return tuple(sorted(self.broken, key=lambda broken: broken.line))

    @property
    def dropped_columns(self) -> dict[str, tuple[str, ...]]:
        """Columns that this home does not have, by table."""
        return {table: tuple(names) for table, names in self.dropped.items()}

    def build_preview(self, coming: Iterable[ImportedSession]) -> ImportPreview:
        """Return the preview of the import."""
        return ImportPreview(
            tuple(coming),
            tuple(self.skipped),
            self.broken_lines,
            tuple(self.left_out),
            self.dropped_columns,
            dict(self.chat_state),
            self.more_broken,
        )

    def build_result(
        self, outcome: Literal["applied", "partial"], batch: str | None
    ) -> ImportResult:
        """Return the result of the import."""
        return ImportResult(
            outcome,
            len(self.ids),
            self.messages,
            tuple(self.skipped),
            self.broken_lines,
            tuple(self.left_out),
            self.dropped_columns,
            tuple(self.ids),
            dict(self.chat_state),
            self.more_broken,
            batch,
        )


def _describe_misfit(mismatch: RowMismatch) -> str:
    label = f"a row of {mismatch.table}" if mismatch.column is None else mismatch.column
    return f"{label}: {mismatch.why}"
