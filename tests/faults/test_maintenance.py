"""A fault at every write of a plan or a restore: it is gone on with, and all of it comes back."""

from __future__ import annotations

import pytest

from tests.faults.maintenance import MAINTENANCE
from tests.faults.maintenance_sweep import MaintenanceSweep
from tests.faults.points import FAULTS

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def labs():
    with MaintenanceSweep() as running:
        yield running


@pytest.mark.parametrize("name", MAINTENANCE)
def test_after_a_fault_a_plan_is_gone_on_with_and_nothing_is_lost(labs, tmp_path, name):
    outcomes = labs.run(MAINTENANCE[name], tmp_path)
    assert [problem for outcome in outcomes for problem in outcome.problems] == []
    assert [outcome.fault for outcome in outcomes if outcome.points] == list(FAULTS)
