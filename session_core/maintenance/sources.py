"""A session as it is exported: its row, what other tables have of it, its messages page by page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from session_core.errors import NotFound
from session_core.maintenance.carrying import OF_OTHERS
from session_core.models import Images, Revision
from session_core.state.contract import StateDatabase

_OWN = "sessions"
_PAGE_BYTES = 1 << 20


class Source:
    """One session, as of one moment but for what happens to its messages meanwhile."""

    def __init__(self, db: StateDatabase, row: Images, rest: list[Images], at: Revision) -> None:
        self._db = db
        self._at = at
        self.columns, self.values = row.columns, row.rows[0]
        self.id: str = self.values[self.columns.index("id")]
        self.tables = [each for each in rest if each.table not in OF_OTHERS]
        self.count = 0

    @classmethod
    def of(cls, db: StateDatabase, session_id: str) -> Source:
        """Look at a session.

        Raises:
            NotFound: it is not there.
        """
        revision = db.revision(session_id)
        images = db.session_images(session_id)
        own = [each for each in images if each.table == _OWN]
        if not own:
            raise NotFound(f"session {session_id} is gone")
        return cls(db, own[0], [each for each in images if each.table != _OWN], revision)

    def pages(self) -> Iterator[Images]:
        """Yield its messages, up to the last one that there was."""
        after: int | None = None
        more = True
        while more and (after is None or after < self._at.last_id):
            image, more = self._db.message_images(self.id, after, _PAGE_BYTES)
            place = image.columns.index("id")
            rows = tuple(row for row in image.rows if row[place] <= self._at.last_id)
            self.count += len(rows)
            if not rows:
                return
            yield Images(image.table, image.columns, rows)
            after = rows[-1][place]

    def has_changed(self) -> bool:
        """Whether more was done since than to append."""
        with suppress(NotFound):
            now = self._db.revision(self.id)
            grown = now.last_id >= self._at.last_id and now.live >= self._at.live
            kept = (now.compacted, now.rewinds) == (self._at.compacted, self._at.rewinds)
            return not (grown and kept)
        return True
