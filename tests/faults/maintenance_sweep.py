"""Runs plans and restores with a fault at many points, and checks the state afterwards.

A fault may leave a plan done in part. If the plan is continued, it must end. If it is undone, the
home must be as before: no row may be removed without its trash.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from session_core.errors import SessionError
from session_core.ledger.execute import MARK_PREFIX, delete_step_marks
from session_core.ledger.pins import Pins
from session_core.maintenance.transfer.import_writer import MARK_PREFIX as IMPORTED
from tests.faults import maintenance, routes, state
from tests.faults.labs import ChildRun
from tests.faults.ledger import KEPT, AdjacentStateFolder
from tests.faults.leftovers import describe_leftovers
from tests.faults.maintenance import MaintenanceHome, MaintenanceMutation, build_home
from tests.faults.points import InjectedFault, TracedCall
from tests.faults.sweep import MutationTrial, StepSweep

_VOLATILE_TABLES = ("compression_locks", "sqlite_sequence")


def read_state(home: Path) -> dict[str, str]:
    """Return the content of a home: rows, the authoritative routes, and files of sessions."""
    found: dict[str, str] = {}
    with state.open_connection(home / "state.db") as opened:
        for table in state.list_tables(opened):
            if table not in _VOLATILE_TABLES:
                found[table] = _read_rows(opened, table)
    folder = home / routes.SESSIONS_FOLDER
    if "gateway_routing" not in found:
        stored = json.loads((folder / "sessions.json").read_text(encoding="utf-8"))
        found["gateway_routing"] = _mask_process_ids(json.dumps(stored, sort_keys=True))
    for path in (
        folder / maintenance.ODD_FILE,
        folder / maintenance.OWN_FILE,
        home / maintenance.EXPORT_FILE,
    ):
        found[path.name] = path.read_text(encoding="utf-8") if path.exists() else "gone"
    with Pins(AdjacentStateFolder(home / "state.db", root=home / KEPT)) as pins:
        found["pins"] = repr(sorted(pins.list_pinned()))
    return found


def _read_rows(opened: Any, table: str) -> str:
    names = [name for (name,) in opened.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    rows = [
        dict(zip(names, row, strict=True))
        for row in opened.execute(f'SELECT * FROM "{table}"')  # noqa: S608 -- names that were read
    ]
    if table == "state_meta":
        rows = [row for row in rows if not row["key"].startswith("mcp_sessions")]
    if table == "gateway_routing":
        for row in rows:
            del row["updated_at"], row["scope"]
    return _mask_process_ids(json.dumps(sorted(json.dumps(row, default=repr) for row in rows)))


def _mask_process_ids(text: str) -> str:
    return re.sub(r"pid=[^\"\\]*", "somebody", text)


class MaintenanceSweep(StepSweep):
    """Tries a plan or a restore with a fault, goes on with it and takes it back."""

    def rehearse(self, mutation: Any, folder: Path) -> MutationTrial:
        """Build the home before it, and run it undisturbed."""
        home = folder / "template"
        build_home(home, mutation)
        undisturbed = routes.copy_home(home, folder / "undisturbed")
        before = read_state(undisturbed)
        with self._labs.borrow_lab() as lab:
            ran, calls = lab.trace_mutation(mutation, undisturbed, folder / "trace.log")
        if ran.said != ("ack", "closed", "end"):
            raise AssertionError(f"{mutation.name} fails by itself: {ran.said} {ran.noise}")
        trial = MutationTrial(mutation, home, before, read_state(undisturbed), {}, calls)
        wrong = _continue_and_check(trial, undisturbed)
        if wrong or before == trial.after:
            raise AssertionError(f"{mutation.name} is not judged well by itself: {wrong}")
        return trial

    def _try_point(
        self, trial: MutationTrial, fault: InjectedFault, point: TracedCall, folder: Path
    ) -> tuple[str, str]:
        label = f"{fault.name}_{point.place}".replace(" ", "_")
        log, home = folder / f"{label}.log", routes.copy_home(trial.home, folder / label)
        with self._labs.borrow_lab() as lab:
            ran = lab.run_mutation(
                trial.mutation, home, inject=fault.list_injections(point), log=log
            )
        there = _classify_state(trial, home)
        wrong = _find_problems(trial, fault, ran, there) + state.find_damage(home)
        wrong += self._check_once(
            trial.mutation.name,
            describe_leftovers(home, read_state(home)),
            lambda: _continue_and_check(trial, home),
        )
        shutil.rmtree(home)
        log.unlink()
        where = f"{trial.mutation.name}: {fault.name} at {point}"
        problem = f"{where}: {'; '.join(wrong)}; it said {ran.said} {ran.noise}" if wrong else ""
        return f"{_describe_run(ran)}, {there}", problem


def _describe_run(ran: ChildRun) -> str:
    if ran.is_killed:
        return "killed when done" if "ack" in ran.said else "killed"
    return "done" if "ack" in ran.said else "error"


def _classify_state(trial: MutationTrial, home: Path) -> str:
    found = read_state(home)
    return "after" if found == trial.after else "before" if found == trial.before else "in part"


def _find_problems(
    trial: MutationTrial, fault: InjectedFault, ran: ChildRun, there: str
) -> list[str]:
    judged = {
        "neither the state before nor the one after": there == "in part"
        and not _get_mutation(trial).in_steps,
        "acknowledged and lost": "ack" in ran.said
        and there == "before"
        and not _get_mutation(trial).in_steps,
        "it hung": ran.hung,
        "the fault did not happen": not ran.failed or ran.is_killed != (fault.name == "kill"),
        "an error that is not ours": any(line.startswith("foreign") for line in ran.said),
    }
    return [what for what, so in judged.items() if so]


def _continue_and_check(trial: MutationTrial, home: Path) -> list[str]:
    """Start anew: go on to the end, twice, and take it back."""
    opened = MaintenanceHome(home)
    try:
        return _finish_and_check(trial, opened, home) + _undo_and_check(trial, opened, home)
    except SessionError as error:
        return [f"it cannot be gone on with: {error!r}"]
    finally:
        opened.close()


def _get_mutation(trial: MutationTrial) -> MaintenanceMutation:
    change: Any = trial.mutation
    assert isinstance(change, MaintenanceMutation)
    return change


def _finish_and_check(trial: MutationTrial, opened: MaintenanceHome, home: Path) -> list[str]:
    wrong = []
    for _ in range(2):
        left = _get_mutation(trial).again(opened)
        differing = _find_differing_parts(trial.after, home)
        # A file that could not be deleted is reported, and is an orphan from then on.
        if differing and not left and not differing <= _UNLINKED_FILES:
            wrong.append(f"gone on with it comes to something else: {differing}")
    return wrong


def _undo_and_check(trial: MutationTrial, opened: MaintenanceHome, home: Path) -> list[str]:
    wrong = []
    back = _get_mutation(trial).back
    if back is not None:
        back(opened)
        differing = _find_differing_parts(trial.before, home)
        wrong += [f"taken back: {differing}"] if differing else []
    delete_step_marks(opened.db, opened.ledger)  # as the next step does
    if opened.ledger.list_unsettled_steps():
        wrong.append("a step that nobody decides")
    wrong += [
        str(each)
        for each in opened.db.admin.check_integrity(deep=True)
        if each.code not in _KNOWN_FINDINGS
    ]
    with state.open_connection(home / "state.db") as looked:
        sql = (
            "SELECT count(*) FROM state_meta WHERE (key LIKE ? OR key LIKE ?) AND value <> 'never'"
        )
        marks = looked.execute(sql, (f"{MARK_PREFIX}%", f"{IMPORTED}%")).fetchone()[0]
    wrong += ["a mark is left"] if marks else []
    return [*wrong, "a copy is left"] if any(home.glob(".state.db.vacuum-*")) else wrong


_UNLINKED_FILES = frozenset({maintenance.ODD_FILE, maintenance.OWN_FILE})

_KNOWN_FINDINGS = ("orphaned_messages", "orphaned_rows", "broken_parents")


def _find_differing_parts(wanted: dict[str, str], home: Path) -> set[str]:
    found = read_state(home)
    return {name for name in {*found, *wanted} if found.get(name) != wanted.get(name)}
