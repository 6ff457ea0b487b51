"""The ledger under faults: a plan applied in a home, and what is judged afterwards.

`LEDGER` is what `ledger_sweep` fails at every write, of the home and of the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

from session_core.ledger import codec
from session_core.ledger.batches import new_step_id
from session_core.ledger.execute import MARK, clear_marks, resume, run_step
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.ledger.types import Kept, Member
from session_core.state.protocol import StateDatabase
from tests.faults import state, template
from tests.faults.mutations import NOW, open_home

KEPT, DISK = "kept", "disk"
_PIECE_BYTES = 4096
MEMBERS = ("chat", "done")
_ENDS = ("", "-wal", "-shm", "-journal")

FILES = (
    *("", *(f"state.db{end}" for end in _ENDS)),
    *(KEPT, *(f"{KEPT}/ledger.db{end}" for end in _ENDS)),
    *(DISK, *(f"{DISK}/{KEPT}.db{end}" for end in _ENDS)),
)
"""The files whose calls are made to fail."""


class Beside(StateFolder):
    """A state folder that is copied with its home, and bound to nothing: all lies in one folder."""

    def find(self) -> Path | None:
        """Return it where it is there."""
        return self.root if self.root.is_dir() else None

    def make(self) -> Path:
        """Make it."""
        self.root.mkdir(exist_ok=True)
        return self.root

    @property
    def trash_name(self) -> str:
        """Return the name of the folder."""
        return self.root.name

    def check_place(self, trash_dir: Path | None = None) -> None:
        """Let it be."""


class Opened:
    """A home and its ledger, closed together."""

    def __init__(self, home: Path, *, elsewhere: bool = False) -> None:
        self.db = open_home(home)
        self.ledger = Ledger(
            Beside(home / "state.db", root=home / KEPT),
            clock=lambda: NOW,
            patience_s=2.0,
            trash_dir=home / DISK if elsewhere else None,
        )

    def close(self) -> None:
        """Close both."""
        try:
            self.ledger.close()
        finally:
            self.db.close()


class Elsewhere(Opened):
    """One whose trash goes to another disk."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, elsewhere=True)


@dataclass(frozen=True, slots=True)
class LedgerMutation:
    """One change, and the home that it is tried on."""

    name: str
    act: Callable[[Opened], object]
    kind: Literal["own", "hermes"] = "own"
    prepare: Callable[[Opened], object] = lambda _: None
    opens: type[Opened] = Opened
    files: tuple[str, ...] = field(default=FILES, repr=False)


def build(home: Path, mutation: LedgerMutation) -> None:
    """Make the home before a change, with a plan for two of its sessions."""
    template.build(home, mutation.kind)
    (home / DISK).mkdir()
    opened = Opened(home)
    opened.ledger.add_plan("sessions", [Member(name) for name in MEMBERS], None)
    mutation.prepare(opened)
    opened.close()


def keep(db: StateDatabase, session: str, *, large: bool = False) -> Iterator[Kept]:
    """Return a session as it is, and if asked for more than a piece of noise."""
    yield Kept("sessions", db.get_session(session))
    for row in db.get_messages(session, include_inactive=True):
        yield Kept("messages", dict(row))
    if large:
        yield Kept("file", Random(session).randbytes(3 * _PIECE_BYTES))


@contextmanager
def _small_pieces() -> Iterator[None]:
    """Many pieces of a little trash, so that a run is short."""
    usual, codec.PIECE_BYTES = codec.PIECE_BYTES, _PIECE_BYTES
    try:
        yield
    finally:
        codec.PIECE_BYTES = usual


def plan_of(opened: Opened) -> str:
    """Return the one plan that there is."""
    names: list[str] = opened.ledger._file.read(
        lambda rows: [name for (name,) in rows.values("SELECT handle FROM plans")]
    )
    return names[0]


def apply(opened: Opened, *, large: bool = False) -> None:
    """Apply the plan, or what is left of it."""
    db, ledger = opened.db, opened.ledger
    resume(db, ledger)
    handle = plan_of(opened)
    if ledger.plan(handle).state == "finished":
        return
    batch = ledger.begin(handle).id
    with _small_pieces():
        for member in ledger.plan(handle).remaining:
            _remove(opened, batch, member.id, large=large)
    clear_marks(db, ledger)
    ledger.finish(handle, len(MEMBERS))


