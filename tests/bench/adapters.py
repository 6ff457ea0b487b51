"""`python -m tests.bench.adapters`: adapters next to the SQLite stores of their SDKs.

Both sides do the same in turns in one process, in files on the same disk, and every append is
durable when it returns. A ratio is the median of the ratios of all rounds, so that other work on
the machine changes it little.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.peers import peer_python

PEERS = {"openai": "SQLiteSession", "adk": "SqliteSessionService"}
"""The SDKs with a store in SQLite. The Claude SDK and Pydantic AI have none that is durable."""

LABELS = {
    "append": ("append one by one", 1.3),
    "read short": ("read a session of 100", 1.0),
    "read long": ("read the newest 100 of 2,000", 1.0),
}
"""What is measured, and the ratio to reach."""

_HEAD = """\
| next to | what | ours | peer | times faster | by processor time | reach |
|---|---|---|---|---|---|---|"""
_SCRIPT = Path(__file__).parent / "scripts" / "on_sdk.py"


def measure_sdk(extra: str, rounds: int) -> dict[str, Any]:
    """Return the seconds of a call in each round."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(peer_python(f"sdk-{extra}")), str(_SCRIPT), extra, folder, str(rounds)]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds: dict[str, Any] = json.loads(process.stdout)
    return seconds


def format_row(peer: str, what: str, sides: dict[str, list[tuple[float, float]]]) -> str:
    """Return a row of the table: median times by the clock, and median ratios."""
    label, reach = LABELS[what]
    ours, theirs = (
        statistics.median(clock for clock, _ in sides[side]) * 1000 for side in ("ours", "peer")
    )
    pairs = list(zip(sides["ours"], sides["peer"], strict=True))
    ratio, processor = (
        statistics.median(peer[which] / own[which] for own, peer in pairs) for which in (0, 1)
    )
    missed = "" if ratio >= reach else " **missed**"
    times = f"{ours:.2f} ms | {theirs:.2f} ms"
    return f"| {peer} | {label} | {times} | {ratio:.2f}{missed} | {processor:.2f} | {reach} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(_HEAD)
    for extra, peer in PEERS.items():
        for what, sides in measure_sdk(extra, options.rounds).items():
            print(format_row(peer, what, sides), flush=True)


if __name__ == "__main__":
    main()
