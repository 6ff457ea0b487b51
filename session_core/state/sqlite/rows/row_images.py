"""Row images: rows read exactly as they are stored, so that they can be restored.

Images include unknown tables and columns. This module finds the rows that belong to a session, the
rows that refer to others by a foreign key, and the owner of imported rows. It changes no rows,
except to undo the effect of foreign triggers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from session_core import _sqlite3
from session_core.errors import InvalidInput, Unsupported
from session_core.state import sql_blocks, validation
from session_core.state.sqlite import deletion, routes, sessions
from session_core.state.sqlite.application_state import copy_session_state
from session_core.state.sqlite.connection import Connection, quote_name
from session_core.state.sqlite.deletion import ESTIMATED_ROW_BYTES, list_belonging_columns
from session_core.state.sqlite.rows import raw_rows
from session_core.state.sqlite.rows.raw_rows import ForeignKey, Row, TableShape
from session_core.state.sqlite.store import SqliteOperations
from session_core.types import RawText, RowImages, RowMismatch

INTEGRITY_SQL = sql_blocks.load_blocks("integrity")

_OWN_TABLES = frozenset({"sessions", "messages"})

TableLinks = Mapping[str, Sequence[tuple[TableShape, ForeignKey]]]
"""For each table, the tables with a foreign key to it."""


def read_referring_rows(handle: Connection, images: Iterable[RowImages]) -> list[RowImages]:
    """Return the rows that refer to imaged rows, directly or not.

    Each row is returned once, and the imaged rows are left out.
    """
    links = _list_table_links(handle)
    images = list(images) if links else []
    seen = {(image.table, row) for image in images for row in image.rows}
    referring: list[RowImages] = []
    for image in images:
        for shape, link in links.get(image.table, ()):
            rows = [
                row
                for row in _read_linked_rows(handle, shape, link, image)
                if (shape.table, row) not in seen
            ]
            if rows:
                seen |= {(shape.table, row) for row in rows}
                referring.append(RowImages(shape.table, shape.columns, tuple(dict.fromkeys(rows))))
                images.append(referring[-1])  # its own referring rows are read too
    return referring


def _list_table_links(handle: Connection) -> TableLinks:
    """Return the links between tables, except links to sessions by their id."""
    if "links" not in handle.schema:
        links: dict[str, list[tuple[TableShape, ForeignKey]]] = {}
        for (name,) in handle.fetch_tuples(INTEGRITY_SQL["list_tables"]):
            shape = raw_rows.get_shape(handle, name)
            for link in () if shape is None or name in _OWN_TABLES else shape.links:
                # Rows with the id of a session belong to it and are read with its own.
                if shape is not None and (link.table, link.named) != ("sessions", ("id",)):
                    links.setdefault(link.table, []).append((shape, link))
        handle.schema["links"] = links
    return cast("TableLinks", handle.schema["links"])


def _read_linked_rows(
    handle: Connection, shape: TableShape, link: ForeignKey, image: RowImages
) -> Iterator[Row]:
    if not set(link.named) <= set(image.columns):
        return  # the schema has no such column
    places = [image.columns.index(name) for name in link.named]
    keys = dict.fromkeys(tuple(row[place] for place in places) for row in image.rows)
    # Integers are exact in JSON. Other keys are compared one by one, with their type.
    if all(type(value) is int for key in keys for value in key) and len(places) == 1:
        where = f"{quote_name(link.columns[0])} IN (SELECT value FROM json_each(?))"  # noqa: S608 -- quoted names of the schema
        values = (json.dumps([value for (value,) in keys]),)
        yield from raw_rows.read_rows(handle, shape.build_select(where), values)
        return
    for key in keys:
        if None not in key:
            yield from raw_rows.find_rows(handle, shape, _zip_columns(link.columns, key))


def _zip_columns(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


_FOREIGN_REASON = "it does not belong to this session"

OwnerColumns = Mapping[str, Collection[str]]
"""For each table, the columns with the id of the owning session."""


def split_owned_rows(
    handle: Connection, images: Sequence[RowImages], of: Collection[str]
) -> tuple[list[RowImages], list[RowMismatch]]:
    """Return the rows that belong to the sessions `of`, and the refusals of all other rows."""
    owners = _list_owner_columns(handle)
    # Rows of a table that this home lacks have no owner. They are refused when they are written.
    owned = [
        _select_owned_rows(image, owners, of) if raw_rows.get_shape(handle, image.table) else image
        for image in images
        if not image.shared
    ]
    referred = set(_iter_references(handle, owned, owners))
    owned += [_select_referenced_rows(handle, image, referred) for image in images if image.shared]
    ordered = [image for image in images if not image.shared]
    ordered += [image for image in images if image.shared]
    refused = [
        RowMismatch(before.table, (), _FOREIGN_REASON)
        for before, after in zip(ordered, owned, strict=True)
        for _ in range(len(before.rows) - len(after.rows))
    ]
    return owned, refused


def _list_owner_columns(handle: Connection) -> OwnerColumns:
    columns: dict[str, list[str]] = {SESSIONS: ["id"], MESSAGES: ["session_id"]}
    for table, column in list_belonging_columns(handle):
        if table not in (SESSIONS, MESSAGES):
            columns.setdefault(table, []).append(column)
    return columns


def _select_owned_rows(image: RowImages, owners: OwnerColumns, of: Collection[str]) -> RowImages:
    names = owners.get(image.table, ())
    places = [place for place, name in enumerate(image.columns) if name in names]
    return _replace_rows(image, [row for row in image.rows if any(row[at] in of for at in places)])


def _iter_references(
    handle: Connection, images: Sequence[RowImages], owners: OwnerColumns
) -> Iterator[tuple[str, tuple[str, ...], Row]]:
    """Yield the references of rows to tables that do not belong to sessions."""
    for image in images:
        shape = raw_rows.get_shape(handle, image.table)
        for link in () if shape is None else shape.links:
            if link.table in owners or not set(link.columns) <= set(image.columns):
                continue
            places = [image.columns.index(name) for name in link.columns]
            for row in image.rows:
                yield link.table, link.named, tuple(row[at] for at in places)


def _select_referenced_rows(
    handle: Connection, image: RowImages, named: Collection[tuple[str, tuple[str, ...], Row]]
) -> RowImages:
    keys = {names for table, names, _ in named if table == image.table}
    known = raw_rows.get_shape(handle, image.table) is not None
    rows = [
        row
        for row in image.rows
        for names in keys
        if known and set(names) <= set(image.columns)
        if (image.table, names, tuple(row[image.columns.index(at)] for at in names)) in named
    ]
    return _replace_rows(image, list(dict.fromkeys(rows)))


def _replace_rows(image: RowImages, rows: Sequence[Row]) -> RowImages:
    return RowImages(image.table, image.columns, tuple(rows), shared=image.shared)


SQL = sql_blocks.load_blocks("rows")

_UNIQUE_ERROR_PREFIX = "UNIQUE constraint failed: "


class SessionCopier(SqliteOperations):
    """Copies sessions and restores their rows."""

    def copy_session(
        self, session_id: str, to_session_id: str, *, without: Collection[str] = (), **fields: Any
    ) -> None:
        """Create a session with the columns and state of another session.

        The new session starts now. `fields` replaces columns, and columns in `without` get the
        values of a new session.

        Raises:
            NotFound: the session does not exist.
            Conflict: the new id exists already.
            Unsupported: a unique index of this home refuses the copy.
        """
        omitted = validation.parse_texts("without", without) or ()

        def insert_copy(handle: Connection) -> None:
            changes = {"started_at": self._clock(), **fields, "id": to_session_id}
            row = {**sessions.require_session(handle, session_id), **changes}
            values = {name: value for name, value in row.items() if name not in omitted}
            values = _list_settable_values(handle, "sessions", values)
            with translate_copy_errors():
                handle.execute_update(_build_insert("sessions", values), list(values.values()))
            copy_session_state(handle, session_id, to_session_id)

        self._write(insert_copy)

    def put_session_fields(self, session_id: str, fields: Mapping[str, Any]) -> bool:
        """Set columns of a session to earlier values, for undo, and return True if it exists."""
        if not isinstance(fields, Mapping) or "id" in fields:
            raise InvalidInput("fields must be a mapping of columns without the id")

        def update_fields(handle: Connection) -> bool:
            values = _list_settable_values(handle, "sessions", fields)
            if not values:
                return sessions.find_session(handle, session_id) is not None
            columns = {quote_name(name): value for name, value in values.items()}
            return sessions.update_session(handle, session_id, columns)

        return self._write(update_fields)

    def read_belongings(self, session_id: str) -> dict[str, list[dict[str, Any]]]:
        """Return by table the rows that are deleted with a session, without its messages."""

        def read_rows(handle: Connection) -> dict[str, list[dict[str, Any]]]:
            rows_by_table: dict[str, list[dict[str, Any]]] = {}
            for table, column in deletion.list_belonging_columns(handle):
                if table not in ("sessions", "compression_locks"):
                    rows = handle.fetch_rows(_build_select(table, column), (session_id,))
                    rows_by_table.setdefault(table, []).extend(rows)
            return {table: rows for table, rows in rows_by_table.items() if rows}

        return self._read(read_rows)

    def list_routing_rows(self, *session_ids: str) -> list[dict[str, Any]]:
        """Return the routing rows of sessions in every scope."""

        def read_rows(handle: Connection) -> list[dict[str, Any]]:
            if not handle.has_column(routes.ROUTING_TABLE) or routes.list_routed_sessions(
                handle
            ).isdisjoint(session_ids):
                return []
            return handle.fetch_rows(
                SQL["list_routes"], (json.dumps(session_ids, ensure_ascii=False),)
            )

        return self._read(read_rows)

    def put_routing_row(self, row: Mapping[str, Any]) -> None:
        """Store a routing row of `list_routing_rows`, and replace the present row."""
        validation.check_mapping("a routing row", row, "scope", "session_key")

        def replace_routing_row(handle: Connection) -> None:
            values = _list_settable_values(handle, routes.ROUTING_TABLE, row)
            routes.delete_route(handle, row["scope"], row["session_key"])
            handle.execute_update(
                _build_insert(routes.ROUTING_TABLE, values), list(values.values())
            )

        self._write(replace_routing_row)


@contextmanager
def translate_copy_errors() -> Iterator[None]:
    """Raise `Unsupported` if a unique index refuses a copied row."""
    try:
        yield
    except _sqlite3.load_library().IntegrityError as error:
        column = str(error).removeprefix(_UNIQUE_ERROR_PREFIX)
        if column in (str(error), "sessions.id"):
            raise
        raise Unsupported(
            f"a unique index of this home on {column} refuses a copy of the row; "
            "drop that index, or leave the session as it is"
        ) from error


def _list_settable_values(handle: Connection, table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a row without computed columns."""
    computed = handle.list_computed_columns(table)
    for name in row:
        if name not in computed and not handle.has_column(table, name):
            raise InvalidInput(f"table {table} has no column {name!r}")
    return {name: value for name, value in row.items() if name not in computed}


