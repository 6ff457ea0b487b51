"""`TranscriptCopies`: turns keeping on and off, reports on it, and forgets sessions."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress

from session_core.errors import NotFound
from session_core.transcripts.index import Index
from session_core.transcripts.indexer import Indexer
from session_core.transcripts.keep.copies_database import SQL, request_clearing
from session_core.transcripts.keep.keeper import Keeper
from session_core.transcripts.keep.session_forgetter import SessionAccess, SessionForgetter
from session_core.transcripts.keep.types import (
    ForgetPlan,
    ForgottenSession,
    KeepMode,
    KeepStatus,
    KeptCounts,
)


class TranscriptCopies:
    """The kept copies of the sessions of a transcript store."""

    def __init__(
        self,
        index: Index,
        indexer: Indexer,
        access: SessionAccess,
    ) -> None:
        self._indexer = indexer
        self._copies = indexer.catalog.copies
        self._keeper = Keeper(indexer.catalog, self._copies, indexer.renew_session)
        self._forgetter = SessionForgetter(index, indexer, access)

    def get_mode(self) -> KeepMode | None:
        """Return "on" or "off", or None until the user has decided."""
        mode: KeepMode | None = self._copies.database.get_setting("mode")
        return mode

    def turn_on(self, names: Collection[str] = ()) -> None:
        """Keep copies of sessions from now on, and read these forgotten sessions or stores again.

        Raises:
            NotFound: a name does not belong to a forgotten session or store.
        """
        self._copies.load_changes()
        places = [self._find_exclusion(name) for name in names]
        with self._copies.database.open_transaction() as db:
            db.execute(SQL["put_setting"], ("mode", "on"))
            for store, session_id in places:
                db.execute(SQL["delete_exclusion"], (store, session_id, session_id))
                # Databases are read by a watermark, which has passed the session.
                db.execute(SQL["delete_databases"], (store,))
                request_clearing(db)
        self._copies.load_changes()
        self.finish_forgetting()

    def turn_off(self) -> None:
        """Stop keeping copies. Existing copies stay and are served."""
        with self._copies.database.open_transaction() as db:
            db.execute(SQL["put_setting"], ("mode", "off"))
        self._copies.load_changes()

    def copy_pending(self, budget_s: float = 0.5) -> bool:
        """Copy the changes of the last scan for about `budget_s`.

        Return True if more are left.
        """
        return self._keeper.copy_pending(budget_s)

    def scan_and_copy(self, budget_s: float = 0.5) -> bool:
        """Scan the sources and copy their changes for about `budget_s`.

        Return True if more are left.
        """
        self._indexer.scan_files()
        self.finish_forgetting()
        return self._keeper.copy_pending(budget_s, is_listed_anew=True)

    def measure_share(self) -> float:
        """Return the share of the bytes of all files that is kept, as of the last scan."""
        return self._keeper.measure_share()

    def measure_status(self) -> KeepStatus:
        """Return counts and sizes of the kept copies, as of the last scan."""
        database = self._copies.database
        problem = self._keeper.problem or self._copies.problem
        rows = database.read(SQL["count_kept"])
        forgotten = database.read(SQL["list_exclusions"])
        return KeepStatus(
            self.get_mode(),
            database.path,
            {
                store: KeptCounts(sessions, size, len(self._copies.list_gone_sessions(store)))
                for store, sessions, size in rows
            },
            _measure_file(str(database.path)),
            [
                ForgottenSession(store, name or None, at)
                for store, name, parent, at in forgotten
                if not parent
            ],
            None if problem is None else str(problem),
        )

    def plan_forget(self, target: str) -> ForgetPlan:
        """Store a plan to forget a session or a store for good, and return it.

        Raises:
            NotFound: the session or store does not exist.
        """
        return self._forgetter.make_plan(target)

    def load_plan(self, handle: str) -> ForgetPlan:
        """Return a stored plan.

        Raises:
            NotFound: the plan does not exist, was applied or has expired.
            Changed: the sessions differ from the sessions of the plan.
        """
        return self._forgetter.load_plan(handle)

    def forget(self, handle: str) -> ForgetPlan:
        """Remove the sessions of a plan for good, and stop reading their sources.

        Raises:
            NotFound: the plan does not exist, was applied or has expired.
            Changed: the sessions differ from the sessions of the plan.
            Busy: the sessions are removed, but another process still reads the removed bytes.
        """
        return self._forgetter.apply_plan(handle)

    def finish_forgetting(self) -> None:
        """Finish the removal of sessions in which another process was killed."""
        if self._copies.unfinished:
            self._forgetter.finish_removal(tries=1)

    def close(self) -> None:
        """Close the file of copies."""
        self._copies.close()

    def _find_exclusion(self, name: str) -> tuple[str, str]:
        """Return the store and session of an exclusion by an id, a prefix or a store name."""
        places = sorted(self._copies.exclusions)
        matching = [place for place in places if (place[1] or place[0]) == name]
        matching = matching or [place for place in places if name and place[1].startswith(name)]
        if len(matching) != 1:
            known = ", ".join(session_id or store for store, session_id in places) or "none"
            raise NotFound(f"{name!r:.80} is not one of the forgotten: {known}")
        return matching[0]


def _measure_file(path: str) -> int:
    """Return the size of the file of copies and its log."""
    size = 0
    for name in (path, f"{path}-wal"):
        with suppress(OSError):
            size += os.stat(name).st_size  # noqa: PTH116 -- os.stat avoids building a Path
    return size
