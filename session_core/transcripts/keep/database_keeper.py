"""`DatabaseKeeper`: stores the rows of database sessions that have changed.

The format finds changes with a watermark of its own for the copies. Changed sessions are recorded
before their rows are read, so that a kill loses no session.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from session_core.transcripts.database_feed import get_database_errors, open_snapshot
from session_core.transcripts.format import DatabaseFormat
from session_core.transcripts.keep.comparison import (
    RenewSession,
    RowComparison,
    cut_chunks,
    read_session_lines,
)
from session_core.transcripts.keep.copies import KeptCopies, make_rows_path
from session_core.transcripts.keep.copies_database import SQL, increment_counter
from session_core.transcripts.keep.copy_changes import CopyChange
from session_core.transcripts.keep.session_rows import has_message_tables
from session_core.transcripts.roots import FileIdentity, is_database_format

if TYPE_CHECKING:
    from session_core.transcripts.catalog import RootCatalog

StoreChanges = Callable[[list[CopyChange]], None]

_READ_S = 0.15
_READ_ROWS = 200
_MAX_SESSIONS = 50
_UNDONE = FileIdentity(0, 0, 0, 0)


class DatabaseKeeper:
    """Stores new rows of the databases of a root."""

    def __init__(self, copies: KeptCopies, renew: RenewSession) -> None:
        self._copies = copies
        self._comparison = RowComparison(copies, renew)

    def copy_pending(
        self, root: RootCatalog, until: float, store: StoreChanges, *, is_anew: bool
    ) -> bool:
        """Store changed rows until `until`.

        Return True if some are left. When no rows are new, copies are compared with their rows,
        with `is_anew` without a pause.
        """
        reader = root.root.format
        if not is_database_format(reader):
            return False
        is_left = False
        for path, identity in list(root.sweep.files.items()):
            place = (root.root.path, path, reader.store)
            try:
                is_new = self._copies.is_on and (
                    self._record_changed_sessions(reader, place, identity, until)
                    | self._keep_changes(reader, place, until, store)
                )
                is_left |= is_new or self._replace_changed_copies(
                    root, path, until, store, is_anew=is_anew
                )
            except get_database_errors():
                continue  # locked or damaged: the next call tries again
        self._comparison.renew_sessions(root)
        return is_left

    def _replace_changed_copies(
        self, root: RootCatalog, path: str, until: float, store: StoreChanges, *, is_anew: bool
    ) -> bool:
        """Replace copies whose rows were updated in place.

        Return True if some are left.
        """
        reader: Any = root.root.format
        place = (root.root.path, path, reader.store)
        for copy in self._comparison.find_changed_copies(root, path, until, is_anew=is_anew):
            self._comparison.note_renewal(root, path, copy.session_id)
            self._keep_session(reader, place, copy.session_id, store)
        return self._comparison.is_round_unfinished(root, path)

    def _record_changed_sessions(
        self,
        reader: DatabaseFormat,
        place: tuple[str, str, str],
        identity: FileIdentity,
        until: float,
    ) -> bool:
        """Record the sessions that changed.

        Return True if the database has more to read.
        """
        rows = self._copies.database.read(SQL["get_database"], place)
        version, *before, stored = rows[0] if rows else (0, *_UNDONE, "{}")
        if version == reader.version and FileIdentity(*before) == identity:
            return False
        is_same = version == reader.version and tuple(before[:2]) == identity[:2]
        state = json.loads(stored) if is_same else {}
        while time.monotonic() < until:
            sessions, is_done = _read_changed_sessions(f"{place[0]}/{place[1]}", reader, state)
            known = identity if is_done else identity._replace(size=-1)
            self._note_changes(reader, place, sessions, known, state)
            if is_done:
                return False
        return True

    def _note_changes(
        self,
        reader: DatabaseFormat,
        place: tuple[str, str, str],
        sessions: set[str],
        identity: FileIdentity,
        state: dict[str, Any],
    ) -> None:
        root, path, store = place
        values = (store, root, path, reader.version, *identity, json.dumps(state))
        with self._copies.database.open_transaction() as db:
            db.execute(SQL["put_database"], values)
            for session_id in sessions:
                if not self._copies.is_excluded(store, session_id):
                    change = increment_counter(db, "change")
                    note = (store, root, path, session_id, change)
                    db.execute(SQL["note_changed_session"], note)

    def _keep_changes(
        self, reader: DatabaseFormat, place: tuple[str, str, str], until: float, store: StoreChanges
    ) -> bool:
        """Store the rows of changed sessions.

        Return True if some are left.
        """
        while True:
            changed = self._copies.database.read(
                SQL["list_changed_sessions"], (*place, _MAX_SESSIONS)
            )
            for session_id, change in changed:
                if time.monotonic() > until:
                    return True
                self._keep_session(reader, place, session_id, store)
                with self._copies.database.open_transaction() as db:
                    # A session that changed again in the meantime stays noted.
                    db.execute(SQL["delete_changed_session"], (*place, session_id, change))
            if not changed:
                return False

    def _keep_session(
        self,
        reader: DatabaseFormat,
        place: tuple[str, str, str],
        session_id: str,
        store: StoreChanges,
    ) -> None:
        root, path, name = place
        rows_path, offset = make_rows_path(path, session_id), 0
        before = self._copies.find_copy(root, rows_path)
        known = self._comparison.list_known_digests(before)
        lines = read_session_lines(f"{root}/{path}", reader, session_id, known)
        needs_messages = has_message_tables(reader)
        for data, has_messages, is_end in lines:
            if (
                is_end
                and offset == 0
                and not has_messages
                and needs_messages
                and before is not None
            ):
                return  # the rows have gone: the copy stays
            identity = FileIdentity(0, 0, 0, time.time_ns())
            copy = self._copies.find_copy(root, rows_path)
            change = CopyChange(
                copy, name, root, rows_path, session_id, "rows", identity, offset, is_whole=is_end
            )
            change.is_cut = known is not None
            change.chunks += cut_chunks(data)
            store([change])
            offset += len(data)


def _read_changed_sessions(
    path: str, reader: DatabaseFormat, state: dict[str, Any]
) -> tuple[set[str], bool]:
    """Return the sessions changed since the watermark, and whether the end was reached.

    The watermark in `state` is moved.
    """
    until = time.monotonic() + _READ_S
    sessions: set[str] = set()
    with open_snapshot(path) as query:
        if not reader.has_tables(query):
            return set(), True
        while time.monotonic() < until:
            records = reader.read_changes(query, state, _READ_ROWS)
            sessions |= {record.session_id for record in records if record.session_id}
            if not records:
                return sessions, True
    return sessions, False
