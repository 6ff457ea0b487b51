"""What an import has come to: what came in, and what did not and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from session_core.maintenance.answers import Skipped
from session_core.maintenance.arriving import Broken
from session_core.models import Misfit, Put


@dataclass(frozen=True, slots=True)
class Coming:
    """A session that would come in."""

    id: str
    title: str | None
    messages: int


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What an import would bring; which values fit is known when they are stored."""

    sessions: tuple[Coming, ...]
    skipped: tuple[Skipped, ...]
    """Sessions that are there already, and lines that name one once more."""
    broken: tuple[Broken, ...]
    left_out: tuple[Skipped, ...]
    """Parents that do not come with the file, by session."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What came in; a `partial` one goes on when it is called again."""

    outcome: Literal["applied", "partial"]
    sessions: int
    messages: int
    skipped: tuple[Skipped, ...]
    """Sessions that were there already."""
    broken: tuple[Broken, ...]
    left_out: tuple[Skipped, ...]
    """Values and rows that this home does not take, by session."""
    dropped_columns: Mapping[str, tuple[str, ...]]
    """By table, what this home has no column for."""
    ids: tuple[str, ...] = ()
    """The sessions that this call has brought in whole: what is pruned to be rid of them again."""


@dataclass(slots=True)
class Tally:
    """What came in so far."""

    ids: list[str] = field(default_factory=list)
    messages: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    left_out: list[Skipped] = field(default_factory=list)
    dropped: dict[str, dict[str, None]] = field(default_factory=dict)

    def add(self, session_id: str, put: Put) -> None:
        """Add what became of some rows."""
        misfits = [*put.refused, *put.emptied]
        self.left_out += [Skipped(session_id, _say(each)) for each in misfits]
        for table, names in put.dropped_columns.items():
            self.dropped.setdefault(table, {}).update(dict.fromkeys(names))

    def result(self, outcome: Literal["applied", "partial"]) -> Imported:
        """Return it as it is told."""
        return Imported(
            outcome,
            len(self.ids),
            self.messages,
            tuple(self.skipped),
            tuple(sorted(self.broken, key=lambda each: each.line)),
            tuple(self.left_out),
            {table: tuple(names) for table, names in self.dropped.items()},
            tuple(self.ids),
        )


def _say(misfit: Misfit) -> str:
    what = f"a row of {misfit.table}" if misfit.column is None else misfit.column
    return f"{what}: {misfit.why}"