def _remove(opened: Opened, batch: str, session: str, *, large: bool) -> None:
    run_step(
        opened.db,
        opened.ledger,
        batch,
        before=lambda db: keep(db, session, large=large),
        change=lambda db: db.delete_sessions([session]),
        members=[session],
    )


def _crash_after_commit(opened: Opened) -> None:
    """Leave a step whose home was changed, and of which the ledger knows only the trash."""
    db, ledger = opened.db, opened.ledger
    batch, step = ledger.begin(plan_of(opened)).id, new_step_id()
    ledger.prepare(step, batch, keep(db, "chat"), members=["chat"])
    with db.transaction():
        db.delete_sessions(["chat"])
        db.set_meta(MARK + step, "[1]")
    _disown(opened)


def _crash_before_commit(opened: Opened) -> None:
    """Leave a step that has not begun."""
    batch = opened.ledger.begin(plan_of(opened)).id
    kept = keep(opened.db, "chat", large=True)
    with _small_pieces():
        opened.ledger.prepare(new_step_id(), batch, kept, members=["chat"])
    _disown(opened)


def _disown(opened: Opened) -> None:
    opened.ledger._file.write(lambda rows: rows.run("UPDATE steps SET pid = 0"))


def _empty(opened: Opened) -> object:
    return opened.ledger.empty(0)


_ALL = (
    LedgerMutation("ledger.run_step", apply),
    LedgerMutation("ledger.run_step, hermes", apply, kind="hermes"),
    LedgerMutation("ledger.run_step, large", lambda opened: apply(opened, large=True)),
    LedgerMutation(
        "ledger.run_step, elsewhere", lambda opened: apply(opened, large=True), opens=Elsewhere
    ),
    LedgerMutation("ledger.resume, done", apply, prepare=_crash_after_commit),
    LedgerMutation("ledger.resume, never", apply, prepare=_crash_before_commit, kind="hermes"),
    LedgerMutation("ledger.empty", _empty, prepare=lambda opened: apply(opened, large=True)),
)

LEDGER = {mutation.name: mutation for mutation in _ALL}


@dataclass(frozen=True)
class Found:
    """What a home and its ledger hold."""

    gone: tuple[str, ...]
    """The sessions that are not there any more."""
    undoable: dict[str, list[Kept]]
    """What was kept of each session that a step has removed."""
    finished: bool
    emptied: bool


def look(opened: Opened) -> Found:
    """Return what is there, once every step is decided."""
    db, ledger = opened.db, opened.ledger
    plan = ledger.plan(plan_of(opened))
    batch = ledger.batch(plan.batch) if plan.batch else None
    emptied = batch is not None and batch.emptied_at is not None
    steps = ledger.steps(batch.id) if batch and not emptied else []
    kept: dict[str, list[Kept]] = {}
    for step in steps:
        kept[step.members[0]] = list(ledger.trash(step.id))
    gone = tuple(name for name in MEMBERS if db.get_session(name) is None)
    return Found(gone, kept, plan.state == "finished", emptied)


def wrong_with(opened: Opened, whole: dict[str, list[Kept]]) -> list[str]:
    """Return what is wrong with what is there, once every step is decided."""
    found = look(opened)
    file: Any = opened.ledger._file
    orphans = file.read(
        lambda rows: rows.value(
            "SELECT count(*) FROM trash WHERE step NOT IN (SELECT id FROM steps WHERE chunks > 0)"
        )
    )
    damage = [row for (row,) in file.read(lambda rows: rows.values("PRAGMA quick_check"))]
    judged = {
        "a session is gone that cannot be brought back": not found.emptied
        and set(found.gone) != set(found.undoable),
        "what was kept is not what was there": any(
            kept[: len(whole[name])] != whole[name] for name, kept in found.undoable.items()
        ),
        "trash that belongs to nothing": orphans > 0,
        "a step that nobody decides": bool(opened.ledger.unsettled()),
        f"the ledger is damaged: {damage}": damage != ["ok"],
    }
    return [what for what, so in judged.items() if so]


def copy(home: Path, to: Path) -> Path:
    """Copy a home that nobody has open."""
    return template.copy(home, to)


def damage(home: Path) -> list[str]:
    """Return what the checks of SQLite find wrong with the home."""
    return state.damage(home)
