"""What is checked before rows go: they are as they were imaged, and nothing else goes with them.

Removal of exactly the rows that an image has: what was changed since is left, and says so.

It protects nobody, and keeps nothing: both is for those who took the image.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

from session_core import _sqlite3
from session_core.errors import Changed, InvalidInput
from session_core.state import validation
from session_core.state.sqlite import fts, routes, sessions, sql_blocks
from session_core.state.sqlite.connection import Handle
from session_core.state.sqlite.connections import Store
from session_core.state.sqlite.deletion import delete_messages
from session_core.state.sqlite.rows import raw, read
from session_core.state.sqlite.rows.raw import Row, Shape
from session_core.state.sqlite.rows.read import MESSAGES, SESSIONS
from session_core.types import Images, Revision

_PAGE = 500


def check_unchanged(handle: Handle, image: Images) -> None:
    """Make sure that rows are as they were imaged."""
    shape = require_shape(handle, image)
    if image.table == MESSAGES:
        place = shape.columns.index("id")
        for page in _pages(sorted(image.rows, key=itemgetter(place))):
            found = read.messages(handle, shape, [row[place] for row in page])
            if len(found) != len(page) or not all(map(raw.same, found, page)):
                raise changed("a message")
        return
    for row in image.rows:
        found = raw.at(handle, shape, key_of(shape, row))
        if len(found) != image.rows.count(row) or not raw.same(found[0], row):
            raise changed(f"a row of {image.table}")


def check_all_imaged(handle: Handle, given: Sequence[Images]) -> None:
    """Make sure that nothing else goes with the rows of sessions, as some tables have it."""
    sessions_of = [image for image in given if image.table == SESSIONS]
    known = {(image.table, tuple(row)) for image in given for row in image.rows if sessions_of}
    gone = [each for image in sessions_of for each in values_of(image, "id")]
    if gone and not known.issuperset(read.of_sessions(handle, gone)):
        raise changed("what belongs to a session")
    if read.to(handle, given):
        raise changed("what refers to a row")


def check_nothing_refers(handle: Handle, given: Sequence[Images]) -> None:
    """Make sure that nothing else goes with messages, or is emptied, as some tables have it."""
    if read.to(handle, given):
        raise changed("what refers to a message")


def known_by_id(ids: Sequence[int]) -> Images:
    """Return messages of which nothing but the ids is known."""
    return Images(MESSAGES, ("id",), tuple((each,) for each in ids))


def values_of(image: Images, column: str) -> list[Any]:
    """Return the values of a column, each once."""
    place = image.columns.index(column)
    return list(dict.fromkeys(row[place] for row in image.rows))


def key_of(shape: Shape, row: Row) -> dict[str, Any]:
    """Return what a row is known by: its key, and all of it where that is not of one row alone."""
    key = dict(zip(shape.key, shape.key_of(row), strict=True))
    return dict(zip(shape.columns, row, strict=True)) if None in key.values() else key


def require_shape(handle: Handle, image: Images) -> Shape:
    """Return what the table of an image looks like, which has to be as it was."""
    shape = raw.shape(handle, image.table)
    if shape is None or shape.columns != image.columns:
        raise changed(f"the table {image.table}")
    return shape


def _pages(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    return (rows[start : start + _PAGE] for start in range(0, len(rows), _PAGE))


def changed(what: str) -> Changed:
    """Return the error for what is not any more what it was."""
    return Changed(f"{what} was changed since; plan again")


SQL = sql_blocks.load("rows")

_Known = tuple[str, dict[str, Any]]
"""A row by its table and what it is known by."""


class Removal(Store):
    """Removes and alters what is still as it was imaged."""

    def remove_messages(
        self,
        removed: Mapping[str, tuple[Sequence[int], Revision]],
        imaged: Iterable[Images] = (),
    ) -> dict[str, Revision]:
        """Delete messages of sessions that are still at a revision; return the revisions after.

        All in one call, since a search index pays for each. The counters stay as they are.
        `imaged` is what they were: where anything was written since, they are compared.

        Raises:
            Changed: a session is at another revision, has not all of them, one is not as in its
                image, others refer to one, or a rule of this home refuses it.
            NotFound: there is no such session.
        """
        wanted = _checked(removed)
        as_they_were = read.checked(imaged)

        def step(handle: Handle) -> dict[str, Revision]:
            for image in as_they_were:
                if handle.changed or image.at is None or image.at is not handle.moment:
                    check_unchanged(handle, image)
            after = {
                session_id: _without(handle, session_id, ids, expected)
                for session_id, (ids, expected) in wanted.items()
            }
            gone = [one for ids, _ in wanted.values() for one in ids]
            check_nothing_refers(handle, as_they_were or [known_by_id(gone)])
            with _rules(handle), read.keeping(handle, wanted), fts.seldom(handle):
                _delete_messages(handle, gone)
            handle.cache |= {("revision", each): revision for each, revision in after.items()}
            return after

        return self._write(step)

    def remove_rows(self, removed: Iterable[Images]) -> None:
        """Delete rows that are still as they were imaged, in any order; shared ones stay.

        Raises:
            Changed: one of them is not as in its image, others belong or refer to it, or a rule of
                this home refuses it.
        """
        rest = [image for image in read.checked(removed) if not image.shared and image.rows]

        def step(handle: Handle) -> None:
            for image in rest:
                check_unchanged(handle, image)
            check_all_imaged(handle, rest)
            with _rules(handle):
                _remove(handle, rest)

        self._write(step)

    def change_row(
        self,
        table: str,
        key: Mapping[str, Any],
        before: Mapping[str, Any],
        after: Mapping[str, Any],
    ) -> None:
        """Set columns of the row with a key which has `before` in some columns.

        Raises:
            Changed: it has not, there is no such row, or a rule of this home refuses it.
            InvalidInput: the table has no such column.
        """
        if not key or not all(isinstance(one, Mapping) for one in (key, before, after)):
            raise InvalidInput("a key, what was and what is to be are mappings of columns")

        def step(handle: Handle) -> None:
            shape = raw.shape(handle, table)
            if shape is None:
                raise InvalidInput(f"this home has no table {table}")
            for given in (key, before, after):
                read.require_columns(shape, given)
            found = raw.at(handle, shape, key)
            if len(found) != 1 or not _has(shape, found[0], before):
                raise changed(f"a row of {table}")
            if after:
                _touch(handle, Images(table, shape.columns, tuple(found)))
                with _rules(handle):
                    _change(handle, shape, found[0], key, after)

        self._write(step)


def _change(
    handle: Handle, shape: Shape, row: Row, key: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Set columns of a row, of a message in the search indexes too."""
    ids = [row[shape.columns.index("id")]] if shape.table == MESSAGES else []
    before = fts.change_number(handle)
    fts.forget(handle, ids)
    fts.mend(handle, ids)
    raw.update(handle, shape.table, key, after)
    fts.mend(handle, ids)
    fts.remember(handle, ids, before)


