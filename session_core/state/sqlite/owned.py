"""Which rows are of some sessions: what a file of somebody else may bring, and nothing beside it.

Those of the tables that belong to a session, where a column says that it is theirs, and those to
which one of these refers. All others are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from session_core.models import Images, Misfit
from session_core.state.sqlite import stored
from session_core.state.sqlite.deletion import belonging
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.images import MESSAGES, SESSIONS
from session_core.state.sqlite.stored import Row

_FOREIGN = "it is none of this session"

Owners = Mapping[str, Collection[str]]
"""By table, the columns that say whose a row is."""


def only(
    handle: Handle, images: Sequence[Images], of: Collection[str]
) -> tuple[list[Images], list[Misfit]]:
    """Return what is of these sessions, and the rest as refused."""
    owners = _owners(handle)
    taken = [_owned(image, owners, of) for image in images if not image.shared]
    named = set(_named(handle, taken, owners))
    taken += [_needed(handle, image, named) for image in images if image.shared]
    whole = [image for image in images if not image.shared]
    whole += [image for image in images if image.shared]
    refused = [
        Misfit(before.table, (), _FOREIGN)
        for before, after in zip(whole, taken, strict=True)
        for _ in range(len(before.rows) - len(after.rows))
    ]
    return taken, refused


def _owners(handle: Handle) -> Owners:
    found: dict[str, list[str]] = {SESSIONS: ["id"], MESSAGES: ["session_id"]}
    for table, column in belonging(handle):
        if table not in (SESSIONS, MESSAGES):
            found.setdefault(table, []).append(column)
    return found


def _owned(image: Images, owners: Owners, of: Collection[str]) -> Images:
    names = owners.get(image.table, ())
    places = [place for place, name in enumerate(image.columns) if name in names]
    return _with(image, [row for row in image.rows if any(row[at] in of for at in places)])


def _named(
    handle: Handle, images: Sequence[Images], owners: Owners
) -> Iterator[tuple[str, tuple[str, ...], Row]]:
    """Yield what rows refer to in tables that are of no session."""
    for image in images:
        shape = stored.shape(handle, image.table)
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
    known = stored.shape(handle, image.table) is not None
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
