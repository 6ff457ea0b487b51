"""The ledger under faults: a plan that is applied in a home, and checks of the result.

`ledger_sweep` lets every write of `LEDGER_MUTATIONS` fail, in the home and in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

from session_core.ledger import codec
from session_core.ledger.execute import MARK_PREFIX, delete_step_marks, resume_steps, run_step
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.storage import make_step_id
from session_core.ledger.types import Member, TrashItem
from session_core.state.protocol import StateDatabase
from tests.faults import state, template
from tests.faults.mutations import NOW_S, open_home

KEPT, DISK = "kept", "disk"
_PIECE_BYTES = 4096
MEMBER_IDS = ("chat", "done")
_DATABASE_SUFFIXES = ("", "-wal", "-shm", "-journal")

FAULTY_FILES = (
    *("", *(f"state.db{end}" for end in _DATABASE_SUFFIXES)),
    *(KEPT, *(f"{KEPT}/ledger.db{end}" for end in _DATABASE_SUFFIXES)),
    *(DISK, *(f"{DISK}/{KEPT}.db{end}" for end in _DATABASE_SUFFIXES)),
)
"""Files whose calls fail."""


class AdjacentStateFolder(StateFolder):
    """A state folder inside its home that is copied with it and has no binding."""

    def find(self) -> Path | None:
        """Return the folder if it exists."""
        return self.root if self.root.is_dir() else None

    def make(self) -> Path:
        """Create the folder."""
        self.root.mkdir(exist_ok=True)
        return self.root

    @property
    def trash_name(self) -> str:
        """Return the name of the folder."""
        return self.root.name

    def check_place(self, trash_dir: Path | None = None) -> None:
        """Accept any place."""


class LedgerHome:
    """A home and its ledger, closed together."""

    def __init__(self, home: Path, *, elsewhere: bool = False) -> None:
        self.db = open_home(home)
        self.ledger = Ledger(
            AdjacentStateFolder(home / "state.db", root=home / KEPT),
            clock=lambda: NOW_S,
            patience_s=2.0,
            trash_dir=home / DISK if elsewhere else None,
        )

    def close(self) -> None:
        """Close both."""
        try:
            self.ledger.close()
        finally:
            self.db.close()


class RemoteTrashHome(LedgerHome):
    """A home whose trash goes to another disk."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, elsewhere=True)


@dataclass(frozen=True, slots=True)
class LedgerMutation:
    """One change, and the home for it."""

    name: str
    act: Callable[[LedgerHome], object]
    kind: Literal["own", "hermes"] = "own"
    prepare: Callable[[LedgerHome], object] = lambda _: None
    opens: type[LedgerHome] = LedgerHome
    files: tuple[str, ...] = field(default=FAULTY_FILES, repr=False)


def build_home(home: Path, mutation: LedgerMutation) -> None:
    """Build the home before a change, with a plan for two of its sessions."""
    template.build_home(home, mutation.kind)
    (home / DISK).mkdir()
    opened = LedgerHome(home)
    opened.ledger.add_plan("sessions", [Member(name) for name in MEMBER_IDS], None)
    mutation.prepare(opened)
    opened.close()


def list_kept_rows(db: StateDatabase, session: str, *, large: bool = False) -> Iterator[TrashItem]:
    """Yield the rows of a session, and on request more than a piece of noise."""
    yield TrashItem("sessions", db.get_session(session))
    for row in db.get_messages(session, include_inactive=True):
        yield TrashItem("messages", dict(row))
    if large:
        yield TrashItem("file", Random(session).randbytes(3 * _PIECE_BYTES))


@contextmanager
def _use_small_pieces() -> Iterator[None]:
    """Use many small pieces, so that a run is short."""
    usual, codec.PIECE_BYTES = codec.PIECE_BYTES, _PIECE_BYTES
    try:
        yield
    finally:
        codec.PIECE_BYTES = usual


def find_plan(opened: LedgerHome) -> str:
    """Return the only plan."""
    names: list[str] = opened.ledger._file.read(
        lambda rows: [name for (name,) in rows.fetch_tuples("SELECT handle FROM plans")]
    )
    return names[0]


def apply_plan(opened: LedgerHome, *, large: bool = False) -> None:
    """Apply the plan, or the rest of it."""
    db, ledger = opened.db, opened.ledger
    resume_steps(db, ledger)
    handle = find_plan(opened)
    if ledger.get_plan(handle).state == "finished":
        return
    batch = ledger.begin_plan(handle).batch_id
    with _use_small_pieces():
        for member in ledger.get_plan(handle).remaining:
            _remove_session(opened, batch, member.id, large=large)
    delete_step_marks(db, ledger)
    ledger.finish_plan(handle, len(MEMBER_IDS))


