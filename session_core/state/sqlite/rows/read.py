"""Rows that refer to others by a foreign key, and those that refer to these: found by looking.

Whoever deletes a row has them deleted, or emptied, or is refused. What is a session's own by a
column of its id is found without this (`deletion.belonging`), and the children of a session stay.

Which rows are of some sessions: what a file of somebody else may bring, and nothing beside it.

Those of the tables that belong to a session, where a column says that it is theirs, and those to
which one of these refers. All others are refused.

Rows as they are stored, with every column, known or not: read whole, copied, and put back.

Images: rows read whole and exactly as they are stored, for what must be able to bring them back.

Columns and tables that nobody here knows are among them. Nothing is changed.

What triggers of somebody else make of sessions while their messages go or come is undone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from session_core import _sqlite3
from session_core.errors import InvalidInput, Unsupported
from session_core.state import validation
from session_core.state.sqlite import deletion, routes, sessions, sql_blocks
from session_core.state.sqlite.connection import Handle, quoted
from session_core.state.sqlite.connections import Store
from session_core.state.sqlite.deletion import ROW_BYTES, belonging
from session_core.state.sqlite.rows import raw
from session_core.state.sqlite.rows.raw import Link, Row, Shape
from session_core.types import Images, Misfit, Raw

CHECKS = sql_blocks.load("integrity")

_OWN = frozenset({"sessions", "messages"})

Links = Mapping[str, Sequence[tuple[Shape, Link]]]
"""By table, the others that refer to it."""


def to(handle: Handle, images: Iterable[Images]) -> list[Images]:
    """Return the rows that refer to these, as stored, each once, and none of these."""
    links = _links(handle)
    images = list(images) if links else []
    seen = {(image.table, row) for image in images for row in image.rows}
    found: list[Images] = []
    for image in images:
        for shape, link in links.get(image.table, ()):
            rows = [
                row for row in _rows(handle, shape, link, image) if (shape.table, row) not in seen
            ]
            if rows:
                seen |= {(shape.table, row) for row in rows}
                found.append(Images(shape.table, shape.columns, tuple(dict.fromkeys(rows))))
                images.append(found[-1])  # which is come to as well
    return found


def _links(handle: Handle) -> Links:
    """Return which tables refer to which, but what belongs to sessions by their ids."""
    if "links" not in handle.schema:
        found: dict[str, list[tuple[Shape, Link]]] = {}
        for (name,) in handle.values(CHECKS["list_tables"]):
            shape = raw.shape(handle, name)
            for link in () if shape is None or name in _OWN else shape.links:
                if shape is not None and (link.table, link.named) != ("sessions", ("id",)):
                    found.setdefault(link.table, []).append((shape, link))
        handle.schema["links"] = found
    return cast("Links", handle.schema["links"])


def _rows(handle: Handle, shape: Shape, link: Link, image: Images) -> Iterator[Row]:
    if not set(link.named) <= set(image.columns):
        return  # it leads nowhere by the schema
    places = [image.columns.index(name) for name in link.named]
    keys = dict.fromkeys(tuple(row[at] for at in places) for row in image.rows)
    if all(type(value) is int for key in keys for value in key) and len(places) == 1:
        where = f"{quoted(link.columns[0])} IN (SELECT value FROM json_each(?))"  # noqa: S608 -- from the schema, quoted
        given = (json.dumps([value for (value,) in keys]),)
        yield from raw.read(handle, shape.select(where), given)
        return
    for key in keys:
        if None not in key:
            yield from raw.at(handle, shape, _bind_names(link.columns, key))


def _bind_names(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


_FOREIGN = "it is none of this session"

Owners = Mapping[str, Collection[str]]
"""By table, the columns that say whose a row is."""


def only(
    handle: Handle, images: Sequence[Images], of: Collection[str]
) -> tuple[list[Images], list[Misfit]]:
    """Return what is of these sessions, and the rest as refused."""
    owners = _list_owner_columns(handle)
    taken = [_owned(image, owners, of) for image in images if not image.shared]
    named = set(_iter_referred(handle, taken, owners))
    taken += [_needed(handle, image, named) for image in images if image.shared]
    whole = [image for image in images if not image.shared]
    whole += [image for image in images if image.shared]
    refused = [
        Misfit(before.table, (), _FOREIGN)
        for before, after in zip(whole, taken, strict=True)
        for _ in range(len(before.rows) - len(after.rows))
    ]
    return taken, refused


def _list_owner_columns(handle: Handle) -> Owners:
    found: dict[str, list[str]] = {SESSIONS: ["id"], MESSAGES: ["session_id"]}
    for table, column in belonging(handle):
        if table not in (SESSIONS, MESSAGES):
            found.setdefault(table, []).append(column)
    return found


def _owned(image: Images, owners: Owners, of: Collection[str]) -> Images:
    names = owners.get(image.table, ())
    places = [place for place, name in enumerate(image.columns) if name in names]
    return _with(image, [row for row in image.rows if any(row[at] in of for at in places)])


def _iter_referred(
    handle: Handle, images: Sequence[Images], owners: Owners
) -> Iterator[tuple[str, tuple[str, ...], Row]]:
    """Yield what rows refer to in tables that are of no session."""
    for image in images:
        shape = raw.shape(handle, image.table)
        for link in () if shape is None else shape.links:
            if link.table in owners or not set(link.columns) <= set(image.columns):
                continue
            places = [image.columns.index(name) for name in link.columns]
            for row in image.rows:
                yield link.table, link.named, tuple(row[at] for at in places)


def _needed(
    handle: Handle, image: Images, named: Collection[tuple[str, tuple[str, ...], Row]]
) -> Images:
    keys = {names for table, names, _ in named if table == image.table}
    known = raw.shape(handle, image.table) is not None
    rows = [
        row
        for row in image.rows
        for names in keys
        if known and set(names) <= set(image.columns)
        if (image.table, names, tuple(row[image.columns.index(at)] for at in names)) in named
    ]
    return _with(image, list(dict.fromkeys(rows)))


def _with(image: Images, rows: Sequence[Row]) -> Images:
    return Images(image.table, image.columns, tuple(rows), shared=image.shared)


SQL = sql_blocks.load("rows")

_NOT_UNIQUE = "UNIQUE constraint failed: "


class Rows(Store):
    """Rows for what copies a session, and for undo."""

    def copy_session(
        self, session_id: str, to_session_id: str, *, without: Collection[str] = (), **fields: Any
    ) -> None:
        """Create a session with every column of another but these `fields`; it begins now.

        Columns that are left out get what a new session has there.

        Raises:
            NotFound: there is no such session.
            Conflict: the other one is there already.
            Unsupported: this home allows no two sessions with the same value in some column.
        """
        left_out = validation.texts("without", without) or ()

        def step(handle: Handle) -> None:
            given = {"started_at": self._clock(), **fields, "id": to_session_id}
            row = {**sessions.require(handle, session_id), **given}
            values = {name: value for name, value in row.items() if name not in left_out}
            values = _settable(handle, "sessions", values)
            with copying():
                handle.run(_insert("sessions", values), list(values.values()))

        self._write(step)

    def put_session_fields(self, session_id: str, fields: Mapping[str, Any]) -> bool:
        """Set columns of a session, any that this home has, to what they were; for undo."""
        if not isinstance(fields, Mapping) or "id" in fields:
            raise InvalidInput("what is put back is a mapping of columns without the id")

        def step(handle: Handle) -> bool:
            values = _settable(handle, "sessions", fields)
            if not values:
                return sessions.get(handle, session_id) is not None
            columns = {quoted(name): value for name, value in values.items()}
            return sessions.update(handle, session_id, columns)

        return self._write(step)

    def belongings(self, session_id: str) -> dict[str, list[dict[str, Any]]]:
        """Return by table the rows that are deleted with a session, without its messages."""

        def look(handle: Handle) -> dict[str, list[dict[str, Any]]]:
            found: dict[str, list[dict[str, Any]]] = {}
            for table, column in deletion.belonging(handle):
                if table not in ("sessions", "compression_locks"):
                    rows = handle.rows(_select(table, column), (session_id,))
                    found.setdefault(table, []).extend(rows)
            return {table: rows for table, rows in found.items() if rows}

        return self._read(look)

    def routing_rows(self, *session_ids: str) -> list[dict[str, Any]]:
        """Return the routing rows that lead to one of these sessions, of every scope."""

        def look(handle: Handle) -> list[dict[str, Any]]:
            if not handle.has(routes.TABLE) or routes.led_to(handle).isdisjoint(session_ids):
                return []
            return handle.rows(SQL["list_routes"], (json.dumps(session_ids, ensure_ascii=False),))

        return self._read(look)

    def put_routing_row(self, row: Mapping[str, Any]) -> None:
        """Put a routing row back as `routing_rows` returned it, in the place of the one there."""
        validation.check_mapping("a routing row", row, "scope", "session_key")

        def step(handle: Handle) -> None:
            values = _settable(handle, routes.TABLE, row)
            routes.delete(handle, row["scope"], row["session_key"])
            handle.run(_insert(routes.TABLE, values), list(values.values()))

        self._write(step)


@contextmanager
def copying() -> Iterator[None]:
    """A row is copied inside, which a home may not allow."""
    try:
        yield
    except _sqlite3.library().IntegrityError as error:
        column = str(error).removeprefix(_NOT_UNIQUE)
        if column in (str(error), "sessions.id"):
            raise
        raise Unsupported(
            f"no two rows of this home may have the same {column}, so none is copied; "
            "drop that index, or leave the session as it is"
        ) from error


def _settable(handle: Handle, table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a row can be put back: what the table computes is not."""
    computed = handle.computed(table)
    for name in row:
        if name not in computed and not handle.has(table, name):
            raise InvalidInput(f"no column {name!r} in {table} to put that into")
    return {name: value for name, value in row.items() if name not in computed}


