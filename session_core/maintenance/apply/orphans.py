"""What belongs to sessions that are not there, a piece at a time: rows, locks, links and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from session_core import activity
from session_core.activity import Alive
from session_core.errors import Changed
from session_core.ledger.types import Kept, Member
from session_core.maintenance.apply import files
from session_core.maintenance.apply.files import Head
from session_core.maintenance.apply.step_items import IMAGES, size_of
from session_core.maintenance.members import Again, Change, Outdated, Piece, name_of
from session_core.maintenance.select import orphans
from session_core.state.batch_size import Pace
from session_core.state.protocol import StateDatabase
from session_core.types import Images

_AT_ONCE = 50
_MESSAGES = "messages"

UNLINKED = "unlinked"
"""In the result of a step: what it took refers to what is not there."""


@dataclass(slots=True)
class _Taken:
    """Which rows the next step removes."""

    room: int
    done: list[str] = field(default_factory=list)
    """The members that are done with it."""
    of: list[Member] = field(default_factory=list)
    images: list[Images] = field(default_factory=list)

    @property
    def size(self) -> int:
        """What they count."""
        return sum(map(size_of, self.images))


class Rows:
    """Removes rows of sessions that are not there."""

    def __init__(self, db: StateDatabase, there: Callable[[], Alive]) -> None:
        self._db = db
        self._there = there
        self._pace = Pace()

    def next(self, members: Sequence[Member]) -> Piece:
        """Return which rows are removed next: as many as there is room for."""
        there, taken = self._there(), _Taken(self._pace.room)
        for member in members:
            if not self._take(member, taken, there):
                break
        kept = [Kept(IMAGES, image.pack()) for image in taken.images]
        return Piece(tuple(taken.done), kept, partial(self._change, taken))

    def _take(self, member: Member, taken: _Taken, there: Alive) -> bool:
        """Take the rows of a member; return whether there was room for all of them, and is more."""
        self._require_orphaned(member, there)
        image, more = self._look(member, taken.room)
        session_id = member.revision["session"]
        beside = [replace(each, of=session_id) for each in self._db.referring_images([image])]
        taken.of.append(member)
        taken.images += [image, *beside]
        taken.room -= sum(map(size_of, (image, *beside)))
        if not more:
            taken.done.append(member.id)
        return not more and taken.room > 0

    def _look(self, member: Member, room: int) -> tuple[Images, bool]:
        noted = member.revision
        if noted["table"] == _MESSAGES:
            return self._db.message_images(noted["session"], None, room)
        image = self._db.row_images(noted["table"], {noted["column"]: noted["session"]})
        if len(image.rows) != noted["rows"]:
            raise Outdated(member.id, "there are others by now")
        return image, False

    def _require_orphaned(self, member: Member, there: Alive) -> None:
        session_id = member.revision["session"]
        if self._db.get_session(session_id) is not None:
            raise Outdated(member.id, "its session is there again")
        if session_id in there.routes:
            raise Outdated(member.id, "a chat is in its session by now")
        if there.company.at_work(session_id, 0, routed=False) is not None:
            raise Outdated(member.id, "somebody is at work in its session by now")

    def _change(self, taken: _Taken, db: StateDatabase) -> dict[str, Any]:
        self._pace.begin()
        for member in taken.of:
            if db.get_session(member.revision["session"]) is not None:
                raise Outdated(member.id, "its session is there again")
        try:
            db.remove_rows(taken.images)
        except Changed as error:
            raise Again(str(error)) from error
        self._pace.end(taken.size)
        return {UNLINKED: True}


class Locks:
    """Removes locks of compressions that ran out long ago."""

    def __init__(self, db: StateDatabase, there: Callable[[], Alive]) -> None:
        self._db = db
        self._there = there

    def next(self, members: Sequence[Member]) -> Piece:
        """Return which locks are removed next."""
        taken = members[:_AT_ONCE]
        images = [self._image(member) for member in taken]
        kept = [Kept(IMAGES, image.pack()) for image in images]
        ids = tuple(member.id for member in taken)
        return Piece(ids, kept, partial(self._change, taken, images))

    def _image(self, member: Member) -> Images:
        noted = member.revision
        image = self._db.row_images(noted["table"], {noted["column"]: noted["session"]})
        if not image.rows:
            raise Outdated(member.id, "it is not there any more")
        return image

    def _change(
        self, taken: Sequence[Member], images: Sequence[Images], db: StateDatabase
    ) -> dict[str, Any]:
        now = self._there().company.at
        held = {
            claim.session_id
            for claim in db.claims()
            if claim.kind == "compression" and activity.is_live(claim, now)
        }
        for member in taken:
            if member.revision["session"] in held:
                raise Outdated(member.id, "somebody holds it again")
        try:
            db.remove_rows(images)
        except Changed as error:
            raise Again(str(error)) from error
        return {UNLINKED: True}


class Links:
    """Lets sessions lose a parent that is not there, or is their descendant."""

    def __init__(self, db: StateDatabase) -> None:
        self._db = db

    def next(self, members: Sequence[Member]) -> Piece:
        """Return which links are cut next."""
        taken = members[:_AT_ONCE]
        changes = {member.id: _cut(member) for member in taken}
        kept = [change.kept() for change in changes.values()]
        return Piece(tuple(changes), kept, partial(self._change, changes))

    @staticmethod
    def _change(changes: dict[str, Change], db: StateDatabase) -> dict[str, Any]:
        for member, change in changes.items():
            parent = change.before["parent_session_id"]
            if db.get_session(parent) is not None and not _is_below(db, parent, change.key["id"]):
                raise Outdated(member, "its parent is there again")
            try:
                change.write(db)
            except Changed as error:
                raise Outdated(member, "it has another parent by now") from error
        return {UNLINKED: True}


def _cut(member: Member) -> Change:
    before = {"parent_session_id": member.revision}
    return Change("sessions", {"id": name_of(member)}, before, {"parent_session_id": None})


def _is_below(db: StateDatabase, session_id: str, top: str) -> bool:
    """Whether a session came from another one, at whatever distance."""
    seen: set[str] = set()
    here: str | None = session_id
    while here is not None and here not in seen:
        if here == top:
            return True
        seen.add(here)
        row = db.get_session(here)
        here = None if row is None else row["parent_session_id"]
    return False


class Files:
    """Removes files of sessions that are not there, which are in a folder by their names."""

    def __init__(self, db: StateDatabase, there: Callable[[], Alive], folder: Path) -> None:
        self._db = db
        self._there = there
        self._folder = folder

    def next(self, members: Sequence[Member]) -> Piece:
        """Return which files are removed next."""
        taken = members[:_AT_ONCE]
        self._require_orphaned(taken)
        heads: list[Head] = []
        ids = tuple(member.id for member in taken)
        kept = chain.from_iterable(self._keep(member, heads) for member in taken)
        return Piece(ids, kept, partial(self._change, taken, heads), partial(self._within, heads))

    def _require_orphaned(self, taken: Sequence[Member]) -> None:
        there = self._there()
        names = orphans.Names({*there.routes, *there.company.leases})
        for member in taken:
            path = self._folder / name_of(member)
            try:
                found = path.lstat()
            except OSError as error:
                raise Outdated(member.id, "it is not there any more") from error
            noted = member.revision
            if (found.st_size, found.st_mtime_ns) != (noted["bytes"], noted["modified_ns"]):
                raise Outdated(member.id, "it was written since")
            owner = names.owner_of(path.name)
            if owner in names.known or (owner and self._db.get_session(owner) is not None):
                raise Outdated(member.id, "its session is there by now")

    def _keep(self, member: Member, heads: list[Head]) -> Iterator[Kept]:
        if self._db.folder is not None:
            path = self._folder / name_of(member)
            yield from files.collect_file(path, self._db.folder, heads, member.id)

    def _change(
        self, taken: Sequence[Member], heads: Sequence[Head], _: StateDatabase
    ) -> dict[str, Any]:
        self._require_orphaned(taken)
        return {"files": len(heads)}

    @contextmanager
    def _within(self, heads: Sequence[Head]) -> Iterator[None]:
        yield
        if self._db.folder is not None:
            files.delete_files(heads, self._db.folder, self._folder)
