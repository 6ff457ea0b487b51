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
from session_core.activity import ActivitySnapshot
from session_core.errors import Changed
from session_core.ledger.types import Member, TrashItem
from session_core.maintenance.apply import files
from session_core.maintenance.apply.files import FileHead
from session_core.maintenance.apply.step_items import IMAGES, estimate_size
from session_core.maintenance.members import (
    ConcurrentWrite,
    MemberOutdated,
    RowChange,
    StepDraft,
    get_name,
)
from session_core.maintenance.select import orphans
from session_core.state.batch_size import BatchSize
from session_core.state.protocol import StateDatabase
from session_core.types import RowImages

_BATCH_MEMBERS = 50
_MESSAGES_TABLE = "messages"

UNLINKED_KEY = "unlinked"
"""In the result of a step: what it took refers to what is not there."""


@dataclass(slots=True)
class _OrphanStepItems:
    """Which rows the next step removes."""

    room: int
    done: list[str] = field(default_factory=list)
    """The members that are done with it."""
    of: list[Member] = field(default_factory=list)
    images: list[RowImages] = field(default_factory=list)

    @property
    def size(self) -> int:
        """What they count."""
        return sum(map(estimate_size, self.images))


class OrphanedRowRemover:
    """Removes rows of sessions that are not there."""

    def __init__(self, db: StateDatabase, there: Callable[[], ActivitySnapshot]) -> None:
        self._db = db
        self._there = there
        self._pace = BatchSize()

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return which rows are removed next: as many as there is room for."""
        there, taken = self._there(), _OrphanStepItems(self._pace.room)
        for member in members:
            if not self._add_member(member, taken, there):
                break
        kept = [TrashItem(IMAGES, image.pack()) for image in taken.images]
        return StepDraft(tuple(taken.done), kept, partial(self._remove_rows, taken))

    def _add_member(self, member: Member, taken: _OrphanStepItems, there: ActivitySnapshot) -> bool:
        """Take the rows of a member; return whether there was room for all of them, and is more."""
        self._require_orphaned(member, there)
        image, more = self._read_rows(member, taken.room)
        session_id = member.revision["session"]
        beside = [replace(each, of=session_id) for each in self._db.read_referring_images([image])]
        taken.of.append(member)
        taken.images += [image, *beside]
        taken.room -= sum(map(estimate_size, (image, *beside)))
        if not more:
            taken.done.append(member.id)
        return not more and taken.room > 0

    def _read_rows(self, member: Member, room: int) -> tuple[RowImages, bool]:
        noted = member.revision
        if noted["table"] == _MESSAGES_TABLE:
            return self._db.read_message_images(noted["session"], None, room)
        image = self._db.read_row_images(noted["table"], {noted["column"]: noted["session"]})
        if len(image.rows) != noted["rows"]:
            raise MemberOutdated(member.id, "there are others by now")
        return image, False

    def _require_orphaned(self, member: Member, there: ActivitySnapshot) -> None:
        session_id = member.revision["session"]
        if self._db.get_session(session_id) is not None:
            raise MemberOutdated(member.id, "its session is there again")
        if session_id in there.routes:
            raise MemberOutdated(member.id, "a chat is in its session by now")
        if there.company.describe_active_user(session_id, 0, routed=False) is not None:
            raise MemberOutdated(member.id, "somebody is at work in its session by now")

    def _remove_rows(self, taken: _OrphanStepItems, db: StateDatabase) -> dict[str, Any]:
        self._pace.begin()
        for member in taken.of:
            if db.get_session(member.revision["session"]) is not None:
                raise MemberOutdated(member.id, "its session is there again")
        try:
            db.remove_rows(taken.images)
        except Changed as error:
            raise ConcurrentWrite(str(error)) from error
        self._pace.end(taken.size)
        return {UNLINKED_KEY: True}


class DeadLockRemover:
    """Removes locks of compressions that ran out long ago."""

    def __init__(self, db: StateDatabase, there: Callable[[], ActivitySnapshot]) -> None:
        self._db = db
        self._there = there

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return which locks are removed next."""
        taken = members[:_BATCH_MEMBERS]
        images = [self._read_lock(member) for member in taken]
        kept = [TrashItem(IMAGES, image.pack()) for image in images]
        ids = tuple(member.id for member in taken)
        return StepDraft(ids, kept, partial(self._remove_locks, taken, images))

    def _read_lock(self, member: Member) -> RowImages:
        noted = member.revision
        image = self._db.read_row_images(noted["table"], {noted["column"]: noted["session"]})
        if not image.rows:
            raise MemberOutdated(member.id, "it is not there any more")
        return image

    def _remove_locks(
        self, taken: Sequence[Member], images: Sequence[RowImages], db: StateDatabase
    ) -> dict[str, Any]:
        now = self._there().company.at
        held = {
            claim.session_id
            for claim in db.list_claims()
            if claim.kind == "compression" and activity.is_live_claim(claim, now)
        }
        for member in taken:
            if member.revision["session"] in held:
                raise MemberOutdated(member.id, "somebody holds it again")
        try:
            db.remove_rows(images)
        except Changed as error:
            raise ConcurrentWrite(str(error)) from error
        return {UNLINKED_KEY: True}


