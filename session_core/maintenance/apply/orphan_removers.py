"""Remove rows, locks, links and files that belong to missing sessions, one step at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from session_core.activity import ActivitySnapshot, is_live_claim
from session_core.errors import Changed
from session_core.ledger.types import Member, TrashItem
from session_core.maintenance.apply import home_files
from session_core.maintenance.apply.home_files import FileHead
from session_core.maintenance.apply.step_items import IMAGES, PartRun, estimate_size
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
"""The key in a step's result that marks removed rows with references to missing rows."""


@dataclass(slots=True)
class _OrphanStepItems:
    """The rows that the next step removes."""

    remaining_bytes: int
    done: list[str] = field(default_factory=list)
    """The members that the step completes."""
    of: list[Member] = field(default_factory=list)
    images: list[RowImages] = field(default_factory=list)

    @property
    def estimated_size(self) -> int:
        """The estimated size of the rows."""
        return sum(map(estimate_size, self.images))


class OrphanedRowRemover:
    """Removes rows of missing sessions."""

    def __init__(self, run: PartRun) -> None:
        self._db = run.home.db
        self._get_activity = run.get_activity
        self._batch_size = BatchSize()

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return the rows to remove next, as many as fit in one step."""
        activity, items = self._get_activity(), _OrphanStepItems(self._batch_size.max_bytes)
        for member in members:
            if not self._add_member(member, items, activity):
                break
        trash_items = [TrashItem(IMAGES, image.pack()) for image in items.images]
        return StepDraft(tuple(items.done), trash_items, partial(self._remove_rows, items))

    def _add_member(
        self, member: Member, items: _OrphanStepItems, activity: ActivitySnapshot
    ) -> bool:
        """Add the rows of a member, and return True if all of them fit and more would fit."""
        self._require_orphaned(member, activity)
        image, has_more = self._read_rows(member, items.remaining_bytes)
        session_id = member.revision["session"]
        referring = [
            replace(images, of=session_id)
            for images in self._db.rows.read_referring_images([image])
        ]
        items.of.append(member)
        # Rows that refer to these would be deleted or emptied with them.
        items.images += [image, *referring]
        items.remaining_bytes -= sum(map(estimate_size, (image, *referring)))
        if not has_more:
            items.done.append(member.id)
        return not has_more and items.remaining_bytes > 0

    def _read_rows(self, member: Member, room: int) -> tuple[RowImages, bool]:
        record = member.revision
        if record["table"] == _MESSAGES_TABLE:
            return self._db.rows.read_message_images(record["session"], None, room)
        image = self._db.rows.read_row_images(
            record["table"], {record["column"]: record["session"]}
        )
        # Only messages are read in pieces; another member is removed whole or skipped.
        if len(image.rows) != record["rows"]:
            raise MemberOutdated(member.id, "its rows have changed since")
        return image, False

    def _require_orphaned(self, member: Member, activity: ActivitySnapshot) -> None:
        session_id = member.revision["session"]
        if self._db.get_session(session_id) is not None:
            raise MemberOutdated(member.id, "its session exists again")
        if session_id in activity.routes:
            raise MemberOutdated(member.id, "a chat is routed to its session by now")
        if activity.company.describe_active_user(session_id, 0, routed=False) is not None:
            raise MemberOutdated(member.id, "its session is in use by now")

    def _remove_rows(self, items: _OrphanStepItems, db: StateDatabase) -> dict[str, Any]:
        self._batch_size.begin_batch()
        for member in items.of:
            # A message of its chat may have created the session since the draft.
            if db.get_session(member.revision["session"]) is not None:
                raise MemberOutdated(member.id, "its session exists again")
        try:
            db.rows.remove_rows(items.images)
        except Changed as error:
            raise ConcurrentWrite(str(error)) from error
        self._batch_size.end_batch(items.estimated_size)
        return {UNLINKED_KEY: True}


class DeadLockRemover:
    """Removes locks of compressions that expired long ago."""

    def __init__(self, run: PartRun) -> None:
        self._db = run.home.db
        self._get_activity = run.get_activity

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return the locks to remove next."""
        batch = members[:_BATCH_MEMBERS]
        images = [self._read_lock(member) for member in batch]
        trash_items = [TrashItem(IMAGES, image.pack()) for image in images]
        ids = tuple(member.id for member in batch)
        return StepDraft(ids, trash_items, partial(self._remove_locks, batch, images))

    def _read_lock(self, member: Member) -> RowImages:
        record = member.revision
        image = self._db.rows.read_row_images(
            record["table"], {record["column"]: record["session"]}
        )
        if not image.rows:
            raise MemberOutdated(member.id, "it does not exist any more")
        return image

    def _remove_locks(
        self, batch: Sequence[Member], images: Sequence[RowImages], db: StateDatabase
    ) -> dict[str, Any]:
        now = self._get_activity().company.at
        # A lock may have been taken again since the plan.
        held_sessions = {
            claim.session_id
            for claim in db.admin.list_claims()
            if claim.kind == "compression" and is_live_claim(claim, now)
        }
        for member in batch:
            if member.revision["session"] in held_sessions:
                raise MemberOutdated(member.id, "it is held again")
        try:
            db.rows.remove_rows(images)
        except Changed as error:
            raise ConcurrentWrite(str(error)) from error
        return {UNLINKED_KEY: True}


