"""Kills copies of homes at every write, and continues them.

`python -m tests.faults.copy_sweep` tries every point, or as many for each way as the argument says,
and prints the counts. If the target is a
file, the process is killed before each call that changes it. In PostgreSQL it is killed at the end
of each piece of the conversation with the server of the target, and one byte before.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from session_core import open_home
from session_core.maintenance import copy_home
from tests import postgres_server
from tests.faults.labs import compile_library, read_log
from tests.faults.points import CHANGING_CALLS
from tests.faults.postgres_homes import get_home_address
from tests.faults.postgres_proxy import CuttingProxy
from tests.faults.process import ChildProcess
from tests.maintenance.test_copier import digest_all, fill

if TYPE_CHECKING:
    from typing_extensions import Self

WAYS = (
    ("sqlite", "sqlite"),
    ("sqlite", "postgres"),
    ("postgres", "sqlite"),
    ("postgres", "postgres"),
)
_MESSAGES = 12
Point = tuple[str, int]
"""A call and its number, or `byte` and its place in the conversation."""


@dataclass
class CopyOutcome:
    """The results of one way of copying."""

    way: str
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class CopySweep:
    """Has a server with a proxy, and a process whose children copy."""

    def __init__(self) -> None:
        self._numbers = iter(range(10**9))
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="copies_")))
            self._server = postgres_server.start_server()
            stack.callback(self._server.stop)
            self._direct = postgres_server.prepare_database(self._server.address)
            self._proxy = stack.enter_context(CuttingProxy(self._server.folder))
            self._proxied = self._direct.replace(str(self._server.folder), str(self._proxy.folder))
            before = ("env", f"LD_PRELOAD={compile_library()}")
            self._clients = stack.enter_context(ChildProcess("copy_client", before=before))
            self._sources = {kind: self._build_source(kind) for kind in ("sqlite", "postgres")}
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def list_points(self, source: str, target: str) -> list[Point]:
        """Copy without a fault, and return the points at which a copy can be killed."""
        place, log = self._make_target(target), self._folder / "log"
        log.unlink(missing_ok=True)
        self._proxy.arm(None)
        assert self._run(source, place, (), log)[0] == "done"
        if target == "postgres":
            ends = self._proxy.boundaries
            return [("byte", max(end - back, 0)) for end in ends for back in (1, 0)]
        calls = read_log(log, Path(place).parent)
        return [(call.syscall, call.nth) for call in calls if call.syscall in CHANGING_CALLS]

    def run(self, source: str, target: str, points: Sequence[Point]) -> CopyOutcome:
        """Kill a copy at points; continue and judge it."""
        outcome = CopyOutcome(f"{source} to {target}")
        for point in points:
            place = self._make_target(target)
            log = self._folder / "log"
            log.unlink(missing_ok=True)
            kind, number = point
            if kind == "byte":
                answer = self._kill_at_byte(source, place, number, log)
            else:
                answer, _ = self._run(source, place, ((kind, number),), log)
            word, wrong = self._judge(source, place, answer)
            outcome.counts[word] += 1
            outcome.problems += [f"{outcome.way}, {kind} {number}: {what}" for what in wrong]
        return outcome

    def _judge(self, source: str, place: str, answer: str) -> tuple[str, list[str]]:
        """Continue a copy; return how it was found, and what is wrong."""
        address = self._sources[source]
        direct = place.replace(str(self._proxy.folder), str(self._server.folder))
        with open_home(address) as first, open_home(direct) as second:
            wanted = digest_all(first.db)
            found = digest_all(second.db)
            word = "whole" if found == wanted else "in part" if found else "empty"
            result = copy_home(first.db, second.db)
            wrong = {
                "acknowledged and not whole": answer == "done" and found != wanted,
                f"not finished: {result}": result.outcome != "applied" or bool(result.differing),
                "sessions differ": digest_all(second.db) != wanted,
                "numbers of messages differ": first.db.message_count() != second.db.message_count(),
                "values differ": first.db.meta.list_values() != second.db.meta.list_values(),
                "pins differ": first.ledger.pins.list_pinned() != second.ledger.pins.list_pinned(),
                "not sound": second.db.admin.check_integrity(deep=True) != [],
            }
            again = copy_home(first.db, second.db)
            wrong["a second copy changes it"] = again.unchanged != len(wanted)
        word = f"{'finished' if answer == 'done' else 'killed'}, {word}"
        return word, [what for what, is_wrong in wrong.items() if is_wrong]

    def _build_source(self, kind: str) -> str:
        address = self._name_home(kind, "source")
        with open_home(address) as home:
            fill(home.db)
            for number in range(_MESSAGES):
                home.db.append_message("parts", "user", f"{number} " + "x" * 100)
            home.db.meta.set_value("key", "value")
            home.db.state.merge_app_state("app", {"limit": 2})
            home.ledger.pins.set_pins({"parts": True})
        return address

    def _make_target(self, kind: str) -> str:
        place = self._name_home(kind, f"target {next(self._numbers)}")
        if kind == "sqlite":
            return place
        return place.replace(str(self._server.folder), str(self._proxy.folder))

    def _name_home(self, kind: str, name: str) -> str:
        if kind == "postgres":
            return get_home_address(self._direct, name)
        folder = self._folder / name
        folder.mkdir()
        return str(folder / "state.db")

    def _run(self, source: str, place: str, kills: Sequence[Point], log: Path) -> tuple[str, int]:
        """Copy in a child; return its last word and its process id."""
        pid = self._begin(source, place, kills, log)
        return self._read_answer(), pid

    def _begin(self, source: str, place: str, kills: Sequence[Point], log: Path) -> int:
        paths = [] if "://" in place else [Path(place), Path(f"{place}-wal"), Path(place).parent]
        job = {
            "source": self._sources[source],
            "target": place,
            "watched": [str(path) for path in paths],
            "kills": kills,
            "log": str(log),
        }
        return int(self._clients.request(json.dumps(job)))

    def _read_answer(self) -> str:
        answer = ""
        while (line := self._clients.read_line()) != "dead":
            answer = line
        return answer

    def _kill_at_byte(self, source: str, place: str, byte: int, log: Path) -> str:
        pids: list[int] = []
        is_known = threading.Event()

        def kill() -> None:
            is_known.wait()
            os.kill(pids[0], signal.SIGKILL)

        self._proxy.arm(byte, kill)
        pids.append(self._begin(source, place, (), log))
        is_known.set()
        answer = self._read_answer()
        self._proxy.finish()
        return answer


def run_sweep(
    count: int | None, seed: str, report: Callable[[CopyOutcome], object] = lambda _: None
) -> list[CopyOutcome]:
    """Kill copies in all ways: at each point, or at some that are chosen by a seed."""
    outcomes = []
    with CopySweep() as sweep:
        for way in WAYS:
            points: Sequence[Any] = sweep.list_points(*way)
            if count is not None:
                points = random.Random(seed).sample(points, min(count, len(points)))
            outcomes.append(sweep.run(*way, points))
            report(outcomes[-1])
    return outcomes


def main() -> int:
    """Try the points and print a table; return 1 if something was wrong."""
    print("| copy | kills | outcomes |\n|---|---|---|")
    points = int(sys.argv[1]) if len(sys.argv) > 1 else None
    outcomes = run_sweep(points, "full", _print_outcome)
    count = sum(len(outcome.problems) for outcome in outcomes)
    print(f"{count} problems")
    return 1 if count else 0


def _print_outcome(outcome: CopyOutcome) -> None:
    what = ", ".join(f"{word}: {count}" for word, count in sorted(outcome.counts.items()))
    print(f"| {outcome.way} | {outcome.counts.total()} | {what} |", *outcome.problems, sep="\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