class BrokenLinkRemover:
    """Lets sessions lose a parent that is not there, or is their descendant."""

    def __init__(self, db: StateDatabase) -> None:
        self._db = db

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return which links are cut next."""
        taken = members[:_BATCH_MEMBERS]
        changes = {member.id: _build_link_change(member) for member in taken}
        kept = [change.to_trash_item() for change in changes.values()]
        return StepDraft(tuple(changes), kept, partial(self._cut_links, changes))

    @staticmethod
    def _cut_links(changes: dict[str, RowChange], db: StateDatabase) -> dict[str, Any]:
        for member, change in changes.items():
            parent = change.before["parent_session_id"]
            if db.get_session(parent) is not None and not _is_descendant(
                db, parent, change.key["id"]
            ):
                raise MemberOutdated(member, "its parent is there again")
            try:
                change.write_row(db)
            except Changed as error:
                raise MemberOutdated(member, "it has another parent by now") from error
        return {UNLINKED_KEY: True}


def _build_link_change(member: Member) -> RowChange:
    before = {"parent_session_id": member.revision}
    return RowChange("sessions", {"id": get_name(member)}, before, {"parent_session_id": None})


def _is_descendant(db: StateDatabase, session_id: str, top: str) -> bool:
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


class OrphanedFileRemover:
    """Removes files of sessions that are not there, which are in a folder by their names."""

    def __init__(
        self, db: StateDatabase, there: Callable[[], ActivitySnapshot], folder: Path
    ) -> None:
        self._db = db
        self._there = there
        self._folder = folder

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return which files are removed next."""
        taken = members[:_BATCH_MEMBERS]
        self._require_orphaned(taken)
        heads: list[FileHead] = []
        ids = tuple(member.id for member in taken)
        kept = chain.from_iterable(self._iter_trash_items(member, heads) for member in taken)
        return StepDraft(
            ids, kept, partial(self._check_orphaned, taken, heads), partial(self._wrap_step, heads)
        )

    def _require_orphaned(self, taken: Sequence[Member]) -> None:
        there = self._there()
        names = orphans.FileOwners({*there.routes, *there.company.leases})
        for member in taken:
            path = self._folder / get_name(member)
            try:
                found = path.lstat()
            except OSError as error:
                raise MemberOutdated(member.id, "it is not there any more") from error
            noted = member.revision
            if (found.st_size, found.st_mtime_ns) != (noted["bytes"], noted["modified_ns"]):
                raise MemberOutdated(member.id, "it was written since")
            owner = names.find_owner(path.name)
            if owner in names.known or (owner and self._db.get_session(owner) is not None):
                raise MemberOutdated(member.id, "its session is there by now")

    def _iter_trash_items(self, member: Member, heads: list[FileHead]) -> Iterator[TrashItem]:
        if self._db.folder is not None:
            path = self._folder / get_name(member)
            yield from files.collect_file(path, self._db.folder, heads, member.id)

    def _check_orphaned(
        self, taken: Sequence[Member], heads: Sequence[FileHead], _: StateDatabase
    ) -> dict[str, Any]:
        self._require_orphaned(taken)
        return {"files": len(heads)}

    @contextmanager
    def _wrap_step(self, heads: Sequence[FileHead]) -> Iterator[None]:
        yield
        if self._db.folder is not None:
            files.delete_files(heads, self._db.folder, self._folder)
