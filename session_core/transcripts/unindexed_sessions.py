"""Sessions of files that are not indexed yet, from their head and tail, for lists.

The rows are in a database in memory with the columns of the index, so that one statement filters
and orders both.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from session_core import _sqlite3
from session_core.transcripts.catalog import Catalog, PendingFile
from session_core.transcripts.file_feed import FileFeed
from session_core.transcripts.index import SQL
from session_core.transcripts.label_view import LabelView
from session_core.transcripts.parts import IndexedMessage, SourcePart

# The view with the labels hides the table, and cannot be written.
_PUT_SQL = SQL["put_session"].replace("INTO sessions", "INTO main.sessions")
_COUNTS = ("archived", "messages", "compacted_to", "is_read")


class UnindexedSessions:
    """The sessions of new files whose head and tail were read."""

    def __init__(self, labels_path: Path) -> None:
        self._db = _sqlite3.connect("file::memory:", busy_timeout_s=0)
        self._db.execute(SQL["create_sessions"])
        self._labels = LabelView(self._db, labels_path)
        self._seen: dict[tuple[int, str], PendingFile] = {}

    def close(self) -> None:
        """Close the database in memory."""
        self._db.close()

    def list_new_files(self, catalog: Catalog) -> deque[PendingFile]:
        """Return the files that the index does not have, newest first.

        The rows of files that are indexed by now, or have changed, are dropped.
        """
        for seen in list(self._seen.values()):
            pending = seen.root.pending.get(seen.path)
            if pending is None or not pending.is_new or pending.identity != seen.identity:
                self._drop_row(seen)
        return deque(pending for pending in catalog.list_pending_files() if pending.is_new)

    def read_new_files(
        self, new: deque[PendingFile], feeds: dict[int, FileFeed], budget_s: float
    ) -> int | None:
        """Read head and tail of files in `new`, for about `budget_s`, and remove them from it.

        Return the time of the newest remaining file in milliseconds, or None if none remains. No
        session of the remaining files is newer than that.
        """
        until = time.monotonic() + budget_s
        while new:
            pending = new[0]
            if (id(pending.root), pending.path) not in self._seen:
                if time.monotonic() > until:
                    return pending.identity.mtime_ns // 1_000_000
                self._read_ends(pending, feeds)
            new.popleft()
        return None

    def read(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Run a SELECT over the rows."""
        if self._labels.is_outdated():
            self._labels.update_view()
        return self._db.execute(sql, values).fetchall()

    def _read_ends(self, pending: PendingFile, feeds: dict[int, FileFeed]) -> None:
        feed = feeds.get(id(pending.root))
        file = pending.root.match_file(pending.path)
        if feed is None or file is None:
            return
        # Also if it cannot be read, so that it is not tried again before it changes.
        self._seen[id(pending.root), pending.path] = pending
        part = feed.read_head_and_tail(pending.entry, file)
        if part is not None:
            self._db.execute(_PUT_SQL, _make_row(part, pending))

    def _drop_row(self, pending: PendingFile) -> None:
        del self._seen[id(pending.root), pending.path]
        path = pending.entry.full_path
        self._db.execute("DELETE FROM main.sessions WHERE agent_version = ?", (path,))


def _make_row(part: SourcePart, pending: PendingFile) -> dict[str, Any]:
    """Return the row of a session, with its path in a column that no list shows."""
    row: dict[str, Any] = dict.fromkeys(
        column.strip(" ,").split()[0] for column in SQL["create_sessions"].splitlines()[1:-1]
    )
    row |= dict.fromkeys((*_COUNTS, *(name for name in row if name.endswith("_tokens"))), 0)
    ((native_id, session),) = part.sessions.items()
    facts = session.facts
    messages = [item for item in session.items if isinstance(item, IndexedMessage)]
    first = next((item for item in messages if item.preview), None)
    started = facts.get("started_at")
    file = part.file
    row |= {
        "id": None,
        "source_id": 0,
        "store": pending.entry.store,
        "session_id": native_id,
        "native_id": native_id,
        "title": facts.get("title"),
        "preview": first and first.preview,
        "preview_number": first and first.number,
        "folder": facts.get("folder"),
        "branch": facts.get("branch"),
        "model": facts.get("model"),
        "agent_version": pending.entry.full_path,
        "started_at": None if started is None else int(started * 1000),
        "active_at": part.after.newest_at or pending.identity.mtime_ns // 1_000_000,
        "parent_id": facts.get("parent_id") or (file and file.parent_id),
        "link": facts.get("link") or (file and file.link),
        "archived": int(facts.get("archived", bool(file and file.archived))),
        "cost_usd": 0.0,
        # A file without a message is not a session, but its middle was not read.
        "is_read": int(part.after.is_read and not messages),
        "messages": len(messages),
    }
    return row
