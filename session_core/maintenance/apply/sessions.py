"""Sessions that are removed: which rows go in the next step, and what is looked at in it.

A conversation goes from its tip to its root. A session that is larger than there is room for goes
over several steps, its own row in the last; a step also takes as many small ones as there is room.
What the next step takes is read and made durable while this one is under way, and thrown away where
this one comes to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from session_core.activity import ActivitySnapshot
from session_core.errors import Changed, NotFound
from session_core.ledger.types import Member, TrashItem
from session_core.maintenance.apply import files, preconditions
from session_core.maintenance.apply.files import FileHead
from session_core.maintenance.apply.step_items import (
    IMAGES,
    OF,
    SESSION_BYTES,
    StepItems,
    StepPrefetch,
    estimate_size,
)
from session_core.maintenance.members import (
    ConcurrentWrite,
    MemberOutdated,
    PlanProgress,
    RowChange,
    SessionGroup,
    StepDraft,
)
from session_core.maintenance.restore.rows import SESSIONS
from session_core.maintenance.select import orphans
from session_core.state.batch_size import BatchSize
from session_core.state.protocol import StateDatabase
from session_core.types import RawText, RowImages


class SessionRemover:
    """Removes sessions, a piece at a time."""

    def __init__(
        self,
        db: StateDatabase,
        there: Callable[[], ActivitySnapshot],
        progress: PlanProgress,
        folder: Path | None,
        aside: StepPrefetch,
        *,
        pinned: Callable[[], Collection[str]],
    ) -> None:
        self._db = db
        self._aside = aside
        self._pinned = pinned
        self._there = there
        self._progress = progress
        self._pace = BatchSize()
        self._folder = folder
        self._files: Mapping[str, list[Path]] = {}
        self._looked_for: set[str] = set()

    def draft_step(self, members: Sequence[Member]) -> StepDraft:
        """Return what is removed next: as many sessions as there is room for."""
        there = self._there()
        taken = self._take_prefetched(members[0])
        if taken is None:
            self._find_files(members)
            taken = self._collect_items(members, there, None)
        rest = members[len(taken.members) :]
        more = taken.is_full and rest and self._has_known_files(rest[0])
        ahead = partial(self._prefetch_items, rest, there, taken) if more else None
        heads: list[FileHead] = []
        return StepDraft(
            tuple(taken.members),
            taken.prepared or self._iter_trash_items(taken, heads),
            partial(self._remove_items, taken, there, heads),
            partial(self._wrap_step, heads, ahead),
        )

    def _take_prefetched(self, first: Member) -> StepItems | None:
        """Return what was taken beside, if it begins here and what it comes after was done."""
        taken: StepItems | None = self._aside.take_result()
        if taken is not None and not self._is_next_step(taken, first):
            self._aside.discard(taken)
            return None
        return taken

    def _is_next_step(self, taken: StepItems, first: Member) -> bool:
        before, taken.before = taken.before, None
        progress = self._progress
        if before is None or before.after is None or not progress.gone.issuperset(before.whole):
            return False
        if any(progress.after.get(each) != at for each, at in before.after.items()):
            return False
        return next(iter(taken.members_by_session.values()), None) == first.id

    def _prefetch_items(
        self, members: Sequence[Member], there: ActivitySnapshot, before: StepItems
    ) -> StepItems | None:
        taken = self._collect_items(members, there, before)
        if not taken.messages:
            return None
        if not any(session_id in self._files for session_id in taken.whole):
            taken.prepared = self._aside.prepare_step(
                self._iter_trash_items(taken, []), taken.members
            )
        return taken

    def _collect_items(
        self, members: Sequence[Member], there: ActivitySnapshot, before: StepItems | None
    ) -> StepItems:
        taken = StepItems(self._pace.room, self._pace.room, before)
        for member in members:
            if taken.is_full or not self._has_known_files(member):
                break
            if not self._add_group(SessionGroup.from_member(member), taken, there):
                break
            taken.members.append(member.id)
        taken.size -= taken.room
        return taken

    def _add_group(self, group: SessionGroup, taken: StepItems, there: ActivitySnapshot) -> bool:
        """Take the sessions of a member; return whether there was room for all of them."""
        left = [
            each
            for each in group.sessions
            if each not in self._progress.gone and not taken.is_in_previous_step("whole", each)
        ]
        # The first is looked at when it is taken.
        preconditions.require_unchanged(
            self._db, group, left[1:], self._progress, there, removed=True
        )
        taken.members_by_session |= dict.fromkeys(left, group.member)
        for session_id in left:
            if (
                taken.is_full
                or session_id in taken.detached
                or taken.is_in_previous_step("detached", session_id)
            ):
                return False
            if not self._add_session(session_id, group, taken, there):
                return False
        return True

    def _add_session(
        self, session_id: str, group: SessionGroup, taken: StepItems, there: ActivitySnapshot
    ) -> bool:
        """Take a session, or as many of its messages as there is room for."""
        rows = self._db.read_session_images(session_id)
        row = preconditions.find_session_row(rows)
        if row is None:
            raise MemberOutdated(group.member, f"session {session_id} is not there any more")
        expected = self._progress.get_expected_revision(group, session_id)
        preconditions.require_unprotected(group.member, row, expected, there, removed=True)
        preconditions.require_no_new_signs(group, row)
        children = preconditions.list_planned_children(self._db, session_id, group)
        above = None if taken.before is None else taken.before.get_last_message_id(session_id)
        said, more = self._db.read_message_images(session_id, above, taken.room)
        place = said.columns.index("id")
        ids = [each[place] for each in said.rows]
        taken.messages[session_id] = ids, group
        taken.message_rows += [said] if ids else []
        taken.room -= SESSION_BYTES + estimate_size(said)
        own = [] if more else [each for each in rows if not each.shared]
        self._add_dependent_rows(session_id, said, own, taken)
        if more:
            taken.room = 0
            taken.partial_sessions[session_id] = row["started_at"]
            return False
        taken.rows += [each for each in rows if each.shared or each.table == SESSIONS]
        stay = [
            each
            for each in children
            if each not in {session_id, *taken.whole}
            and not taken.is_in_previous_step("whole", each)
            and not taken.is_in_previous_step("detached", each)
        ]
        self._detach_children(session_id, stay, taken)
        taken.whole.append(session_id)
        return True

    def _add_dependent_rows(
        self, session_id: str, said: RowImages, own: Sequence[RowImages], taken: StepItems
    ) -> None:
        """Take what other tables have of a session, and what refers to any of its rows.

        The latter would go with those, or be emptied.
        """
        own = [taken.exclude_dependent_rows(each) for each in own]
        found = self._db.read_referring_images([said, *own])
        taken.room -= sum(map(estimate_size, found))
        beside = [each for each in (*own, *map(taken.exclude_dependent_rows, found)) if each.rows]
        taken.dependent_rows += [
            replace(each, of=session_id) for each in beside if each.table != SESSIONS
        ]

    def _detach_children(self, session_id: str, children: Iterable[str], taken: StepItems) -> None:
        for child in children:
            before, after = {"parent_session_id": session_id}, {"parent_session_id": None}
            taken.changes.append(RowChange("sessions", {"id": child}, before, after))
            taken.detached.add(child)

    def _iter_trash_items(self, taken: StepItems, heads: list[FileHead]) -> Iterator[TrashItem]:
        for change in taken.changes:
            yield change.to_trash_item()
        for session_id, started_at in taken.partial_sessions.items():
            yield TrashItem(OF, {"id": session_id, "started_at": _encode_value(started_at)})
        for image in (*taken.dependent_rows, *taken.rows, *taken.message_rows):
            yield TrashItem(IMAGES, image.pack())
        for session_id in taken.whole:
            for path in self._files.get(session_id, ()):
                if self._db.folder is not None:
                    member = taken.members_by_session[session_id]
                    yield from files.collect_file(path, self._db.folder, heads, member)

    def _remove_items(
        self,
        taken: StepItems,
        there: ActivitySnapshot,
        heads: Sequence[FileHead],
        db: StateDatabase,
    ) -> dict[str, Any]:
        """Remove what was taken, if it still is what it was."""
        self._pace.begin()
        preconditions.require_not_in_use(db, taken.members_by_session, there, self._pinned())
        messages = {
            session_id: (ids, self._progress.get_expected_revision(group, session_id))
            for session_id, (ids, group) in taken.messages.items()
        }
        try:
            if taken.dependent_rows:
                db.remove_rows(taken.dependent_rows)
            after = db.remove_messages(messages, taken.message_rows)
        except (Changed, NotFound) as error:
            for session_id, (_, expected) in messages.items():
                preconditions.require_revision(
                    db, taken.members_by_session[session_id], session_id, expected
                )
            raise ConcurrentWrite(str(error)) from error
        try:
            for change in taken.changes:
                change.write_row(db)
            db.remove_rows(taken.rows)
        except Changed as error:
            raise ConcurrentWrite(str(error)) from error
        if taken.is_full:
            self._pace.end(taken.size)
        taken.after = {each: after[each] for each in taken.partial_sessions}
        return {
            "after": taken.after,
            "sessions": taken.whole,
            "files": len(heads),
            files.NAMES_KEY: [
                path.name for each in taken.whole for path in self._files.get(each, ())
            ],
        }

    @contextmanager
    def _wrap_step(
        self, heads: Sequence[FileHead], ahead: Callable[[], StepItems | None] | None
    ) -> Iterator[None]:
        if ahead is not None:  # not before: steps are taken back in the order of their trash
            self._aside.start(ahead)
        yield
        if self._db.folder is not None:
            files.delete_files(heads, self._db.folder, self._folder)

    def _has_known_files(self, member: Member) -> bool:
        """Whether its files are known, where there are any."""
        return self._folder is None or member.id in self._looked_for

    def _find_files(self, members: Sequence[Member]) -> None:
        """Look for the files of the sessions to come, of as many as are given at once."""
        if self._folder is None or members[0].id in self._looked_for:
            return
        ids = {each for member in members for each in SessionGroup.from_member(member).sessions}
        self._files = orphans.find_session_files(self._folder, ids)
        self._looked_for = {member.id for member in members}


def _encode_value(value: Any) -> Any:
    return {"raw": value.stored} if isinstance(value, RawText) else value
