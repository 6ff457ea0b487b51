"""What a step has kept, sorted, and parted by whose it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from session_core.errors import InvalidInput
from session_core.ledger.records import Kept
from session_core.maintenance import files, orphans
from session_core.maintenance.changes import CHANGE, Change
from session_core.maintenance.edits import PIN
from session_core.maintenance.left import Left
from session_core.maintenance.rerouting import ROUTE
from session_core.maintenance.taken import IMAGES, OF
from session_core.models import Images, Raw

_MINE = frozenset({IMAGES, OF, CHANGE, ROUTE, PIN, files.FILE, files.PIECE})

SESSIONS, PARENT = "sessions", "parent_session_id"

_OWNERS = ("session_id", "conversation_id")


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
    files: list[str] = field(default_factory=list)
    """By their names in the trash."""
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
        elif one.what == files.FILE and self.wants_file(one.value["name"]):
            self.files.append(one.value["name"])

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

    def parted(self, ids: Collection[str]) -> tuple[Left, Left]:
        """Return what is still to be put back: of these sessions, and of all others."""
        left = self.tried or self._whole()
        names = orphans.Names({*left.sessions, *ids})

        def is_theirs(kind: str, name: str) -> bool:
            if kind == "change":
                change = self.changes[name]
                return change.key.get("id") in ids or change.before.get(PARENT) in ids
            if kind == "file":
                return names.owner_of(PurePath(name).name) in ids
            return kind == "session" and name in ids

        theirs = left.where(is_theirs, rest=False)
        return theirs, left.where(lambda kind, name: not is_theirs(kind, name), rest=True)

    def _whole(self) -> Left:
        """Return all of it."""
        owned = [(image, owners_of(image)) for image in self.images]
        ids = [each for _, owners in owned for each in owners or ()]
        return Left(
            sessions=dict.fromkeys([*map(str, ids), *self.of], False),
            changes={place: each.name for place, each in self.changes.items()},
            routes=[each["key"] for each in self.routes],
            files=list(self.files),
            rest=any(owners is None and not image.shared for image, owners in owned),
        )


def owners_of(image: Images) -> list[Any] | None:
    """Return whose each row of an image is, None where they are of no session."""
    if image.of is not None:
        return [image.of] * len(image.rows)
    names = ("id",) if image.table == SESSIONS else _OWNERS
    at = next((at for at, name in enumerate(image.columns) if name in names), None)
    return None if at is None or image.shared else [row[at] for row in image.rows]


def _unpacked(value: Any) -> Any:
    return Raw(value["raw"]) if isinstance(value, dict) else value
