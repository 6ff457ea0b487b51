"""The lag of an event loop whose agents use a home while another process holds its write lock.

200 chats send a message each. A ticker sleeps for 1 ms again and again; the lag is the delay of its
slowest sleep. The chats run in a process with the imports of a bot: the time of a full garbage
collection depends on all loaded objects, and the benches load three times as many.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.rows import BenchRow
from tests.peers import ROOT

MAX_LAG_MS = 50.0
CHATS = 200
_SCRIPT = Path(__file__).parent / "scripts" / "chats_on_loop.py"
_HOLD_S = {False: 3.0, True: 0.2}
"""The time for which the other process holds the lock."""


def measure_loop_lag(folder: Path, *, quick: bool) -> BenchRow:
    """Return the row: 200 turns on one loop, next to a held lock."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="loop-") as name:
        lags_ms = _run_chats(Path(name), _HOLD_S[quick])
    slowest = max(lags_ms)
    return BenchRow(
        what="lag of the loop, lock held",
        home="own",
        ours=f"{slowest:.1f} ms",
        theirs="",
        better=None,
        target=f"<= {MAX_LAG_MS:g} ms",
        reached=slowest <= MAX_LAG_MS,
        note=f"{len(lags_ms):,} ticks; {CHATS} chats; held for {_HOLD_S[quick]:g} s",
    )


def _run_chats(folder: Path, hold_s: float) -> list[float]:
    command = [sys.executable, str(_SCRIPT), str(folder), str(CHATS), str(hold_s)]
    printed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    return list(json.loads(printed))
