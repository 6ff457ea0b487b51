"""A fault at every write of a step: it was done and can be undone, or it never was."""

from __future__ import annotations

import pytest

from tests.faults import ledger
from tests.faults.ledger import LEDGER_MUTATIONS, MEMBER_IDS, LedgerHome
from tests.faults.ledger_sweep import LedgerSweep
from tests.faults.points import FAULTS

pytestmark = pytest.mark.faults


@pytest.fixture
def sweep(lab_pool):
    return LedgerSweep(lab_pool)


@pytest.mark.requirement("ledger:faults")
@pytest.mark.parametrize("name", LEDGER_MUTATIONS)
def test_fault_keeps_ledger_step_atomic(sweep, folder, name):
    outcomes = sweep.run(LEDGER_MUTATIONS[name], folder)
    assert [problem for outcome in outcomes for problem in outcome.problems] == []
    assert [outcome.fault for outcome in outcomes if outcome.points] == list(FAULTS)


def test_ledger_fault_homes_are_small(tmp_path):
    for number, mutation in enumerate(LEDGER_MUTATIONS.values()):
        ledger.build_home(tmp_path / str(number), mutation)
        opened = LedgerHome(tmp_path / str(number))
        assert len(opened.ledger.get_plan(ledger.find_plan(opened)).members) == len(MEMBER_IDS)
        opened.close()
