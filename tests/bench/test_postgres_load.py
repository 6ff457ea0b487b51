"""Writers and waiters of one home; `python -m tests.bench.postgres_load` runs the full numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import postgres_load
from tests.postgres_home import get_home_address
from tests.thorough import mark_thorough


@pytest.mark.parametrize(("processes", "threads"), [(2, 4), mark_thorough((8, 8))])
def test_writers_lose_nothing(tmp_path: Path, processes: int, threads: int) -> None:
    result = postgres_load.run_writers(get_home_address(tmp_path), processes, threads, 4)
    assert result.stored == processes * threads * 4
    assert (result.lost, result.doubled, result.disordered) == (0, 0, 0)


@pytest.mark.parametrize(("processes", "waiters"), [(1, 8), mark_thorough((4, 100))])
def test_waiters_hear_every_message(tmp_path: Path, processes: int, waiters: int) -> None:
    delays = postgres_load.run_waiters(get_home_address(tmp_path), processes, waiters, 3)
    assert [len(delay) for delay in delays] == [3] * waiters
