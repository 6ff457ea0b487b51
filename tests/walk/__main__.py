"""Print the walk of each request through the code: `python -m tests.walk [--statements PATH]`."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from mcp_serve.cli.options import choose_driver
from tests.walk.paths import WALK_FUNCTIONS, build_home
from tests.walk.trace import CallTracer, CallWalk

COLUMNS = ("functions", "modules", "depth", "moves", "SQL", "snapshots", "plan loads", "row reads")


def measure_walks(folder: Path) -> dict[str, CallWalk]:
    """Return the walk of every path, each group on a fresh home below `folder`."""
    walks: dict[str, CallWalk] = {}
    tracer = CallTracer()
    with tracer.install():
        for number, group in enumerate(WALK_FUNCTIONS):
            walks |= group(tracer, build_home(folder / str(number)))
    return walks


def list_figures(walk: CallWalk) -> tuple[int, ...]:
    """Return the figures of a walk, in the order of `COLUMNS`."""
    return (
        len(walk.functions),
        len(walk.modules),
        walk.depth,
        walk.moves,
        len(walk.statements),
        walk.snapshots,
        walk.plan_loads,
        walk.session_reads,
    )


def main() -> None:
    """Measure in a temporary folder and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statements", metavar="PATH", help="print the SQL of this path too")
    arguments = parser.parse_args()
    choose_driver()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(HOME=name, MCP_SESSIONS_STATE=str(folder / "state"))
        walks = measure_walks(folder)
    print(f"| path | {' | '.join(COLUMNS)} |")
    print(f"|---|{'---:|' * len(COLUMNS)}")
    for path, walk in walks.items():
        print(f"| {path} | {' | '.join(f'{figure:,}' for figure in list_figures(walk))} |")
    if arguments.statements:
        print(*walks[arguments.statements].statements, sep="\n")


if __name__ == "__main__":
    main()