def _build_insert(table: str, row: Mapping[str, Any]) -> str:
    names = ", ".join(map(quote_name, row))
    return f'INSERT INTO "{table}" ({names}) VALUES ({", ".join("?" * len(row))})'  # noqa: S608 -- columns that the table has


def _build_select(table: str, column: str) -> str:
    return f"SELECT * FROM {quote_name(table)} WHERE {quote_name(column)} = ?"  # noqa: S608 -- quoted names of the schema


SESSIONS = "sessions"
MESSAGES = "messages"

_ID_COLUMNS = {SESSIONS: ("id",), MESSAGES: ("id", "session_id")}
"""The columns that a row needs to be restored."""

_TYPICAL_BYTES = 1_000
_BATCH_ROWS = 500
_MIN_ROWID = -(1 << 63)
_SIZED_TYPES = frozenset({str, bytes, RawText})


class RowReader(SqliteOperations):
    """Reads stored rows as images."""

    def read_session_images(self, session_id: str) -> list[RowImages]:
        """Return the row of a session and all rows that belong to it, except messages.

        Rows of other tables that the session refers to are marked as `shared`. If the session does
        not exist, return the rows that it left behind.
        """
        validation.check_text("session_id", session_id, needed=True)
        return self._read(lambda handle: read_session_images(handle, session_id))

    def read_message_images(
        self, session_id: str, after: int | None, room: int
    ) -> tuple[RowImages, bool]:
        """Return the next messages of up to `room` bytes, at least one, and whether more follow.

        `after` is the last message id before them, or None to start at the first message. Each row
        counts 200 bytes more than its values.
        """
        validation.check_text("session_id", session_id, needed=True)
        validation.check_number("after", after)
        validation.check_number("room", room, needed=True)
        at = self._store.change_token  # taken before the rows are read
        begin = _MIN_ROWID if after is None else after
        image, more = self._read(lambda handle: read_next_messages(handle, session_id, begin, room))
        return replace(image, at=at), more

    def read_referring_images(self, images: Iterable[RowImages]) -> list[RowImages]:
        """Return the rows of other tables whose foreign keys lead to imaged rows, directly or not.

        A deletion of the imaged rows would delete or empty these rows, or be refused.
        """
        checked = check_images(images)
        return self._read(lambda handle: read_referring_rows(handle, checked))

    def read_row_images(self, table: str, where: Mapping[str, Any]) -> RowImages:
        """Return the rows of a table with these values.

        The image is empty if the home lacks the table.

        Raises:
            InvalidInput: the table lacks a column.
        """
        validation.check_text("table", table, needed=True)
        if not isinstance(where, Mapping):
            raise InvalidInput("where must be a mapping of columns to values")

        def read_rows(handle: Connection) -> RowImages:
            shape = raw_rows.get_shape(handle, table)
            if shape is None:
                return RowImages(table, (), ())
            require_columns(shape, where)
            return _to_image(shape, raw_rows.find_rows(handle, shape, where))

        return self._read(read_rows)