def _remove_session(opened: LedgerHome, batch: str, session: str, *, large: bool) -> None:
    run_step(
        opened.db,
        opened.ledger,
        batch,
        before=lambda db: list_kept_rows(db, session, large=large),
        change=lambda db: db.delete_sessions([session]),
        members=[session],
    )


def _leave_committed_step(opened: LedgerHome) -> None:
    """Leave a step that changed the home, and of which the ledger has only the trash."""
    db, ledger = opened.db, opened.ledger
    batch, step = ledger.begin_plan(find_plan(opened)).batch_id, make_step_id()
    ledger.prepare_step(step, batch, list_kept_rows(db, "chat"), members=["chat"])
    with db.transaction():
        db.delete_sessions(["chat"])
        db.set_meta(MARK_PREFIX + step, "[1]")
    _disown_steps(opened)


def _leave_unstarted_step(opened: LedgerHome) -> None:
    """Leave a step that has not begun."""
    batch = opened.ledger.begin_plan(find_plan(opened)).batch_id
    kept = list_kept_rows(opened.db, "chat", large=True)
    with _use_small_pieces():
        opened.ledger.prepare_step(make_step_id(), batch, kept, members=["chat"])
    _disown_steps(opened)


def _disown_steps(opened: LedgerHome) -> None:
    opened.ledger._file.write(lambda rows: rows.execute_update("UPDATE steps SET pid = 0"))


def _empty_trash(opened: LedgerHome) -> object:
    return opened.ledger.empty_trash(0)


_MUTATIONS = (
    LedgerMutation("ledger.run_step", apply_plan),
    LedgerMutation("ledger.run_step, hermes", apply_plan, kind="hermes"),
    LedgerMutation("ledger.run_step, large", lambda opened: apply_plan(opened, large=True)),
    LedgerMutation(
        "ledger.run_step, elsewhere",
        lambda opened: apply_plan(opened, large=True),
        opens=RemoteTrashHome,
    ),
    LedgerMutation("ledger.resume, done", apply_plan, prepare=_leave_committed_step),
    LedgerMutation(
        "ledger.resume, never", apply_plan, prepare=_leave_unstarted_step, kind="hermes"
    ),
    LedgerMutation(
        "ledger.empty", _empty_trash, prepare=lambda opened: apply_plan(opened, large=True)
    ),
)

LEDGER_MUTATIONS = {mutation.name: mutation for mutation in _MUTATIONS}


@dataclass(frozen=True)
class LedgerState:
    """The content of a home and its ledger."""

    gone: tuple[str, ...]
    """Sessions that were deleted."""
    undoable: dict[str, list[TrashItem]]
    """The trash of each session that a step has deleted."""
    finished: bool
    emptied: bool


def read_state(opened: LedgerHome) -> LedgerState:
    """Return the state after every step is decided."""
    db, ledger = opened.db, opened.ledger
    plan = ledger.get_plan(find_plan(opened))
    batch = ledger.get_batch(plan.batch) if plan.batch else None
    emptied = batch is not None and batch.emptied_at is not None
    steps = ledger.list_steps(batch.id) if batch and not emptied else []
    kept: dict[str, list[TrashItem]] = {}
    for step in steps:
        kept[step.members[0]] = list(ledger.read_trash(step.id))
    gone = tuple(name for name in MEMBER_IDS if db.get_session(name) is None)
    return LedgerState(gone, kept, plan.state == "finished", emptied)


def find_problems(opened: LedgerHome, whole: dict[str, list[TrashItem]]) -> list[str]:
    """Return the problems of a state in which every step is decided."""
    found = read_state(opened)
    file: Any = opened.ledger._file
    orphans = file.read(
        lambda rows: rows.fetch_value(
            "SELECT count(*) FROM trash WHERE step NOT IN (SELECT id FROM steps WHERE chunks > 0)"
        )
    )
    damage = [row for (row,) in file.read(lambda rows: rows.fetch_tuples("PRAGMA quick_check"))]
    judged = {
        "a session is gone that cannot be brought back": not found.emptied
        and set(found.gone) != set(found.undoable),
        "what was kept is not what was there": any(
            kept[: len(whole[name])] != whole[name] for name, kept in found.undoable.items()
        ),
        "trash that belongs to nothing": orphans > 0,
        "a step that nobody decides": bool(opened.ledger.list_unsettled_steps()),
        f"the ledger is damaged: {damage}": damage != ["ok"],
    }
    return [what for what, so in judged.items() if so]


def copy_home(home: Path, to: Path) -> Path:
    """Copy a home that is not open."""
    return template.copy_home(home, to)


def find_damage(home: Path) -> list[str]:
    """Return the findings of SQLite's integrity checks."""
    return state.find_damage(home)
