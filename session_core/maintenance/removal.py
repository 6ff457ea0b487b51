"""Sessions that are removed: which rows go in the next step, and what is looked at in it.

A conversation goes from its tip to its root. A session that is larger than there is room for goes
over several steps, its own row in the last; a step also takes as many small ones as there is room.
What the next step takes is read and packed while this one is under way, and thrown away where this
one comes to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from session_core.alive import Alive
from session_core.errors import Changed, NotFound
from session_core.ledger.packing import Packed, pack
from session_core.ledger.records import Kept, Member
from session_core.maintenance import orphans, present, unlinking
from session_core.maintenance.aside import Aside
from session_core.maintenance.changes import Change
from session_core.maintenance.members import Again, Group, Outdated, Piece, Progress
from session_core.maintenance.unlinking import Head
from session_core.models import Images, Raw, Revision
from session_core.state.contract import StateDatabase
from session_core.state.pace import Pace

IMAGES, OF = "images", "of"
"""Rows as they were; and of a session whose row stays for now, when it began."""

_SESSION_BYTES = 1_000
"""What a session counts beside its messages."""

_ROW_BYTES = 200

_Kind = Literal["whole", "detached"]


@dataclass(slots=True)
class _Taken:
    """What the next step removes."""

    room: int
    size: int
    before: _Taken | None = None
    """What the step before removes, which may still be there."""
    members: list[str] = field(default_factory=list)
    whose: dict[str, str] = field(default_factory=dict)
    """By session, the member that it is of; also those that come later."""
    messages: dict[str, tuple[list[int], Group]] = field(default_factory=dict)
    said: list[Images] = field(default_factory=list)
    rows: list[Images] = field(default_factory=list)
    begun: dict[str, Any] = field(default_factory=dict)
    """Sessions of which only messages go, and when they began."""
    whole: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    detached: set[str] = field(default_factory=set)
    """Sessions that lose their parent in it, so that their rows are not what they were."""
    packed: Packed | None = None
    after: dict[str, Revision] | None = None
    """At which revision it leaves what it has begun; None before."""

    def is_ahead(self, kind: _Kind, session_id: str) -> bool:
        """Whether the step before does something with a session that may not be seen yet."""
        return self.before is not None and session_id in getattr(self.before, kind)

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be taken."""
        return self.room <= 0


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
        if taken.is_full and rest and self._is_looked_for(rest[0]):
            self._aside.begin(partial(self._take_ahead, rest, there, taken))
        heads: list[Head] = []
        return Piece(
            tuple(taken.members),
            taken.packed or self._kept(taken, heads),
            partial(self._change, taken, there, heads),
            partial(self._within, heads),
        )

    def _taken_ahead(self, first: Member) -> _Taken | None:
        """Return what was taken beside, if it begins here and what it comes after was done."""
        taken: _Taken | None = self._aside.result()
        if taken is None or taken.before is None:
            return None
        before, taken.before = taken.before, None
        progress = self._progress
        if before.after is None or not progress.gone.issuperset(before.whole):
            return None
        if any(progress.after.get(each) != at for each, at in before.after.items()):
            return None
        return taken if next(iter(taken.whose.values()), None) == first.id else None

    def _take_ahead(self, members: Sequence[Member], there: Alive, before: _Taken) -> _Taken | None:
        taken = self._take_some(members, there, before)
        if not taken.messages:
            return None
        if not any(session_id in self._files for session_id in taken.whole):
            taken.packed = Packed(tuple(pack(self._kept(taken, []))))
        return taken

    def _take_some(self, members: Sequence[Member], there: Alive, before: _Taken | None) -> _Taken:
        taken = _Taken(self._pace.room, self._pace.room, before)
        for member in members:
            if taken.is_full or not self._is_looked_for(member):
                break
            if not self._take(Group.of(member), taken, there):
                break
            taken.members.append(member.id)
        taken.size -= taken.room
        return taken

    def _take(self, group: Group, taken: _Taken, there: Alive) -> bool:
        """Take the sessions of a member; return whether there was room for all of them."""
        left = [
            each
            for each in group.sessions
            if each not in self._progress.gone and not taken.is_ahead("whole", each)
        ]
        # The first is looked at when it is taken.
        present.require_unchanged(self._db, group, left[1:], self._progress, there, removed=True)
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

    def _take_session(self, session_id: str, group: Group, taken: _Taken, there: Alive) -> bool:
        """Take a session, or as many of its messages as there is room for."""
        rows = self._db.session_images(session_id)
        row = present.row_of(rows)
        if row is None:
            raise Outdated(group.member, f"session {session_id} is not there any more")
        expected = self._progress.expected(group, session_id)
        present.require_unprotected(group.member, row, expected, there, removed=True)
        present.require_no_signs(group, row)
        children = present.left_behind(self._db, session_id, group)
        said, more = self._db.message_images(
            session_id, _last(taken.before, session_id), taken.room
        )
        place = said.columns.index("id")
        ids = [each[place] for each in said.rows]
        taken.messages[session_id] = ids, group
        taken.said += [said] if ids else []
        taken.room -= _SESSION_BYTES + size_of(said)
        if more:
            taken.room = 0
            taken.begun[session_id] = row["started_at"]
            return False
        taken.rows += rows
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

    def _detach(self, session_id: str, children: Iterable[str], taken: _Taken) -> None:
        for child in children:
            before, after = {"parent_session_id": session_id}, {"parent_session_id": None}
            taken.changes.append(Change("sessions", {"id": child}, before, after))
            taken.detached.add(child)

    def _kept(self, taken: _Taken, heads: list[Head]) -> Iterator[Kept]:
        for change in taken.changes:
            yield change.kept()
        for session_id, started_at in taken.begun.items():
            yield Kept(OF, {"id": session_id, "started_at": _plain(started_at)})
        for image in (*taken.rows, *taken.said):
            yield Kept(IMAGES, image.pack())
        for session_id in taken.whole:
            for path in self._files.get(session_id, ()):
                if self._db.folder is not None:
                    member = taken.whose[session_id]
                    yield from unlinking.keep(path, self._db.folder, heads, member)

    def _change(
        self, taken: _Taken, there: Alive, heads: Sequence[Head], db: StateDatabase
    ) -> dict[str, Any]:
        """Remove what was taken, if it still is what it was."""
        self._pace.begin()
        present.require_nobody_came(db, taken.whose, there, self._pinned())
        messages = {
            session_id: (ids, self._progress.expected(group, session_id))
            for session_id, (ids, group) in taken.messages.items()
        }
        try:
            after = db.remove_messages(messages, taken.said)
        except (Changed, NotFound) as error:
            for session_id, (_, expected) in messages.items():
                present.require_revision(db, taken.whose[session_id], session_id, expected)
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
            unlinking.NAMES: [
                path.name for each in taken.whole for path in self._files.get(each, ())
            ],
        }

    @contextmanager
    def _within(self, heads: Sequence[Head]) -> Iterator[None]:
        yield
        if self._db.folder is not None:
            unlinking.remove(heads, self._db.folder, self._folder)

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


def _last(before: _Taken | None, session_id: str) -> int | None:
    """Return up to which message of a session the step before removes it, None where at none."""
    ids, _ = (before.messages if before is not None else {}).get(session_id, ([], None))
    return max(ids, default=None)


def size_of(images: Images) -> int:
    """Return what messages count, roughly as `message_images` counts them."""
    held = [len(value) for row in images.rows for value in row if type(value) in _SIZED]
    return _ROW_BYTES * len(images.rows) + sum(held)


_SIZED = frozenset({str, bytes, Raw})


def _plain(value: Any) -> Any:
    return {"raw": value.stored} if isinstance(value, Raw) else value
