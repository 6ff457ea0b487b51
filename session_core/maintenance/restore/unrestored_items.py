"""The items of a partly undone step that are still in the trash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(slots=True)
class UnrestoredItems:
    """Items that could not be restored.

    The next restore tries exactly these items again.
    """

    sessions: dict[str, bool] = field(default_factory=dict)
    """Sessions with refused rows, and whether their own row was restored."""
    columns: list[list[str]] = field(default_factory=list)
    """Sessions that were restored without the value of a column."""
    changes: dict[str, str] = field(default_factory=dict)
    """The session of each change, by its place in the trash."""
    routes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    rest: bool = False
    """True if rows without a session remain."""
    untried: bool = False
    """True if only some sessions were requested, and these are the items of the others."""

    @classmethod
    def from_result(cls, result: Any) -> Self | None:
        """Return the items recorded in the result of a restore, or None if it has none."""
        left = result.get("left") if isinstance(result, Mapping) else None
        return cls(**left) if left else None

    def to_json(self) -> dict[str, Any] | None:
        """Return the items as JSON, or None if there are none."""
        return asdict(self) if self != type(self)() else None

    def list_names(self) -> set[str]:
        """Return the names of items that were not restored at all."""
        # Members name a file without its folder.
        names = (PurePath(path).name for path in self.files)
        return {*self.sessions, *self.changes.values(), *self.routes, *self.files, *names}

    def filter_items(self, has: Callable[[str, str], bool], *, rest: bool) -> UnrestoredItems:
        """Return the items for which `has`, called with the kind and the name, returns True."""
        return UnrestoredItems(
            sessions={id_: row for id_, row in self.sessions.items() if has("session", id_)},
            columns=[pair for pair in self.columns if has("session", pair[0])],
            changes={at: owner for at, owner in self.changes.items() if has("change", at)},
            routes=[key for key in self.routes if has("route", key)],
            files=[name for name in self.files if has("file", name)],
            rest=self.rest and rest,
        )

    def merge_untried(self, others: UnrestoredItems) -> UnrestoredItems:
        """Return these items together with the items of sessions that were not tried.

        The result is never empty, so that the step counts as open: a batch whose steps are all
        undone takes no more steps, and the plan may go on with other members.
        """
        return UnrestoredItems(
            sessions=others.sessions | self.sessions,
            columns=others.columns + self.columns,
            changes=others.changes | self.changes,
            routes=others.routes + self.routes,
            files=others.files + self.files,
            rest=others.rest or self.rest,
            untried=True,
        )


def is_first_try(tried: UnrestoredItems | None) -> bool:
    """Return True if no restore of the whole step was tried yet."""
    return tried is None or tried.untried
