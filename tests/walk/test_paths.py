"""Requests load each plan, session row and snapshot at most as often as the limits allow."""

from __future__ import annotations

import subprocess
import sys

from tests.peers import ROOT


def test_requests_read_state_within_limits():
    walks = measure_walks()
    assert walks["sessions_read"]["snapshots"] == 1
    assert walks["sessions_search"]["snapshots"] == 1
    assert walks["sessions_read"]["row reads"] <= 4
    # The steps after the one with hits are not planned, since planning probes the index.
    assert walks["sessions_search"]["SQL"] <= 16
    assert walks["SessionRuntime.handle"]["row reads"] <= 3
    plan_loads = {
        "sessions_prune, apply": 2,
        "sessions_compress, apply": 2,
        # The command also shows the plan before it asks for consent.
        "mcp-sessions prune --yes": 3,
    }
    for path, limit in plan_loads.items():
        assert 1 <= walks[path]["plan loads"] <= limit, path


def measure_walks() -> dict[str, dict[str, int]]:
    """Return the figures by path, as the command prints them. It chooses its own SQLite."""
    printed = subprocess.run(
        [sys.executable, "-m", "tests.walk"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout.decode()
    header, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in printed.splitlines()
        if line.startswith("|")
    )
    return {
        path: {
            name: int(cell.replace(",", "")) for name, cell in zip(header[1:], cells, strict=True)
        }
        for path, *cells in rows
    }