def check_images(images: Iterable[RowImages]) -> list[RowImages]:
    """Return images as a list.

    Raises:
        InvalidInput: they are not images, or their rows do not fit their columns.
    """
    checked = list(images) if isinstance(images, Iterable) else [None]
    if not all(isinstance(image, RowImages) for image in checked):
        raise InvalidInput("rows must be given as RowImages")
    for image in checked:
        _check_image(image)
    return checked


def _check_image(image: RowImages) -> None:
    columns = validation.parse_texts("the columns of an image", image.columns) or ()
    validation.check_text("the table of an image", image.table, needed=True)
    if len(set(columns)) < len(columns) or not set(columns).issuperset(
        _ID_COLUMNS.get(image.table, ())
    ):
        raise InvalidInput(f"the image of {image.table} has a duplicate column, or no ids")
    rows = image.rows if isinstance(image.rows, (tuple, list)) else [None]
    if not all(isinstance(row, (tuple, list)) and len(row) == len(columns) for row in rows):
        raise InvalidInput(f"the image of {image.table} has a row that does not fit its columns")
    if image.table == MESSAGES:
        index = columns.index("id")
        validation.parse_integers("message ids", [row[index] for row in image.rows])


def require_columns(shape: TableShape, names: Mapping[str, Any]) -> None:
    """Refuse columns that a table does not have."""
    for name in names:
        if name not in shape.columns:
            raise InvalidInput(f"table {shape.table} has no column {name!r}")


