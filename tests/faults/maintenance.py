"""Maintenance under faults: plans, their restores, edits, an export and an import.

`MAINTENANCE` is what `maintenance_sweep` fails at every write of the home, its routes, its files
and the ledger.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from session_core.config import GatewayConfig
from session_core.errors import Conflict
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.maintenance.apply.run import NOT_AFRESH
from session_core.maintenance.maintenance import Maintenance
from session_core.maintenance.transfer.import_undo import ImportUndo
from session_core.maintenance.transfer.store import IMPORT
from session_core.maintenance.types import Applied, Preview, Restored, Wanted
from session_core.routing.store import SessionStore
from session_core.state.sqlite.database import SessionDB
from tests.faults import ledger, routes
from tests.faults.ledger import KEPT, Beside
from tests.faults.mutations import COPY, NOW
from tests.homes import connect

DAY_S = 86_400.0
ODD = "session_20260101_120000_abcdef01.json"
OWN = "session_large.json"
CARRIED = "carried.jsonl"
"""What is exported to and imported from."""

FILES = (
    *routes.FILES,
    *(name for name in ledger.FILES if name.startswith(KEPT)),
    *(name.replace("ledger.db", "pins.db") for name in ledger.FILES if "ledger.db" in name),
    *(f"{routes.FOLDER}/{name}" for name in (ODD, OWN)),
    *(CARRIED, ".export_0.tmp", *COPY),
)
"""The files whose calls are made to fail."""

Kind = Literal["own", "hermes", "older"]

AFRESH = Wanted("sessions", "finalize", ids=(routes.CHAT, "open"), start_new=True)


class Opened:
    """A home with its routes, its ledger and what maintains it, closed together."""

    def __init__(self, home: Path) -> None:
        with ExitStack() as stack:
            self.db = SessionDB(home / "state.db", patience_s=2.0, clock=lambda: NOW)
            stack.callback(self.db.close)
            # Two threads may look at once: each finds a reader, so every run has the same calls.
            self.db._read(lambda _: self.db._read(lambda _: None))
            self.ledger = Ledger(
                Beside(home / "state.db", root=home / KEPT), clock=lambda: NOW, patience_s=2.0
            )
            stack.callback(self.ledger.close)
            self.store = SessionStore(
                home / routes.FOLDER,
                config=GatewayConfig(),
                db=self.db,
                now=lambda: datetime.fromtimestamp(NOW),  # noqa: DTZ006 -- local, as stored
                new_id=lambda _: "fresh",
            )
            stack.callback(self.store.close)
            self.maintenance = Maintenance(
                self.db,
                self.ledger,
                store=self.store,
                hooks=Hooks(group=None),
                clock=lambda: NOW,
            )
            self._closing = stack.pop_all()

    def close(self) -> None:
        """Close all of it, whatever fails."""
        self._closing.close()

    def noted(self, what: str) -> Any:
        """Return the plan, or the batch of it, that there is."""
        sql = {"plan": "SELECT handle FROM plans ORDER BY rowid DESC",
               "batch": "SELECT id FROM batches WHERE plan IS NOT NULL"}[what]  # fmt: skip
        return self.ledger._file.read(lambda rows: rows.value(sql))


Act = Callable[[Opened], object]


@dataclass(frozen=True, slots=True)
class Change:
    """One change, the home that it is tried on, and what becomes of it."""

    name: str
    act: Act
    prepare: Act
    kind: Kind
    again: Callable[[Opened], bool]
    """Does it again or goes on with it; says whether something was left as it is, and said."""
    back: Act | None = None
    """Takes it back, where that is no change of its own."""
    in_steps: bool = False
    """Whether a fault may leave a part of it."""
    opens: type[Opened] = Opened
    files: tuple[str, ...] = field(default=FILES, repr=False)


def do(wanted: Wanted) -> Act:
    """Return what plans and applies."""

    def act(opened: Opened) -> None:
        opened.maintenance.plan(wanted)
        _apply(opened)

    return act


def _apply(opened: Opened) -> Applied:
    done = opened.maintenance.apply(opened.noted("plan"))
    assert isinstance(done, Applied)
    return done


def _apply_again(opened: Opened) -> bool:
    done = _apply(opened)
    return bool(done.skipped) or any(NOT_AFRESH in each for each in done.warnings)


def _restore(opened: Opened) -> None:
    back = opened.maintenance.restore(opened.noted("batch"))
    assert isinstance(back, Restored)


def _restore_again(opened: Opened) -> bool:
    try:
        _restore(opened)
    except Conflict:
        assert opened.ledger.batch(opened.noted("batch")).undone_at is not None
    return False


def _plans(label: str, wanted: Wanted, kind: Kind, *, restored: bool = True) -> list[Change]:
    def plan(opened: Opened) -> None:
        opened.maintenance.plan(wanted)

    name = f"{label}, {kind}"
    applied = Change(
        f"maintenance.apply, {name}", _apply, plan, kind, _apply_again, _restore, in_steps=True
    )
    back = Change(
        f"maintenance.restore, {name}", _restore, do(wanted), kind, _restore_again, in_steps=True
    )
    return [applied, back] if restored else [applied]


def _half_alive(opened: Opened) -> None:
    """Remove a part of a session, to which somebody then appends: what is gone is to come back."""
    opened.maintenance.plan(Wanted("sessions"))
    half = opened.maintenance.apply(opened.noted("plan"), 0)
    assert half.outcome == "partial"
    opened.db.append_message("large", "user", "needle not yet", timestamp=NOW)


def _back_alive(opened: Opened) -> bool:
    """Go on with the plan that puts it back; all of it is there, and what was said since."""
    done = _apply(opened)
    assert [each.id for each in done.skipped] == ["large"]
    assert opened.db.message_count("large") == len(_SIZES["large"]) + 1
    return False


def _edit(**wanted: Any) -> Callable[[Opened], bool]:
    def act(opened: Opened) -> bool:
        opened.maintenance.edit("small", **wanted)
        return False

    return act


_ENTITLE = _edit(title="Work", archived=True, reopen=True)
_PIN = _edit(pinned=True)
_BOTH = _edit(title="Work", pinned=True)
"""These homes have no column for a pin: it is in a file of its own."""


def _undo_edits(opened: Opened) -> None:
    for batch in opened.maintenance.batches().items:
        if batch.undone_at is None:
            opened.maintenance.restore(batch.id)


def _undo_edits_again(opened: Opened) -> bool:
    with suppress(Conflict):  # it turns out that it was undone
        _undo_edits(opened)
    return False


def _nothing(_: Opened) -> None:
    """Leave the home as it was made."""


def _export(opened: Opened) -> None:
    opened.maintenance.export(_carried(opened))


def _export_again(opened: Opened) -> bool:
    if not _carried(opened).exists():
        _export(opened)
    return False


def _import(opened: Opened) -> bool:
    done = opened.maintenance.import_(_carried(opened))
    assert not done.broken
    assert not done.left_out
    return False


def _brought(opened: Opened) -> None:
    """Import what was taken away."""
    _taken_away(opened)
    _import(opened)


def _undo_import(opened: Opened) -> None:
    for batch in opened.maintenance.batches(undone=False).items:
        if batch.what == IMPORT:
            planned = opened.maintenance.restore(batch.id)
            assert isinstance(planned, Preview)
            if planned.plan is not None:
                opened.maintenance.apply(planned.plan)


def _undo_import_again(opened: Opened) -> bool:
    with suppress(Conflict):  # it turns out that it was undone
        _undo_import(opened)
    return False


def _undo_the_undo(opened: Opened) -> None:
    for batch in opened.maintenance.batches(undone=False).items:
        if batch.what == ImportUndo.KIND:
            opened.maintenance.restore(batch.id)


def _taken_away(opened: Opened) -> None:
    names = ["large", "small", "ghost"]
    opened.maintenance.export(_carried(opened), names)
    opened.db.delete_sessions(names)


def _carried(opened: Opened) -> Path:
    return opened.db.path.parent / CARRIED


_ALIVE: tuple[Kind, ...] = ("own", "hermes")

_ALL = (
    *_plans("all", Wanted("all"), "own"),
    *_plans("sessions", Wanted("sessions"), "hermes"),
    *_plans("routes", Wanted("routes"), "older"),
    *_plans("afresh", AFRESH, "own"),
    *_plans("afresh", AFRESH, "hermes", restored=False),
    *_plans("afresh", AFRESH, "older"),
    *(
        Change(
            f"maintenance.apply, alive, {kind}",
            _apply,
            _half_alive,
            kind,
            _back_alive,
            in_steps=True,
        )
        for kind in _ALIVE
    ),
    Change("maintenance.edit, own", _ENTITLE, _nothing, "own", _ENTITLE, _undo_edits),
    Change("maintenance.edit, pin", _PIN, _nothing, "hermes", _PIN, _undo_edits),
    Change(
        "maintenance.restore, edit", _undo_edits, _BOTH, "own", _undo_edits_again, in_steps=True
    ),
    Change("maintenance.export, own", _export, _nothing, "own", _export_again),
    Change("maintenance.import_, own", _import, _taken_away, "own", _import, in_steps=True),
    *(
        Change(
            f"maintenance.restore, import, {kind}",
            _undo_import,
            _brought,
            kind,
            _undo_import_again,
            _undo_the_undo,
            in_steps=True,
        )
        for kind in _ALIVE
    ),
)
"""All in a home of our own; elsewhere what differs: the triggers of Hermes, routes in a file."""

MAINTENANCE = {one.name: one for one in _ALL}


# -- homes -------------------------------------------------------------------------------------


def build(home: Path, change: Change) -> None:
    """Make a home in which each kind has something to do, up to just before the change."""
    routes.build(home, change.kind)
    (home / KEPT).mkdir()
    opened = Opened(home)
    try:
        opened.store.check_against_state()
        _fill(opened)
    finally:
        opened.close()
    _damage(home)
    opened = Opened(home)
    try:
        change.prepare(opened)
    finally:
        opened.close()


_SIZES = {"large": (20_000, 15_000, 10), "small": (10,)}
"""The first two messages fill a step, and all else fits one, however slow the machine is."""


def _fill(opened: Opened) -> None:
    db, old = opened.db, NOW - 150 * DAY_S
    for name, sizes in _SIZES.items():
        db.create_session(name, "cli", started_at=old)
        said = [{"role": "user", "content": f"needle {'x' * size}", "timestamp": old}
                for size in sizes]  # fmt: skip
        db.append_messages(name, said)
        db.end_session(name, "cli_close")
    branch = {"_branched_from": "small"}
    db.create_session("branch", "cli", parent_session_id="small", model_config=branch)
    db.create_session("ghost", "cli", started_at=old)
    db.create_session("open", "cli", started_at=old)
    db.append_message("open", "user", "needle left open", timestamp=old)
    db.create_session("gone", "cli", started_at=old)
    db.append_message("gone", "user", "needle of nobody", timestamp=old)
    for name, text in ((ODD, "{}"), (OWN, '{"needle": 1}')):
        path = opened.store.sessions_dir / name
        path.write_text(text)
        os.utime(path, (old, old))


def _damage(home: Path) -> None:
    """Leave rows without their session, and routes without theirs."""
    with connect(home / "state.db", "ro") as guard, connect(home / "state.db") as connection:
        guard.execute("SELECT count(*) FROM sessions").fetchone()
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("DELETE FROM sessions WHERE id IN ('gone', ?)", (routes.OLD,))
        connection.execute("DELETE FROM messages WHERE session_id = ?", (routes.OLD,))
