"""`Ledger`: the plans, batches with their trash, and audit log of one home."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from session_core._typing import Self
from session_core.errors import InvalidInput
from session_core.ledger.database import PACKAGE
from session_core.ledger.database_location import find_database_location
from session_core.ledger.plans import PlanLedger
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.storage import encode_json
from session_core.ledger.types import AuditEntry
from session_core.ledger.undo_log import UndoLog
from session_core.state import cursors, sql_blocks
from session_core.state.protocol import StateDatabase
from session_core.types import Page

SQL = sql_blocks.load_blocks("audit", PACKAGE)

_MAX_ROWID = 1 << 62


class Ledger(PlanLedger, UndoLog):
    """The ledger of one home: plans, trash, undo batches and the audit log.

    `Ledger.open(db)` returns the ledger of an open database. If the database has no file, its
    ledger is in the database. The first write creates the files. With `trash_dir`, new trash is
    written to a file in that folder, which must exist. Instances may be shared between threads but
    not used across a fork.

    Example:
        >>> from session_core import Ledger, SessionDB
        >>> with SessionDB(":memory:") as db, Ledger.open(db) as ledger:
        ...     ledger.list_audit_entries().items
        []
    """

    @classmethod
    def open(
        cls,
        db: StateDatabase,
        *,
        clock: Callable[[], float] = time.time,
        trash_dir: Path | None = None,
        reads_anywhere: bool = False,
    ) -> Self:
        """Open the ledger of a home.

        Args:
            db: the database of the home.
            clock: a function that returns the current time in seconds.
            trash_dir: an existing folder for new trash, for example on another disk.
            reads_anywhere: report a denied location at the first write instead of here.

        Raises:
            Denied: the state folder is in a Hermes home, or `trash_dir` is in any home.
            Unsupported: the database has neither a file nor an id, or it has no file and
                `trash_dir` is given.
        """
        folder = find_database_location(db) if db.path is None else StateFolder(db.path)
        ledger = cls(folder, clock=clock, trash_dir=trash_dir, reads_anywhere=reads_anywhere)
        ledger.check_home(db)
        if not folder.has_files:
            folder.check_place(trash_dir)
        return ledger

    def add_audit_entry(self, client: str | None, what: str, plan: str | None, counts: Any) -> None:
        """Record the client and counts of a change, once for each plan.

        An entry whose `what` begins with the kind of the plan and has more text is provisional: the
        next entry of the same client replaces it, and without a client the newest one is replaced.
        """
        values = {
            "at": self._clock(),
            "client": client,
            "what": what,
            "plan": plan,
            "counts": encode_json(counts),
        }
        self._file.write(
            lambda rows: (
                rows.execute_update(SQL["change_line"], values)
                or rows.execute_update(SQL["add_line"], values)
            )
        )

    def list_audit_entries(self, limit: int = 20, cursor: str | None = None) -> Page[AuditEntry]:
        """List audit entries, newest first."""
        scope = self._folder.scope
        before = _MAX_ROWID if cursor is None else cursors.decode_cursor("audit", scope, cursor)
        if limit < 1:
            raise InvalidInput(f"limit must be an integer >= 1, got {limit}")
        entry_rows = self._file.read(
            lambda rows: rows.fetch_tuples(SQL["list_lines"], (before, limit + 1))
        )
        page = entry_rows[:limit]
        next_cursor = (
            cursors.encode_cursor("audit", scope, page[-1][0]) if len(entry_rows) > limit else None
        )
        entries = [
            AuditEntry(at, client, what, plan, json.loads(counts))
            for _, at, client, what, plan, counts in page
        ]
        return Page(entries, next_cursor)

    def close(self) -> None:
        """Close the files.

        Every change whose call has returned is durable.
        """
        self._close_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
