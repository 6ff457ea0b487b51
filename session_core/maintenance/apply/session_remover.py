"""Remove sessions: draft the rows of the next step, and check them again inside the step.

A conversation is removed from its tip to its root. A session that is larger than the room of a step
is removed over several steps, its own row in the last; a step also takes as many small sessions as
there is room for. The next step is read and its undo made durable while the current one runs, and
discarded if the current one fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from session_core.activity import ActivitySnapshot
from session_core.errors import Changed, NotFound
from session_core.ledger.types import Member, TrashItem
from session_core.maintenance.apply import home_files, preconditions
from session_core.maintenance.apply.home_files import FileHead
from session_core.maintenance.apply.step_items import (
    IMAGES,
    OF,
    SESSION_BYTES,
    PartRun,
    StepItems,
    estimate_size,
)
from session_core.maintenance.members import (
    ConcurrentWrite,
    MemberOutdated,
    RowChange,
    SessionGroup,
    StepDraft,
)
from session_core.maintenance.restore.rows import SESSIONS
from session_core.maintenance.select import orphans
from session_core.maintenance.select.session_selectors import OWNER_EXEMPT
from session_core.maintenance.types import ProtectionReason
from session_core.state.batch_size import BatchSize
from session_core.state.protocol import StateDatabase
from session_core.types import RawText, RowImages


class SessionRemover:
    """Removes sessions, one step at a time."""

    exempt: tuple[ProtectionReason, ...] = ()

    def __init__(self, run: PartRun) -> None:
        self._db = run.home.db
        self._prefetch = run.prefetch
        self._list_pinned = run.home.list_pinned
        self._get_activity = run.get_activity
        self._progress = run.progress
        self._batch_size = BatchSize()
        self._folder = run.home.session_folder
        self._files: Mapping[str, list[Path]] = {}
        self._searched_members: set[str] = set()

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return the sessions to remove next, as many as fit in one step."""
        activity = self._get_activity()
        items = self._take_prefetched(members[0])
        if items is None:
            self._find_files(members)
            items = self._collect_items(members, activity, None)
        remaining = members[len(items.members) :]
        has_next = items.is_full and remaining and self._has_known_files(remaining[0])
        prefetch = partial(self._prefetch_items, remaining, activity, items) if has_next else None
        heads: list[FileHead] = []
        return StepDraft(
            tuple(items.members),
            items.prepared or self._iter_trash_items(items, heads),
            partial(self._delete_session_rows, items, activity, heads),
            partial(self._wrap_step, heads, prefetch),
        )

    def _take_prefetched(self, first: Member) -> StepItems | None:
        """Return the prefetched items if they are the next step and the step before was done."""
        items: StepItems | None = self._prefetch.take_result()
        if items is not None and not self._is_next_step(items, first):
            self._prefetch.discard_items(items)
            return None
        return items

    def _is_next_step(self, items: StepItems, first: Member) -> bool:
        previous, items.before = items.before, None
        progress = self._progress
        if (
            previous is None
            or previous.after is None
            or not progress.gone.issuperset(previous.whole)
        ):
            return False
        # The items were read as if the step before had removed exactly this.
        if any(
            progress.after.get(session_id) != revision
            for session_id, revision in previous.after.items()
        ):
            return False
        return next(iter(items.members_by_session.values()), None) == first.id

    def _prefetch_items(
        self, members: Sequence[Member], activity: ActivitySnapshot, previous: StepItems
    ) -> StepItems | None:
        items = self._collect_items(members, activity, previous)
        # Without messages a step is small: a prefetch would not save time.
        if not items.messages:
            return None
        # Items with files are prepared when they run, which collects the heads for the deletion.
        if not any(session_id in self._files for session_id in items.whole):
            items.prepared = self._prefetch.prepare_step(
                self._iter_trash_items(items, []), items.members
            )
        return items

    def _collect_items(
        self, members: Sequence[Member], activity: ActivitySnapshot, previous: StepItems | None
    ) -> StepItems:
        items = StepItems(self._batch_size.max_bytes, self._batch_size.max_bytes, previous)
        for member in members:
            if items.is_full or not self._has_known_files(member):
                break
            if not self._add_group(SessionGroup.from_member(member), items, activity):
                break
            items.members.append(member.id)
        items.size -= items.remaining_bytes
        return items

    def _add_group(self, group: SessionGroup, items: StepItems, activity: ActivitySnapshot) -> bool:
        """Add the sessions of a member, and return True if all of them fit."""
        remaining = [
            session_id
            for session_id in group.sessions
            if session_id not in self._progress.gone
            and not items.is_in_previous_step("whole", session_id)
        ]
        # The first one is checked when it is added.
        preconditions.require_unchanged(
            *(self._db, group, remaining[1:], self._progress, activity),
            removed=True,
            exempt=self.exempt,
        )
        items.members_by_session |= dict.fromkeys(remaining, group.member)
        for session_id in remaining:
            if (
                items.is_full
                or session_id in items.detached
                or items.is_in_previous_step("detached", session_id)
            ):
                return False
            if not self._add_session(session_id, group, items, activity):
                return False
        return True

    def _add_session(
        self, session_id: str, group: SessionGroup, items: StepItems, activity: ActivitySnapshot
    ) -> bool:
        """Add a session, or as many of its messages as fit in the step."""
        rows = self._db.rows.read_session_images(session_id)
        row = preconditions.find_session_row(rows)
        if row is None:
            raise MemberOutdated(group.member, f"session {session_id} does not exist any more")
        expected = self._progress.get_expected_revision(group, session_id)
        # The row is from the same read as the images, so that both are of one revision.
        preconditions.require_unprotected(
            group.member, row, expected, activity, removed=True, exempt=self.exempt
        )
        preconditions.require_no_new_use_signs(group, row)
        children = preconditions.list_planned_children(self._db, session_id, group)
        after_id = None if items.before is None else items.before.get_last_message_id(session_id)
        messages, has_more = self._db.rows.read_message_images(
            session_id, after_id, items.remaining_bytes
        )
        place = messages.columns.index("id")
        ids = [row[place] for row in messages.rows]
        items.messages[session_id] = ids, group
        items.message_rows += [messages] if ids else []
        items.remaining_bytes -= SESSION_BYTES + estimate_size(messages)
        # The rows of a session go with its last messages, so that a stopped run leaves a session.
        own_rows = [] if has_more else [image for image in rows if not image.shared]
        self._add_dependent_rows(session_id, messages, own_rows, items)
        if has_more:
            items.remaining_bytes = 0
            items.partial_sessions[session_id] = row["started_at"]
            return False
        items.rows += [image for image in rows if image.shared or image.table == SESSIONS]
        detached = [
            image
            for image in children
            if image not in {session_id, *items.whole}
            and not items.is_in_previous_step("whole", image)
            and not items.is_in_previous_step("detached", image)
        ]
        self._detach_children(session_id, detached, items)
        items.whole.append(session_id)
        return True

    def _add_dependent_rows(
        self, session_id: str, messages: RowImages, own: Sequence[RowImages], items: StepItems
    ) -> None:
        """Add the rows of other tables that belong to a session or refer to its rows.

        The latter would be deleted or emptied with those.
        """
        own = [items.exclude_dependent_rows(images) for images in own]
        referring = self._db.rows.read_referring_images([messages, *own])
        items.remaining_bytes -= sum(map(estimate_size, referring))
        dependent = [
            images
            for images in (*own, *map(items.exclude_dependent_rows, referring))
            if images.rows
        ]
        items.dependent_rows += [
            replace(images, of=session_id) for images in dependent if images.table != SESSIONS
        ]

    def _detach_children(self, session_id: str, children: Iterable[str], items: StepItems) -> None:
        for child in children:
            before, after = {"parent_session_id": session_id}, {"parent_session_id": None}
            items.changes.append(RowChange("sessions", {"id": child}, before, after))
            items.detached.add(child)

    def _iter_trash_items(self, items: StepItems, heads: list[FileHead]) -> Iterator[TrashItem]:
        for change in items.changes:
            yield change.to_trash_item()
        for session_id, started_at in items.partial_sessions.items():
            yield TrashItem(OF, {"id": session_id, "started_at": _encode_value(started_at)})
        for image in (*items.dependent_rows, *items.rows, *items.message_rows):
            yield TrashItem(IMAGES, image.pack())
        for session_id in items.whole:
            for path in self._files.get(session_id, ()):
                if self._db.folder is not None:
                    member = items.members_by_session[session_id]
                    yield from home_files.collect_file_items(path, self._db.folder, heads, member)

    def _delete_session_rows(
        self,
        items: StepItems,
        activity: ActivitySnapshot,
        heads: Sequence[FileHead],
        db: StateDatabase,
    ) -> dict[str, Any]:
        """Delete the drafted rows of sessions if they are unchanged."""
        self._batch_size.begin_batch()
        preconditions.require_not_in_use(
            db, items.members_by_session, activity, self._list_pinned()
        )
        messages = {
            session_id: (ids, self._progress.get_expected_revision(group, session_id))
            for session_id, (ids, group) in items.messages.items()
        }
        try:
            if items.dependent_rows:
                db.rows.remove_rows(items.dependent_rows)
            after = db.rows.remove_messages(messages, items.message_rows)
        except (Changed, NotFound) as error:
            # A session at another revision is skipped; any other cause is worth another try.
            for session_id, (_, expected) in messages.items():
                preconditions.require_revision(
                    db, items.members_by_session[session_id], session_id, expected
                )
            raise ConcurrentWrite(str(error)) from error
        try:
            # Children lose their parent before its row is deleted, since they refer to it.
            for change in items.changes:
                change.write_row(db)
            db.rows.remove_rows(items.rows)
        except Changed as error:
            raise ConcurrentWrite(str(error)) from error
        # Only a full step shows how long a batch of this size takes.
        if items.is_full:
            self._batch_size.end_batch(items.size)
        items.after = {session_id: after[session_id] for session_id in items.partial_sessions}
        return {
            "after": items.after,
            "sessions": items.whole,
            "files": len(heads),
            home_files.NAMES_KEY: [
                path.name for session_id in items.whole for path in self._files.get(session_id, ())
            ],
        }

    @contextmanager
    def _wrap_step(
        self, heads: Sequence[FileHead], prefetch: Callable[[], StepItems | None] | None
    ) -> Iterator[None]:
        if prefetch is not None:  # only now: steps are undone in the order of their trash
            self._prefetch.start_job(prefetch)
        yield
        # After the commit: a rollback must not leave sessions without their files.
        if self._db.folder is not None:
            home_files.delete_files(heads, self._db.folder, self._folder)

    def _has_known_files(self, member: Member) -> bool:
        """Return True if the files of a member are known, or the home has no session folder."""
        return self._folder is None or member.id in self._searched_members

    def _find_files(self, members: Sequence[Member]) -> None:
        """Find the files of all members at once, unless the first member was searched already."""
        if self._folder is None or members[0].id in self._searched_members:
            return
        ids = {
            session_id
            for member in members
            for session_id in SessionGroup.from_member(member).sessions
        }
        self._files = orphans.find_session_files(self._folder, ids)
        self._searched_members = {member.id for member in members}


class OwnedSessionRemover(SessionRemover):
    """Removes sessions that their owner deletes, even if other processes have the home open."""

    exempt = OWNER_EXEMPT


def _encode_value(value: Any) -> Any:
    return {"raw": value.stored} if isinstance(value, RawText) else value
