"""What an import has come to: what came in, and what did not and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from session_core.maintenance.transfer.scan import BrokenLine, ScannedSession
from session_core.maintenance.types import SkippedItem
from session_core.types import PutResult, RowMismatch

MAX_BROKEN_LINES = 1_000
"""Of more broken lines only the number is kept: a file that is no export has nothing else."""


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """A session that would come in."""

    id: str
    title: str | None
    messages: int


@dataclass(frozen=True, slots=True)
class ImportPreview:
    """What an import would bring, and what it would leave out and why.

    Rows of other tables than sessions and messages are checked only when they are stored.
    """

    sessions: tuple[ImportedSession, ...]
    skipped: tuple[SkippedItem, ...]
    """Sessions that are there already, and lines that name one once more."""
    broken: tuple[BrokenLine, ...]
    left_out: tuple[SkippedItem, ...]
    """Titles, parents and messages that this home does not take, by session."""
    dropped_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By table, what this home has no column for."""
    chat_state: Mapping[str, int] = field(default_factory=dict)
    """Routes, chats and hand-offs in the file, with the number of sessions; none of it comes in."""
    more_broken: int = 0
    """The number of broken lines that `broken` does not list."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What came in; a `partial` one goes on when it is called again."""

    outcome: Literal["applied", "partial"]
    sessions: int
    messages: int
    skipped: tuple[SkippedItem, ...]
    """Sessions that were there already."""
    broken: tuple[BrokenLine, ...]
    left_out: tuple[SkippedItem, ...]
    """Values and rows that this home does not take, by session."""
    dropped_columns: Mapping[str, tuple[str, ...]]
    """By table, what this home has no column for."""
    ids: tuple[str, ...] = ()
    """The sessions that this call has brought in whole."""
    chat_state: Mapping[str, int] = field(default_factory=dict)
    """Routes, chats and hand-offs in the file, with the number of sessions; none of it came in."""
    more_broken: int = 0
    """The number of broken lines that `broken` does not list."""
    batch: str | None = None
    """Takes back what came in; None if nothing did."""


@dataclass(slots=True)
class ImportTally:
    """What came in so far."""

    ids: list[str] = field(default_factory=list)
    messages: int = 0
    skipped: list[SkippedItem] = field(default_factory=list)
    broken: list[BrokenLine] = field(default_factory=list)
    left_out: list[SkippedItem] = field(default_factory=list)
    dropped: dict[str, dict[str, None]] = field(default_factory=dict)
    chat_state: Counter[str] = field(default_factory=Counter)
    more_broken: int = 0

    def merge(self, other: ImportTally) -> None:
        """Add what another import, of some more lines, came to."""
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
        """Add what a line that comes in has and an import drops."""
        self.chat_state.update(list(dict.fromkeys(line.chat_state)))
        if line.unfit:
            why = (
                f"messages: {line.unfit:,} without a role or a timestamp, "
                f"the first is message {line.first_unfit}"
            )
            self.left_out.append(SkippedItem(line.id, why))

    def add_dropped_columns(self, table: str, names: Iterable[str]) -> None:
        """Add columns that this home does not have."""
        found = dict.fromkeys(names)
        if found:
            self.dropped.setdefault(table, {}).update(found)

    def add_session(self, session_id: str, put: PutResult, messages: int) -> None:
        """Add what became of the rows of a session, of which so many are messages."""
        self.messages += messages - sum(each.table == "messages" for each in put.refused)
        self.add_rows(session_id, put)

    def add_rows(self, session_id: str, put: PutResult) -> None:
        """Add what became of some rows."""
        misfits = [*put.refused, *put.emptied]
        self.left_out += [SkippedItem(session_id, _describe_misfit(each)) for each in misfits]
        for table, names in put.dropped_columns.items():
            self.add_dropped_columns(table, names)

    @property
    def broken_lines(self) -> tuple[BrokenLine, ...]:
        """The broken lines in the order of the file."""
        return tuple(sorted(self.broken, key=lambda each: each.line))

    @property
    def dropped_columns(self) -> dict[str, tuple[str, ...]]:
        """By table, what this home has no column for."""
        return {table: tuple(names) for table, names in self.dropped.items()}

    def build_preview(self, coming: Iterable[ImportedSession]) -> ImportPreview:
        """Return the preview."""
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
        """Return what the import came to."""
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


def _describe_misfit(misfit: RowMismatch) -> str:
    what = f"a row of {misfit.table}" if misfit.column is None else misfit.column
    return f"{what}: {misfit.why}"
