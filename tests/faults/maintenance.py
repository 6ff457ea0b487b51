"""Maintenance under faults: plans, their restores, edits, an export and an import.

`maintenance_sweep` makes every write of these mutations fail: in the home, its routes, its files
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
from session_core.errors import Conflict, NotFound
from session_core.hooks import Hooks
from session_core.ledger.ledger import Ledger
from session_core.maintenance.apply.results import NOT_RESET_WARNING
from session_core.maintenance.kinds import UNDO_IMPORT
from session_core.maintenance.maintenance import Maintenance
from session_core.maintenance.transfer.import_writer import IMPORT_KIND
from session_core.maintenance.types import ApplyResult, PlanRequest, RestoreResult
from session_core.routing.session_store import SessionStore
from session_core.state.sqlite.session_db import SessionDB
from tests.faults import ledger, routes
from tests.faults.ledger import KEPT, AdjacentStateFolder
from tests.faults.mutations import NOW_S, VACUUM_FILES
from tests.homes import connect

DAY_S = 86_400.0
ODD_FILE = "session_20260101_120000_abcdef01.json"
OWN_FILE = "session_large.json"
EXPORT_FILE = "carried.jsonl"
"""What is exported to and imported from."""

FAULTY_FILES = (
    *routes.FAULTY_FILES,
    *(name for name in ledger.FAULTY_FILES if name.startswith(KEPT)),
    *(name.replace("ledger.db", "pins.db") for name in ledger.FAULTY_FILES if "ledger.db" in name),
    *(f"{routes.SESSIONS_FOLDER}/{name}" for name in (ODD_FILE, OWN_FILE)),
    *(EXPORT_FILE, ".export_0.tmp", *VACUUM_FILES),
)
"""The files whose calls are made to fail."""

MaintenanceHomeKind = Literal["own", "hermes", "older"]

FRESH_REQUEST = PlanRequest("sessions", "finalize", ids=(routes.CHAT, "open"), start_new=True)


class MaintenanceHome:
    """A home with its routes, its ledger and its maintenance, closed together."""

    def __init__(self, home: Path) -> None:
        with ExitStack() as stack:
            self.db = SessionDB(home / "state.db", patience_s=2.0, clock=lambda: NOW_S)
            stack.callback(self.db.close)
            # Two threads may look at once: each finds a reader, so every run has the same calls.
            self.db._read(lambda _: self.db._read(lambda _: None))
            self.ledger = Ledger(
                AdjacentStateFolder(home / "state.db", root=home / KEPT),
                clock=lambda: NOW_S,
                patience_s=2.0,
            )
            stack.callback(self.ledger.close)
            self.store = SessionStore(
                home / routes.SESSIONS_FOLDER,
                config=GatewayConfig(),
                db=self.db,
                now=lambda: datetime.fromtimestamp(NOW_S),  # noqa: DTZ006 -- local, as stored
                new_id=lambda _: "fresh",
            )
            stack.callback(self.store.close)
            self.maintenance = Maintenance(
                self.db,
                self.ledger,
                store=self.store,
                hooks=Hooks(group=None),
                clock=lambda: NOW_S,
            )
            self._closing = stack.pop_all()

    def close(self) -> None:
        """Close all parts, even if one fails."""
        self._closing.close()

    def find_latest_id(self, what: str) -> Any:
        """Return the plan, or the batch of it, that there is."""
        sql = {"plan": "SELECT handle FROM plans ORDER BY rowid DESC",
               "batch": "SELECT id FROM batches WHERE plan IS NOT NULL"}[what]  # fmt: skip
        return self.ledger._file.read(lambda rows: rows.fetch_value(sql))


MaintenanceAction = Callable[[MaintenanceHome], object]


@dataclass(frozen=True, slots=True)
class MaintenanceMutation:
    """A change, the home that it is tried on, and the calls that continue and undo it."""

    name: str
    act: MaintenanceAction
    prepare: MaintenanceAction
    kind: MaintenanceHomeKind
    again: Callable[[MaintenanceHome], bool]
    """Does it again or goes on with it; says whether something was left as it is, and said."""
    back: MaintenanceAction | None = None
    """Takes it back, where that is no change of its own."""
    in_steps: bool = False
    """Whether a fault may leave a part of it."""
    opens: type[MaintenanceHome] = MaintenanceHome
    files: tuple[str, ...] = field(default=FAULTY_FILES, repr=False)


def make_plan_and_apply(wanted: PlanRequest) -> MaintenanceAction:
    """Return a function that plans and applies."""

    def act(opened: MaintenanceHome) -> None:
        opened.maintenance.plan(wanted)
        _apply_plan(opened)

    return act


def _apply_plan(opened: MaintenanceHome) -> ApplyResult:
    result = opened.maintenance.apply(opened.find_latest_id("plan"))
    assert isinstance(result, ApplyResult)
    return result


def _retry_apply(opened: MaintenanceHome) -> bool:
    plan = _apply_plan(opened)
    return bool(plan.skipped) or any(NOT_RESET_WARNING in warning for warning in plan.warnings)


def _restore_batch(opened: MaintenanceHome) -> None:
    back = opened.maintenance.restore(opened.find_latest_id("batch"))
    assert isinstance(back, RestoreResult)


def _retry_restore(opened: MaintenanceHome) -> bool:
    try:
        _restore_batch(opened)
    except Conflict:
        assert opened.ledger.get_batch(opened.find_latest_id("batch")).undone_at is not None
    return False


def _make_plan_mutations(
    label: str, wanted: PlanRequest, kind: MaintenanceHomeKind, *, restored: bool = True
) -> list[MaintenanceMutation]:
    def plan(opened: MaintenanceHome) -> None:
        opened.maintenance.plan(wanted)

    name = f"{label}, {kind}"
    applied = MaintenanceMutation(
        f"maintenance.apply, {name}",
        _apply_plan,
        plan,
        kind,
        _retry_apply,
        _restore_batch,
        in_steps=True,
    )
    back = MaintenanceMutation(
        f"maintenance.restore, {name}",
        _restore_batch,
        make_plan_and_apply(wanted),
        kind,
        _retry_restore,
        in_steps=True,
    )
    return [applied, back] if restored else [applied]


def _prepare_partial_removal(opened: MaintenanceHome) -> None:
    """Remove a part of a session and append to it, so that the plan must restore the part."""
    opened.maintenance.plan(PlanRequest("sessions"))
    half = opened.maintenance.apply(opened.find_latest_id("plan"), 0)
    assert half.outcome == "partial"
    opened.db.append_message("large", "user", "needle not yet", timestamp=NOW_S)


def _finish_partial_removal(opened: MaintenanceHome) -> bool:
    """Continue the plan, which restores the session, and check that all messages are there."""
    plan = _apply_plan(opened)
    assert [each.id for each in plan.skipped] == ["large"]
    assert opened.db.message_count("large") == len(_MESSAGE_SIZES["large"]) + 1
    return False


def _make_edit_action(**wanted: Any) -> Callable[[MaintenanceHome], bool]:
    def act(opened: MaintenanceHome) -> bool:
        opened.maintenance.edit("small", **wanted)
        return False

    return act


_EDIT_TITLE = _make_edit_action(title="Work", archived=True, reopen=True)
_EDIT_PIN = _make_edit_action(pinned=True)
_EDIT_TITLE_AND_PIN = _make_edit_action(title="Work", pinned=True)
"""These homes have no column for a pin: it is in a file of its own."""


def _undo_batches(opened: MaintenanceHome) -> None:
    for batch in opened.maintenance.batches().items:
        if batch.undone_at is None:
            opened.maintenance.restore(batch.id)


def _retry_undo_batches(opened: MaintenanceHome) -> bool:
    with suppress(Conflict):  # it turns out that it was undone
        _undo_batches(opened)
    return False


def _delete_session(opened: MaintenanceHome) -> bool:
    with suppress(NotFound):  # it turns out that it was deleted
        opened.maintenance.delete_session("large")
    return False


def _do_nothing(_: MaintenanceHome) -> None:
    """Leave the home as it was made."""


def _export_sessions(opened: MaintenanceHome) -> None:
    opened.maintenance.export_sessions(_find_export_file(opened))


def _retry_export(opened: MaintenanceHome) -> bool:
    if not _find_export_file(opened).exists():
        _export_sessions(opened)
    return False


def _import_sessions(opened: MaintenanceHome) -> bool:
    result = opened.maintenance.import_sessions(_find_export_file(opened))
    assert not result.broken
    assert not result.left_out
    return False


def _prepare_imported_home(opened: MaintenanceHome) -> None:
    """Import the sessions that were exported and deleted."""
    _export_and_delete(opened)
    _import_sessions(opened)


def _undo_import(opened: MaintenanceHome) -> None:
    for batch in opened.maintenance.batches(undone=False).items:
        if batch.what == IMPORT_KIND:
            planned = opened.maintenance.restore(batch.id).plan
            assert planned is not None
            if planned.plan is not None:
                opened.maintenance.apply(planned.plan)


def _retry_undo_import(opened: MaintenanceHome) -> bool:
    with suppress(Conflict):  # it turns out that it was undone
        _undo_import(opened)
    return False


def _restore_import_undo(opened: MaintenanceHome) -> None:
    for batch in opened.maintenance.batches(undone=False).items:
        if batch.what == UNDO_IMPORT:
            opened.maintenance.restore(batch.id)


def _export_and_delete(opened: MaintenanceHome) -> None:
    names = ["large", "small", "ghost"]
    opened.maintenance.export_sessions(_find_export_file(opened), names)
    opened.db.delete_sessions(names)


def _find_export_file(opened: MaintenanceHome) -> Path:
    return opened.db.path.parent / EXPORT_FILE


_LIVE_KINDS: tuple[MaintenanceHomeKind, ...] = ("own", "hermes")

_MUTATIONS = (
    *_make_plan_mutations("all", PlanRequest("all"), "own"),
    *_make_plan_mutations("sessions", PlanRequest("sessions"), "hermes"),
    *_make_plan_mutations("routes", PlanRequest("routes"), "older"),
    *_make_plan_mutations("afresh", FRESH_REQUEST, "own"),
    *_make_plan_mutations("afresh", FRESH_REQUEST, "hermes", restored=False),
    *_make_plan_mutations("afresh", FRESH_REQUEST, "older"),
    *(
        MaintenanceMutation(
            f"maintenance.apply, alive, {kind}",
            _apply_plan,
            _prepare_partial_removal,
            kind,
            _finish_partial_removal,
            in_steps=True,
        )
        for kind in _LIVE_KINDS
    ),
    MaintenanceMutation(
        "maintenance.edit, own", _EDIT_TITLE, _do_nothing, "own", _EDIT_TITLE, _undo_batches
    ),
    MaintenanceMutation(
        "maintenance.edit, pin", _EDIT_PIN, _do_nothing, "hermes", _EDIT_PIN, _undo_batches
    ),
    MaintenanceMutation(
        "maintenance.restore, edit",
        _undo_batches,
        _EDIT_TITLE_AND_PIN,
        "own",
        _retry_undo_batches,
        in_steps=True,
    ),
    MaintenanceMutation(
        "maintenance.delete_session, own",
        _delete_session,
        _do_nothing,
        "own",
        _delete_session,
        _undo_batches,
        in_steps=True,
    ),
    MaintenanceMutation(
        "maintenance.export, own", _export_sessions, _do_nothing, "own", _retry_export
    ),
    MaintenanceMutation(
        "maintenance.import_, own",
        _import_sessions,
        _export_and_delete,
        "own",
        _import_sessions,
        in_steps=True,
    ),
    *(
        MaintenanceMutation(
            f"maintenance.restore, import, {kind}",
            _undo_import,
            _prepare_imported_home,
            kind,
            _retry_undo_import,
            _restore_import_undo,
            in_steps=True,
        )
        for kind in _LIVE_KINDS
    ),
)
"""All in a home of our own; elsewhere what differs: the triggers of Hermes, routes in a file."""

MAINTENANCE_MUTATIONS = {one.name: one for one in _MUTATIONS}


# -- homes -------------------------------------------------------------------------------------


def build_home(home: Path, change: MaintenanceMutation) -> None:
    """Make a home in which each kind has something to do, up to just before the change."""
    routes.build_home(home, change.kind)
    (home / KEPT).mkdir()
    opened = MaintenanceHome(home)
    try:
        opened.store.repair_routes()
        _fill_home(opened)
    finally:
        opened.close()
    _damage_home(home)
    opened = MaintenanceHome(home)
    try:
        change.prepare(opened)
    finally:
        opened.close()


_MESSAGE_SIZES = {"large": (20_000, 15_000, 10), "small": (10,)}
"""The first two messages fill a step, and all else fits one, however slow the machine is."""


def _fill_home(opened: MaintenanceHome) -> None:
    db, old = opened.db, NOW_S - 150 * DAY_S
    for name, sizes in _MESSAGE_SIZES.items():
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
    for name, text in ((ODD_FILE, "{}"), (OWN_FILE, '{"needle": 1}')):
        path = opened.store.sessions_dir / name
        path.write_text(text)
        os.utime(path, (old, old))


def _damage_home(home: Path) -> None:
    """Leave rows without their session, and routes without theirs."""
    with connect(home / "state.db", "ro") as guard, connect(home / "state.db") as connection:
        guard.execute("SELECT count(*) FROM sessions").fetchone()
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("DELETE FROM sessions WHERE id IN ('gone', ?)", (routes.OLD,))
        connection.execute("DELETE FROM messages WHERE session_id = ?", (routes.OLD,))
