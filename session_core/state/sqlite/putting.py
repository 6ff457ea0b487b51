"""Images put back: what is there is never overwritten, and what does not fit is said.

Rows go in by the names of their columns, those that others refer to first. A key that somebody else
has is refused; a value that cannot stand here any more is left out of its row. Triggers do their
work, as those that feed a search index do, and what they make otherwise in the rows is set right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter

from session_core.models import Images, Misfit, Put
from session_core.state.sqlite import owned, routes, stored
from session_core.state.sqlite.handle import Handle
from session_core.state.sqlite.images import MESSAGES, SESSIONS, checked
from session_core.state.sqlite.put_rows import Report, Table
from session_core.state.sqlite.store import Store
from session_core.state.sqlite.stored import Row

_ORDER = {SESSIONS: 1, MESSAGES: 3}

_NO_TABLE = "this home has no such table"


class Putting(Store):
    """Puts rows back."""

    def put_images(self, images: Iterable[Images], *, of: Collection[str] | None = None) -> Put:
        """Put rows back where they are not, in any order; say what was there and what did not fit.

        A row that is there and equal is present. One whose key somebody else has is refused, as is
        one that needs what is gone. A title that was taken, and a parent that is gone, are left out
        of their row, and so is what this home has no column for. In a transaction that is not
        linked nothing needs what is gone. With `of` rows that are of none of these sessions are
        refused: that is for what somebody else has written.
        """
        given = checked(images)
        return self._write(lambda handle: put(handle, given, of))


def put(handle: Handle, given: Sequence[Images], of: Collection[str] | None = None) -> Put:
    """Put rows back, in the open transaction."""
    report = Report()
    routes.changed(handle)
    if of is not None:
        given, report.refused = owned.only(handle, given, of)
    whole = _messages_together(given)
    ordered = sorted(whole, key=lambda image: (not image.shared, _ORDER.get(image.table, 2)))
    with _links_later(handle):
        tables = [table for image in ordered for table in _prepared(handle, image, report)]
        for table in tables:
            table.put()
        for table in tables if handle.linked else ():
            table.mend_links()
        for table in tables:
            table.finish()
    return report.result()


def _messages_together(given: Sequence[Images]) -> list[Images]:
    """Have messages come by their ids: an index of Hermes writes all it has at each lower one."""
    found = [image for image in given if image.table != MESSAGES]
    several: dict[tuple[str, ...], list[Row]] = {}
    for image in given:
        if image.table == MESSAGES:
            several.setdefault(tuple(image.columns), []).extend(image.rows)
    for columns, rows in several.items():
        by_id = sorted(rows, key=itemgetter(columns.index("id")))
        found.append(Images(MESSAGES, columns, tuple(by_id)))
    return found


@contextmanager
def _links_later(handle: Handle) -> Iterator[None]:
    """Rows that refer to each other come in any order; at the end each has to have its own."""
    handle.run("PRAGMA defer_foreign_keys=ON")
    try:
        yield
    finally:
        handle.run("PRAGMA defer_foreign_keys=OFF")


def _prepared(handle: Handle, image: Images, report: Report) -> Iterator[Table]:
    """Yield what puts an image back, if there is where to put it."""
    shape = stored.shape(handle, image.table)
    if shape is None:
        report.refused += [Misfit(image.table, (), _NO_TABLE) for _ in image.rows]
        return
    dropped = [name for name in image.columns if name not in shape.columns]
    if dropped:
        report.dropped.setdefault(image.table, {}).update(dict.fromkeys(dropped))
    places = [place for place, name in enumerate(image.columns) if name not in dropped]
    names = [image.columns[place] for place in places]
    yield Table(handle, shape, names, [[row[at] for at in places] for row in image.rows], report)
