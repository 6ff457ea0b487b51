"""`python -m tests.bench.postgres`: session stores of agent SDKs on one PostgreSQL server.

Each peer and ours do the same in turns in one process, in tables of their own, and the server syncs
every commit. A ratio is the median of the ratios of all rounds, so that other work on the machine
changes it little.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

from tests import postgres_server
from tests.peers import ROOT, peer_python

PEERS = {
    "openai": ("our openai", "OpenAI SQLAlchemySession"),
    "adk": ("our adk", "ADK DatabaseSessionService"),
    "langgraph": ("our library", "LangGraph AsyncPostgresSaver"),
}
"""Which of our sides is compared with a peer, and its name."""

REQUIREMENTS = (
    "google-adk>=2.13,<3",
    "openai-agents[sqlalchemy]>=0.24,<1",
    "langgraph-checkpoint-postgres>=3,<4",
    f"--editable={ROOT}[postgres]",
)
LABELS = {
    "append": ("append one by one", 1.3),
    "append of 8": ("append, 8 writers at once", 2.0),
    "read": ("read a session of 100", 1.0),
    "list": ("list sessions", 1.0),
}
"""What is measured, and the ratio to reach."""

SETTINGS = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
_NO_LIST = "openai"
_HEAD = """\
| next to | what | ours | peer | times faster | by processor time | reach |
|---|---|---|---|---|---|---|"""
_SCRIPT = Path(__file__).parent / "scripts" / "on_postgres.py"

Times = dict[str, list[tuple[float, float]]]


def measure_sides(rounds: int) -> dict[str, Times]:
    """Return the seconds of a call of each side in each round."""
    server = postgres_server.start_server("C.UTF-8", **SETTINGS)
    try:
        address = postgres_server.prepare_database(server.address)
        python = peer_python("postgres-stores", "\n".join(REQUIREMENTS))
        sides = [address, server.address, str(server.process.pid), str(rounds)]
        command = [str(python), str(_SCRIPT), *sides]
        process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        server.stop()
    seconds: dict[str, Times] = json.loads(process.stdout)
    return seconds


def format_row(what: str, peer: str, ours: Any, theirs: Any) -> str:
    """Return a row of the table: median times by the clock, and median ratios."""
    label, reach = LABELS[what]
    times = [statistics.median(clock for clock, _ in side) * 1000 for side in (ours, theirs)]
    ratio, processor = (
        statistics.median(
            other[which] / own[which] for own, other in zip(ours, theirs, strict=True)
        )
        for which in (0, 1)
    )
    missed = "" if ratio >= reach else " **missed**"
    return (
        f"| {peer} | {label} | {times[0]:.2f} ms | {times[1]:.2f} ms | {ratio:.2f}{missed} |"
        f" {processor:.2f} | {reach} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.postgres", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    loads = [os.getloadavg()[0]]
    seconds = measure_sides(options.rounds)
    loads.append(os.getloadavg()[0])
    today = date.today().isoformat()  # noqa: DTZ011
    print(f"{today}, {os.cpu_count()} cores, load {loads[0]:.1f} to {loads[1]:.1f}")
    print(_HEAD)
    for peer, (own, name) in PEERS.items():
        for what in LABELS:
            if (peer, what) != (_NO_LIST, "list"):
                print(format_row(what, name, seconds[own][what], seconds[peer][what]))


if __name__ == "__main__":
    main()
