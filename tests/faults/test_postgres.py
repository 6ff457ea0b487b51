"""A tenth of the faults of `python -m tests.faults.postgres_sweep`, chosen by the commit."""

from __future__ import annotations

import pytest

from tests.faults.points import find_commit_seed
from tests.faults.postgres_sweep import FAULTS, run_sweep

pytestmark = pytest.mark.faults

COUNTS = {"kill client": 30, "cut": 42, "kill server": 10}


@pytest.mark.requirement("faults:postgres")
@pytest.mark.parametrize("fault", FAULTS)
def test_home_survives_fault(fault: str) -> None:
    outcomes = run_sweep({fault: COUNTS[fault]}, find_commit_seed(), lambda _: None)
    assert [problem for outcome in outcomes for problem in outcome.problems] == []
    assert sum(sum(outcome.counts.values()) for outcome in outcomes) == COUNTS[fault]
