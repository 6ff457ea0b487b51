"""`Ledger`: what is kept about one home: plans, batches with their trash, and the audit log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from session_core.errors import InvalidInput, Unsupported
from session_core.ledger.batches import encode_json
from session_core.ledger.database import PACKAGE
from session_core.ledger.plans import PlanLedger
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.types import AuditEntry
from session_core.ledger.undo_log import UndoLog
from session_core.state import cursors
from session_core.state.protocol import StateDatabase
from session_core.state.sqlite import sql_blocks
from session_core.types import Page

if TYPE_CHECKING:
    from typing_extensions import Self

SQL = sql_blocks.load_blocks("audit", PACKAGE)

_MAX_ROWID = 1 << 62


class Ledger(PlanLedger, UndoLog):
    """The ledger of the home that `folder` is for; nothing is made before the first write.

    `Ledger.open(db)` is the ledger of the home that is open as `db`.
    With `trash_dir` new trash goes to a file in that folder, which has to be there. Instances are
    safe to share between threads, and not to be used across a fork.
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

        With `reads_anywhere`, a place that is refused is refused at the first write only.

        Raises:
            Denied: its state folder is in a Hermes home, or `trash_dir` is in any home.
            Unsupported: the database is in no file.
        """
        if db.path is None:
            raise Unsupported("a ledger belongs to a database file, and this database is in none")
        folder = StateFolder(db.path)
        ledger = cls(folder, clock=clock, trash_dir=trash_dir, reads_anywhere=reads_anywhere)
        ledger.check_home(db)
        return ledger

    def add_audit_entry(self, client: str | None, what: str, plan: str | None, counts: Any) -> None:
        """Note who has changed what; what was noted of a plan already is not noted again.

        Where the name of its kind and more is noted of it, that is so far: what the same client
        notes next takes its place, without a client what the last one has noted.
        """
        line = {
            "at": self._clock(),
            "client": client,
            "what": what,
            "plan": plan,
            "counts": encode_json(counts),
        }
        self._file.write(
            lambda rows: (
                rows.run_change(SQL["change_line"], line) or rows.run_change(SQL["add_line"], line)
            )
        )

    def list_audit_entries(self, limit: int = 20, cursor: str | None = None) -> Page[AuditEntry]:
        """List what was noted, newest first."""
        scope = str(self._folder.db_path)
        before = _MAX_ROWID if cursor is None else cursors.decode_cursor("audit", scope, cursor)
        if limit < 1:
            raise InvalidInput(f"limit is {limit}; at least 1")
        found = self._file.read(
            lambda rows: rows.fetch_tuples(SQL["list_lines"], (before, limit + 1))
        )
        page = found[:limit]
        following = (
            cursors.encode_cursor("audit", scope, page[-1][0]) if len(found) > limit else None
        )
        lines = [
            AuditEntry(at, client, what, plan, json.loads(counts))
            for _, at, client, what, plan, counts in page
        ]
        return Page(lines, following)

    def close(self) -> None:
        """Close its files; what was returned before is durable."""
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
