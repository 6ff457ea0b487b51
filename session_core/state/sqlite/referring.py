"""Rows that refer to others by a foreign key, and those that refer to these: found by looking.

Whoever deletes a row has them deleted, or emptied, or is refused. What is a session's own by a
column of its id is found without this (`deletion.belonging`), and the children of a session stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from session_core.models import Images
from session_core.state.sqlite import blocks, stored
from session_core.state.sqlite.handle import Handle, quoted
from session_core.state.sqlite.stored import Link, Row, Shape

SQL = blocks.load("checks")

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
        for (name,) in handle.values(SQL["list_tables"]):
            shape = stored.shape(handle, name)
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
        yield from stored.read(handle, shape.select(where), given)
        return
    for key in keys:
        if None not in key:
            yield from stored.at(handle, shape, _named(link.columns, key))


def _named(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))
