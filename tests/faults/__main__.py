"""`python -m tests.faults [--all] [name…]`: the sweep as a table, at chosen points or at all."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from session_core.driver import Choice
from tests.faults.compression import COMPRESSIONS
from tests.faults.compression_sweep import CompressionSweep
from tests.faults.mutations import MUTATIONS
from tests.faults.points import FAULTS, commit
from tests.faults.sweep import Outcome, Sweep


def main() -> int:
    """Print what came of every fault; return 1 where something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--all", action="store_true", help="try every point, not a choice")
    parser.add_argument("--bundled", action="store_true", help="with the SQLite of pysqlite3")
    parser.add_argument("names", nargs="*", help="mutations; all where none is named")
    given = parser.parse_args()
    library: Choice = "bundled" if given.bundled else "standard"
    began_at = time.monotonic()
    print(f"{library} sqlite, {'all points' if given.all else f'seed {commit()}'}\n")
    print("| mutation | fault | points | outcome |\n|---|---|---|---|")
    outcomes = [
        outcome
        for name in given.names or MUTATIONS | COMPRESSIONS
        for outcome in _print(_run(name, library, every=given.all))
    ]
    _print(_totals(outcomes))
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    points = sum(outcome.points for outcome in outcomes)
    print(f"\n{points} points in {time.monotonic() - began_at:.0f} s, {len(problems)} problems")
    print("\n".join(problems))
    return 1 if problems else 0


def _run(name: str, library: Choice, *, every: bool) -> list[Outcome]:
    kind = CompressionSweep if name in COMPRESSIONS else Sweep
    with tempfile.TemporaryDirectory(prefix="faults_") as folder, kind(library) as sweep:
        return sweep.run((MUTATIONS | COMPRESSIONS)[name], Path(folder), every=every)


def _totals(outcomes: list[Outcome]) -> list[Outcome]:
    totals = {fault: Outcome("all", fault) for fault in FAULTS}
    for outcome in outcomes:
        totals[outcome.fault].counts += outcome.counts
    return list(totals.values())


def _print(outcomes: list[Outcome]) -> list[Outcome]:
    for outcome in outcomes:
        what = ", ".join(f"{word}: {count}" for word, count in sorted(outcome.counts.items()))
        print(f"| {outcome.mutation} | {outcome.fault} | {outcome.points} | {what} |", flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
