"""What is checked before rows go: they are as they were imaged, and nothing else goes with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from session_core.errors import Changed
from session_core.models import Images
from session_core.state.sqlite import images, referring, stored
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.images import MESSAGES, SESSIONS
from session_core.state.sqlite.stored import Row, Shape

_PAGE = 500


def check_unchanged(handle: Handle, image: Images) -> None:
    """Make sure that rows are as they were imaged."""
    shape = require_shape(handle, image)
    if image.table == MESSAGES:
        place = shape.columns.index("id")
        for page in _pages(sorted(image.rows, key=itemgetter(place))):
            found = images.messages(handle, shape, [row[place] for row in page])
            if len(found) != len(page) or not all(map(stored.same, found, page)):
                raise changed("a message")
        return
    for row in image.rows:
        found = stored.at(handle, shape, key_of(shape, row))
        if len(found) != image.rows.count(row) or not stored.same(found[0], row):
            raise changed(f"a row of {image.table}")


def check_all_imaged(handle: Handle, given: Sequence[Images]) -> None:
    """Make sure that nothing else goes with the rows of sessions, as some tables have it."""
    sessions_of = [image for image in given if image.table == SESSIONS]
    known = {(image.table, tuple(row)) for image in given for row in image.rows if sessions_of}
    gone = [each for image in sessions_of for each in values_of(image, "id")]
    if gone and not known.issuperset(images.of_sessions(handle, gone)):
        raise changed("what belongs to a session")
    if referring.to(handle, given):
        raise changed("what refers to a row")


def check_nothing_refers(handle: Handle, given: Sequence[Images]) -> None:
    """Make sure that nothing else goes with messages, or is emptied, as some tables have it."""
    if referring.to(handle, given):
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
    shape = stored.shape(handle, image.table)
    if shape is None or shape.columns != image.columns:
        raise changed(f"the table {image.table}")
    return shape


def _pages(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    return (rows[start : start + _PAGE] for start in range(0, len(rows), _PAGE))


def changed(what: str) -> Changed:
    """Return the error for what is not any more what it was."""
    return Changed(f"{what} was changed since; plan again")
