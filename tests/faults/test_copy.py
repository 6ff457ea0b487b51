"""Some of the kills of `python -m tests.faults.copy_sweep`, chosen by the commit."""

from __future__ import annotations

import pytest

from tests.faults.copy_sweep import WAYS, run_sweep
from tests.faults.points import find_commit_seed

pytestmark = pytest.mark.faults

_COUNT = 3


@pytest.mark.requirement("faults:copy")
def test_killed_copy_continues() -> None:
    outcomes = run_sweep(_COUNT, find_commit_seed())
    assert [problem for outcome in outcomes for problem in outcome.problems] == []
    assert sum(outcome.counts.total() for outcome in outcomes) == _COUNT * len(WAYS)
