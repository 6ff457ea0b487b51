"""`python -m tests.interop [--homes N] [--questions N]`: run the whole random comparison."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.interop.comparison import REASONS, Comparison
from tests.interop.random_homes import compare
from tests.peers import HERMES_SCHEMAS


def main() -> int:
    """Compare many homes of every version, and return 1 if a difference is not explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop", description=__doc__)
    parser.add_argument("--homes", type=int, default=12, help="homes of each version")
    parser.add_argument("--questions", type=int, default=260, help="questions about each home")
    args = parser.parse_args()
    agreed, differing = 0, 0
    reasons: Counter[str] = Counter()
    unexplained: list[str] = []
    for version in HERMES_SCHEMAS:
        for seed in range(args.homes):
            with tempfile.TemporaryDirectory(prefix="compared_") as folder:
                found: Comparison = compare(version, seed, args.questions, Path(folder))
            agreed, differing = agreed + found.agreed, differing + found.differing
            reasons += found.explained
            unexplained += [f"{version} seed {seed}: {text}" for text in found.unexplained]
    print(f"{agreed + differing} questions, {agreed} answered alike, {differing} not\n")
    print("\n".join(f"{reasons[reason]:6} {reason}" for reason in REASONS))
    print(f"\n{len(unexplained)} not explained")
    print("\n".join(unexplained[:50]))
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