def _insert(table: str, row: Mapping[str, Any]) -> str:
    names = ", ".join(map(quoted, row))
    return f'INSERT INTO "{table}" ({names}) VALUES ({", ".join("?" * len(row))})'  # noqa: S608 -- columns that the table has


def _select(table: str, column: str) -> str:
    return f"SELECT * FROM {quoted(table)} WHERE {quoted(column)} = ?"  # noqa: S608 -- from the schema, quoted


SESSIONS = "sessions"
MESSAGES = "messages"

_IDS = {SESSIONS: ("id",), MESSAGES: ("id", "session_id")}
"""What a row cannot be put anywhere without."""

_ORDINARY_BYTES = 1_000
_MOST_AT_ONCE = 500
_FIRST = -(1 << 63)
_SIZED = frozenset({str, bytes, Raw})


class Imaging(Store):
    """Reads rows as they are stored."""

    def session_images(self, session_id: str) -> list[Images]:
        """Return a session's row and all that belongs to it but its messages, as stored.

        What it refers to in other tables comes as `shared`. Of a session that is not there it is
        what was left behind.
        """
        validation.check_text("session_id", session_id, needed=True)
        return self._read(lambda handle: of_session(handle, session_id))

    def message_images(self, session_id: str, after: int | None, room: int) -> tuple[Images, bool]:
        """Return the next messages by id up to `room` bytes, at least one; and if there are more.

        None is before all of them. A row counts 200 bytes more than it holds.
        """
        validation.check_text("session_id", session_id, needed=True)
        validation.check_number("after", after)
        validation.check_number("room", room, needed=True)
        writer = self._open.writer
        at = None if writer is None else writer.moment  # before they are read
        begin = _FIRST if after is None else after
        image, more = self._read(lambda handle: of_messages(handle, session_id, begin, room))
        return replace(image, at=at), more

    def referring_images(self, images: Iterable[Images]) -> list[Images]:
        """Return the rows of other tables whose foreign keys lead to these, as stored.

        Theirs too, each once. Who deletes the latter has them deleted or emptied, or is refused.
        """
        given = checked(images)
        return self._read(lambda handle: to(handle, given))

    def row_images(self, table: str, where: Mapping[str, Any]) -> Images:
        """Return the rows of a table with these values; none where this home has no such table.

        Raises:
            InvalidInput: the table has no such column.
        """
        validation.check_text("table", table, needed=True)
        if not isinstance(where, Mapping):
            raise InvalidInput("where is a mapping of columns to values")

        def look(handle: Handle) -> Images:
            shape = raw.shape(handle, table)
            if shape is None:
                return Images(table, (), ())
            require_columns(shape, where)
            return _image(shape, raw.at(handle, shape, where))

        return self._read(look)


