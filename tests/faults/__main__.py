"""`python -m tests.faults [--all] [name…]`: the sweep as a table, at chosen points or at all."""

from __future__ import annotations

import argparse
import difflib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from session_core._sqlite3 import SqliteChoice
from tests.faults import template
from tests.faults.compression import COMPRESSION_MUTATIONS
from tests.faults.compression_sweep import CompressionSweep
from tests.faults.hook_mutations import HOOK_MUTATIONS
from tests.faults.hook_sweep import HookSweep
from tests.faults.labs import LabPool
from tests.faults.ledger import LEDGER_MUTATIONS
from tests.faults.ledger_sweep import LedgerSweep
from tests.faults.maintenance import MAINTENANCE_MUTATIONS
from tests.faults.maintenance_sweep import MaintenanceSweep
from tests.faults.mutations import DATABASE_MUTATIONS
from tests.faults.points import FAULTS, find_commit_seed
from tests.faults.route_sweep import RouteSweep
from tests.faults.routes import ROUTE_MUTATIONS
from tests.faults.sweep import FaultSweep, SweepOutcome

SWEEP_PARTS: tuple[tuple[str, type[FaultSweep], dict[str, Any]], ...] = (
    ("state", FaultSweep, DATABASE_MUTATIONS),
    ("routes", RouteSweep, ROUTE_MUTATIONS),
    ("hooks", HookSweep, HOOK_MUTATIONS),
    ("ledger", LedgerSweep, LEDGER_MUTATIONS),
    ("compression", CompressionSweep, COMPRESSION_MUTATIONS),
    ("maintenance", MaintenanceSweep, MAINTENANCE_MUTATIONS),
)


def main() -> int:
    """Print the outcome of every fault, and return 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--all", action="store_true", help="try every point, not a choice")
    parser.add_argument("--bundled", action="store_true", help="with the SQLite of pysqlite3")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="name",
        help="a mutation, or a part such as routes; default: all",
    )
    args = parser.parse_args()
    _require_known_names(parser, args.names)
    library: SqliteChoice = "bundled" if args.bundled else "standard"
    began_at = time.monotonic()
    print(f"{library} sqlite, {'all points' if args.all else f'seed {find_commit_seed()}'}\n")
    print("| mutation | fault | points | outcome |\n|---|---|---|---|")
    with LabPool(library) as labs:
        outcomes = {
            part: [
                outcome
                for name in mutations
                if not args.names or name in args.names or part in args.names
                for outcome in _print_outcome(
                    _run_sweep(kind(labs), mutations[name], every=args.all)
                )
            ]
            for part, kind, mutations in SWEEP_PARTS
        }
    for part, found in outcomes.items():
        _print_outcome(_format_totals(part, found))
    tried = [outcome for found in outcomes.values() for outcome in found]
    problems = [problem for outcome in tried for problem in outcome.problems]
    points = sum(outcome.points for outcome in tried)
    print(f"\n{points} points in {time.monotonic() - began_at:.0f} s, {len(problems)} problems")
    print("\n".join(problems))
    return 1 if problems else 0


def _require_known_names(parser: argparse.ArgumentParser, names: list[str]) -> None:
    """Exit with 2 if a name is neither a mutation nor a part."""
    parts = [part for part, _, _ in SWEEP_PARTS]
    known = {*parts, *(name for _, _, mutations in SWEEP_PARTS for name in mutations)}
    unknown = [name for name in names if name not in known]
    if unknown:
        nearest = difflib.get_close_matches(unknown[0], known, n=5)
        similar = f"; nearest: {', '.join(map(repr, nearest))}" if nearest else ""
        parser.error(
            f"no mutation is named {unknown[0]!r}{similar}; name a mutation as the table shows it, "
            f"or a part: {', '.join(parts)}"
        )


def _run_sweep(sweep: FaultSweep, mutation: Any, *, every: bool) -> list[SweepOutcome]:
    made = tempfile.TemporaryDirectory(prefix="faults_", dir=template.find_memory_folder())
    with made as folder:
        return sweep.run(mutation, Path(folder), every=every)


def _format_totals(part: str, outcomes: list[SweepOutcome]) -> list[SweepOutcome]:
    totals = {fault: SweepOutcome(f"all of {part}", fault) for fault in FAULTS}
    for outcome in outcomes:
        totals[outcome.fault].counts += outcome.counts
    return list(totals.values()) if outcomes else []


def _print_outcome(outcomes: list[SweepOutcome]) -> list[SweepOutcome]:
    for outcome in outcomes:
        what = ", ".join(f"{word}: {count}" for word, count in sorted(outcome.counts.items()))
        print(f"| {outcome.mutation} | {outcome.fault} | {outcome.points} | {what} |", flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
