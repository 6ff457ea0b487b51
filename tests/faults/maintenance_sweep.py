"""Tries plans and restores with a fault at many points, and judges what becomes of what is left.

A fault may leave a plan done in part. Whoever goes on with it comes to its end, and whoever takes
it back has the home of before, whatever was cut short: nothing that is gone has no trash.
"""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

from session_core.errors import Conflict, SessionError
from session_core.ledger.steps import MARK
from session_core.maintenance.answers import Applied
from session_core.maintenance.runner import NOT_AFRESH
from tests.faults import maintenance, routes, state
from tests.faults.maintenance import Opened, apply, build, restore
from tests.faults.points import Call, Fault
from tests.faults.strace import Run, lent
from tests.faults.sweep import DURABLE, Sweep, Trial

_PASSING = ("compression_locks", "sqlite_sequence")


def look(home: Path) -> dict[str, str]:
    """Return what a home holds: rows, the routes where they are kept, files of sessions."""
    found: dict[str, str] = {}
    with state.connection(home / "state.db") as opened:
        for table in state.tables(opened):
            if table not in _PASSING:
                found[table] = _rows(opened, table)
    folder = home / routes.FOLDER
    if "gateway_routing" not in found:
        stored = json.loads((folder / "sessions.json").read_text(encoding="utf-8"))
        found["gateway_routing"] = _alike(json.dumps(stored, sort_keys=True))
    for name in (maintenance.ODD, maintenance.OWN):
        path = folder / name
        found[name] = path.read_text(encoding="utf-8") if path.exists() else "gone"
    return found


def _rows(opened: Any, table: str) -> str:
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
    return _alike(json.dumps(sorted(json.dumps(row, default=repr) for row in rows)))


def _alike(text: str) -> str:
    return re.sub(r"pid=[^\"\\]*", "somebody", text)


class MaintenanceSweep(Sweep):
    """Tries a plan or a restore with a fault, goes on with it and takes it back."""

    def rehearse(self, mutation: Any, folder: Path) -> Trial:
        """Build the home before it, and run it undisturbed."""
        home = folder / "template"
        build(home, mutation)
        undisturbed = routes.copy(home, folder / "undisturbed")
        before = look(undisturbed)
        with lent(self._labs) as lab:
            ran, calls = lab.trace(mutation, undisturbed, folder / "trace.log")
        if ran.said != ("ack", "closed", "end"):
            raise AssertionError(f"{mutation.name} fails by itself: {ran.said} {ran.noise}")
        trial = Trial(mutation, home, before, look(undisturbed), {}, calls)
        wrong = _go_on_with(trial, undisturbed)
        if wrong or before == trial.after:
            raise AssertionError(f"{mutation.name} is not judged well by itself: {wrong}")
        return trial

    def _points(self, trial: Trial, fault: Fault, *, every: bool) -> list[Call]:
        """Return the chosen ones, and to die at also what is right behind a commit of the home."""
        points = super()._points(trial, fault, every=every)
        if fault.name != "kill":
            return points
        behind = (call for before, call in pairwise(trial.calls) if _commits(before))
        return points + [call for call in behind if call not in points]

    def _try(self, trial: Trial, fault: Fault, point: Call, folder: Path) -> tuple[str, str]:
        label = f"{fault.name}_{point.place}".replace(" ", "_")
        log, home = folder / f"{label}.log", routes.copy(trial.home, folder / label)
        with lent(self._labs) as lab:
            ran = lab.run(trial.mutation, home, inject=fault.inject(point), log=log)
        there = _which(trial, home)
        wrong = _judge(fault, ran, home) + _go_on_with(trial, home)
        shutil.rmtree(home)
        log.unlink()
        where = f"{trial.mutation.name}: {fault.name} at {point}"
        problem = f"{where}: {'; '.join(wrong)}; it said {ran.said} {ran.noise}" if wrong else ""
        return f"{_word(ran)}, {there}", problem


def _commits(call: Call) -> bool:
    return call.syscall in DURABLE and call.file == "state.db-wal"


def _word(ran: Run) -> str:
    if ran.killed:
        return "killed when done" if "ack" in ran.said else "killed"
    return "done" if "ack" in ran.said else "error"


def _which(trial: Trial, home: Path) -> str:
    found = look(home)
    return "after" if found == trial.after else "before" if found == trial.before else "in part"


def _judge(fault: Fault, ran: Run, home: Path) -> list[str]:
    judged = {
        "it hung": ran.hung,
        "the fault did not happen": not ran.failed or ran.killed != (fault.name == "kill"),
        "an error that is not ours": any(line.startswith("foreign") for line in ran.said),
    }
    return [what for what, so in judged.items() if so] + state.damage(home)


def _go_on_with(trial: Trial, home: Path) -> list[str]:
    """Start anew: go on to the end, twice, and take it back."""
    opened = Opened(home)
    try:
        return _ended(trial, opened, home) + _taken_back(trial, opened, home)
    except SessionError as error:
        return [f"it cannot be gone on with: {error!r}"]
    finally:
        opened.close()


def _ended(trial: Trial, opened: Opened, home: Path) -> list[str]:
    wrong = []
    for _ in range(2):
        left = _again(trial, opened)
        differing = _differing(trial.after, home)
        # A file that could not be deleted is reported, and is an orphan from then on.
        if differing and not left and not differing <= _UNLINKED:
            wrong.append(f"gone on with it comes to something else: {differing}")
    if opened.ledger.unsettled():
        wrong.append("a step that nobody decides")
    return wrong


def _again(trial: Trial, opened: Opened) -> bool:
    """Do it again; return whether it says that something was left as it is."""
    if not trial.mutation.undoes:
        done = apply(opened)
        assert isinstance(done, Applied)
        return bool(done.skipped) or any(NOT_AFRESH in each for each in done.warnings)
    try:
        restore(opened)
    except Conflict:
        assert opened.ledger.batch(opened.noted("batch")).undone_at is not None
    return False


def _taken_back(trial: Trial, opened: Opened, home: Path) -> list[str]:
    if not trial.mutation.undoes:
        restore(opened)
        differing = _differing(trial.before, home)
        if differing:
            return [f"taken back: {differing}"]
    wrong = [str(each) for each in opened.db.check_integrity(deep=True) if each.code not in _KNOWN]
    with state.connection(home / "state.db") as looked:
        sql = "SELECT count(*) FROM state_meta WHERE key LIKE ? AND value <> 'never'"
        marks = looked.execute(sql, (f"{MARK}%",)).fetchone()[0]
    return [*wrong, "a mark is left"] if marks else wrong


_UNLINKED = frozenset({maintenance.ODD, maintenance.OWN})

_KNOWN = ("orphaned_messages", "orphaned_rows", "broken_parents")


def _differing(wanted: dict[str, str], home: Path) -> set[str]:
    found = look(home)
    return {name for name in {*found, *wanted} if found.get(name) != wanted.get(name)}
