"""How a file is written anew by way of another one, with something done at each point of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from session_core import SessionDB
from tests.homes import connect

_INTO = "VACUUM INTO"
_LOOK = "PRAGMA data_version"


def anew(db: SessionDB, step: Callable[[], object] | None = None) -> None:
    """Write it anew in this way, whatever its library would do."""
    with db._translate_errors():
        db._get_writer().run_alone(partial(db._vacuum_through_file, step=step))


def course(db: SessionDB, act: Callable[[str], object]) -> list[str]:
    """Write it anew while `act` is called at each point; return the points."""
    ran = Course(db, act)
    anew(db, ran.stepped)
    return ran.points


class Course:
    """The points that come one after another, as SQLite and `step` tell of them."""

    def __init__(self, db: SessionDB, act: Callable[[str], object]) -> None:
        self.points: list[str] = []
        self._act = act
        self._phase = "looking"
        self._folder = db.path.parent
        guard, writer = db._open.guard, db._open.writer
        assert guard is not None
        assert writer is not None
        assert writer._handle is not None
        guard.connection.set_trace_callback(self._looked)
        writer._handle.connection.set_trace_callback(self._copied)

    def stepped(self) -> None:
        """Tell where it is: this is called as the `step` of a vacuum."""
        between = self._phase == "copying" and is_whole(self._folder)
        self._at("between" if between else self._phase)

    def _looked(self, sql: str) -> None:
        if sql == _LOOK:
            self._at("look under the lock" if self._phase == "copying" else "first look")
            self._phase = "writing back" if self._phase == "copying" else "looking"

    def _copied(self, sql: str) -> None:
        if sql.startswith(_INTO):
            self._at("copy begins")
            self._phase = "copying"

    def _at(self, point: str) -> None:
        self.points.append(point)
        self._act(point)


def copies(folder: Path, ending: str = "") -> list[Path]:
    """Return the copies of the database in a folder, with what belongs to them."""
    return list(folder.glob(f".state.db.vacuum-*{ending}"))


def is_whole(folder: Path) -> bool:
    """Whether there is a copy that nothing is written to any more."""
    return any(each.stat().st_size for each in copies(folder)) and not copies(folder, "-journal")


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of all tables with their numbers, and of those behind a search index."""
    with connect(path, "ro") as connection:
        tables = connection.execute(
            "SELECT name, sql LIKE '%WITHOUT ROWID%' FROM sqlite_master"
            " WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        ).fetchall()
        found = {
            name: connection.execute(f'SELECT {"" if bare else "rowid, "}* FROM "{name}"')  # noqa: S608 -- names that were read
            for name, bare in tables
        }
        schema = connection.execute("SELECT type, name, sql FROM sqlite_master")
        return {name: each.fetchall() for name, each in {**found, "": schema}.items()}
