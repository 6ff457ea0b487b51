"""Marks of ends that were told, for a home that may not be marked itself: in its state folder.

A mark is durable when its step returns, and seen by every process. Where the folder cannot be read
or written the marks are those of the process, and that is reported: better told twice than never.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from session_core.errors import InvalidInput, SessionError
from session_core.hooks.calls import Reporter, log_fault
from session_core.ledger.database import PACKAGE, LedgerDatabase
from session_core.ledger.state_folder import StateFolder
from session_core.routing.leases import DeliveryMarks, Mark, MarkChange
from session_core.routing.store import SessionStore
from session_core.state.protocol import StateDatabase
from session_core.state.sqlite import sql_blocks
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.opening import HERMES_OWNER

SQL = sql_blocks.load_blocks("hook_deliveries", PACKAGE)

_MARKS_FILE = "marks.db"
_BUSY_TIMEOUT_S = 5.0
_MIN_KEPT_S = 86_400.0
"""A mark that is younger stays: what it is of may be newer than what is said to be there."""


def persist_marks(store: SessionStore, db: StateDatabase, report: Reporter = log_fault) -> None:
    """Let what a store tells be known after a restart, and to other processes."""
    if db.path is not None and type(store.marks) is DeliveryMarks:
        folder = StateFolder(db.path)
        folder.set_home_name(HERMES_OWNER)  # a store asks marks of no other home
        store.marks = PersistentMarks(
            folder, _name_scope(store.folder, db.path.parent), report=report
        )


class PersistentMarks(DeliveryMarks):
    """Marks of the routes in one folder, kept in the state folder of their home."""

    def __init__(
        self,
        folder: StateFolder,
        scope: str,
        *,
        report: Reporter = log_fault,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._folder = folder
        self._scope = scope
        self._report = report
        self._clock = clock
        self._file = self._make_database()

    def get(self, session_id: str) -> Mark:
        """Return what is noted of a session, by whatever process."""
        with self._report_errors():
            stored = self._file.read(
                lambda rows: rows.fetch_value(SQL["get_mark"], self._build_key(session_id))
            )
            return _merge_marks(self._parse_mark(stored), super().get(session_id))
        return super().get(session_id)

    def change(self, session_id: str, change: MarkChange) -> bool:
        """Change what is noted of a session; return whether it was."""
        beside = super().get(session_id)
        seen: Mark = {}

        def step(rows: Connection) -> bool:
            nonlocal seen
            stored = rows.fetch_value(SQL["get_mark"], self._build_key(session_id))
            seen = _merge_marks(self._parse_mark(stored), beside)
            noted = change(dict(seen))
            if noted is not None:
                values = {"noted": json.dumps(noted), "now": self._clock()}
                rows.run_change(SQL["put_mark"], self._build_key(session_id) | values)
            return noted is not None

        with self._report_errors():
            changed = self._file.write(step)
            if changed:  # what could not be written before now is
                super().forget(session_id)
            return changed
        return super().change(session_id, lambda noted: change(_merge_marks(seen, noted)))

    def forget(self, session_id: str) -> None:
        """Forget what is noted of a session, which goes on."""
        super().forget(session_id)
        with self._report_errors():
            if self._find_path() is not None:
                self._file.write(
                    lambda rows: rows.run_change(SQL["delete_mark"], self._build_key(session_id))
                )

    def keep_only(self, session_ids: Collection[str]) -> None:
        """Forget what is noted of all others, unless that was within a day."""
        super().keep_only(session_ids)
        values: dict[str, Any] = {"scope": self._scope, "before": self._clock() - _MIN_KEPT_S}
        with self._report_errors():
            if self._file.read(lambda rows: rows.fetch_value(SQL["count_old"], values)):
                kept = {"kept": json.dumps(sorted(session_ids))}
                self._file.write(lambda rows: rows.run_change(SQL["delete_others"], values | kept))

    def close(self) -> None:
        """Close its file, which the next step opens again."""
        closed, self._file = self._file, self._make_database()
        closed.close()

    def _make_database(self) -> LedgerDatabase:
        return LedgerDatabase(
            self._find_path,
            self._make_path,
            _BUSY_TIMEOUT_S,
            schema="hook_deliveries_schema",
            name="file of marks",
            lost="what was told of ends could be told once more",
        )

    def _find_path(self) -> Path | None:
        folder = self._folder.find()
        path = folder / _MARKS_FILE if folder else None
        return path if path and path.exists() else None

    def _make_path(self) -> Path:
        return self._folder.make() / _MARKS_FILE

    def _build_key(self, session_id: str) -> dict[str, Any]:
        return {"scope": self._scope, "session_id": session_id}

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        try:
            yield
        except (SessionError, OSError) as error:
            self._report("what was told of a session is known to this process alone", error)

    def _parse_mark(self, stored: str | None) -> Mark:
        """Return what a mark says; a broken one says nothing, and the next takes its place."""
        try:
            noted: Mark = json.loads(stored) if stored else {}
            told = noted.get("told", [])
            if isinstance(told, list) and all(isinstance(used_at, str) for used_at in told):
                return noted
            error: Exception = InvalidInput("what was told is a list of times")
        except (ValueError, AttributeError, RecursionError) as broken:
            error = broken
        self._report("a mark of what was told of a session cannot be read", error)
        return {}


def _name_scope(routes: Path, home: Path) -> str:
    """Return the name of a folder of routes, by which it is known also where its home has moved."""
    there, here = routes.resolve(), home.resolve()
    return str(there.relative_to(here) if there.is_relative_to(here) else there)


def _merge_marks(stored: Mark, beside: Mark) -> Mark:
    """Return what is noted in the file, and by this process where it could not be."""
    if not beside:
        return stored
    told = dict.fromkeys([*stored.get("told", []), *beside.get("told", [])])
    return stored | beside | {"told": list(told)}