def _without(handle: Handle, session_id: str, ids: Collection[int], expected: Revision) -> Revision:
    """Return what the revision is without these messages, which must all be there."""
    if sessions.revision(handle, session_id) != expected:
        raise changed(f"session {session_id}")
    given = {"ids": json.dumps(list(ids)), "session": session_id}
    count, live, compacted = handle.values(handle.sql(SQL["count_flags"]), given)[0]
    if count < len(ids):
        raise changed(f"session {session_id}")
    after = expected._replace(live=expected.live - live, compacted=expected.compacted - compacted)
    if expected.last_id in ids:
        last = handle.value(SQL["get_last_without"], given)
        after = after._replace(last_id=last or 0)
    return after


def _delete_messages(handle: Handle, ids: Sequence[int]) -> None:
    if delete_messages(handle, ids) < len(ids):
        raise changed("a message that is to be deleted")


def _checked(
    removed: Mapping[str, tuple[Sequence[int], Revision]],
) -> dict[str, tuple[set[int], Revision]]:
    validation.check_mapping("what is removed", removed)
    if not all(isinstance(each, Sequence) and len(each) == 2 for each in removed.values()):  # noqa: PLR2004 -- a pair
        raise InvalidInput("of each session its message ids are removed, and as of a revision")
    return {
        session_id: (set(validation.whole_numbers("message ids", ids)), expected)
        for session_id, (ids, expected) in removed.items()
    }


def _remove(handle: Handle, given: Sequence[Images]) -> None:
    """Delete rows, those that others refer to after these: sessions, and before them messages."""
    rest: list[_Known] = []
    for image in given:
        _touch(handle, image)
        shape = require_shape(handle, image)
        if image.table != MESSAGES:
            rest += [(image.table, key_of(shape, row)) for row in image.rows]
    left = _delete(handle, [one for one in rest if one[0] != SESSIONS])
    for image in given:
        if image.table == MESSAGES:
            place = image.columns.index("id")
            with read.keeping(handle, values_of(image, "session_id")):
                _delete_messages(handle, [row[place] for row in image.rows])
    left = _delete(handle, [*left, *(one for one in rest if one[0] == SESSIONS)])
    if left:
        raise changed(f"what belongs to a row of {left[0][0]}")


def _delete(handle: Handle, rest: list[_Known]) -> list[_Known]:
    """Delete rows in as many rounds as it takes; return those that others still refer to."""
    while True:
        left = [one for one in rest if not _is_deleted(handle, *one)]
        if not left or len(left) == len(rest):
            return left
        rest = left


def _is_deleted(handle: Handle, table: str, key: Mapping[str, Any]) -> bool:
    """Delete a row; say whether nothing refers to it any more."""
    try:
        if not raw.delete(handle, table, key) and _is_there(handle, table, key):
            raise changed(f"a row of {table} that is to be deleted")
    except _sqlite3.library().IntegrityError as error:
        if "FOREIGN KEY" not in str(error):
            raise
        return False
    return True


def _is_there(handle: Handle, table: str, key: Mapping[str, Any]) -> bool:
    shape = raw.shape(handle, table)
    return shape is not None and bool(raw.at(handle, shape, key))


@contextmanager
def _rules(handle: Handle) -> Iterator[None]:
    """Say that a row is kept where a trigger or a key of somebody else refuses a change of it."""
    try:
        yield
    except _sqlite3.library().IntegrityError as error:
        if not handle.connection.in_transaction:
            raise  # all of it was rolled back, and whoever goes on would do so without one
        raise Changed("a rule of this home, by a trigger or a key, does not allow it") from error


def _touch(handle: Handle, image: Images) -> None:
    """Forget what was counted of the sessions whose rows or messages these are."""
    if image.table == SESSIONS:
        for session_id in values_of(image, "id"):
            handle.uncount(session_id)
    elif image.table == MESSAGES:
        for session_id in values_of(image, "session_id"):
            handle.touched(session_id)
    elif image.table == routes.TABLE:
        routes.changed(handle)


def _has(shape: Shape, row: Row, values: Mapping[str, Any]) -> bool:
    found = [row[shape.columns.index(name)] for name in values]
    return raw.same(found, list(values.values()))
