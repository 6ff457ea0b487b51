"""A fault at every write of a plan, a restore, an edit or a copy: it is gone on with, or undone."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.faults import maintenance, state
from tests.faults.maintenance import MAINTENANCE_MUTATIONS
from tests.faults.maintenance_sweep import MaintenanceSweep
from tests.faults.points import FAULTS

pytestmark = pytest.mark.faults


@pytest.fixture
def sweep(lab_pool):
    return MaintenanceSweep(lab_pool)


@pytest.mark.requirement("maintenance:faults")
@pytest.mark.parametrize("name", MAINTENANCE_MUTATIONS)
def test_plan_continues_after_fault_without_loss(sweep, folder, name):
    outcomes = sweep.run(MAINTENANCE_MUTATIONS[name], folder)
    assert [problem for outcome in outcomes for problem in outcome.problems] == []
    assert [outcome.fault for outcome in outcomes if outcome.points] == list(FAULTS)


@pytest.mark.skipif(find_spec("pysqlite3") is None, reason="it has no wheel here")
def test_plan_continues_after_bundled_sqlite_fault(bundled_lab_pool, folder):
    sweep = MaintenanceSweep(bundled_lab_pool)
    outcomes = sweep.run(MAINTENANCE_MUTATIONS["maintenance.apply, all, own"], folder)
    assert [problem for outcome in outcomes for problem in outcome.problems] == []


@pytest.mark.requirement("maintenance:faults")
@pytest.mark.parametrize("kind", ["own", "hermes", "older"])
def test_maintenance_fault_homes_are_small(tmp_path, kind):
    change = next(one for one in MAINTENANCE_MUTATIONS.values() if one.kind == kind)
    maintenance.build_home(tmp_path / "home", change)
    assert state.count_rows(tmp_path / "home") <= 40
