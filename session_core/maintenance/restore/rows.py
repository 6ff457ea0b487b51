"""Rows of a step that are put back, and what of them stays in the trash.

What a step has kept, sorted, and parted by whose it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from session_core.errors import Changed, InvalidInput
from session_core.ledger.types import TrashItem
from session_core.maintenance.apply import files
from session_core.maintenance.apply.routes import ROUTE_KIND
from session_core.maintenance.apply.step_items import IMAGES, OF
from session_core.maintenance.edits import PIN_KIND
from session_core.maintenance.members import CHANGE_KIND, RowChange
from session_core.maintenance.restore.remainder import Remainder
from session_core.maintenance.select import orphans
from session_core.state.protocol import StateDatabase
from session_core.types import RawText, RowImages, RowMismatch

RefusedPairs = list[tuple[str, str]]

_TITLE_COLUMN = "title"

_ID_TAKEN_REASON = "that session is another one by now"


class RowRestorer:
    """Puts the rows of a step back; `holder` says which batch has the row of a session."""

    def __init__(
        self,
        db: StateDatabase,
        contents: TrashContents,
        left: Remainder,
        unfit: RefusedPairs,
        holder: Callable[[str], str | None],
    ) -> None:
        self._db = db
        self._contents = contents
        self._left = left
        self._unfit = unfit
        self._holder = holder
        self._began = dict(_iter_start_times(contents.images))

    def restore_rows(self) -> int:
        """Put rows back, those of sessions first: what belongs to a stranger's is left out."""
        own = [image for image in self._contents.images if image.table == SESSIONS]
        rest = [image for image in self._contents.images if image.table != SESSIONS]
        tried = self._contents.tried
        if tried is not None:
            wanted = {*tried.sessions, *(session_id for session_id, _ in tried.columns)}
            ours = {each for each in wanted if self._is_still_restored(each, tried)}
            again = wanted - ours
            own = [_select_owned(image, again) for image in own]
            rest = [
                _select_owned(image, {*tried.sessions, *again}, rest=tried.rest) for image in rest
            ]
            self._write_missing_values(tried, ours)
        put = self._db.put_images(own)
        strangers = {misfit.key[0] for misfit in put.refused}
        self._left.sessions |= dict.fromkeys(strangers, False)
        strangers |= self._find_strangers()
        more = self._db.put_images([_exclude_owned(image, strangers) for image in rest])
        self._left.columns += [
            [str(each.key[0]), each.column]
            for each in put.emptied
            if each.column in (_TITLE_COLUMN, PARENT)
        ]
        for misfit in more.refused:
            self._note_refused(misfit, rest)
        for each in (put, more):
            self._add_reasons(each)
        return put.inserted + put.present + more.inserted + more.present

    def _is_still_restored(self, session_id: str, tried: Remainder) -> bool:
        """Whether a session that an earlier try has put back is still there."""
        if not tried.sessions.get(session_id, True):
            return False
        row = self._db.get_session(session_id)
        began = self._began.get(session_id, self._contents.of.get(session_id))
        return row is not None and row["started_at"] == began

    def _write_missing_values(self, tried: Remainder, ours: Collection[str]) -> None:
        """Write values that did not fit when their rows were put back."""
        for session_id, column in tried.columns:
            if session_id not in ours:
                continue
            value = self._find_value(session_id, column)
            taken = (
                self._db.get_session_by_title(value) is not None
                if column == _TITLE_COLUMN
                else self._db.get_session(value) is None
            )
            what = f"{column} of {SESSIONS} {session_id}"
            if taken:
                why = (
                    "another row has it now"
                    if column == _TITLE_COLUMN
                    else self._explain_missing(value)
                )
                self._unfit.append((what, why))
                self._left.columns.append([session_id, column])
            else:
                self._write_value(session_id, column, value, what)

    def _write_value(self, session_id: str, column: str, value: Any, what: str) -> None:
        try:
            self._db.change_row(SESSIONS, {"id": session_id}, {column: None}, {column: value})
        except Changed:
            self._unfit.append((what, "it was changed again since"))

    def _find_value(self, session_id: str, column: str) -> Any:
        for image in self._contents.images:
            if image.table == SESSIONS and column in image.columns:
                place, at = image.columns.index("id"), image.columns.index(column)
                for row in image.rows:
                    if row[place] == session_id:
                        return row[at]
        return None

    def _find_strangers(self) -> set[str]:
        """Return the sessions of which only messages were kept, and which are not theirs."""
        found = set()
        for session_id, started_at in self._contents.of.items():
            row = self._db.get_session(session_id)
            if row is None or row["started_at"] != started_at:
                found.add(session_id)
                self._left.sessions[session_id] = False
                why = self._explain_missing(session_id) if row is None else _ID_TAKEN_REASON
                self._unfit.append((f"messages of {session_id}", why))
        return found

    def _explain_missing(self, session_id: str) -> str:
        batch = self._holder(session_id)
        first = f"; restore batch {batch} first, then this again" if batch else ""
        return f"session {session_id} is not there{first}"

    def _note_refused(self, misfit: RowMismatch, images: Iterable[RowImages]) -> None:
        """Note whose row was refused."""
        for image in images:
            if image.table == misfit.table:
                owners = find_owners(image) or [None] * len(image.rows)
                for row, owner in zip(image.rows, owners, strict=True):
                    if all(value in row for value in misfit.key):
                        if owner is None:
                            self._left.rest = True
                        else:
                            self._left.sessions.setdefault(str(owner), True)

    def _add_reasons(self, put: Any) -> None:
        self._unfit += [
            (_describe_misfit(misfit), misfit.why) for misfit in (*put.refused, *put.emptied)
        ]
        for table, columns in put.dropped_columns.items():
            what = f"{', '.join(columns)} of {table}"
            self._unfit.append((what, "this home has no such column any more"))


