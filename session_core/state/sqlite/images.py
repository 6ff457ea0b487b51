"""Images: rows read whole and exactly as they are stored, for what must be able to bring them back.

Columns and tables that nobody here knows are among them. Nothing is changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from session_core.errors import InvalidInput
from session_core.models import Images, Raw
from session_core.state import arguments
from session_core.state.sqlite import blocks, referring, stored
from session_core.state.sqlite.deletion import ROW_BYTES, belonging
from session_core.state.sqlite.handle import Handle, quoted
from session_core.state.sqlite.store import Store
from session_core.state.sqlite.stored import Row, Shape

SQL = blocks.load("images")

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
        arguments.check_text("session_id", session_id, needed=True)
        return self._read(lambda handle: of_session(handle, session_id))

    def message_images(self, session_id: str, after: int | None, room: int) -> tuple[Images, bool]:
        """Return the next messages by id up to `room` bytes, at least one; and if there are more.

        None is before all of them. A row counts 200 bytes more than it holds.
        """
        arguments.check_text("session_id", session_id, needed=True)
        arguments.check_number("after", after)
        arguments.check_number("room", room, needed=True)
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
        return self._read(lambda handle: referring.to(handle, given))

    def row_images(self, table: str, where: Mapping[str, Any]) -> Images:
        """Return the rows of a table with these values; none where this home has no such table.

        Raises:
            InvalidInput: the table has no such column.
        """
        arguments.check_text("table", table, needed=True)
        if not isinstance(where, Mapping):
            raise InvalidInput("where is a mapping of columns to values")

        def look(handle: Handle) -> Images:
            shape = stored.shape(handle, table)
            if shape is None:
                return Images(table, (), ())
            require_columns(shape, where)
            return _image(shape, stored.at(handle, shape, where))

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
    columns = arguments.texts("the columns of an image", image.columns) or ()
    arguments.check_text("the table of an image", image.table, needed=True)
    if len(set(columns)) < len(columns) or not set(columns).issuperset(_IDS.get(image.table, ())):
        raise InvalidInput(f"an image of {image.table} has a column twice, or no ids")
    rows = image.rows if isinstance(image.rows, (tuple, list)) else [None]
    if not all(isinstance(row, (tuple, list)) and len(row) == len(columns) for row in rows):
        raise InvalidInput(f"an image of {image.table} has a row that does not fit its columns")
    if image.table == MESSAGES:
        place = columns.index("id")
        arguments.whole_numbers("message ids", [row[place] for row in image.rows])


def require_columns(shape: Shape, given: Mapping[str, Any]) -> None:
    """Refuse columns that a table has not."""
    for name in given:
        if name not in shape.columns:
            raise InvalidInput(f"no column {name!r} in {shape.table}")


def of_session(handle: Handle, session_id: str) -> list[Images]:
    """Return the images of a session's row and of what belongs to it."""
    columns = {SESSIONS: ["id"], **_owners(handle)}
    found = [_belonging(handle, table, names, session_id) for table, names in columns.items()]
    found = [image for image in found if image.rows]
    return found + _shared(handle, found)


def _owners(handle: Handle) -> dict[str, list[str]]:
    """Return the other tables with rows of a session, and the columns that say of which."""
    columns: dict[str, list[str]] = {}
    for table, column in belonging(handle):
        if table != SESSIONS:
            columns.setdefault(table, []).append(column)
    return columns


def of_sessions(handle: Handle, session_ids: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of other tables that belong to sessions, with their table; no message."""
    marks = ", ".join(f"?{number}" for number in range(1, len(session_ids) + 1))
    for table, names in _owners(handle).items():
        chosen = [f"{quoted(name)} IN ({marks})" for name in names]
        select = _shape(handle, table).select(" OR ".join(chosen))
        yield from ((table, row) for row in stored.read(handle, select, list(session_ids)))


def _belonging(handle: Handle, table: str, names: Sequence[str], session_id: str) -> Images:
    shape = _shape(handle, table)
    where = " OR ".join(f"{quoted(name)} = ?" for name in names)
    order = f" ORDER BY {stored.listed(shape.key)}"
    return _image(
        shape, stored.read(handle, shape.select(where) + order, [session_id] * len(names))
    )


def _shared(handle: Handle, images: Sequence[Images]) -> list[Images]:
    """Return the rows of other tables without which these could not be put back."""
    ours = {image.table for image in images} | {SESSIONS, MESSAGES}
    found: dict[tuple[str, Row], Images] = {}
    for image in images:
        for link in _shape(handle, image.table).links:
            parent = None if link.table in ours else stored.shape(handle, link.table)
            for row in image.rows if parent is not None else ():
                values = tuple(row[image.columns.index(name)] for name in link.columns)
                if parent is not None and None not in values:
                    key = dict(zip(link.named, values, strict=True))
                    rows = stored.at(handle, parent, key)
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
    return stored.read(handle, chosen, (json.dumps(ids),)) if ids else []


def _bytes(row: Row) -> int:
    """Return what a row holds, roughly."""
    return sum([len(value) for value in row if type(value) in _SIZED])


def _image(shape: Shape, rows: Sequence[Row]) -> Images:
    return Images(shape.table, shape.columns, tuple(rows))


def _shape(handle: Handle, table: str) -> Shape:
    shape = stored.shape(handle, table)
    if shape is None:
        raise InvalidInput(f"this home has no table {table}")
    return shape
