"""What a step has kept, sorted, and what of it a restore has left in the trash for another try."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from session_core.errors import InvalidInput
from session_core.ledger.records import Kept
from session_core.maintenance import files
from session_core.maintenance.changes import CHANGE, Change
from session_core.maintenance.edits import PIN
from session_core.maintenance.removal import IMAGES, OF
from session_core.maintenance.rerouting import ROUTE
from session_core.models import Images, Raw

if TYPE_CHECKING:
    from typing_extensions import Self

_MINE = frozenset({IMAGES, OF, CHANGE, ROUTE, PIN, files.FILE, files.PIECE})

SESSIONS = "sessions"


@dataclass(slots=True)
class Left:
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

    @classmethod
    def of(cls, result: Any) -> Self | None:
        """Return what was left by a restore that came to this, None where nothing was."""
        found = result.get("left") if isinstance(result, Mapping) else None
        return cls(**found) if found else None

    def stored(self) -> dict[str, Any] | None:
        """Return it as JSON, None where nothing is left."""
        return asdict(self) if self != type(self)() else None

    def names(self) -> set[str]:
        """Return what was not put back at all."""
        names = (PurePath(each).name for each in self.files)
        return {*self.sessions, *self.changes.values(), *self.routes, *self.files, *names}


@dataclass(slots=True)
class Contents:
    """What a step has kept, but its files; and what of it is still to be put back."""

    tried: Left | None = None
    images: list[Images] = field(default_factory=list)
    of: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Change] = field(default_factory=dict)
    routes: list[Mapping[str, Any]] = field(default_factory=list)
    pins: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    """What they were, and what they became."""
    has_files: bool = False
    lost: list[str] = field(default_factory=list)
    """Files in whose place there is another one."""

    @classmethod
    def of_step(cls, kept: Iterable[Kept], tried: Left | None) -> Contents:
        """Sort what a step has kept; of what was tried only what did not fit.

        Raises:
            InvalidInput: something in it is put back otherwise.
        """
        found = cls(tried)
        for place, one in enumerate(kept):
            if one.what not in _MINE:
                raise InvalidInput(f"its trash has a {one.what}, which is not restored here")
            found.add(str(place), one)
        return found

    def add(self, place: str, one: Kept) -> None:
        """Add one thing that was kept."""
        tried = self.tried
        if one.what == IMAGES:
            self.images.append(Images.unpack(one.value))
        elif one.what == OF and (tried is None or one.value["id"] in tried.sessions):
            self.of[one.value["id"]] = _unpacked(one.value["started_at"])
        elif one.what == CHANGE and (tried is None or place in tried.changes):
            self.changes[place] = Change.of(one.value)
        elif one.what == ROUTE and (tried is None or one.value["key"] in tried.routes):
            self.routes.append(one.value)
        elif one.what == PIN and tried is None:
            after = one.value["after"]
            self.pins |= {k: (was, after[k]) for k, was in one.value["before"].items()}
        self.has_files |= one.what == files.FILE and self.wants_file(one.value["name"])

    def wants_file(self, name: str) -> bool:
        """Whether a file is still to be put back."""
        return self.tried is None or name in self.tried.files

    def ended_again(self) -> set[str]:
        """Return the sessions that never ended, and would be ended by putting this back."""
        return {
            change.key["id"]
            for change in self.changes.values()
            if change.table == SESSIONS
            and change.before.get("ended_at") is not None
            and change.after.get("ended_at", 0) is None
        }


def _unpacked(value: Any) -> Any:
    return Raw(value["raw"]) if isinstance(value, dict) else value