def checked(given: Iterable[Images]) -> list[Images]:
    """Return what was given as images.

    Raises:
        InvalidInput: they are none, or their rows do not fit their columns.
    """
    found = list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(image, Images) for image in found):
        raise InvalidInput("rows are given as images of them")
    for image in found:
        _check(image)
    return found


def _check(image: Images) -> None:
    columns = validation.texts("the columns of an image", image.columns) or ()
    validation.check_text("the table of an image", image.table, needed=True)
    if len(set(columns)) < len(columns) or not set(columns).issuperset(_IDS.get(image.table, ())):
        raise InvalidInput(f"an image of {image.table} has a column twice, or no ids")
    rows = image.rows if isinstance(image.rows, (tuple, list)) else [None]
    if not all(isinstance(row, (tuple, list)) and len(row) == len(columns) for row in rows):
        raise InvalidInput(f"an image of {image.table} has a row that does not fit its columns")
    if image.table == MESSAGES:
        place = columns.index("id")
        validation.whole_numbers("message ids", [row[place] for row in image.rows])


def require_columns(shape: Shape, given: Mapping[str, Any]) -> None:
    """Refuse columns that a table has not."""
    for name in given:
        if name not in shape.columns:
            raise InvalidInput(f"no column {name!r} in {shape.table}")


