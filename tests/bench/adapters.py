"""`python -m tests.bench.adapters`: adapters next to the SQLite stores of their SDKs.

All sides do the same in turns in one process, in files on the same disk, and every append is
durable when it returns: the settings of the connections are printed. If those of a peer are others,
a second row has the peer with ours. A ratio is the median of the ratios of all rounds, so that
other work on the machine changes it little.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.peers import peer_python

PEERS = {"openai": "SQLiteSession", "adk": "SqliteSessionService"}
"""The SDKs with a store in SQLite. The Claude SDK and Pydantic AI have none that is durable."""

LABELS = {
    "append": ("append one by one", 1.3),
    "append together": ("append in 8 sessions at once", 1.3),
    "read short": ("read a session of 100", 1.0),
    "read long": ("read the newest 100 of 2,000", 1.0),
}
"""What is measured, and the ratio to reach."""

SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")

_HEAD = """\
| next to | what | ours | peer | times faster | by processor time | reach |
|---|---|---|---|---|---|---|"""
_SCRIPT = Path(__file__).parent / "scripts" / "on_sdk.py"

Times = dict[str, list[tuple[float, float]]]
"""The seconds of a call in each round by the side: by the clock and of the processor."""


def measure_sdk(extra: str, rounds: int) -> dict[str, Any]:
    """Return the settings of each side, and the seconds of a call in each round."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(peer_python(f"sdk-{extra}")), str(_SCRIPT), extra, folder, str(rounds)]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(process.stdout)
    return measured


def format_settings(peer: str, settings: dict[str, tuple[str, int]]) -> str:
    """Return a line with the journal mode and the synchronous setting of each side."""
    sides = (
        f"{side.replace('peer', peer)} {journal.upper()} and {SYNCHRONOUS[synchronous]}"
        for side, (journal, synchronous) in settings.items()
    )
    return f"Journal and synchronous: {'; '.join(sides)}."


def format_rows(peer: str, what: str, times: Times) -> Iterator[str]:
    """Yield a row of the table for each side next to ours: median times and ratios."""
    label, reach = LABELS[what]
    for side in times.keys() - {"ours"}:
        ours, theirs = (
            statistics.median(clock for clock, _ in times[name]) * 1000 for name in ("ours", side)
        )
        pairs = list(zip(times["ours"], times[side], strict=True))
        ratio, processor = (
            statistics.median(other[which] / own[which] for own, other in pairs) for which in (0, 1)
        )
        missed = "" if ratio >= reach else " **missed**"
        row = f"{side.replace('peer', peer)} | {label} | {ours:.2f} ms | {theirs:.2f} ms"
        yield f"| {row} | {ratio:.2f}{missed} | {processor:.2f} | {reach} |"


def main() -> None:
    """Print the table and the settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    measured = {extra: measure_sdk(extra, options.rounds) for extra in PEERS}
    print(_HEAD)
    for extra, peer in PEERS.items():
        for what, times in measured[extra]["seconds"].items():
            print(*format_rows(peer, what, times), sep="\n")
    for extra, peer in PEERS.items():
        print(f"\n{format_settings(peer, measured[extra]['settings'])}")


if __name__ == "__main__":
    main()
