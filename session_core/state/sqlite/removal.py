"""Removal of exactly the rows that an image has: what was changed since is left, and says so.

It protects nobody, and keeps nothing: both is for those who took the image.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from session_core import driver
from session_core.errors import Changed, InvalidInput
from session_core.models import Images, Revision
from session_core.state import arguments
from session_core.state.sqlite import (
    blocks,
    images,
    index,
    merging,
    routes,
    sessions,
    stored,
    triggers,
    trigram,
)
from session_core.state.sqlite.deletion import delete_messages
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.images import MESSAGES, SESSIONS
from session_core.state.sqlite.store import Store
from session_core.state.sqlite.stored import Row, Shape
from session_core.state.sqlite.unchanged import (
    changed,
    check_all_imaged,
    check_nothing_refers,
    check_unchanged,
    key_of,
    known_by_id,
    require_shape,
    values_of,
)

SQL = blocks.load("images")

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
        as_they_were = images.checked(imaged)

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
            with _rules(handle), triggers.keeping(handle, wanted), merging.seldom(handle):
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
        rest = [image for image in images.checked(removed) if not image.shared and image.rows]

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
            shape = stored.shape(handle, table)
            if shape is None:
                raise InvalidInput(f"this home has no table {table}")
            for given in (key, before, after):
                images.require_columns(shape, given)
            found = stored.at(handle, shape, key)
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
    before = index.change_number(handle)
    index.forget(handle, ids)
    trigram.mend(handle, ids)
    stored.update(handle, shape.table, key, after)
    trigram.mend(handle, ids)
    index.remember(handle, ids, before)


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
    arguments.check_mapping("what is removed", removed)
    if not all(isinstance(each, Sequence) and len(each) == 2 for each in removed.values()):  # noqa: PLR2004 -- a pair
        raise InvalidInput("of each session its message ids are removed, and as of a revision")
    return {
        session_id: (set(arguments.whole_numbers("message ids", ids)), expected)
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
            with triggers.keeping(handle, values_of(image, "session_id")):
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
        if not stored.delete(handle, table, key) and _is_there(handle, table, key):
            raise changed(f"a row of {table} that is to be deleted")
    except driver.library().IntegrityError as error:
        if "FOREIGN KEY" not in str(error):
            raise
        return False
    return True


def _is_there(handle: Handle, table: str, key: Mapping[str, Any]) -> bool:
    shape = stored.shape(handle, table)
    return shape is not None and bool(stored.at(handle, shape, key))


@contextmanager
def _rules(handle: Handle) -> Iterator[None]:
    """Say that a row is kept where a trigger or a key of somebody else refuses a change of it."""
    try:
        yield
    except driver.library().IntegrityError as error:
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
    return stored.same(found, list(values.values()))
