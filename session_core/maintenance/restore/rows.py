"""Restore the rows of a step, and sort the items in its trash by session."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from session_core.errors import Changed, InvalidInput
from session_core.ledger.types import TrashItem
from session_core.maintenance.apply import home_files
from session_core.maintenance.apply.route_removal import ROUTE_KIND
from session_core.maintenance.apply.step_items import IMAGES, OF
from session_core.maintenance.members import CHANGE_KIND, PIN_KIND, RowChange
from session_core.maintenance.restore.unrestored_items import UnrestoredItems
from session_core.maintenance.select import orphans
from session_core.state.protocol import StateDatabase
from session_core.types import RawText, RowImages, RowMismatch

RefusedPairs = list[tuple[str, str]]

_TITLE_COLUMN = "title"

_ID_TAKEN_REASON = "a session with this id was made since; prune it, then restore again"


class RowRestorer:
    """Restores the rows of a step.

    `holder` returns the batch with the row of a session.
    """

    def __init__(
        self,
        db: StateDatabase,
        contents: TrashContents,
        unrestored: UnrestoredItems,
        refused: RefusedPairs,
        holder: Callable[[str], str | None],
    ) -> None:
        self._db = db
        self._contents = contents
        self._unrestored = unrestored
        self._refused = refused
        self._holder = holder
        self._began = dict(_iter_start_times(contents.images))

    def restore_rows(self) -> int:
        """Restore rows, the rows of sessions first.

        A row is left out if its session was replaced by another session with the same id.
        """
        session_images = [image for image in self._contents.images if image.table == SESSIONS]
        other_images = [image for image in self._contents.images if image.table != SESSIONS]
        tried = self._contents.tried
        if tried is not None:
            tried_ids = {*tried.sessions, *(session_id for session_id, _ in tried.columns)}
            restored = {id_ for id_ in tried_ids if self._is_still_restored(id_, tried)}
            missing = tried_ids - restored
            session_images = [_select_owned(image, missing) for image in session_images]
            other_images = [
                _select_owned(image, {*tried.sessions, *missing}, rest=tried.rest)
                for image in other_images
            ]
            self._write_missing_values(tried, restored)
        # Sessions come first: other rows refer to them.
        first = self._db.rows.put_images(session_images)
        # Rows of a refused session would belong to another session with its id.
        strangers = {misfit.key[0] for misfit in first.refused}
        self._unrestored.sessions |= dict.fromkeys(strangers, False)
        strangers |= self._find_lost_sessions()
        second = self._db.rows.put_images(
            [_exclude_owned(image, strangers) for image in other_images]
        )
        self._unrestored.columns += [
            [str(misfit.key[0]), misfit.column]
            for misfit in first.emptied
            if misfit.column in (_TITLE_COLUMN, PARENT)
        ]
        for misfit in second.refused:
            self._note_refused(misfit, other_images)
        for result in (first, second):
            self._add_reasons(result)
        return first.inserted + first.present + second.inserted + second.present

    def _is_still_restored(self, session_id: str, tried: UnrestoredItems) -> bool:
        """Return True if a session that an earlier try has restored still exists."""
        if not tried.sessions.get(session_id, True):
            return False
        row = self._db.get_session(session_id)
        began = self._began.get(session_id, self._contents.start_times.get(session_id))
        return row is not None and row["started_at"] == began

    def _write_missing_values(self, tried: UnrestoredItems, restored: Collection[str]) -> None:
        """Write values that did not fit when their rows were restored."""
        for session_id, column in tried.columns:
            if session_id not in restored:
                continue
            value = self._find_value(session_id, column)
            refused = (
                self._db.get_session_by_title(value) is not None
                if column == _TITLE_COLUMN
                else self._db.get_session(value) is None
            )
            label = f"{column} of {SESSIONS} {session_id}"
            if refused:
                reason = (
                    "another row has it now"
                    if column == _TITLE_COLUMN
                    else self._explain_missing(value)
                )
                self._refused.append((label, reason))
                self._unrestored.columns.append([session_id, column])
            else:
                self._write_value(session_id, column, value, label)

    def _write_value(self, session_id: str, column: str, value: Any, label: str) -> None:
        try:
            # Write only over the empty value that the restore has left.
            self._db.rows.change_row(SESSIONS, {"id": session_id}, {column: None}, {column: value})
        except Changed:
            self._refused.append((label, "it was changed again since"))

    def _find_value(self, session_id: str, column: str) -> Any:
        for image in self._contents.images:
            if image.table == SESSIONS and column in image.columns:
                id_index, value_index = image.columns.index("id"), image.columns.index(column)
                for row in image.rows:
                    if row[id_index] == session_id:
                        return row[value_index]
        return None

    def _find_lost_sessions(self) -> set[str]:
        """Return the sessions of kept messages that are missing or have been replaced."""
        strangers = set()
        for session_id, started_at in self._contents.start_times.items():
            row = self._db.get_session(session_id)
            # The start time distinguishes a session from a later session with the same id.
            if row is None or row["started_at"] != started_at:
                strangers.add(session_id)
                self._unrestored.sessions[session_id] = False
                reason = self._explain_missing(session_id) if row is None else _ID_TAKEN_REASON
                self._refused.append((f"messages of {session_id}", reason))
        return strangers

    def _explain_missing(self, session_id: str) -> str:
        batch = self._holder(session_id)
        advice = f"; restore batch {batch} first, then this again" if batch else ""
        return f"session {session_id} does not exist{advice}"

    def _note_refused(self, misfit: RowMismatch, images: Iterable[RowImages]) -> None:
        """Record the session of a refused row."""
        for image in images:
            if image.table == misfit.table:
                owners = find_owners(image) or [None] * len(image.rows)
                for row, owner in zip(image.rows, owners, strict=True):
                    if all(value in row for value in misfit.key):
                        if owner is None:
                            self._unrestored.rest = True
                        else:
                            self._unrestored.sessions.setdefault(str(owner), True)

    def _add_reasons(self, result: Any) -> None:
        self._refused += [
            (_describe_misfit(misfit), self._explain_misfit(misfit))
            for misfit in (*result.refused, *result.emptied)
        ]
        for table, columns in result.dropped_columns.items():
            label = f"{', '.join(columns)} of {table}"
            self._refused.append((label, "this home does not have the column any more"))

    def _explain_misfit(self, misfit: RowMismatch) -> str:
        is_session = misfit.table == SESSIONS and not misfit.column and misfit.key
        if is_session and self._db.get_session(str(misfit.key[0])) is not None:
            return _ID_TAKEN_REASON
        return misfit.why


def _iter_start_times(images: Iterable[RowImages]) -> Iterator[tuple[str, Any]]:
    for image in images:
        if image.table == SESSIONS:
            id_index, time_index = image.columns.index("id"), image.columns.index("started_at")
            yield from ((row[id_index], row[time_index]) for row in image.rows)


def _select_owned(
    image: RowImages, session_ids: Collection[Any], *, rest: bool = False
) -> RowImages:
    """Return an image with only the rows of these sessions, or rows without a session."""
    owners = find_owners(image)
    if owners is None:
        return image if rest or image.shared else _replace_rows(image, ())
    return _replace_rows(
        image, [row for row, owner in zip(image.rows, owners, strict=True) if owner in session_ids]
    )


def _exclude_owned(image: RowImages, strangers: Collection[Any]) -> RowImages:
    """Return an image without the rows of other sessions."""
    owners = find_owners(image)
    if owners is None or not strangers:
        return image
    paired = zip(image.rows, owners, strict=True)
    return _replace_rows(image, [row for row, owner in paired if owner not in strangers])


def _replace_rows(image: RowImages, rows: Iterable[Any]) -> RowImages:
    return replace(image, rows=tuple(rows))


def _describe_misfit(misfit: RowMismatch) -> str:
    key = ", ".join(map(str, misfit.key))
    label = f"{misfit.table} {key}".strip()
    return f"{misfit.column} of {label}" if misfit.column else label


_KNOWN_KINDS = frozenset(
    {IMAGES, OF, CHANGE_KIND, ROUTE_KIND, PIN_KIND, home_files.FILE_KIND, home_files.PIECE_KIND}
)

SESSIONS, PARENT = "sessions", "parent_session_id"

_OWNER_COLUMNS = ("session_id", "conversation_id")


@dataclass(slots=True)
class TrashContents:
    """The trash items of a step that remain to be restored, without the contents of files."""

    tried: UnrestoredItems | None = None
    images: list[RowImages] = field(default_factory=list)
    start_times: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, RowChange] = field(default_factory=dict)
    routes: list[Mapping[str, Any]] = field(default_factory=list)
    pins: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    """The previous pin and the one that the edit has set, by session."""
    files: list[str] = field(default_factory=list)
    """The names of files in the trash."""
    lost: list[str] = field(default_factory=list)
    """Files with a name that another file has by now."""

    @classmethod
    def from_trash(
        cls, trash_items: Iterable[TrashItem], tried: UnrestoredItems | None
    ) -> TrashContents:
        """Sort the trash items of a step, after an earlier try only the remaining items.

        Raises:
            InvalidInput: the trash has an item of an unknown kind.
        """
        contents = cls(tried)
        for place, item in enumerate(trash_items):
            if item.what not in _KNOWN_KINDS:
                raise InvalidInput(f"its trash has an item of the unknown kind {item.what!r}")
            contents.add_item(str(place), item)
        return contents

    def add_item(self, place: str, item: TrashItem) -> None:
        """Add a trash item."""
        tried = self.tried
        if item.what == IMAGES:
            self.images.append(RowImages.unpack(item.value))
        elif item.what == OF and (tried is None or item.value["id"] in tried.sessions):
            self.start_times[item.value["id"]] = _decode_value(item.value["started_at"])
        elif item.what == CHANGE_KIND and (tried is None or place in tried.changes):
            self.changes[place] = RowChange.from_trash(item.value)
        elif item.what == ROUTE_KIND and (tried is None or item.value["key"] in tried.routes):
            self.routes.append(item.value)
        elif item.what == PIN_KIND and tried is None:
            after = item.value["after"]
            self.pins |= {id_: (pin, after[id_]) for id_, pin in item.value["before"].items()}
        elif item.what == home_files.FILE_KIND and self.is_wanted_file(item.value["name"]):
            self.files.append(item.value["name"])

    def is_wanted_file(self, name: str) -> bool:
        """Return True if a file remains to be restored."""
        return self.tried is None or name in self.tried.files

    def list_sessions_to_end(self) -> set[str]:
        """Return the reopened sessions that the restore would end again."""
        return {
            change.key["id"]
            for change in self.changes.values()
            if change.table == SESSIONS
            and change.before.get("ended_at") is not None
            and change.after.get("ended_at", 0) is None
        }

    def split_off_sessions(self, ids: Collection[str]) -> tuple[UnrestoredItems, UnrestoredItems]:
        """Return the remaining items of these sessions, and the items of all other sessions."""
        remaining = self.tried or self._list_all_as_unrestored()
        owners = orphans.FileOwners({*remaining.sessions, *ids})

        def is_selected(kind: str, name: str) -> bool:
            if kind == "change":
                change = self.changes[name]
                return change.key.get("id") in ids or change.before.get(PARENT) in ids
            if kind == "file":
                return owners.find_owner(PurePath(name).name) in ids
            return kind == "session" and name in ids

        # Rows without a session stay with the items of the other sessions.
        selected = remaining.filter_items(is_selected, rest=False)
        return selected, remaining.filter_items(
            lambda kind, name: not is_selected(kind, name), rest=True
        )

    def _list_all_as_unrestored(self) -> UnrestoredItems:
        """Return all items as unrestored items."""
        images = [(image, find_owners(image)) for image in self.images]
        ids = [owner for _, owners in images for owner in owners or ()]
        return UnrestoredItems(
            sessions=dict.fromkeys([*map(str, ids), *self.start_times], False),
            changes={place: change.name for place, change in self.changes.items()},
            routes=[route["key"] for route in self.routes],
            files=list(self.files),
            rest=any(owners is None and not image.shared for image, owners in images),
        )


def find_owners(image: RowImages) -> list[Any] | None:
    """Return the session of each row in an image, or None if the rows belong to no session."""
    if image.of is not None:
        return [image.of] * len(image.rows)
    names = ("id",) if image.table == SESSIONS else _OWNER_COLUMNS
    index = next((index for index, name in enumerate(image.columns) if name in names), None)
    return None if index is None or image.shared else [row[index] for row in image.rows]


def _decode_value(value: Any) -> Any:
    return RawText(value["raw"]) if isinstance(value, dict) else value
