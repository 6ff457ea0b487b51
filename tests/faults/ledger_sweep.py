"""Tries steps of a plan with a fault at many points: done and undoable, or never begun."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from session_core.ledger.execute import resume
from tests.faults import ledger
from tests.faults.ledger import MEMBERS, LedgerMutation
from tests.faults.points import Call, Fault
from tests.faults.strace import lent
from tests.faults.sweep import DURABLE, Sweep, came_to


@dataclass(frozen=True, slots=True)
class LedgerTrial:
    """A change, the home before it, what that holds, and the calls that the change makes."""

    mutation: LedgerMutation
    home: Path
    whole: dict[str, Any]
    calls: list[Call] = field(default_factory=list)


class LedgerSweep(Sweep):
    """Tries a step with a fault, and lets the next start decide and go on to the end."""

    def rehearse(self, mutation: Any, folder: Path) -> Any:
        """Build the home before it, and run it undisturbed."""
        home = folder / "template"
        ledger.build(home, mutation)
        trial = LedgerTrial(mutation, home, _whole(mutation.kind, folder))
        undisturbed = ledger.copy(home, folder / "undisturbed")
        with lent(self._labs) as lab:
            ran, calls = lab.trace(mutation, undisturbed, folder / "trace.log")
        _, wrong = _judge(trial, undisturbed, acknowledged=True)
        if ran.said != ("ack", "closed", "end") or wrong:
            raise AssertionError(f"{mutation.name} fails by itself: {ran.said} {ran.noise} {wrong}")
        trial.calls.extend(calls)
        return trial

    def _points(self, trial: Any, fault: Fault, *, every: bool) -> list[Call]:
        """Return the chosen ones, and every sync: where one fails, a commit may come back later."""
        points = super()._points(trial, fault, every=every)
        syncs = [call for call in trial.calls if call.syscall in DURABLE and call not in points]
        return points + syncs if fault.name == "error once" else points

    def _try(self, trial: Any, fault: Fault, point: Call, folder: Path) -> tuple[str, str]:
        label = f"{fault.name}_{point.place}".replace(" ", "_")
        log, home = folder / f"{label}.log", ledger.copy(trial.home, folder / label)
        with lent(self._labs) as lab:
            ran = lab.run(trial.mutation, home, inject=fault.inject(point), log=log)
        judged = {
            "it hung": ran.hung,
            "the fault did not happen": not ran.failed or ran.killed != (fault.name == "kill"),
            "an error that is not ours": any(line.startswith("foreign") for line in ran.said),
        }
        there, wrong = _judge(trial, home, acknowledged="ack" in ran.said)
        wrong += [what for what, so in judged.items() if so]
        shutil.rmtree(home)
        log.unlink()
        where = f"{trial.mutation.name}: {fault.name} at {point}"
        problem = f"{where}: {'; '.join(wrong)}; it said {ran.said} {ran.noise}" if wrong else ""
        return f"{came_to(ran)}, {there}", problem


def _whole(kind: str, folder: Path) -> dict[str, Any]:
    """Return what there is to keep of each session, before anything was done."""
    ledger.template.build(folder / "whole", kind)
    with ledger.open_home(folder / "whole") as db:
        return {name: list(ledger.keep(db, name)) for name in MEMBERS}


def _judge(trial: LedgerTrial, home: Path, *, acknowledged: bool) -> tuple[str, list[str]]:
    """Let the next start decide, look, and let it go on to the end."""
    opened = trial.mutation.opens(home)
    try:
        resume(opened.db, opened.ledger)
        wrong = ledger.wrong_with(opened, trial.whole)
        found = ledger.look(opened)
        if acknowledged and (set(found.gone) != set(MEMBERS) or not found.finished):
            wrong.append("acknowledged and lost")
        ledger.apply(opened)
        wrong += ledger.wrong_with(opened, trial.whole)
        if not ledger.look(opened).finished or len(ledger.look(opened).gone) < len(MEMBERS):
            wrong.append("it cannot be gone on with")
        opened.ledger.empty(0)
        if opened.ledger.bytes_used():
            wrong.append("trash that cannot be emptied")
    finally:
        opened.close()
    return f"{len(found.gone)} of {len(MEMBERS)} steps", wrong + ledger.damage(home)
