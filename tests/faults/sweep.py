"""Tries a mutation with a fault at many points, and judges by what is there afterwards."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING

from session_core import _sqlite3
from tests.faults import state, template
from tests.faults.mutations import Mutation, open_home
from tests.faults.points import FAULTS, Call, Fault, choose, commit
from tests.faults.strace import Lab, Run, lent

if TYPE_CHECKING:
    from typing_extensions import Self

WORKERS = 2

DURABLE = ("fsync", "fdatasync")
"""Where one of these fails, the change is in the log, and nobody can say whether it lasts."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutation, the home before it, and what it does when nothing fails."""

    mutation: Mutation
    home: Path
    before: dict[str, str]
    after: dict[str, str]
    empty: dict[str, str]
    """A home that was made and holds nothing reads as one that is not there yet."""
    calls: list[Call]


@dataclass(slots=True)
class Outcome:
    """What came of all points of one mutation and fault."""

    mutation: str
    fault: str
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def points(self) -> int:
        """How many points were tried."""
        return sum(self.counts.values())


class Sweep:
    """Some labs, and the trying of mutations in them."""

    def __init__(self, library: _sqlite3.Choice = "standard") -> None:
        self._labs: SimpleQueue[Lab] = SimpleQueue()
        self._stack = ExitStack()
        self._pool = self._stack.enter_context(ThreadPoolExecutor(WORKERS))
        for _ in range(WORKERS):
            self._labs.put(self._stack.enter_context(Lab(library)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def run(self, mutation: Mutation, folder: Path, *, every: bool = False) -> list[Outcome]:
        """Fail a mutation in each way, at the chosen points or at every one."""
        trial = self.rehearse(mutation, folder)
        return [self._fail(trial, fault, folder, every=every) for fault in FAULTS.values()]

    def rehearse(self, mutation: Mutation, folder: Path) -> Trial:
        """Build the home before a mutation, and run it undisturbed."""
        home = folder / "template"
        template.build(home, mutation.kind)
        template.prepare(home, mutation)
        template.build(folder / "empty", "empty")
        with _copy(home, folder / "undisturbed") as undisturbed, lent(self._labs) as lab:
            ran, calls = lab.trace(mutation, undisturbed, folder / "trace.log")
            if ran.said != ("ack", "closed", "end"):
                raise AssertionError(f"{mutation.name} fails by itself: {ran.said} {ran.noise}")
            after = state.dump(undisturbed)
        with _copy(home, folder / "untouched") as untouched:
            before = state.dump(untouched)
        return Trial(mutation, home, before, after, state.dump(folder / "empty"), calls)

    def _fail(self, trial: Trial, fault: Fault, folder: Path, *, every: bool) -> Outcome:
        name = trial.mutation.name
        outcome = Outcome(name, fault.name)
        for word, problem in self._pool.map(
            lambda point: self._try(trial, fault, point, folder),
            self._points(trial, fault, every=every),
        ):
            outcome.counts[word] += 1
            if problem:
                outcome.problems.append(problem)
        return outcome

    def _points(self, trial: Trial, fault: Fault, *, every: bool) -> list[Call]:
        seed = f"{commit()} {trial.mutation.name} {fault.name}"
        return choose(trial.calls, fault, seed, every=every)

    def _try(self, trial: Trial, fault: Fault, point: Call, folder: Path) -> tuple[str, str]:
        """Return how one point went, and what is wrong with that."""
        label = f"{fault.name}_{point.place}".replace(" ", "_")
        log = folder / f"{label}.log"
        with _copy(trial.home, folder / label) as home, lent(self._labs) as lab:
            ran = lab.run(trial.mutation, home, inject=fault.inject(point), log=log)
            word, wrong = judge(trial, fault, ran, home)
            if word == "error, after" and point.syscall not in DURABLE:
                wrong.append("an error for what was durable already")
        log.unlink()
        if not wrong:
            return word, ""
        where = f"{trial.mutation.name}: {fault.name} at {point}"
        return word, f"{where}: {'; '.join(wrong)}; it said {ran.said} {ran.noise}"


def judge(trial: Trial, fault: Fault, ran: Run, home: Path) -> tuple[str, list[str]]:
    """Return what was said and what is there, and what is wrong with it, if anything."""
    there = _which(trial, state.dump(home))
    if there == "neither" and trial.mutation.in_parts and fault.lasts:
        there = "between"
    judged = {
        "it hung": ran.hung,
        "the fault did not happen": not ran.failed or ran.killed != (fault.name == "kill"),
        "an error that is not ours": any(line.startswith("foreign") for line in ran.said),
        "neither the state before nor the one after": there == "neither",
        "acknowledged and lost": "ack" in ran.said and there == "before",
        "it does not work any more": not _usable(home),
        "a file is left beside it, and stays": not _alone(home),
    }
    wrong = [what for what, so in judged.items() if so] + state.damage(home)
    return f"{came_to(ran)}, {there}", wrong


def came_to(ran: Run) -> str:
    """Return what a run was heard to come to."""
    if ran.killed:
        return "killed when done" if "ack" in ran.said else "killed"
    return "done" if "ack" in ran.said else "error"


def _which(trial: Trial, found: dict[str, str]) -> str:
    if found == trial.after:
        return "after"
    same = found == trial.before or (trial.before == state.NOTHING and found == trial.empty)
    return "before" if same else "neither"


def _usable(home: Path) -> bool:
    """Whether a home can be changed, read and searched, once nothing fails."""
    with open_home(home) as db:
        db.append_message("works", "user", "needle again", create={"source": "cli"})
        read = [row["content"] for row in db.get_messages("works")]
        hits = db.search("needle", per="message", status="all", limit=100).hits
        found = {hit.message_id for hit in hits}
    return read == ["needle again"] and found == state.searchable(home, b"needle")


def _alone(home: Path) -> bool:
    """Whether a home that has been changed since holds its database and nothing else."""
    return all(each.name.startswith("state.db") for each in home.iterdir())


@contextmanager
def _copy(home: Path, to: Path) -> Iterator[Path]:
    yield template.copy(home, to)
    shutil.rmtree(to, ignore_errors=True)


class StepSweep(Sweep):
    """Sweeps what has steps of its own: what is done behind a commit of the home counts as well."""

    def _points(self, trial: Trial, fault: Fault, *, every: bool) -> list[Call]:
        """Return the chosen ones, and to die at also what is right behind a commit of the home."""
        points = super()._points(trial, fault, every=every)
        if fault.name != "kill":
            return points
        behind = (call for before, call in pairwise(trial.calls) if _commits(before))
        return points + [call for call in behind if call not in points]


def _commits(call: Call) -> bool:
    return call.syscall in DURABLE and call.file == "state.db-wal"
