"""The size of a batch follows the time that earlier ones held the lock."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from session_core.state.batch_size import BatchSize

TARGET_S = 0.014
LEAST, MOST = 16_000, 4_000_000


def run_batches(durations: Iterable[float], size: int | None = None) -> list[int]:
    """Return the room after each of some transactions with these durations."""
    now = [0.0]
    batch = BatchSize(clock=lambda: now[0])
    rooms = []
    for seconds in durations:
        now[0] += 5.0  # the time between transactions does not count
        batch.begin_batch()
        now[0] += seconds
        batch.end_batch(size)
        rooms.append(batch.max_bytes)
    return rooms


def test_fast_batches_double_up_to_limit():
    rooms = run_batches([0.0001] * 10)
    assert rooms[:3] == [64_000, 128_000, 256_000]
    assert rooms[-1] == MOST


def test_slow_batches_shrink_to_least():
    assert run_batches([1.0] * 3) == [LEAST] * 3


def test_steady_pace_keeps_its_size():
    pace = TARGET_S / 100_000
    assert run_batches([pace * 20_000] * 9, 20_000)[-1] == pytest.approx(100_000, abs=5)


def test_single_slow_batch_loses_weight():
    rooms = run_batches([TARGET_S] * 5 + [3 * TARGET_S] + [TARGET_S] * 5, 32_000)
    assert rooms[4] == 32_000
    assert 16_000 < rooms[5] < 32_000 * 0.75
    assert rooms[5] < rooms[6] < rooms[10] < 32_000


def test_batch_without_measurable_time_is_accepted():
    assert run_batches([0.0, 0.0], 0) == [LEAST, LEAST]
    assert run_batches([0.0]) == [64_000]