def of_session(handle: Handle, session_id: str) -> list[Images]:
    """Return the images of a session's row and of what belongs to it."""
    columns = {SESSIONS: ["id"], **_list_session_columns(handle)}
    found = [_belonging(handle, table, names, session_id) for table, names in columns.items()]
    found = [image for image in found if image.rows]
    return found + _shared(handle, found)


def _list_session_columns(handle: Handle) -> dict[str, list[str]]:
    """Return the other tables with rows of a session, and the columns that say of which."""
    columns: dict[str, list[str]] = {}
    for table, column in belonging(handle):
        if table != SESSIONS:
            columns.setdefault(table, []).append(column)
    return columns


def of_sessions(handle: Handle, session_ids: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of other tables that belong to sessions, with their table; no message."""
    marks = ", ".join(f"?{number}" for number in range(1, len(session_ids) + 1))
    for table, names in _list_session_columns(handle).items():
        chosen = [f"{quoted(name)} IN ({marks})" for name in names]
        select = _shape(handle, table).select(" OR ".join(chosen))
        yield from ((table, row) for row in raw.read(handle, select, list(session_ids)))


def _belonging(handle: Handle, table: str, names: Sequence[str], session_id: str) -> Images:
    shape = _shape(handle, table)
    where = " OR ".join(f"{quoted(name)} = ?" for name in names)
    order = f" ORDER BY {raw.listed(shape.key)}"
    return _image(shape, raw.read(handle, shape.select(where) + order, [session_id] * len(names)))


def _shared(handle: Handle, images: Sequence[Images]) -> list[Images]:
    """Return the rows of other tables without which these could not be put back."""
    ours = {image.table for image in images} | {SESSIONS, MESSAGES}
    found: dict[tuple[str, Row], Images] = {}
    for image in images:
        for link in _shape(handle, image.table).links:
            parent = None if link.table in ours else raw.shape(handle, link.table)
            for row in image.rows if parent is not None else ():
                values = tuple(row[image.columns.index(name)] for name in link.columns)
                if parent is not None and None not in values:
                    key = dict(zip(link.named, values, strict=True))
                    rows = raw.at(handle, parent, key)
                    found[link.table, values] = Images(
                        link.table, parent.columns, tuple(rows), shared=True
                    )
    return [image for image in found.values() if image.rows]


def of_messages(handle: Handle, session_id: str, after: int, room: int) -> tuple[Images, bool]:
    """Return the next messages of a session that there is room for, and whether there are more."""
    shape = _shape(handle, MESSAGES)
    taken: list[Row] = []
    while True:
        count = min(max(room // _ORDINARY_BYTES, 1), _MOST_AT_ONCE)
        ids = [
            row[0] for row in handle.values(SQL["list_ids_after"], (session_id, after, count + 1))
        ]
        for row in messages(handle, shape, ids[:count]):
            if taken and room <= 0:
                return _image(shape, taken), True
            taken.append(row)
            room -= ROW_BYTES + _bytes(row)
        if len(ids) <= count:
            return _image(shape, taken), False
        after = ids[count - 1]


def messages(handle: Handle, shape: Shape, ids: Sequence[int]) -> list[Row]:
    """Return messages by their ids, in the order of these."""
    chosen = shape.select("id IN (SELECT value FROM json_each(?)) ORDER BY id")
    return raw.read(handle, chosen, (json.dumps(ids),)) if ids else []


def _bytes(row: Row) -> int:
    """Return what a row holds, roughly."""
    return sum([len(value) for value in row if type(value) in _SIZED])


def _image(shape: Shape, rows: Sequence[Row]) -> Images:
    return Images(shape.table, shape.columns, tuple(rows))


def _shape(handle: Handle, table: str) -> Shape:
    shape = raw.shape(handle, table)
    if shape is None:
        raise InvalidInput(f"this home has no table {table}")
    return shape


@contextmanager
def keeping(handle: Handle, session_ids: Iterable[Any]) -> Iterator[None]:
    """Messages are deleted or inserted inside, which leaves the rows of their sessions alone.

    Someone may have put triggers on messages that count in those.
    """
    shape = raw.shape(handle, SESSIONS)
    keys = [{"id": session_id} for session_id in session_ids]
    before = [raw.at(handle, shape, key) if shape else [] for key in keys]
    yield
    for key, rows in zip(keys, before, strict=True):
        if shape is not None and rows:
            _restore(handle, shape, key, rows[0])


def _restore(handle: Handle, shape: Shape, key: Mapping[str, Any], wanted: Row) -> None:
    """Set what a trigger has made otherwise in a row."""
    for found in raw.at(handle, shape, key):
        if not raw.same(found, wanted):
            pairs = zip(shape.columns, found, wanted, strict=True)
            other = {name: value for name, now, value in pairs if not raw.same([now], [value])}
            raw.update(handle, shape.table, key, other)
