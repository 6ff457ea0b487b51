"""Turns keeping on and off, reports on it, and forgets sessions for good."""

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
        """Return whether keeping is on or off, or None until the user has decided."""
        mode: KeepMode | None = self._copies.database.get_setting("mode")
        return mode

    def turn_on(self, names: Collection[str] = ()) -> None:
        """Keep sessions that are read from now on, also these forgotten sessions or stores.

        Raises:
            NotFound: a name is that of no forgotten session.
        """
        self._copies.load_changes()
        places = [self._find_forgotten(name) for name in names]
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
        """Keep nothing more; existing copies stay and are served."""
        with self._copies.database.open_transaction() as db:
            db.execute(SQL["put_setting"], ("mode", "off"))
        self._copies.load_changes()

    def copy_pending(self, budget_s: float = 0.5) -> bool:
        """Keep the changes of the last look, for about the budget; return True if more is left."""
        return self._keeper.copy_pending(budget_s)

    def scan_and_copy(self, budget_s: float = 0.5) -> bool:
        """Look at the sources and keep for about the budget; return True if more is left."""
        self._indexer.scan_files()
        self.finish_forgetting()
        return self._keeper.copy_pending(budget_s, is_listed_anew=True)

    def measure_share(self) -> float:
        """Return the share of the bytes of all files that is kept, as of the last look."""
        return self._keeper.measure_share()

    def measure_status(self) -> KeepStatus:
        """Return the kept copies, as of the last look at the sources."""
        database = self._copies.database
        problem = self._keeper.problem or self._copies.problem
        rows = database.read(SQL["count_kept"])
        forgotten = database.read(SQL["list_exclusions"])
        return KeepStatus(
            self.get_mode(),
            database.path,
            {
                store: KeptCounts(sessions, size, len(self._copies.list_gone(store)))
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
        """Return the sessions that forgetting a session or a store would remove.

        Raises:
            NotFound: there is no such session or store.
        """
        return self._forgetter.make_plan(target)

    def load_plan(self, handle: str) -> ForgetPlan:
        """Return a plan again.

        Raises:
            NotFound: the plan does not exist, was applied or has expired.
            Changed: the sessions are not those of the plan any more.
        """
        return self._forgetter.load_plan(handle)

    def forget(self, handle: str) -> ForgetPlan:
        """Remove the sessions of a plan for good, and do not read their sources any more.

        Raises:
            NotFound: the plan does not exist, was applied or has expired.
            Changed: the sessions are not those of the plan any more.
            Busy: it is done, but another process holds on to the bytes that were removed.
        """
        return self._forgetter.apply_plan(handle)

    def finish_forgetting(self) -> None:
        """Go on with what a process that forgot sessions was killed in."""
        if self._copies.unfinished:
            self._forgetter.finish(tries=1)

    def close(self) -> None:
        """Close the kept file."""
        self._copies.close()

    def _find_forgotten(self, name: str) -> tuple[str, str]:
        """Return the store and the session of an exclusion by the name that a user knows."""
        places = sorted(self._copies.exclusions)
        matching = [place for place in places if (place[1] or place[0]) == name]
        matching = matching or [place for place in places if name and place[1].startswith(name)]
        if len(matching) != 1:
            known = ", ".join(session_id or store for store, session_id in places) or "none"
            raise NotFound(f"{name!r:.80} is not one of the forgotten: {known}")
        return matching[0]


def _measure_file(path: str) -> int:
    """Return the size of the file of the copies and of its log."""
    size = 0
    for name in (path, f"{path}-wal"):
        with suppress(OSError):
            size += os.stat(name).st_size  # noqa: PTH116 -- a name with a suffix
    return size
