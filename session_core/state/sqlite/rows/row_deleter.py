"""Deletion of rows that are unchanged since their image was taken.

A row that has changed raises `Changed`. All checks come before the first deletion: the rows equal
their images, and no other row is deleted with them. The caller, which took the images, protects
sessions and stores the trash.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

from session_core.errors import Changed, InvalidInput
from session_core.state import sql_blocks, validation
from session_core.state.sqlite import fts, routes, sessions
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.deletion import delete_message_rows
from session_core.state.sqlite.rows import raw_rows, row_images
from session_core.state.sqlite.rows.raw_rows import Row, TableShape
from session_core.state.sqlite.rows.row_images import MESSAGES, SESSIONS
from session_core.state.sqlite.store import SqliteOperations
from session_core.types import Revision, RowImages

_PAGE_ROWS = 500


def check_unchanged(handle: Connection, image: RowImages) -> None:
    """Raise `Changed` unless the stored rows equal their image."""
    shape = require_shape(handle, image)
    if image.table == MESSAGES:
        index = shape.columns.index("id")
        for page in _split_pages(sorted(image.rows, key=itemgetter(index))):
            rows = row_images.read_messages(handle, shape, [row[index] for row in page])
            if len(rows) != len(page) or not all(map(raw_rows.is_same, rows, page)):
                raise make_changed_error("a message")
        return
    for row in image.rows:
        rows = raw_rows.find_rows(handle, shape, make_row_key(shape, row))
        # Equal rows may be stored several times if their key has a NULL.
        if len(rows) != image.rows.count(row) or not raw_rows.is_same(rows[0], row):
            raise make_changed_error(f"a row of {image.table}")


def check_all_imaged(handle: Connection, images: Sequence[RowImages]) -> None:
    """Raise `Changed` if rows outside the images would be deleted with sessions."""
    session_images = [image for image in images if image.table == SESSIONS]
    imaged_rows = {
        (image.table, tuple(row)) for image in images for row in image.rows if session_images
    }
    session_ids = [
        session_id for image in session_images for session_id in collect_column_values(image, "id")
    ]
    if session_ids and not imaged_rows.issuperset(
        row_images.iter_session_rows(handle, session_ids)
    ):
        raise make_changed_error("a row of a session")
    if row_images.read_referring_rows(handle, images):
        raise make_changed_error("a reference to a row")


def check_nothing_refers(handle: Connection, images: Sequence[RowImages]) -> None:
    """Raise `Changed` if rows outside the images refer to messages."""
    if row_images.read_referring_rows(handle, images):
        raise make_changed_error("a reference to a message")


def make_id_images(ids: Sequence[int]) -> RowImages:
    """Return an image of messages with their ids only."""
    return RowImages(MESSAGES, ("id",), tuple((message_id,) for message_id in ids))


def collect_column_values(image: RowImages, column: str) -> list[Any]:
    """Return the distinct values of a column."""
    index = image.columns.index(column)
    return list(dict.fromkeys(row[index] for row in image.rows))


def make_row_key(shape: TableShape, row: Row) -> dict[str, Any]:
    """Return the key of a row, or all its columns if the key has a NULL."""
    key = dict(zip(shape.key, shape.get_row_key(row), strict=True))
    return dict(zip(shape.columns, row, strict=True)) if None in key.values() else key


def require_shape(handle: Connection, image: RowImages) -> TableShape:
    """Return the shape of an image's table, which must be unchanged."""
    shape = raw_rows.get_shape(handle, image.table)
    if shape is None or shape.columns != image.columns:
        raise make_changed_error(f"the table {image.table}")
    return shape


