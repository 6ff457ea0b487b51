"""Kills clients, kills the server and cuts connections while a home in PostgreSQL is changed.

A mutation runs once undisturbed through a proxy, which counts the bytes of both directions. Then it
runs again on a copy of the home, and at a chosen byte the fault happens. Afterwards the home is
judged over a direct connection.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from session_core import OpenedHome, SessionError, open_home
from tests import postgres_server
from tests.faults.postgres_homes import (
    MUTATIONS,
    TOKEN,
    PostgresMutation,
    build_home,
    copy_home,
    describe_home,
    describe_sessions,
    get_home_address,
)
from tests.faults.postgres_proxy import CuttingProxy
from tests.faults.process import ChildProcess

if TYPE_CHECKING:
    from typing_extensions import Self

FAULTS = ("kill client", "cut", "kill server")

_DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


@dataclass(frozen=True)
class Trial:
    """A mutation, its home, and the content of the home before and after it."""

    mutation: PostgresMutation
    handle: str
    before: dict[str, Any]
    after: dict[str, Any]
    boundaries: Sequence[int]
    """The bytes at which pieces of the conversation with the server end."""


@dataclass
class SweepOutcome:
    """The results of one mutation and fault."""

    mutation: str
    fault: str
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class PostgresSweep:
    """Has a server that syncs its log, a proxy before it, and a process whose children die."""

    def __init__(self) -> None:
        self._numbers = iter(range(10**9))
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._server = postgres_server.start_server(**_DURABLE)
            stack.callback(self._server.stop)
            self._direct = postgres_server.prepare_database(self._server.address)
            self._proxy = stack.enter_context(CuttingProxy(self._server.folder))
            self._proxied = self._direct.replace(str(self._server.folder), str(self._proxy.folder))
            # The server dies with the thread that has started it, so that thread lives on.
            self._starter = stack.enter_context(ThreadPoolExecutor(1))
            self._clients = stack.enter_context(ChildProcess("postgres_client"))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def rehearse(self, name: str) -> Trial:
        """Build the home of a mutation, and run it undisturbed on a copy."""
        mutation = MUTATIONS[name]
        handle = build_home(self._direct, mutation)
        copy = self._copy(mutation)
        with self._open(copy) as home:
            before = describe_home(home)
        self._proxy.arm(None)
        with open_home(get_home_address(self._proxied, copy)) as home:
            mutation.run(home, handle)
        boundaries = list(self._proxy.boundaries)
        with self._open(copy) as home:
            after = describe_home(home)
        assert before != after
        return Trial(mutation, handle, before, after, boundaries)

    def run(self, trial: Trial, fault: str, points: Sequence[int]) -> SweepOutcome:
        """Try a fault at bytes of the conversation."""
        outcome = SweepOutcome(trial.mutation.name, fault)
        for number, point in enumerate(points):
            copy = self._copy(trial.mutation)
            answer, has_acted = self._try_point(trial, fault, copy, point)
            try:
                with self._open(copy) as home:
                    word, wrong = judge_home(trial, home, answer, undoes=number % 2 == 1)
            except SessionError as error:
                word, wrong = "error", [f"it does not work any more: {error}"]
            outcome.counts[word if has_acted else f"{word}, no fault"] += 1
            outcome.problems += [
                f"{outcome.mutation}: {fault} at byte {point}: {what}; it answered {answer!r}"
                for what in wrong
            ]
        return outcome

    def _try_point(self, trial: Trial, fault: str, copy: str, point: int) -> tuple[str, bool]:
        """Run the mutation with a fault, and return its answer and whether the fault happened."""
        address = get_home_address(self._proxied, copy)
        if fault == "kill client":
            return self._kill_client(trial, address, point)
        self._proxy.arm(point, self._crash_server if fault == "kill server" else None)
        answer = _run_here(trial, address)
        return answer, self._proxy.finish()

    def _crash_server(self) -> None:
        self._server.kill()
        self._starter.submit(self._server.start_again).result()

    def _kill_client(self, trial: Trial, address: str, point: int) -> tuple[str, bool]:
        pids: list[int] = []
        is_known = threading.Event()

        def kill() -> None:
            is_known.wait()
            os.kill(pids[0], signal.SIGKILL)

        self._proxy.arm(point, kill)
        words = [address, trial.mutation.name, trial.handle]
        pids.append(int(self._clients.request(json.dumps(words))))
        is_known.set()
        answer = ""
        while (line := self._clients.read_line()) != "dead":
            answer = line
        return answer, self._proxy.finish()

    def _copy(self, mutation: PostgresMutation) -> str:
        copy = f"{mutation.name} {next(self._numbers)}"
        copy_home(self._server.address, mutation.name, copy)
        return copy

    @contextmanager
    def _open(self, name: str) -> Iterator[OpenedHome]:
        with open_home(get_home_address(self._direct, name)) as home:
            yield home


def _run_here(trial: Trial, address: str) -> str:
    try:
        with open_home(address) as home:
            trial.mutation.run(home, trial.handle)
    except SessionError as error:
        return f"{type(error).__name__}: {error}"
    return "ack"


def judge_home(
    trial: Trial, home: OpenedHome, answer: str, *, undoes: bool
) -> tuple[str, list[str]]:
    """Return the answer and the stored state in words, and the problems of both."""
    found = describe_home(home)
    stored = _classify(trial, found)
    judged = {
        f"neither before nor after: {found}": stored == "between" and not _is_step(trial, found),
        "acknowledged and lost": answer == "ack" and stored != "after",
        "reported as not stored, and stored": "nothing was stored" in answer and stored == "after",
        "the caller cannot find out": _has_token(trial, home, stored) != (stored == "after"),
        "counters differ": home.db.admin.find_drifted_sessions() != [],
        "rows refer to missing ones": home.db.admin.check_integrity(deep=True) != [],
    }
    wrong = [what for what, is_wrong in judged.items() if is_wrong]
    wrong += _go_on(trial, home, stored, undoes=undoes)
    word = "acknowledged" if answer == "ack" else "error" if answer else "killed"
    return f"{word}, {stored}", wrong


def _classify(trial: Trial, found: dict[str, Any]) -> str:
    """Return whether a home is as before or after. A plan may differ only in its record."""
    parts = ("sessions", "batches") if trial.mutation.has_record else tuple(found)
    for word, state in (("before", trial.before), ("after", trial.after)):
        if all(found[part] == state[part] for part in parts):
            return word
    return "between"


def _is_step(trial: Trial, found: dict[str, Any]) -> bool:
    """Return True if a state between before and after is whole: each change has a batch."""
    has_batch = found["batches"] != trial.before["batches"]
    return not trial.mutation.is_single and has_batch and found["unsettled"] == 0


def _has_token(trial: Trial, home: OpenedHome, stored: str) -> bool:
    """Return whether the append is there, as its caller finds out by its own id."""
    if not trial.mutation.name.startswith("append"):
        return stored == "after"
    sessions = ("old-1", "new")
    return any(home.db.has_platform_message_id(name, TOKEN) for name in sessions)


def _go_on(trial: Trial, home: OpenedHome, stored: str, *, undoes: bool) -> list[str]:
    """Finish a stopped mutation, or undo it, and return the problems."""
    wrong = []
    if undoes and trial.mutation.name == "apply" and stored != "before":
        batch = home.ledger.get_plan(trial.handle).batch
        if batch is None:
            return ["a plan was applied in part, without a batch"]
        home.maintenance.restore(batch)
        if describe_sessions(home) != trial.before["sessions"]:
            wrong.append("the undo does not bring back what was there")
    elif stored != "after":
        trial.mutation.run(home, trial.handle)
        if describe_home(home)["sessions"] != trial.after["sessions"]:
            wrong.append("the next run does not finish it")
    home.db.append_message("works", "user", "works", create={"source": "cli"})
    if home.db.message_count("works") != 1:
        wrong.append("the home takes no message")
    return wrong


def choose_points(trial: Trial, count: int, seed: str) -> list[int]:
    """Return bytes at which a fault happens: half next to the ends of pieces, half anywhere."""
    chance = random.Random(seed)
    last = trial.boundaries[-1]

    def choose() -> int:
        if chance.random() < 0.5:
            return chance.randrange(last)
        return max(chance.choice(trial.boundaries) + chance.choice((-1, 0)), 0)

    return [choose() for _ in range(count)]


def run_sweep(
    counts: dict[str, int], seed: str, report: Callable[[SweepOutcome], object]
) -> list[SweepOutcome]:
    """Try each fault as often as asked, over all mutations in turn."""
    outcomes = []
    with PostgresSweep() as sweep:
        trials = [sweep.rehearse(name) for name in MUTATIONS]
        for fault, count in counts.items():
            for place, trial in enumerate(trials):
                share = count // len(trials) + (place < count % len(trials))
                points = choose_points(trial, share, f"{seed} {fault} {trial.mutation.name}")
                outcomes.append(sweep.run(trial, fault, points))
                report(outcomes[-1])
    return outcomes


def main() -> int:
    """Run the full counts, print a table, and return 1 if a check failed."""
    # The pool reports each connection that it replaces.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    full = {"kill client": 300, "cut": 300, "kill server": 100}
    print("| mutation | fault | outcomes |\n|---|---|---|")
    outcomes = run_sweep(full, " ".join(sys.argv[1:]) or "full", partial(_print_outcome))
    for fault in full:
        total: Counter[str] = Counter()
        for outcome in outcomes:
            total += outcome.counts if outcome.fault == fault else Counter()
        _print_outcome(SweepOutcome("all", fault, total))
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    print(f"{len(problems)} problems", *problems, sep="\n")
    return 1 if problems else 0


def _print_outcome(outcome: SweepOutcome) -> None:
    what = ", ".join(f"{word}: {count}" for word, count in sorted(outcome.counts.items()))
    print(f"| {outcome.mutation} | {outcome.fault} | {what} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