class BrokenLinkRemover:
    """Clears the parent of sessions if it is missing or is one of their descendants."""

    def __init__(self, run: PartRun) -> None:
        self._db = run.home.db

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return the links to clear next."""
        batch = members[:_BATCH_MEMBERS]
        changes = {member.id: _build_link_change(member) for member in batch}
        trash_items = [change.to_trash_item() for change in changes.values()]
        return StepDraft(tuple(changes), trash_items, partial(self._cut_links, changes))

    @staticmethod
    def _cut_links(changes: dict[str, RowChange], db: StateDatabase) -> dict[str, Any]:
        for member, change in changes.items():
            parent = change.before["parent_session_id"]
            if db.get_session(parent) is not None and not _is_session_descendant(
                db, parent, change.key["id"]
            ):
                raise MemberOutdated(member, "its parent exists again")
            try:
                change.write_row(db)
            except Changed as error:
                raise MemberOutdated(member, "it has another parent by now") from error
        return {UNLINKED_KEY: True}


def _build_link_change(member: Member) -> RowChange:
    before = {"parent_session_id": member.revision}
    return RowChange("sessions", {"id": get_name(member)}, before, {"parent_session_id": None})


def _is_session_descendant(db: StateDatabase, session_id: str, top: str) -> bool:
    """Return True if a session descends from another one, at any distance."""
    visited: set[str] = set()
    current_id: str | None = session_id
    # A cycle ends the walk.
    while current_id is not None and current_id not in visited:
        if current_id == top:
            return True
        visited.add(current_id)
        row = db.get_session(current_id)
        current_id = None if row is None else row["parent_session_id"]
    return False


class OrphanedFileRemover:
    """Removes files in a folder whose names belong to missing sessions."""

    def __init__(self, run: PartRun) -> None:
        self._db = run.home.db
        self._get_activity = run.get_activity
        self._folder = run.home.require_session_folder()

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return the files to remove next."""
        batch = members[:_BATCH_MEMBERS]
        self._require_orphaned(batch)
        heads: list[FileHead] = []
        ids = tuple(member.id for member in batch)
        trash_items = chain.from_iterable(self._iter_trash_items(member, heads) for member in batch)
        return StepDraft(
            ids,
            trash_items,
            partial(self._check_orphaned, batch, heads),
            partial(self._wrap_step, heads),
        )

    def _require_orphaned(self, batch: Sequence[Member]) -> None:
        activity = self._get_activity()
        owners = orphans.FileOwners({*activity.routes, *activity.company.leases})
        for member in batch:
            path = self._folder / get_name(member)
            try:
                file_stat = path.lstat()
            except OSError as error:
                raise MemberOutdated(member.id, "it does not exist any more") from error
            record = member.revision
            # A changed file is not the file that the plan lists.
            if (file_stat.st_size, file_stat.st_mtime_ns) != (
                record["bytes"],
                record["modified_ns"],
            ):
                raise MemberOutdated(member.id, "it was written since")
            owner = owners.find_owner(path.name)
            if owner in owners.known or (owner and self._db.get_session(owner) is not None):
                raise MemberOutdated(member.id, "its session exists by now")

    def _iter_trash_items(self, member: Member, heads: list[FileHead]) -> Iterator[TrashItem]:
        if self._db.folder is not None:
            path = self._folder / get_name(member)
            yield from home_files.collect_file_items(path, self._db.folder, heads, member.id)

    def _check_orphaned(
        self, batch: Sequence[Member], heads: Sequence[FileHead], _: StateDatabase
    ) -> dict[str, Any]:
        self._require_orphaned(batch)
        return {"files": len(heads)}

    @contextmanager
    def _wrap_step(self, heads: Sequence[FileHead]) -> Iterator[None]:
        yield
        if self._db.folder is not None:
            home_files.delete_files(heads, self._db.folder, self._folder)