def _iter_start_times(images: Iterable[RowImages]) -> Iterator[tuple[str, Any]]:
    for image in images:
        if image.table == SESSIONS:
            place, at = image.columns.index("id"), image.columns.index("started_at")
            yield from ((row[place], row[at]) for row in image.rows)


def _select_owned(image: RowImages, wanted: Collection[Any], *, rest: bool = False) -> RowImages:
    """Return an image with the rows that belong to some sessions, or to none."""
    owners = find_owners(image)
    if owners is None:
        return image if rest or image.shared else _replace_rows(image, ())
    return _replace_rows(
        image, [row for row, of in zip(image.rows, owners, strict=True) if of in wanted]
    )


def _exclude_owned(image: RowImages, strangers: Collection[Any]) -> RowImages:
    """Return an image without the rows that belong to sessions of others."""
    owners = find_owners(image)
    if owners is None or not strangers:
        return image
    paired = zip(image.rows, owners, strict=True)
    return _replace_rows(image, [row for row, of in paired if of not in strangers])


def _replace_rows(image: RowImages, rows: Iterable[Any]) -> RowImages:
    return replace(image, rows=tuple(rows))


def _describe_misfit(misfit: RowMismatch) -> str:
    key = ", ".join(map(str, misfit.key))
    what = f"{misfit.table} {key}".strip()
    return f"{misfit.column} of {what}" if misfit.column else what


_KNOWN_KINDS = frozenset(
    {IMAGES, OF, CHANGE_KIND, ROUTE_KIND, PIN_KIND, files.FILE_KIND, files.PIECE_KIND}
)

SESSIONS, PARENT = "sessions", "parent_session_id"

_OWNER_COLUMNS = ("session_id", "conversation_id")


