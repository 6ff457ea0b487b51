"""Delivery marks of Hermes homes, stored in their state folder.

A mark records which ends of a session were delivered to hooks (see `session_core.routing.outbox`).
It is durable when its write returns, and every process sees it. If the folder cannot be read or
written, the marks stay in this process and the error is reported: a hook that is called twice is
better than a hook that is never called.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from session_core.errors import InvalidInput, SessionError
from session_core.hooks.foreign_calls import Reporter, log_fault
from session_core.ledger.database import PACKAGE, LedgerDatabase
from session_core.ledger.state_folder import StateFolder
from session_core.routing.leases import DeliveryMark, DeliveryMarks, MarkChange
from session_core.routing.session_store import SessionStore
from session_core.state import sql_blocks
from session_core.state.protocol import StateDatabase
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.database_file import HERMES_OWNER

SQL = sql_blocks.load_blocks("hermes_delivery_marks", PACKAGE)

_MARKS_FILE = "marks.db"
_BUSY_TIMEOUT_S = 5.0
# The caller's list of sessions may be older than a new mark, so young marks are kept.
_MIN_KEPT_S = 86_400.0


def persist_marks(
    store: SessionStore,
    db: StateDatabase,
    report: Reporter = log_fault,
    *,
    folder: StateFolder | None = None,
) -> None:
    """Replace the marks of a session store by marks in the state folder of its home.

    A store whose marks no other process could read keeps its own.
    """
    if db.path is None or store.folder is None:
        return  # no other process and no restart could see them
    if type(store.marks) is DeliveryMarks:
        folder = folder or StateFolder(db.path)
        folder.set_home_name(HERMES_OWNER)  # only the store of a Hermes home asks for marks
        store.marks = PersistentMarks(
            folder, _name_scope(store.folder, db.path.parent), report=report
        )


class PersistentMarks(DeliveryMarks):
    """Delivery marks of the routes in one folder, stored in the state folder of their home."""

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

    def get(self, session_id: str) -> DeliveryMark:
        """Return the mark of a session, by whichever process it was written."""
        with self._report_errors():
            stored = self._file.read(
                lambda rows: rows.fetch_value(SQL["get_mark"], self._build_key(session_id))
            )
            return _merge_marks(self._parse_mark(stored), super().get(session_id))
        return super().get(session_id)

    def change(self, session_id: str, change: MarkChange) -> bool:
        """Replace the mark of a session by the result of `change`.

        Return False if `change` returns None, which leaves the mark as it is.
        """
        unwritten = super().get(session_id)
        stored_mark: DeliveryMark = {}

        def store_change(rows: Connection) -> bool:
            nonlocal stored_mark
            stored = rows.fetch_value(SQL["get_mark"], self._build_key(session_id))
            stored_mark = _merge_marks(self._parse_mark(stored), unwritten)
            mark = change(dict(stored_mark))
            if mark is not None:
                values = {"noted": json.dumps(mark), "now": self._clock()}
                rows.execute_update(SQL["put_mark"], self._build_key(session_id) | values)
            return mark is not None

        with self._report_errors():
            changed = self._file.write(store_change)
            if changed:  # the write included marks that could not be written before
                super().forget(session_id)
            return changed
        # The write failed, so the change applies to the marks of this process.
        return super().change(session_id, lambda mark: change(_merge_marks(stored_mark, mark)))

    def forget(self, session_id: str) -> None:
        """Delete the mark of a session that continues."""
        super().forget(session_id)
        with self._report_errors():
            if self._find_path() is not None:
                self._file.write(
                    lambda rows: rows.execute_update(
                        SQL["delete_mark"], self._build_key(session_id)
                    )
                )

    def keep_only(self, session_ids: Collection[str]) -> None:
        """Delete the marks of all other sessions, except those younger than a day."""
        super().keep_only(session_ids)
        values: dict[str, Any] = {"scope": self._scope, "before": self._clock() - _MIN_KEPT_S}
        with self._report_errors():
            # A read first, since there is mostly nothing to delete and a write syncs.
            if self._file.read(lambda rows: rows.fetch_value(SQL["count_old"], values)):
                kept = {"kept": json.dumps(sorted(session_ids))}
                self._file.write(
                    lambda rows: rows.execute_update(SQL["delete_others"], values | kept)
                )

    def close(self) -> None:
        """Close the file until the next call."""
        closed, self._file = self._file, self._make_database()
        closed.close()

    def _make_database(self) -> LedgerDatabase:
        return LedgerDatabase(
            self._find_path,
            self._make_path,
            _BUSY_TIMEOUT_S,
            schema="hermes_delivery_marks_schema",
            name="file of hook deliveries",
            lost="hooks of ended sessions may be called again",
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
            self._report("a hook delivery is recorded in this process only", error)

    def _parse_mark(self, stored: str | None) -> DeliveryMark:
        """Return a stored mark, or report an invalid mark and return an empty mark."""
        try:
            mark: DeliveryMark = json.loads(stored) if stored else {}
            delivered = mark.get("told", [])
            if isinstance(delivered, list) and all(
                isinstance(used_at, str) for used_at in delivered
            ):
                return mark
            error: Exception = InvalidInput("'told' must be a list of times")
        except (ValueError, AttributeError, RecursionError) as broken:
            error = broken
        self._report("the record of a hook delivery cannot be read", error)
        return {}


def _name_scope(routes: Path, home: Path) -> str:
    """Return the name of a folder of routes, which does not change if its home moves."""
    routes_path, home_path = routes.resolve(), home.resolve()
    return str(
        routes_path.relative_to(home_path) if routes_path.is_relative_to(home_path) else routes_path
    )


def _merge_marks(stored: DeliveryMark, unwritten: DeliveryMark) -> DeliveryMark:
    """Merge the stored mark with the mark that this process could not write."""
    if not unwritten:
        return stored
    delivered = dict.fromkeys([*stored.get("told", []), *unwritten.get("told", [])])
    return stored | unwritten | {"told": list(delivered)}
