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
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.connections import SqliteStore
from session_core.state.sqlite.deletion import delete_messages
from session_core.state.sqlite.rows import raw, read
from session_core.state.sqlite.rows.raw import Row, TableShape
from session_core.state.sqlite.rows.read import MESSAGES, SESSIONS
from session_core.types import Revision, RowImages

_PAGE_ROWS = 500


def check_unchanged(handle: Connection, image: RowImages) -> None:
    """Make sure that rows are as they were imaged."""
    shape = require_shape(handle, image)
    if image.table == MESSAGES:
        place = shape.columns.index("id")
        for page in _split_pages(sorted(image.rows, key=itemgetter(place))):
            found = read.read_messages(handle, shape, [row[place] for row in page])
            if len(found) != len(page) or not all(map(raw.is_same, found, page)):
                raise make_changed_error("a message")
        return
    for row in image.rows:
        found = raw.find_rows(handle, shape, make_row_key(shape, row))
        if len(found) != image.rows.count(row) or not raw.is_same(found[0], row):
            raise make_changed_error(f"a row of {image.table}")


def check_all_imaged(handle: Connection, given: Sequence[RowImages]) -> None:
    """Make sure that nothing else goes with the rows of sessions, as some tables have it."""
    sessions_of = [image for image in given if image.table == SESSIONS]
    known = {(image.table, tuple(row)) for image in given for row in image.rows if sessions_of}
    gone = [each for image in sessions_of for each in collect_column_values(image, "id")]
    if gone and not known.issuperset(read.iter_session_rows(handle, gone)):
        raise make_changed_error("what belongs to a session")
    if read.read_referring_rows(handle, given):
        raise make_changed_error("what refers to a row")


def check_nothing_refers(handle: Connection, given: Sequence[RowImages]) -> None:
    """Make sure that nothing else goes with messages, or is emptied, as some tables have it."""
    if read.read_referring_rows(handle, given):
        raise make_changed_error("what refers to a message")


def make_id_images(ids: Sequence[int]) -> RowImages:
    """Return messages of which nothing but the ids is known."""
    return RowImages(MESSAGES, ("id",), tuple((each,) for each in ids))


def collect_column_values(image: RowImages, column: str) -> list[Any]:
    """Return the values of a column, each once."""
    place = image.columns.index(column)
    return list(dict.fromkeys(row[place] for row in image.rows))


def make_row_key(shape: TableShape, row: Row) -> dict[str, Any]:
    """Return what a row is known by: its key, and all of it where that is not of one row alone."""
    key = dict(zip(shape.key, shape.get_row_key(row), strict=True))
    return dict(zip(shape.columns, row, strict=True)) if None in key.values() else key


def require_shape(handle: Connection, image: RowImages) -> TableShape:
    """Return what the table of an image looks like, which has to be as it was."""
    shape = raw.get_shape(handle, image.table)
    if shape is None or shape.columns != image.columns:
        raise make_changed_error(f"the table {image.table}")
    return shape


