"""Trace a vacuum through a copy, with an action at each of its points."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from session_core import SessionDB
from tests.homes import connect

_INTO = "VACUUM INTO"
_LOOK = "PRAGMA data_version"


def vacuum_through_copy(db: SessionDB, step: Callable[[], object] | None = None) -> None:
    """Rewrite the database through a copy, for any SQLite library."""
    with db._store.translate_errors():
        db._store.get_writer().run_exclusively(partial(db.admin._vacuum_through_file, step=step))


def trace_vacuum(db: SessionDB, act: Callable[[str], object]) -> list[str]:
    """Rewrite the database and call `act` at each point, and return the points."""
    ran = VacuumTrace(db, act)
    vacuum_through_copy(db, ran.record_step)
    return ran.points


class VacuumTrace:
    """Records the points of a vacuum, from SQL traces and `step` callbacks."""

    def __init__(self, db: SessionDB, act: Callable[[str], object]) -> None:
        self.points: list[str] = []
        self._act = act
        self._phase = "looking"
        self._folder = db.path.parent
        guard, writer = db._store.pool.guard, db._store.pool.writer
        assert guard is not None
        assert writer is not None
        assert writer._handle is not None
        guard.connection.set_trace_callback(self._on_guard_statement)
        writer._handle.connection.set_trace_callback(self._on_writer_statement)

    def record_step(self) -> None:
        """Record the present point. Passed as the `step` of a vacuum."""
        between = self._phase == "copying" and is_whole(self._folder)
        self._record_point("between" if between else self._phase)

    def _on_guard_statement(self, sql: str) -> None:
        if sql == _LOOK:
            self._record_point("look under the lock" if self._phase == "copying" else "first look")
            self._phase = "writing back" if self._phase == "copying" else "looking"

    def _on_writer_statement(self, sql: str) -> None:
        if sql.startswith(_INTO):
            self._record_point("copy begins")
            self._phase = "copying"

    def _record_point(self, point: str) -> None:
        self.points.append(point)
        self._act(point)


def list_copies(folder: Path, ending: str = "") -> list[Path]:
    """Return the copies of the database in a folder, with their journals."""
    return list(folder.glob(f".state.db.vacuum-*{ending}"))


def is_whole(folder: Path) -> bool:
    """Whether a copy exists that is completely written."""
    return any(copy.stat().st_size for copy in list_copies(folder)) and not list_copies(
        folder, "-journal"
    )


def dump_tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of all tables with their row ids, including shadow tables."""
    with connect(path, "ro") as connection:
        tables = connection.execute(
            "SELECT name, sql LIKE '%WITHOUT ROWID%' FROM sqlite_master"
            " WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        ).fetchall()
        cursors = {
            name: connection.execute(f'SELECT {"" if bare else "rowid, "}* FROM "{name}"')  # noqa: S608 -- names that were read
            for name, bare in tables
        }
        schema = connection.execute("SELECT type, name, sql FROM sqlite_master")
        return {name: cursor.fetchall() for name, cursor in {**cursors, "": schema}.items()}
