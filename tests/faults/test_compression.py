"""A fault at every write of a compression or of an undo: the conversation of before or after."""

from __future__ import annotations

import pytest

from tests.faults import compression, state
from tests.faults.compression import COMPRESSION_MUTATIONS
from tests.faults.compression_sweep import CompressionSweep
from tests.faults.points import FAULTS

pytestmark = pytest.mark.faults


@pytest.fixture
def sweep(lab_pool):
    return CompressionSweep(lab_pool)


@pytest.mark.requirement("compression:faults")
@pytest.mark.parametrize("name", COMPRESSION_MUTATIONS)
def test_fault_keeps_compression_atomic_and_undoable(sweep, folder, name):
    outcomes = sweep.run(COMPRESSION_MUTATIONS[name], folder)
    assert [problem for outcome in outcomes for problem in outcome.problems] == []
    assert [outcome.fault for outcome in outcomes if outcome.points] == list(FAULTS)


@pytest.mark.requirement("compression:faults")
@pytest.mark.parametrize("kind", ["own", "hermes"])
def test_compression_fault_home_is_small(tmp_path, kind):
    compression.build_home(
        tmp_path / "home", COMPRESSION_MUTATIONS[f"compressor.apply, in_place, {kind}"]
    )
    assert state.count_rows(tmp_path / "home") <= 40
