"""Data that was acknowledged before a `kill -9` is there afterwards, whole and counted right."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import time
from pathlib import Path

import pytest

from tests.faults import state, template
from tests.faults.points import find_commit_seed
from tests.faults.process import ChildProcess

pytestmark = pytest.mark.faults

CYCLE_COUNT = 75
"""Of each of four kinds: 300 in all."""

_COUNTERS_SQL = """
    SELECT s.id FROM sessions s
    WHERE s.message_count <> (SELECT count(*) FROM messages m WHERE m.session_id = s.id)
       OR s.tool_call_count <> (
           SELECT count(*) FROM messages m WHERE m.session_id = s.id AND m.tool_calls IS NOT NULL)
"""


@pytest.mark.requirement("faults:kill")
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("kind", ["none", "hermes"])
def test_acknowledged_rows_survive_kill(tmp_path, kind, threads):
    home = tmp_path / "home"
    template.build_home(home, kind)
    path = home / "state.db"
    if kind == "hermes":
        _reset_counters(path)
    chance = random.Random(f"{find_commit_seed()} {kind} {threads}")
    acknowledged: set[int] = set()
    with ChildProcess("appender") as appender:
        for _ in range(CYCLE_COUNT):
            # Some die while they open the home, most while they write.
            writing = chance.random() < 0.7
            lives_s = chance.uniform(0.001, 0.02)
            acknowledged |= _run_cycle(appender, path, threads, lives_s, writing=writing)
            _check_acknowledged(home, acknowledged)
    assert len(acknowledged) > CYCLE_COUNT
    assert state.find_damage(home) == []


def _run_cycle(
    appender: ChildProcess, path: Path, threads: int, lives_s: float, *, writing: bool
) -> set[int]:
    """Let a child append for a moment, kill it, and return the acknowledged ids."""
    appender.write_line(json.dumps([str(path), threads]))
    pid = int(appender.read_line())
    seen = f"{appender.read_line()}\n".encode() if writing else b""
    deadline = time.monotonic() + lives_s
    while (left := deadline - time.monotonic()) > 0:
        if select.select([appender.out], [], [], left)[0]:
            seen += os.read(appender.out, 1 << 16)
    os.kill(pid, signal.SIGKILL)
    while not seen.endswith(b"dead\n"):
        seen += os.read(appender.out, 1 << 16)
    return {int(line) for line in seen.split(b"\n")[:-2]}


def _check_acknowledged(home: Path, acknowledged: set[int]) -> None:
    path = home / "state.db"
    if state.digest_tables(home) == state.EMPTY_STATE:
        assert not acknowledged
        return
    with state.open_connection(path) as reader:
        assert reader.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        numbers = {number for (number,) in reader.execute("SELECT id FROM messages")}
        assert acknowledged <= numbers
        assert reader.execute(_COUNTERS_SQL).fetchall() == []


def _reset_counters(path: Path) -> None:
    with state.open_connection(path, "rw") as opened:
        opened.execute("DELETE FROM messages")
        opened.execute("UPDATE sessions SET message_count = 0, tool_call_count = 0")