def read_session_images(handle: Connection, session_id: str) -> list[RowImages]:
    """Return the images of a session's row and of the rows that belong to it."""
    columns = {SESSIONS: ["id"], **_list_session_columns(handle)}
    images = [
        _read_owned_rows(handle, table, names, session_id) for table, names in columns.items()
    ]
    images = [image for image in images if image.rows]
    return images + _read_shared_rows(handle, images)


def _list_session_columns(handle: Connection) -> dict[str, list[str]]:
    """Return the tables with rows of a session, and their columns with its id."""
    columns: dict[str, list[str]] = {}
    for table, column in list_belonging_columns(handle):
        if table != SESSIONS:
            columns.setdefault(table, []).append(column)
    return columns


def iter_session_rows(handle: Connection, session_ids: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of sessions in other tables except messages, each with its table."""
    placeholders = ", ".join("?" * len(session_ids))
    for table, names in _list_session_columns(handle).items():
        conditions = [f"{quote_name(name)} IN ({placeholders})" for name in names]
        select = _require_shape(handle, table).build_select(" OR ".join(conditions))
        values = list(session_ids) * len(names)
        yield from ((table, row) for row in raw_rows.read_rows(handle, select, values))


def _read_owned_rows(
    handle: Connection, table: str, names: Sequence[str], session_id: str
) -> RowImages:
    shape = _require_shape(handle, table)
    where = " OR ".join(f"{quote_name(name)} = ?" for name in names)
    order = f" ORDER BY {raw_rows.join_columns(shape.key)}"
    return _to_image(
        shape,
        raw_rows.read_rows(handle, shape.build_select(where) + order, [session_id] * len(names)),
    )


def _read_shared_rows(handle: Connection, images: Sequence[RowImages]) -> list[RowImages]:
    """Return the rows of other tables to which imaged rows refer."""
    own_tables = {image.table for image in images} | {SESSIONS, MESSAGES}
    images_by_key: dict[tuple[str, Row], RowImages] = {}
    for image in images:
        for link in _require_shape(handle, image.table).links:
            parent = None if link.table in own_tables else raw_rows.get_shape(handle, link.table)
            for row in image.rows if parent is not None else ():
                values = tuple(row[image.columns.index(name)] for name in link.columns)
                if parent is not None and None not in values:
                    key = dict(zip(link.named, values, strict=True))
                    rows = raw_rows.find_rows(handle, parent, key)
                    images_by_key[link.table, values] = RowImages(
                        link.table, parent.columns, tuple(rows), shared=True
                    )
    return [image for image in images_by_key.values() if image.rows]


def read_next_messages(
    handle: Connection, session_id: str, after: int, room: int
) -> tuple[RowImages, bool]:
    """Return the next messages of a session that fit into `room`, and whether more follow."""
    shape = _require_shape(handle, MESSAGES)
    rows: list[Row] = []
    while True:
        # A message can be large, so a small room reads few of them.
        count = min(max(room // _TYPICAL_BYTES, 1), _BATCH_ROWS)
        ids = [
            row[0]
            for row in handle.fetch_tuples(SQL["list_ids_after"], (session_id, after, count + 1))
        ]
        for row in read_messages(handle, shape, ids[:count]):
            if rows and room <= 0:
                return _to_image(shape, rows), True
            rows.append(row)
            room -= ESTIMATED_ROW_BYTES + _estimate_bytes(row)
        if len(ids) <= count:
            return _to_image(shape, rows), False
        after = ids[count - 1]


def read_messages(handle: Connection, shape: TableShape, ids: Sequence[int]) -> list[Row]:
    """Return messages by id, in the order of the ids."""
    select = shape.build_select(handle.resolve_block(SQL["among_ids"]))
    return raw_rows.read_rows(handle, select, (json.dumps(ids),)) if ids else []


def _estimate_bytes(row: Row) -> int:
    """Return the approximate size of a row."""
    return sum([len(value) for value in row if type(value) in _SIZED_TYPES])


def _to_image(shape: TableShape, rows: Sequence[Row]) -> RowImages:
    return RowImages(shape.table, shape.columns, tuple(rows))


def _require_shape(handle: Connection, table: str) -> TableShape:
    shape = raw_rows.get_shape(handle, table)
    if shape is None:
        raise InvalidInput(f"this home has no table {table}")
    return shape


@contextmanager
def restore_session_rows_after(handle: Connection, session_ids: Iterable[Any]) -> Iterator[None]:
    """Restore the rows of sessions after a block that deletes or inserts messages."""
    # Foreign triggers on messages may update columns of their sessions.
    shape = raw_rows.get_shape(handle, SESSIONS)
    keys = [{"id": session_id} for session_id in session_ids]
    before = [raw_rows.find_rows(handle, shape, key) if shape else [] for key in keys]
    yield
    for key, rows in zip(keys, before, strict=True):
        if shape is not None and rows:
            _restore_row(handle, shape, key, rows[0])


def _restore_row(
    handle: Connection, shape: TableShape, key: Mapping[str, Any], original: Row
) -> None:
    """Restore the columns that a trigger has changed."""
    for row in raw_rows.find_rows(handle, shape, key):
        if not raw_rows.is_same(row, original):
            pairs = zip(shape.columns, row, original, strict=True)
            changed = {
                name: value
                for name, current, value in pairs
                if not raw_rows.is_same([current], [value])
            }
            raw_rows.update_rows(handle, shape.table, key, changed)
