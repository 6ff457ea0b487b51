"""Try steps of a plan with a fault at many points: each is done and undoable, or never begun."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from session_core.ledger.execute import resume_steps
from tests.faults import ledger
from tests.faults.ledger import MEMBER_IDS, LedgerMutation
from tests.faults.points import InjectedFault, TracedCall
from tests.faults.sweep import DURABLE_CALLS, FaultSweep, describe_run


@dataclass(frozen=True, slots=True)
class LedgerTrial:
    """A change, its home, the content of that home, and the calls that the change makes."""

    mutation: LedgerMutation
    home: Path
    whole: dict[str, Any]
    calls: list[TracedCall] = field(default_factory=list)


class LedgerSweep(FaultSweep):
    """Tries a step with a fault, then lets the next start decide it and continue to the end."""

    def rehearse(self, mutation: Any, folder: Path) -> Any:
        """Build the home before the change, and run the change without a fault."""
        home = folder / "template"
        ledger.build_home(home, mutation)
        trial = LedgerTrial(mutation, home, _read_complete_trash(mutation.kind, folder))
        undisturbed = ledger.copy_home(home, folder / "undisturbed")
        with self._labs.borrow_lab() as lab:
            ran, calls = lab.trace_mutation(mutation, undisturbed, folder / "trace.log")
        _, wrong = _find_problems(trial, undisturbed, acknowledged=True)
        if ran.said != ("ack", "closed", "end") or wrong:
            raise AssertionError(f"{mutation.name} fails by itself: {ran.said} {ran.noise} {wrong}")
        trial.calls.extend(calls)
        return trial

    def _choose_points(self, trial: Any, fault: InjectedFault, *, every: bool) -> list[TracedCall]:
        """Return the chosen points and every sync, after whose failure a commit may reappear."""
        points = super()._choose_points(trial, fault, every=every)
        syncs = [
            call for call in trial.calls if call.syscall in DURABLE_CALLS and call not in points
        ]
        return points + syncs if fault.name == "error once" else points

    def _try_point(
        self, trial: Any, fault: InjectedFault, point: TracedCall, folder: Path
    ) -> tuple[str, str]:
        label = f"{fault.name}_{point.place}".replace(" ", "_")
        log, home = folder / f"{label}.log", ledger.copy_home(trial.home, folder / label)
        with self._labs.borrow_lab() as lab:
            ran = lab.run_mutation(
                trial.mutation, home, inject=fault.list_injections(point), log=log
            )
        judged = {
            "it hung": ran.hung,
            "the fault did not happen": not ran.failed or ran.is_killed != (fault.name == "kill"),
            "an error that is not ours": any(line.startswith("foreign") for line in ran.said),
        }
        there, wrong = _find_problems(trial, home, acknowledged="ack" in ran.said)
        wrong += [what for what, so in judged.items() if so]
        shutil.rmtree(home)
        log.unlink()
        where = f"{trial.mutation.name}: {fault.name} at {point}"
        problem = f"{where}: {'; '.join(wrong)}; it said {ran.said} {ran.noise}" if wrong else ""
        return f"{describe_run(ran)}, {there}", problem


def _read_complete_trash(kind: str, folder: Path) -> dict[str, Any]:
    """Return the expected trash of each session, read before the change."""
    ledger.template.build_home(folder / "whole", kind)
    with ledger.open_home(folder / "whole") as db:
        return {name: list(ledger.list_kept_rows(db, name)) for name in MEMBER_IDS}


def _find_problems(trial: LedgerTrial, home: Path, *, acknowledged: bool) -> tuple[str, list[str]]:
    """Let the next start decide the step, check the home, and continue to the end."""
    opened = trial.mutation.opens(home)
    try:
        resume_steps(opened.db, opened.ledger)
        wrong = ledger.find_problems(opened, trial.whole)
        state = ledger.read_state(opened)
        if acknowledged and (set(state.gone) != set(MEMBER_IDS) or not state.finished):
            wrong.append("acknowledged and lost")
        ledger.apply_plan(opened)
        wrong += ledger.find_problems(opened, trial.whole)
        if not ledger.read_state(opened).finished or len(ledger.read_state(opened).gone) < len(
            MEMBER_IDS
        ):
            wrong.append("it cannot be gone on with")
        opened.ledger.empty_trash(0)
        if opened.ledger.count_trash_bytes():
            wrong.append("trash that cannot be emptied")
    finally:
        opened.close()
    return f"{len(state.gone)} of {len(MEMBER_IDS)} steps", wrong + ledger.find_damage(home)