def _split_pages(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    return (rows[start : start + _PAGE_ROWS] for start in range(0, len(rows), _PAGE_ROWS))


def make_changed_error(what: str) -> Changed:
    """Return the error for what is not any more what it was."""
    return Changed(f"{what} was changed since; plan again")


SQL = sql_blocks.load_blocks("rows")

_RowKey = tuple[str, dict[str, Any]]
"""A row by its table and what it is known by."""


class RowDeleter(SqliteStore):
    """Removes and alters what is still as it was imaged."""

    def remove_messages(
        self,
        removed: Mapping[str, tuple[Sequence[int], Revision]],
        imaged: Iterable[RowImages] = (),
    ) -> dict[str, Revision]:
        """Delete messages of sessions that are still at a revision; return the revisions after.

        All in one call, since a search index pays for each. The counters stay as they are.
        `imaged` is what they were: where anything was written since, they are compared.

        Raises:
            Changed: a session is at another revision, has not all of them, one is not as in its
                image, others refer to one, or a rule of this home refuses it.
            NotFound: there is no such session.
        """
        wanted = _parse_removed(removed)
        as_they_were = read.check_images(imaged)

        def step(handle: Connection) -> dict[str, Revision]:
            for image in as_they_were:
                if handle.changed or image.at is None or image.at is not handle.moment:
                    check_unchanged(handle, image)
            after = {
                session_id: _compute_revision_without(handle, session_id, ids, expected)
                for session_id, (ids, expected) in wanted.items()
            }
            gone = [one for ids, _ in wanted.values() for one in ids]
            check_nothing_refers(handle, as_they_were or [make_id_images(gone)])
            with (
                _translate_constraint_errors(handle),
                read.preserve_session_rows(handle, wanted),
                fts.merge_less_often(handle),
            ):
                _delete_messages(handle, gone)
            handle.cache |= {("revision", each): revision for each, revision in after.items()}
            return after

        return self._write(step)

    def remove_rows(self, removed: Iterable[RowImages]) -> None:
        """Delete rows that are still as they were imaged, in any order; shared ones stay.

        Raises:
            Changed: one of them is not as in its image, others belong or refer to it, or a rule of
                this home refuses it.
        """
        rest = [image for image in read.check_images(removed) if not image.shared and image.rows]

        def step(handle: Connection) -> None:
            for image in rest:
                check_unchanged(handle, image)
            check_all_imaged(handle, rest)
            with _translate_constraint_errors(handle):
                _delete_images(handle, rest)

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

        def step(handle: Connection) -> None:
            shape = raw.get_shape(handle, table)
            if shape is None:
                raise InvalidInput(f"this home has no table {table}")
            for given in (key, before, after):
                read.require_columns(shape, given)
            found = raw.find_rows(handle, shape, key)
            if len(found) != 1 or not _has_values(shape, found[0], before):
                raise make_changed_error(f"a row of {table}")
            if after:
                _forget_counts(handle, RowImages(table, shape.columns, tuple(found)))
                with _translate_constraint_errors(handle):
                    _update_columns(handle, shape, found[0], key, after)

        self._write(step)


def _update_columns(
    handle: Connection,
    shape: TableShape,
    row: Row,
    key: Mapping[str, Any],
    after: Mapping[str, Any],
) -> None:
    """Set columns of a row, of a message in the search indexes too."""
    ids = [row[shape.columns.index("id")]] if shape.table == MESSAGES else []
    before = fts.get_change_number(handle)
    fts.remove_messages(handle, ids)
    fts.repair_entries(handle, ids)
    raw.update_rows(handle, shape.table, key, after)
    fts.repair_entries(handle, ids)
    fts.restore_messages(handle, ids, before)


def _compute_revision_without(
    handle: Connection, session_id: str, ids: Collection[int], expected: Revision
) -> Revision:
    """Return what the revision is without these messages, which must all be there."""
    if sessions.get_revision(handle, session_id) != expected:
        raise make_changed_error(f"session {session_id}")
    given = {"ids": json.dumps(list(ids)), "session": session_id}
    count, live, compacted = handle.fetch_tuples(handle.expand_sql(SQL["count_flags"]), given)[0]
    if count < len(ids):
        raise make_changed_error(f"session {session_id}")
    after = expected._replace(live=expected.live - live, compacted=expected.compacted - compacted)
    if expected.last_id in ids:
        last = handle.fetch_value(SQL["get_last_without"], given)
        after = after._replace(last_id=last or 0)
    return after


def _delete_messages(handle: Connection, ids: Sequence[int]) -> None:
    if delete_messages(handle, ids) < len(ids):
        raise make_changed_error("a message that is to be deleted")


def _parse_removed(
    removed: Mapping[str, tuple[Sequence[int], Revision]],
) -> dict[str, tuple[set[int], Revision]]:
    validation.check_mapping("what is removed", removed)
    if not all(isinstance(each, Sequence) and len(each) == 2 for each in removed.values()):  # noqa: PLR2004 -- a pair
        raise InvalidInput("of each session its message ids are removed, and as of a revision")
    return {
        session_id: (set(validation.parse_integers("message ids", ids)), expected)
        for session_id, (ids, expected) in removed.items()
    }


def _delete_images(handle: Connection, given: Sequence[RowImages]) -> None:
    """Delete rows, those that others refer to after these: sessions, and before them messages."""
    rest: list[_RowKey] = []
    for image in given:
        _forget_counts(handle, image)
        shape = require_shape(handle, image)
        if image.table != MESSAGES:
            rest += [(image.table, make_row_key(shape, row)) for row in image.rows]
    left = _delete_in_rounds(handle, [one for one in rest if one[0] != SESSIONS])
    for image in given:
        if image.table == MESSAGES:
            place = image.columns.index("id")
            with read.preserve_session_rows(handle, collect_column_values(image, "session_id")):
                _delete_messages(handle, [row[place] for row in image.rows])
    left = _delete_in_rounds(handle, [*left, *(one for one in rest if one[0] == SESSIONS)])
    if left:
        raise make_changed_error(f"what belongs to a row of {left[0][0]}")


def _delete_in_rounds(handle: Connection, rest: list[_RowKey]) -> list[_RowKey]:
    """Delete rows in as many rounds as it takes; return those that others still refer to."""
    while True:
        left = [one for one in rest if not _delete_row(handle, *one)]
        if not left or len(left) == len(rest):
            return left
        rest = left


def _delete_row(handle: Connection, table: str, key: Mapping[str, Any]) -> bool:
    """Delete a row; say whether nothing refers to it any more."""
    try:
        if not raw.delete_rows(handle, table, key) and _is_present(handle, table, key):
            raise make_changed_error(f"a row of {table} that is to be deleted")
    except _sqlite3.load_library().IntegrityError as error:
        if "FOREIGN KEY" not in str(error):
            raise
        return False
    return True


def _is_present(handle: Connection, table: str, key: Mapping[str, Any]) -> bool:
    shape = raw.get_shape(handle, table)
    return shape is not None and bool(raw.find_rows(handle, shape, key))


@contextmanager
def _translate_constraint_errors(handle: Connection) -> Iterator[None]:
    """Say that a row is kept where a trigger or a key of somebody else refuses a change of it."""
    try:
        yield
    except _sqlite3.load_library().IntegrityError as error:
        if not handle.connection.in_transaction:
            raise  # all of it was rolled back, and whoever goes on would do so without one
        raise Changed("a rule of this home, by a trigger or a key, does not allow it") from error


def _forget_counts(handle: Connection, image: RowImages) -> None:
    """Forget what was counted of the sessions whose rows or messages these are."""
    if image.table == SESSIONS:
        for session_id in collect_column_values(image, "id"):
            handle.forget_message_counts(session_id)
    elif image.table == MESSAGES:
        for session_id in collect_column_values(image, "session_id"):
            handle.forget_session_counts(session_id)
    elif image.table == routes.ROUTING_TABLE:
        routes.forget_routed_sessions(handle)


def _has_values(shape: TableShape, row: Row, values: Mapping[str, Any]) -> bool:
    found = [row[shape.columns.index(name)] for name in values]
    return raw.is_same(found, list(values.values()))
