"""Rows of a step that are put back, and what of them stays in the trash."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from session_core.errors import Changed
from session_core.maintenance.contents import PARENT, SESSIONS, Contents, owners_of
from session_core.maintenance.left import Left
from session_core.models import Images, Misfit
from session_core.state.contract import StateDatabase

Unfits = list[tuple[str, str]]

_TITLE = "title"

_TAKEN = "that session is another one by now"


class Rows:
    """Puts the rows of a step back; `holder` says which batch has the row of a session."""

    def __init__(
        self,
        db: StateDatabase,
        contents: Contents,
        left: Left,
        unfit: Unfits,
        holder: Callable[[str], str | None],
    ) -> None:
        self._db = db
        self._contents = contents
        self._left = left
        self._unfit = unfit
        self._holder = holder
        self._began = dict(_began(contents.images))

    def put(self) -> int:
        """Put rows back, those of sessions first: what belongs to a stranger's is left out."""
        own = [image for image in self._contents.images if image.table == SESSIONS]
        rest = [image for image in self._contents.images if image.table != SESSIONS]
        tried = self._contents.tried
        if tried is not None:
            wanted = {*tried.sessions, *(session_id for session_id, _ in tried.columns)}
            ours = {each for each in wanted if self._is_ours(each, tried)}
            again = wanted - ours
            own = [_only(image, again) for image in own]
            rest = [_only(image, {*tried.sessions, *again}, rest=tried.rest) for image in rest]
            self._fill(tried, ours)
        put = self._db.put_images(own)
        strangers = {misfit.key[0] for misfit in put.refused}
        self._left.sessions |= dict.fromkeys(strangers, False)
        strangers |= self._strangers()
        more = self._db.put_images([_without(image, strangers) for image in rest])
        self._left.columns += [
            [str(each.key[0]), each.column]
            for each in put.emptied
            if each.column in (_TITLE, PARENT)
        ]
        for misfit in more.refused:
            self._leave(misfit, rest)
        for each in (put, more):
            self._say(each)
        return put.inserted + put.present + more.inserted + more.present

    def _is_ours(self, session_id: str, tried: Left) -> bool:
        """Whether a session that an earlier try has put back is still there."""
        if not tried.sessions.get(session_id, True):
            return False
        row = self._db.get_session(session_id)
        began = self._began.get(session_id, self._contents.of.get(session_id))
        return row is not None and row["started_at"] == began

    def _fill(self, tried: Left, ours: Collection[str]) -> None:
        """Write values that did not fit when their rows were put back."""
        for session_id, column in tried.columns:
            if session_id not in ours:
                continue
            value = self._value(session_id, column)
            taken = (
                self._db.get_session_by_title(value) is not None
                if column == _TITLE
                else self._db.get_session(value) is None
            )
            what = f"{column} of {SESSIONS} {session_id}"
            if taken:
                why = "somebody else has it by now" if column == _TITLE else self._missing(value)
                self._unfit.append((what, why))
                self._left.columns.append([session_id, column])
            else:
                self._change(session_id, column, value, what)

    def _change(self, session_id: str, column: str, value: Any, what: str) -> None:
        try:
            self._db.change_row(SESSIONS, {"id": session_id}, {column: None}, {column: value})
        except Changed:
            self._unfit.append((what, "it was changed again since"))

    def _value(self, session_id: str, column: str) -> Any:
        for image in self._contents.images:
            if image.table == SESSIONS and column in image.columns:
                place, at = image.columns.index("id"), image.columns.index(column)
                for row in image.rows:
                    if row[place] == session_id:
                        return row[at]
        return None

    def _strangers(self) -> set[str]:
        """Return the sessions of which only messages were kept, and which are not theirs."""
        found = set()
        for session_id, started_at in self._contents.of.items():
            row = self._db.get_session(session_id)
            if row is None or row["started_at"] != started_at:
                found.add(session_id)
                self._left.sessions[session_id] = False
                why = self._missing(session_id) if row is None else _TAKEN
                self._unfit.append((f"messages of {session_id}", why))
        return found

    def _missing(self, session_id: str) -> str:
        batch = self._holder(session_id)
        first = f"; restore batch {batch} first, then this again" if batch else ""
        return f"session {session_id} is not there{first}"

    def _leave(self, misfit: Misfit, images: Iterable[Images]) -> None:
        """Note whose row was refused."""
        for image in images:
            if image.table == misfit.table:
                owners = owners_of(image) or [None] * len(image.rows)
                for row, owner in zip(image.rows, owners, strict=True):
                    if all(value in row for value in misfit.key):
                        if owner is None:
                            self._left.rest = True
                        else:
                            self._left.sessions.setdefault(str(owner), True)

    def _say(self, put: Any) -> None:
        self._unfit += [(_named(misfit), misfit.why) for misfit in (*put.refused, *put.emptied)]
        for table, columns in put.dropped_columns.items():
            what = f"{', '.join(columns)} of {table}"
            self._unfit.append((what, "this home has no such column any more"))


def _began(images: Iterable[Images]) -> Iterator[tuple[str, Any]]:
    for image in images:
        if image.table == SESSIONS:
            place, at = image.columns.index("id"), image.columns.index("started_at")
            yield from ((row[place], row[at]) for row in image.rows)


def _only(image: Images, wanted: Collection[Any], *, rest: bool = False) -> Images:
    """Return an image with the rows that belong to some sessions, or to none."""
    owners = owners_of(image)
    if owners is None:
        return image if rest or image.shared else _with(image, ())
    return _with(image, [row for row, of in zip(image.rows, owners, strict=True) if of in wanted])


def _without(image: Images, strangers: Collection[Any]) -> Images:
    """Return an image without the rows that belong to sessions of others."""
    owners = owners_of(image)
    if owners is None or not strangers:
        return image
    paired = zip(image.rows, owners, strict=True)
    return _with(image, [row for row, of in paired if of not in strangers])


def _with(image: Images, rows: Iterable[Any]) -> Images:
    return replace(image, rows=tuple(rows))


def _named(misfit: Misfit) -> str:
    key = ", ".join(map(str, misfit.key))
    what = f"{misfit.table} {key}".strip()
    return f"{misfit.column} of {what}" if misfit.column else what
