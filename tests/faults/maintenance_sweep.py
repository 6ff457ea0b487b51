"""Tries plans and restores with a fault at many points, and judges what becomes of what is left.

A fault may leave a plan done in part. Whoever goes on with it comes to its end, and whoever takes
it back has the home of before, whatever was cut short: nothing that is gone has no trash.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from session_core.errors import SessionError
from session_core.ledger.execute import MARK, clear_marks
from session_core.ledger.pins import Pins
from session_core.maintenance.transfer.store import MARK as IMPORTED
from tests.faults import maintenance, routes, state
from tests.faults.ledger import KEPT, Beside
from tests.faults.maintenance import Change, Opened, build
from tests.faults.points import Call, Fault
from tests.faults.strace import Run, lent
from tests.faults.sweep import StepSweep, Trial

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
    for path in (folder / maintenance.ODD, folder / maintenance.OWN, home / maintenance.CARRIED):
        found[path.name] = path.read_text(encoding="utf-8") if path.exists() else "gone"
    with Pins(Beside(home / "state.db", root=home / KEPT)) as pins:
        found["pins"] = repr(sorted(pins.all()))
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


def left(home: Path) -> str:
    """Return all that decides what becomes of a home: what it holds, marks, the ledger, files.

    The handles that are drawn, and who wrote, are told alike.
    """
    found = {**look(home), "marks": "", "names": repr(sorted(map(str, _names(home))))}
    with state.connection(home / "state.db") as opened:
        marks = opened.execute("SELECT * FROM state_meta WHERE key LIKE 'mcp_sessions:%'")
        found["marks"] = json.dumps(sorted(marks.fetchall()))
    if (home / KEPT / "ledger.db").exists():
        with state.connection(home / KEPT / "ledger.db") as opened:
            found |= {f"ledger {table}": _noted(opened, table) for table in state.tables(opened)}
    numbers: dict[str, str] = {}
    text = json.dumps(found, sort_keys=True)
    return _DRAWN.sub(lambda at: numbers.setdefault(at[0], f"drawn {len(numbers)}"), text)


_DRAWN = re.compile(r"\b[spb]-[2-9a-z]{8,20}\b")
_WHO = frozenset({"pid", "started_at", "data", "bytes"})


def _names(home: Path) -> Iterator[Path]:
    for path in home.rglob("*"):
        if not path.name.endswith(("-shm", "-wal")):
            yield path.relative_to(home)


def _noted(opened: Any, table: str) -> str:
    names = [name for (name,) in opened.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    columns = ", ".join(f'"{name}"' for name in names if name not in _WHO)
    found = opened.execute(f'SELECT {columns} FROM "{table}"')  # noqa: S608 -- names that were read
    rows = (json.dumps(row, default=repr) for row in found)
    return json.dumps(sorted(rows, key=lambda row: _DRAWN.sub("drawn", row)))


class MaintenanceSweep(StepSweep):
    """Tries a plan or a restore with a fault, goes on with it and takes it back.

    What was left so before is not gone on with again: the same would become of it.
    """

    _known: dict[str, list[str]]

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
        self._known = {}
        trial = Trial(mutation, home, before, look(undisturbed), {}, calls)
        wrong = _go_on_with(trial, undisturbed)
        if wrong or before == trial.after:
            raise AssertionError(f"{mutation.name} is not judged well by itself: {wrong}")
        return trial

    def _try(self, trial: Trial, fault: Fault, point: Call, folder: Path) -> tuple[str, str]:
        label = f"{fault.name}_{point.place}".replace(" ", "_")
        log, home = folder / f"{label}.log", routes.copy(trial.home, folder / label)
        with lent(self._labs) as lab:
            ran = lab.run(trial.mutation, home, inject=fault.inject(point), log=log)
        there = _which(trial, home)
        wrong = _judge(trial, fault, ran, there) + state.damage(home)
        wrong += self._becomes(trial, home)
        shutil.rmtree(home)
        log.unlink()
        where = f"{trial.mutation.name}: {fault.name} at {point}"
        problem = f"{where}: {'; '.join(wrong)}; it said {ran.said} {ran.noise}" if wrong else ""
        return f"{_word(ran)}, {there}", problem

    def _becomes(self, trial: Trial, home: Path) -> list[str]:
        found = left(home)
        if found not in self._known:
            self._known[found] = _go_on_with(trial, home)
        return self._known[found]


def _word(ran: Run) -> str:
    if ran.killed:
        return "killed when done" if "ack" in ran.said else "killed"
    return "done" if "ack" in ran.said else "error"


def _which(trial: Trial, home: Path) -> str:
    found = look(home)
    return "after" if found == trial.after else "before" if found == trial.before else "in part"


def _judge(trial: Trial, fault: Fault, ran: Run, there: str) -> list[str]:
    judged = {
        "neither the state before nor the one after": there == "in part"
        and not _of(trial).in_steps,
        "acknowledged and lost": "ack" in ran.said
        and there == "before"
        and not _of(trial).in_steps,
        "it hung": ran.hung,
        "the fault did not happen": not ran.failed or ran.killed != (fault.name == "kill"),
        "an error that is not ours": any(line.startswith("foreign") for line in ran.said),
    }
    return [what for what, so in judged.items() if so]


def _go_on_with(trial: Trial, home: Path) -> list[str]:
    """Start anew: go on to the end, twice, and take it back."""
    opened = Opened(home)
    try:
        return _ended(trial, opened, home) + _taken_back(trial, opened, home)
    except SessionError as error:
        return [f"it cannot be gone on with: {error!r}"]
    finally:
        opened.close()


def _of(trial: Trial) -> Change:
    change: Any = trial.mutation
    assert isinstance(change, Change)
    return change


def _ended(trial: Trial, opened: Opened, home: Path) -> list[str]:
    wrong = []
    for _ in range(2):
        left = _of(trial).again(opened)
        differing = _differing(trial.after, home)
        # A file that could not be deleted is reported, and is an orphan from then on.
        if differing and not left and not differing <= _UNLINKED:
            wrong.append(f"gone on with it comes to something else: {differing}")
    return wrong


def _taken_back(trial: Trial, opened: Opened, home: Path) -> list[str]:
    wrong = []
    back = _of(trial).back
    if back is not None:
        back(opened)
        differing = _differing(trial.before, home)
        wrong += [f"taken back: {differing}"] if differing else []
    clear_marks(opened.db, opened.ledger)  # as the next step does
    if opened.ledger.unsettled():
        wrong.append("a step that nobody decides")
    wrong += [str(each) for each in opened.db.check_integrity(deep=True) if each.code not in _KNOWN]
    with state.connection(home / "state.db") as looked:
        sql = (
            "SELECT count(*) FROM state_meta WHERE (key LIKE ? OR key LIKE ?) AND value <> 'never'"
        )
        marks = looked.execute(sql, (f"{MARK}%", f"{IMPORTED}%")).fetchone()[0]
    wrong += ["a mark is left"] if marks else []
    return [*wrong, "a copy is left"] if any(home.glob(".state.db.vacuum-*")) else wrong


_UNLINKED = frozenset({maintenance.ODD, maintenance.OWN})

_KNOWN = ("orphaned_messages", "orphaned_rows", "broken_parents")


def _differing(wanted: dict[str, str], home: Path) -> set[str]:
    found = look(home)
    return {name for name in {*found, *wanted} if found.get(name) != wanted.get(name)}