@dataclass(slots=True)
class TrashContents:
    """What a step has kept, but its files; and what of it is still to be put back."""

    tried: Remainder | None = None
    images: list[RowImages] = field(default_factory=list)
    of: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, RowChange] = field(default_factory=dict)
    routes: list[Mapping[str, Any]] = field(default_factory=list)
    pins: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    """What they were, and what they became."""
    files: list[str] = field(default_factory=list)
    """By their names in the trash."""
    lost: list[str] = field(default_factory=list)
    """Files in whose place there is another one."""

    @classmethod
    def from_trash(cls, kept: Iterable[TrashItem], tried: Remainder | None) -> TrashContents:
        """Sort what a step has kept; of what was tried only what did not fit.

        Raises:
            InvalidInput: something in it is put back otherwise.
        """
        found = cls(tried)
        for place, one in enumerate(kept):
            if one.what not in _KNOWN_KINDS:
                raise InvalidInput(f"its trash has a {one.what}, which is not restored here")
            found.add_item(str(place), one)
        return found

    def add_item(self, place: str, one: TrashItem) -> None:
        """Add one thing that was kept."""
        tried = self.tried
        if one.what == IMAGES:
            self.images.append(RowImages.unpack(one.value))
        elif one.what == OF and (tried is None or one.value["id"] in tried.sessions):
            self.of[one.value["id"]] = _decode_value(one.value["started_at"])
        elif one.what == CHANGE_KIND and (tried is None or place in tried.changes):
            self.changes[place] = RowChange.from_trash(one.value)
        elif one.what == ROUTE_KIND and (tried is None or one.value["key"] in tried.routes):
            self.routes.append(one.value)
        elif one.what == PIN_KIND and tried is None:
            after = one.value["after"]
            self.pins |= {k: (was, after[k]) for k, was in one.value["before"].items()}
        elif one.what == files.FILE_KIND and self.is_wanted_file(one.value["name"]):
            self.files.append(one.value["name"])

    def is_wanted_file(self, name: str) -> bool:
        """Whether a file is still to be put back."""
        return self.tried is None or name in self.tried.files

    def list_sessions_to_end(self) -> set[str]:
        """Return the sessions that never ended, and would be ended by putting this back."""
        return {
            change.key["id"]
            for change in self.changes.values()
            if change.table == SESSIONS
            and change.before.get("ended_at") is not None
            and change.after.get("ended_at", 0) is None
        }

    def split_by_sessions(self, ids: Collection[str]) -> tuple[Remainder, Remainder]:
        """Return what is still to be put back: of these sessions, and of all others."""
        left = self.tried or self._to_remainder()
        names = orphans.FileOwners({*left.sessions, *ids})

        def is_theirs(kind: str, name: str) -> bool:
            if kind == "change":
                change = self.changes[name]
                return change.key.get("id") in ids or change.before.get(PARENT) in ids
            if kind == "file":
                return names.find_owner(PurePath(name).name) in ids
            return kind == "session" and name in ids

        theirs = left.select_part(is_theirs, rest=False)
        return theirs, left.select_part(lambda kind, name: not is_theirs(kind, name), rest=True)

    def _to_remainder(self) -> Remainder:
        """Return all of it."""
        owned = [(image, find_owners(image)) for image in self.images]
        ids = [each for _, owners in owned for each in owners or ()]
        return Remainder(
            sessions=dict.fromkeys([*map(str, ids), *self.of], False),
            changes={place: each.name for place, each in self.changes.items()},
            routes=[each["key"] for each in self.routes],
            files=list(self.files),
            rest=any(owners is None and not image.shared for image, owners in owned),
        )


def find_owners(image: RowImages) -> list[Any] | None:
    """Return whose each row of an image is, None where they are of no session."""
    if image.of is not None:
        return [image.of] * len(image.rows)
    names = ("id",) if image.table == SESSIONS else _OWNER_COLUMNS
    at = next((at for at, name in enumerate(image.columns) if name in names), None)
    return None if at is None or image.shared else [row[at] for row in image.rows]


def _decode_value(value: Any) -> Any:
    return RawText(value["raw"]) if isinstance(value, dict) else value
