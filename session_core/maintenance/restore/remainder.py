"""What of a step is still in the trash where it was taken back in part, for another try."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(slots=True)
class Remainder:
    """What did not fit; another restore tries exactly this once more."""

    sessions: dict[str, bool] = field(default_factory=dict)
    """Of which rows were refused, and whether their own row was put back."""
    columns: list[list[str]] = field(default_factory=list)
    """Sessions that were put back without the value of a column."""
    changes: dict[str, str] = field(default_factory=dict)
    """By place in the trash, whose row it is."""
    routes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    rest: bool = False
    """Rows that belong to no session."""
    untried: bool = False
    """Whether only some of the sessions were asked for, and this is what belongs to others."""

    @classmethod
    def from_result(cls, result: Any) -> Self | None:
        """Return what was left by a restore that came to this, None where nothing was."""
        found = result.get("left") if isinstance(result, Mapping) else None
        return cls(**found) if found else None

    def to_json(self) -> dict[str, Any] | None:
        """Return it as JSON, None where nothing is left."""
        return asdict(self) if self != type(self)() else None

    def list_names(self) -> set[str]:
        """Return what was not put back at all."""
        names = (PurePath(each).name for each in self.files)
        return {*self.sessions, *self.changes.values(), *self.routes, *self.files, *names}

    def select_part(self, has: Callable[[str, str], bool], *, rest: bool) -> Remainder:
        """Return a part of it: what `has` says yes to, by the kind of thing and its name."""
        return Remainder(
            sessions={each: back for each, back in self.sessions.items() if has("session", each)},
            columns=[each for each in self.columns if has("session", each[0])],
            changes={at: whose for at, whose in self.changes.items() if has("change", at)},
            routes=[each for each in self.routes if has("route", each)],
            files=[each for each in self.files if has("file", each)],
            rest=self.rest and rest,
        )

    def merge_untried(self, others: Remainder) -> Remainder:
        """Return it together with what belongs to others, which was not tried."""
        return Remainder(
            sessions=others.sessions | self.sessions,
            columns=others.columns + self.columns,
            changes=others.changes | self.changes,
            routes=others.routes + self.routes,
            files=others.files + self.files,
            rest=others.rest or self.rest,
            untried=True,
        )


def is_first_try(tried: Remainder | None) -> bool:
    """Whether no restore of all of a step was tried yet."""
    return tried is None or tried.untried
