"""Maintenance under faults: plans of each kind, applied and taken back, on homes with all of it.

`MAINTENANCE` is what `maintenance_sweep` fails at every write of the home, its routes, its files
and the ledger.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.maintenance.answers import Applied, Restored
from session_core.maintenance.maintenance import Maintenance
from session_core.maintenance.records import Wanted
from session_core.routing.store import SessionStore
from session_core.settings import GatewayConfig
from session_core.state.sqlite.db import SessionDB
from tests.faults import ledger, routes
from tests.faults.ledger import KEPT, Beside
from tests.faults.mutations import NOW
from tests.homes import connect

DAY_S = 86_400.0
ODD = "session_20260101_120000_abcdef01.json"
OWN = "session_large.json"

FILES = (
    *routes.FILES,
    *(name for name in ledger.FILES if name.startswith(KEPT)),
    *(f"{routes.FOLDER}/{name}" for name in (ODD, OWN)),
)
"""The files whose calls are made to fail."""

Kind = Literal["own", "hermes", "older"]

WANTED = {
    "sessions": Wanted("sessions"),
    "ghosts": Wanted("ghosts"),
    "routes": Wanted("routes"),
    "orphans": Wanted("orphans"),
    "abandoned": Wanted("abandoned", "finalize"),
    "afresh": Wanted("sessions", "finalize", ids=(routes.CHAT,), start_new=True),
}


class Opened:
    """A home with its routes, its ledger and what maintains it, closed together."""

    def __init__(self, home: Path) -> None:
        with ExitStack() as stack:
            self.db = SessionDB(home / "state.db", patience_s=2.0, clock=lambda: NOW)
            stack.callback(self.db.close)
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
    """One change, and the home that it is tried on."""

    name: str
    act: Act
    prepare: Act
    kind: Kind
    undoes: bool
    opens: type[Opened] = Opened
    files: tuple[str, ...] = field(default=FILES, repr=False)


def plan(wanted: Wanted) -> Act:
    """Return what plans."""
    return lambda opened: opened.maintenance.plan(wanted)


def apply(opened: Opened) -> object:
    """Apply the plan, or what is left of it."""
    done = opened.maintenance.apply(opened.noted("plan"))
    assert isinstance(done, Applied)
    return done


def restore(opened: Opened) -> object:
    """Take back what was applied, or what is left of that."""
    back = opened.maintenance.restore(opened.noted("batch"))
    assert isinstance(back, Restored)
    return back


def do(wanted: Wanted) -> Act:
    """Return what plans and applies."""

    def act(opened: Opened) -> None:
        plan(wanted)(opened)
        apply(opened)

    return act


def _all() -> list[Change]:
    found = []
    for kind, labels in _KINDS.items():
        for label in labels:
            wanted, name = WANTED[label], f"{label}, {kind}"
            found += [
                Change(f"maintenance.apply, {name}", apply, plan(wanted), kind, undoes=False),
                Change(f"maintenance.restore, {name}", restore, do(wanted), kind, undoes=True),
            ]
    return found


_KINDS: dict[Kind, tuple[str, ...]] = {
    "own": tuple(WANTED),
    "hermes": ("sessions", "afresh"),
    "older": ("routes", "afresh"),
}
"""What is done to rows is the same wherever the routes are, but for the triggers of Hermes."""

MAINTENANCE = {one.name: one for one in _all()}


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


def _fill(opened: Opened) -> None:
    db, old = opened.db, NOW - 150 * DAY_S
    for name, size in (("large", 40_000), ("small", 10)):
        db.create_session(name, "cli", started_at=old)
        said = [{"role": "user", "content": f"needle {at} {'x' * size}", "timestamp": old}
                for at in range(3)]  # fmt: skip
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