def _split_pages(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    return (rows[start : start + _PAGE_ROWS] for start in range(0, len(rows), _PAGE_ROWS))


def make_changed_error(subject: str) -> Changed:
    """Return the error for a row or session that has changed."""
    return Changed(f"{subject} was changed since; plan again")


SQL = sql_blocks.load_blocks("rows")

_MAX_RULE_CHARS = 200
"""The most characters that an error repeats of the message of a trigger or key."""

_RowKey = tuple[str, dict[str, Any]]
"""The table and the key of a row."""


class RowDeleter(SqliteOperations):
    """Deletes and updates rows that equal their image."""

    def remove_messages(
        self,
        removed: Mapping[str, tuple[Sequence[int], Revision]],
        imaged: Iterable[RowImages] = (),
    ) -> dict[str, Revision]:
        """Delete messages of unchanged sessions, and return the new revision of each session.

        `removed` maps each session to its message ids and its revision. One call deletes the
        messages of all sessions, since a search index has a cost for each call. Counters stay. Rows
        are compared with `imaged` if there was a write since the images were taken.

        Raises:
            Changed: a session is at another revision or lacks a message, a message differs from its
                image, rows refer to one, or a rule of this home refuses the deletion.
            NotFound: the session does not exist.
        """
        requests = _parse_removed(removed)
        images = row_images.check_images(imaged)

        def delete_unchanged_messages(handle: Connection) -> dict[str, Revision]:
            for image in images:
                # Without a write since the image was read, a comparison would only read every row
                # again.
                if handle.changed or image.at is None or image.at is not handle.change_token:
                    check_unchanged(handle, image)
            after = {
                session_id: _compute_revision_without(handle, session_id, ids, expected)
                for session_id, (ids, expected) in requests.items()
            }
            message_ids = [message_id for ids, _ in requests.values() for message_id in ids]
            # SQLite would delete or empty the rows that refer to these, and the trash would lack
            # them.
            check_nothing_refers(handle, images or [make_id_images(message_ids)])
            with (
                _translate_constraint_errors(handle),
                row_images.restore_session_rows_after(handle, requests),
                fts.merge_less_often(handle),
            ):
                _delete_all_or_raise(handle, message_ids)
            handle.cache |= {
                ("revision", session_id): revision for session_id, revision in after.items()
            }
            return after

        return self._write(delete_unchanged_messages)

    def remove_rows(self, removed: Iterable[RowImages]) -> None:
        """Delete rows that equal their images, in any order. Shared rows stay.

        Raises:
            Changed: a row differs from its image, other rows belong or refer to it, or a rule of
                this home refuses the deletion.
        """
        rest = [
            image for image in row_images.check_images(removed) if not image.shared and image.rows
        ]

        def delete_unchanged_rows(handle: Connection) -> None:
            for image in rest:
                check_unchanged(handle, image)
            # Every check precedes the first deletion, which may delete other rows by a cascade.
            check_all_imaged(handle, rest)
            with _translate_constraint_errors(handle):
                _delete_imaged_rows(handle, rest)

        self._write(delete_unchanged_rows)

    def change_row(
        self,
        table: str,
        key: Mapping[str, Any],
        before: Mapping[str, Any],
        after: Mapping[str, Any],
    ) -> None:
        """Set columns of the row with a key, if it has the values `before`.

        Raises:
            Changed: it has other values, the row does not exist, or a rule of this home refuses the
                change.
            InvalidInput: the table lacks a column.
        """
        if not key or not all(isinstance(values, Mapping) for values in (key, before, after)):
            raise InvalidInput("key, before and after must be mappings of columns")

        def update_unchanged_row(handle: Connection) -> None:
            shape = raw_rows.get_shape(handle, table)
            if shape is None:
                raise InvalidInput(f"this home has no table {table}")
            for values in (key, before, after):
                row_images.require_columns(shape, values)
            rows = raw_rows.find_rows(handle, shape, key)
            if len(rows) != 1 or not _has_values(shape, rows[0], before):
                raise make_changed_error(f"a row of {table}")
            if after:
                _forget_counts(handle, RowImages(table, shape.columns, tuple(rows)))
                ids = [rows[0][shape.columns.index("id")]] if table == MESSAGES else []
                with _translate_constraint_errors(handle):
                    update_columns(handle, table, key, after, ids)

        self._write(update_unchanged_row)


def update_columns(
    handle: Connection,
    table: str,
    key: Mapping[str, Any],
    after: Mapping[str, Any],
    message_ids: Sequence[int] = (),
) -> None:
    """Set columns of the row with a key, and of a message in the search indexes too."""
    before = fts.get_change_number(handle)
    # The index removes the old text of a row before it changes, and adds the new text after.
    fts.remove_index_entries(handle, message_ids)
    fts.repair_entries(handle, message_ids)
    raw_rows.update_rows(handle, table, key, after)
    fts.repair_entries(handle, message_ids)
    fts.reindex_messages(handle, message_ids, before)


def _compute_revision_without(
    handle: Connection, session_id: str, ids: Collection[int], expected: Revision
) -> Revision:
    """Return the revision without these messages, or raise `Changed` if a message is missing."""
    if sessions.get_revision(handle, session_id) != expected:
        raise make_changed_error(f"session {session_id}")
    bounds = {"ids": json.dumps(list(ids)), "session": session_id}
    # Derived from the deleted rows: a count of the rest would read the whole session.
    count, live, compacted = handle.fetch_tuples(handle.expand_sql(SQL["count_flags"]), bounds)[0]
    if count < len(ids):
        raise make_changed_error(f"session {session_id}")
    after = expected._replace(live=expected.live - live, compacted=expected.compacted - compacted)
    if expected.last_id in ids:
        last = handle.fetch_value(SQL["get_last_without"], bounds)
        after = after._replace(last_id=last or 0)
    return after


def _delete_all_or_raise(handle: Connection, ids: Sequence[int]) -> None:
    if delete_message_rows(handle, ids) < len(ids):
        raise make_changed_error("a message to delete")


def _parse_removed(
    removed: Mapping[str, tuple[Sequence[int], Revision]],
) -> dict[str, tuple[set[int], Revision]]:
    validation.check_mapping("removed", removed)
    if not all(isinstance(request, Sequence) and len(request) == 2 for request in removed.values()):  # noqa: PLR2004 -- a pair has two items
        raise InvalidInput("removed must map each session to its message ids and a revision")
    return {
        session_id: (set(validation.parse_integers("message ids", ids)), expected)
        for session_id, (ids, expected) in removed.items()
    }


def _delete_imaged_rows(handle: Connection, images: Sequence[RowImages]) -> None:
    """Delete rows in an order that foreign keys allow: other rows, messages, sessions."""
    rest: list[_RowKey] = []
    for image in images:
        _forget_counts(handle, image)
        shape = require_shape(handle, image)
        if image.table != MESSAGES:
            rest += [(image.table, make_row_key(shape, row)) for row in image.rows]
    remaining = _delete_in_rounds(handle, [row_key for row_key in rest if row_key[0] != SESSIONS])
    for image in images:
        if image.table == MESSAGES:
            index = image.columns.index("id")
            with row_images.restore_session_rows_after(
                handle, collect_column_values(image, "session_id")
            ):
                _delete_all_or_raise(handle, [row[index] for row in image.rows])
    remaining = _delete_in_rounds(
        handle, [*remaining, *(row_key for row_key in rest if row_key[0] == SESSIONS)]
    )
    if remaining:
        raise make_changed_error(f"a row that belongs to a row of {remaining[0][0]}")


def _delete_in_rounds(handle: Connection, rest: list[_RowKey]) -> list[_RowKey]:
    """Delete rows in rounds until no more can be deleted.

    Return the rows to which other rows still refer.
    """
    while True:
        remaining = [row_key for row_key in rest if not _delete_row(handle, *row_key)]
        if not remaining or len(remaining) == len(rest):
            return remaining
        rest = remaining


def _delete_row(handle: Connection, table: str, key: Mapping[str, Any]) -> bool:
    """Delete a row, or return False if another row still refers to it."""
    if not handle.has_foreign_keys and _is_referred_to(handle, table, key):
        return False
    try:
        # A row that is gone already went by a cascade. One that stays is kept by a trigger.
        if not raw_rows.delete_rows(handle, table, key) and _is_present(handle, table, key):
            raise make_changed_error(f"a row of {table} to delete")
    except handle.integrity_error as error:
        if "FOREIGN KEY" not in str(error):
            raise
        return False
    return True


def _is_referred_to(handle: Connection, table: str, key: Mapping[str, Any]) -> bool:
    """Return True if other rows refer to a session that is to be deleted."""
    if table != SESSIONS or "id" not in key:
        return False
    return handle.fetch_value(SQL["is_referred_to"], {"id": key["id"]}) is not None


def _is_present(handle: Connection, table: str, key: Mapping[str, Any]) -> bool:
    shape = raw_rows.get_shape(handle, table)
    return shape is not None and bool(raw_rows.find_rows(handle, shape, key))


@contextmanager
def _translate_constraint_errors(handle: Connection) -> Iterator[None]:
    """Raise `Changed` if a foreign trigger or key refuses a change."""
    try:
        yield
    except handle.integrity_error as error:
        if not handle.in_transaction:
            raise  # the transaction was rolled back, so the caller must not continue
        # The text names columns, or is the message of the trigger's author.
        text = " ".join(str(error).split())[:_MAX_RULE_CHARS]
        raise Changed(
            f"a rule of this home (a trigger or a key) refuses the change: {text}"
        ) from error


def _forget_counts(handle: Connection, image: RowImages) -> None:
    """Drop the cached counts of the sessions of imaged rows."""
    if image.table == SESSIONS:
        for session_id in collect_column_values(image, "id"):
            handle.forget_message_counts(session_id)
    elif image.table == MESSAGES:
        for session_id in collect_column_values(image, "session_id"):
            handle.forget_session_counts(session_id)
    elif image.table == routes.ROUTING_TABLE:
        routes.forget_routed_sessions(handle)


def _has_values(shape: TableShape, row: Row, values: Mapping[str, Any]) -> bool:
    current = [row[shape.columns.index(name)] for name in values]
    return raw_rows.is_same(current, list(values.values()))
