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

from session_core.activity import Alive
from session_core.errors import Changed, NotFound
from session_core.ledger.types import Kept, Member
from session_core.maintenance.apply import files, preconditions
from session_core.maintenance.apply.files import Head
from session_core.maintenance.apply.step_items import (
    IMAGES,
    OF,
    SESSION_BYTES,
    Aside,
    Taken,
    size_of,
)
from session_core.maintenance.members import Again, Change, Group, Outdated, Piece, Progress
from session_core.maintenance.restore.rows import SESSIONS
from session_core.maintenance.select import orphans
from session_core.state.batch_size import Pace
from session_core.state.protocol import StateDatabase
from session_core.types import Images, Raw


class Removal:
    """Removes sessions, a piece at a time."""

    def __init__(
        self,
        db: StateDatabase,
        there: Callable[[], Alive],
        progress: Progress,
        folder: Path | None,
        aside: Aside,
        *,
        pinned: Callable[[], Collection[str]],
    ) -> None:
        self._db = db
        self._aside = aside
        self._pinned = pinned
        self._there = there
        self._progress = progress
        self._pace = Pace()
        self._folder = folder
        self._files: Mapping[str, list[Path]] = {}
        self._looked_for: set[str] = set()

    def next(self, members: Sequence[Member]) -> Piece:
        """Return what is removed next: as many sessions as there is room for."""
        there = self._there()
        taken = self._taken_ahead(members[0])
        if taken is None:
            self._find_files(members)
            taken = self._take_some(members, there, None)
        rest = members[len(taken.members) :]
        more = taken.is_full and rest and self._is_looked_for(rest[0])
        ahead = partial(self._take_ahead, rest, there, taken) if more else None
        heads: list[Head] = []
        return Piece(
            tuple(taken.members),
            taken.prepared or self._kept(taken, heads),
            partial(self._change, taken, there, heads),
            partial(self._within, heads, ahead),
        )

    def _taken_ahead(self, first: Member) -> Taken | None:
        """Return what was taken beside, if it begins here and what it comes after was done."""
        taken: Taken | None = self._aside.result()
        if taken is not None and not self._is_next(taken, first):
            self._aside.drop(taken)
            return None
        return taken

    def _is_next(self, taken: Taken, first: Member) -> bool:
        before, taken.before = taken.before, None
        progress = self._progress
        if before is None or before.after is None or not progress.gone.issuperset(before.whole):
            return False
        if any(progress.after.get(each) != at for each, at in before.after.items()):
            return False
        return next(iter(taken.whose.values()), None) == first.id

    def _take_ahead(self, members: Sequence[Member], there: Alive, before: Taken) -> Taken | None:
        taken = self._take_some(members, there, before)
        if not taken.messages:
            return None
        if not any(session_id in self._files for session_id in taken.whole):
            taken.prepared = self._aside.keep(self._kept(taken, []), taken.members)
        return taken

    def _take_some(self, members: Sequence[Member], there: Alive, before: Taken | None) -> Taken:
        taken = Taken(self._pace.room, self._pace.room, before)
        for member in members:
            if taken.is_full or not self._is_looked_for(member):
                break
            if not self._take(Group.of(member), taken, there):
                break
            taken.members.append(member.id)
        taken.size -= taken.room
        return taken

    def _take(self, group: Group, taken: Taken, there: Alive) -> bool:
        """Take the sessions of a member; return whether there was room for all of them."""
        left = [
            each
            for each in group.sessions
            if each not in self._progress.gone and not taken.is_ahead("whole", each)
        ]
        # The first is looked at when it is taken.
        preconditions.require_unchanged(
            self._db, group, left[1:], self._progress, there, removed=True
        )
        taken.whose |= dict.fromkeys(left, group.member)
        for session_id in left:
            if (
                taken.is_full
                or session_id in taken.detached
                or taken.is_ahead("detached", session_id)
            ):
                return False
            if not self._take_session(session_id, group, taken, there):
                return False
        return True

    def _take_session(self, session_id: str, group: Group, taken: Taken, there: Alive) -> bool:
        """Take a session, or as many of its messages as there is room for."""
        rows = self._db.session_images(session_id)
        row = preconditions.row_of(rows)
        if row is None:
            raise Outdated(group.member, f"session {session_id} is not there any more")
        expected = self._progress.expected(group, session_id)
        preconditions.require_unprotected(group.member, row, expected, there, removed=True)
        preconditions.require_no_signs(group, row)
        children = preconditions.left_behind(self._db, session_id, group)
        above = None if taken.before is None else taken.before.last_of(session_id)
        said, more = self._db.message_images(session_id, above, taken.room)
        place = said.columns.index("id")
        ids = [each[place] for each in said.rows]
        taken.messages[session_id] = ids, group
        taken.said += [said] if ids else []
        taken.room -= SESSION_BYTES + size_of(said)
        own = [] if more else [each for each in rows if not each.shared]
        self._take_beside(session_id, said, own, taken)
        if more:
            taken.room = 0
            taken.begun[session_id] = row["started_at"]
            return False
        taken.rows += [each for each in rows if each.shared or each.table == SESSIONS]
        stay = [
            each
            for each in children
            if each not in {session_id, *taken.whole}
            and not taken.is_ahead("whole", each)
            and not taken.is_ahead("detached", each)
        ]
        self._detach(session_id, stay, taken)
        taken.whole.append(session_id)
        return True

    def _take_beside(
        self, session_id: str, said: Images, own: Sequence[Images], taken: Taken
    ) -> None:
        """Take what other tables have of a session, and what refers to any of its rows.

        The latter would go with those, or be emptied.
        """
        own = [taken.without_beside(each) for each in own]
        found = self._db.referring_images([said, *own])
        taken.room -= sum(map(size_of, found))
        beside = [each for each in (*own, *map(taken.without_beside, found)) if each.rows]
        taken.beside += [replace(each, of=session_id) for each in beside if each.table != SESSIONS]

    def _detach(self, session_id: str, children: Iterable[str], taken: Taken) -> None:
        for child in children:
            before, after = {"parent_session_id": session_id}, {"parent_session_id": None}
            taken.changes.append(Change("sessions", {"id": child}, before, after))
            taken.detached.add(child)

    def _kept(self, taken: Taken, heads: list[Head]) -> Iterator[Kept]:
        for change in taken.changes:
            yield change.kept()
        for session_id, started_at in taken.begun.items():
            yield Kept(OF, {"id": session_id, "started_at": _plain(started_at)})
        for image in (*taken.beside, *taken.rows, *taken.said):
            yield Kept(IMAGES, image.pack())
        for session_id in taken.whole:
            for path in self._files.get(session_id, ()):
                if self._db.folder is not None:
                    member = taken.whose[session_id]
                    yield from files.collect_file(path, self._db.folder, heads, member)

    def _change(
        self, taken: Taken, there: Alive, heads: Sequence[Head], db: StateDatabase
    ) -> dict[str, Any]:
        """Remove what was taken, if it still is what it was."""
        self._pace.begin()
        preconditions.require_nobody_came(db, taken.whose, there, self._pinned())
        messages = {
            session_id: (ids, self._progress.expected(group, session_id))
            for session_id, (ids, group) in taken.messages.items()
        }
        try:
            if taken.beside:
                db.remove_rows(taken.beside)
            after = db.remove_messages(messages, taken.said)
        except (Changed, NotFound) as error:
            for session_id, (_, expected) in messages.items():
                preconditions.require_revision(db, taken.whose[session_id], session_id, expected)
            raise Again(str(error)) from error
        try:
            for change in taken.changes:
                change.write(db)
            db.remove_rows(taken.rows)
        except Changed as error:
            raise Again(str(error)) from error
        if taken.is_full:
            self._pace.end(taken.size)
        taken.after = {each: after[each] for each in taken.begun}
        return {
            "after": taken.after,
            "sessions": taken.whole,
            "files": len(heads),
            files.NAMES: [path.name for each in taken.whole for path in self._files.get(each, ())],
        }

    @contextmanager
    def _within(
        self, heads: Sequence[Head], ahead: Callable[[], Taken | None] | None
    ) -> Iterator[None]:
        if ahead is not None:  # not before: steps are taken back in the order of their trash
            self._aside.begin(ahead)
        yield
        if self._db.folder is not None:
            files.delete_files(heads, self._db.folder, self._folder)

    def _is_looked_for(self, member: Member) -> bool:
        """Whether its files are known, where there are any."""
        return self._folder is None or member.id in self._looked_for

    def _find_files(self, members: Sequence[Member]) -> None:
        """Look for the files of the sessions to come, of as many as are given at once."""
        if self._folder is None or members[0].id in self._looked_for:
            return
        ids = {each for member in members for each in Group.of(member).sessions}
        self._files = orphans.files_of(self._folder, ids)
        self._looked_for = {member.id for member in members}


def _plain(value: Any) -> Any:
    return {"raw": value.stored} if isinstance(value, Raw) else value
