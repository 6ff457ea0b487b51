"""Runs a mutation with a fault at many points, and checks the state afterwards."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.faults import state, template
from tests.faults.labs import ChildRun, LabPool
from tests.faults.mutations import DatabaseMutation, open_home
from tests.faults.points import FAULTS, InjectedFault, TracedCall, choose_points, find_commit_seed

DURABLE_CALLS = ("fsync", "fdatasync")
"""Where one of these fails, the change is in the log, and nobody can say whether it lasts."""


@dataclass(frozen=True, slots=True)
class MutationTrial:
    """A mutation, the home before it, and its calls without a fault."""

    mutation: DatabaseMutation
    home: Path
    before: dict[str, str]
    after: dict[str, str]
    empty: dict[str, str]
    """A home that was made and holds nothing reads as one that is not there yet."""
    calls: list[TracedCall]


@dataclass(slots=True)
class SweepOutcome:
    """The results of all points of one mutation and fault."""

    mutation: str
    fault: str
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def points(self) -> int:
        """How many points were tried."""
        return sum(self.counts.values())


class FaultSweep:
    """Tries mutations in labs."""

    def __init__(self, labs: LabPool) -> None:
        self._labs = labs

    def run(
        self, mutation: DatabaseMutation, folder: Path, *, every: bool = False
    ) -> list[SweepOutcome]:
        """Fail a mutation in each way, at the chosen points or at every one."""
        trial = self.rehearse(mutation, folder)
        return [self._run_fault(trial, fault, folder, every=every) for fault in FAULTS.values()]

    def rehearse(self, mutation: DatabaseMutation, folder: Path) -> MutationTrial:
        """Build the home before a mutation, and run it undisturbed."""
        home = folder / "template"
        template.build_home(home, mutation.kind)
        template.prepare_home(home, mutation)
        template.build_home(folder / "empty", "empty")
        with (
            _copy_home(home, folder / "undisturbed") as undisturbed,
            self._labs.borrow_lab() as lab,
        ):
            ran, calls = lab.trace_mutation(mutation, undisturbed, folder / "trace.log")
            if ran.said != ("ack", "closed", "end"):
                raise AssertionError(f"{mutation.name} fails by itself: {ran.said} {ran.noise}")
            after = state.digest_tables(undisturbed)
        with _copy_home(home, folder / "untouched") as untouched:
            before = state.digest_tables(untouched)
        return MutationTrial(
            mutation, home, before, after, state.digest_tables(folder / "empty"), calls
        )

    def _run_fault(
        self, trial: MutationTrial, fault: InjectedFault, folder: Path, *, every: bool
    ) -> SweepOutcome:
        name = trial.mutation.name
        outcome = SweepOutcome(name, fault.name)
        for word, problem in self._labs.threads.map(
            lambda point: self._try_point(trial, fault, point, folder),
            self._choose_points(trial, fault, every=every),
        ):
            outcome.counts[word] += 1
            if problem:
                outcome.problems.append(problem)
        return outcome

    def _choose_points(
        self, trial: MutationTrial, fault: InjectedFault, *, every: bool
    ) -> list[TracedCall]:
        seed = f"{find_commit_seed()} {trial.mutation.name} {fault.name}"
        return choose_points(trial.calls, fault, seed, every=every)

    def _try_point(
        self, trial: MutationTrial, fault: InjectedFault, point: TracedCall, folder: Path
    ) -> tuple[str, str]:
        """Return the outcome of one point, and its problems."""
        label = f"{fault.name}_{point.place}".replace(" ", "_")
        log = folder / f"{label}.log"
        with _copy_home(trial.home, folder / label) as home, self._labs.borrow_lab() as lab:
            ran = lab.run_mutation(
                trial.mutation, home, inject=fault.list_injections(point), log=log
            )
            word, wrong = judge_run(trial, fault, ran, home)
            if word == "error, after" and point.syscall not in DURABLE_CALLS:
                wrong.append("an error for what was durable already")
        log.unlink()
        if not wrong:
            return word, ""
        where = f"{trial.mutation.name}: {fault.name} at {point}"
        return word, f"{where}: {'; '.join(wrong)}; it said {ran.said} {ran.noise}"


def judge_run(
    trial: MutationTrial, fault: InjectedFault, ran: ChildRun, home: Path
) -> tuple[str, list[str]]:
    """Return the printed result and the found state in words, and the problems of both."""
    there = _classify_state(trial, state.digest_tables(home))
    if there == "neither" and trial.mutation.in_parts and fault.lasts:
        there = "between"
    judged = {
        "it hung": ran.hung,
        "the fault did not happen": not ran.failed or ran.is_killed != (fault.name == "kill"),
        "an error that is not ours": any(line.startswith("foreign") for line in ran.said),
        "neither the state before nor the one after": there == "neither",
        "acknowledged and lost": "ack" in ran.said and there == "before",
        "it does not work any more": not _is_usable(home),
        "a file is left beside it, and stays": not _has_only_database(home),
    }
    wrong = [what for what, so in judged.items() if so] + state.find_damage(home)
    return f"{describe_run(ran)}, {there}", wrong


def describe_run(ran: ChildRun) -> str:
    """Return the printed result of a run in words."""
    if ran.is_killed:
        return "killed when done" if "ack" in ran.said else "killed"
    return "done" if "ack" in ran.said else "error"


def _classify_state(trial: MutationTrial, found: dict[str, str]) -> str:
    if found == trial.after:
        return "after"
    same = found == trial.before or (trial.before == state.EMPTY_STATE and found == trial.empty)
    return "before" if same else "neither"


def _is_usable(home: Path) -> bool:
    """Whether a home can be changed, read and searched, once nothing fails."""
    with open_home(home) as db:
        db.append_message("works", "user", "needle again", create={"source": "cli"})
        read = [row["content"] for row in db.get_messages("works")]
        hits = db.search("needle", per="message", status="all", limit=100).hits
        message_ids = {hit.message_id for hit in hits}
    return read == ["needle again"] and message_ids == state.find_searchable_ids(home, b"needle")


def _has_only_database(home: Path) -> bool:
    """Whether a home that has been changed since holds its database and nothing else."""
    return all(path.name.startswith("state.db") for path in home.iterdir())


@contextmanager
def _copy_home(home: Path, to: Path) -> Iterator[Path]:
    yield template.copy_home(home, to)
    shutil.rmtree(to, ignore_errors=True)


class StepSweep(FaultSweep):
    """Sweeps mutations with steps, for which a kill directly after a commit of the home counts too.

    If two faults leave equal homes, only one of them is continued, because the result is the same.
    """

    def __init__(self, labs: LabPool) -> None:
        super().__init__(labs)
        self._known: dict[tuple[str, str], list[str]] = {}

    def _check_once(
        self, mutation: str, leftovers: str, check: Callable[[], list[str]]
    ) -> list[str]:
        """Return the problems of going on, which is tried once for equal leftovers."""
        key = (mutation, leftovers)
        if key not in self._known:
            self._known[key] = check()
        return self._known[key]

    def _choose_points(
        self, trial: MutationTrial, fault: InjectedFault, *, every: bool
    ) -> list[TracedCall]:
        """Return the chosen points, and for kills each call directly after a commit too."""
        points = super()._choose_points(trial, fault, every=every)
        if fault.name != "kill":
            return points
        behind = (call for before, call in pairwise(trial.calls) if _is_commit(before))
        return points + [call for call in behind if call not in points]


def _is_commit(call: TracedCall) -> bool:
    return call.syscall in DURABLE_CALLS and call.file == "state.db-wal"
