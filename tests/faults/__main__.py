"""`python -m tests.faults [--all] [name…]`: the sweep as a table, at chosen points or at all."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from session_core._sqlite3 import Choice
from tests.faults import template
from tests.faults.compression import COMPRESSIONS
from tests.faults.compression_sweep import CompressionSweep
from tests.faults.ledger import LEDGER
from tests.faults.ledger_sweep import LedgerSweep
from tests.faults.maintenance import MAINTENANCE
from tests.faults.maintenance_sweep import MaintenanceSweep
from tests.faults.mutations import MUTATIONS
from tests.faults.points import FAULTS, commit
from tests.faults.route_sweep import RouteSweep
from tests.faults.route_sweep_told import ToldSweep
from tests.faults.routes import ROUTES
from tests.faults.routes_told import TOLD
from tests.faults.sweep import Outcome, Sweep

PARTS: tuple[tuple[str, type[Sweep], dict[str, Any]], ...] = (
    ("state", Sweep, MUTATIONS),
    ("routes", RouteSweep, ROUTES),
    ("told", ToldSweep, TOLD),
    ("ledger", LedgerSweep, LEDGER),
    ("compression", CompressionSweep, COMPRESSIONS),
    ("maintenance", MaintenanceSweep, MAINTENANCE),
)


def main() -> int:
    """Print what came of every fault; return 1 where something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--all", action="store_true", help="try every point, not a choice")
    parser.add_argument("--bundled", action="store_true", help="with the SQLite of pysqlite3")
    parser.add_argument("names", nargs="*", help="mutations, or parts of them; all if none")
    given = parser.parse_args()
    library: Choice = "bundled" if given.bundled else "standard"
    began_at = time.monotonic()
    print(f"{library} sqlite, {'all points' if given.all else f'seed {commit()}'}\n")
    print("| mutation | fault | points | outcome |\n|---|---|---|---|")
    outcomes = {
        part: [
            outcome
            for name in mutations
            if not given.names or name in given.names or part in given.names
            for outcome in _print(_run(kind, mutations[name], library, every=given.all))
        ]
        for part, kind, mutations in PARTS
    }
    for part, found in outcomes.items():
        _print(_totals(part, found))
    tried = [outcome for found in outcomes.values() for outcome in found]
    problems = [problem for outcome in tried for problem in outcome.problems]
    points = sum(outcome.points for outcome in tried)
    print(f"\n{points} points in {time.monotonic() - began_at:.0f} s, {len(problems)} problems")
    print("\n".join(problems))
    return 1 if problems else 0


def _run(kind: type[Sweep], mutation: Any, library: Choice, *, every: bool) -> list[Outcome]:
    made = tempfile.TemporaryDirectory(prefix="faults_", dir=template.memory())
    with made as folder, kind(library) as sweep:
        return sweep.run(mutation, Path(folder), every=every)


def _totals(part: str, outcomes: list[Outcome]) -> list[Outcome]:
    totals = {fault: Outcome(f"all of {part}", fault) for fault in FAULTS}
    for outcome in outcomes:
        totals[outcome.fault].counts += outcome.counts
    return list(totals.values()) if outcomes else []


def _print(outcomes: list[Outcome]) -> list[Outcome]:
    for outcome in outcomes:
        what = ", ".join(f"{word}: {count}" for word, count in sorted(outcome.counts.items()))
        print(f"| {outcome.mutation} | {outcome.fault} | {outcome.points} | {what} |", flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
