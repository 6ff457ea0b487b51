"""Baselines keep to their limit and are deterministic."""

from __future__ import annotations

import sys

import pytest

from tests.bench.long_life import lives
from tests.bench.long_life.baselines import BASELINES


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_stay_within_limit(name: str) -> None:
    messages = lives.list_long_lives()[0].parts[0].messages
    for limit in (0, 10, 700, 7000, sys.maxsize):
        summary = BASELINES[name](messages, limit)
        assert len(summary) <= limit
    assert BASELINES[name](messages, 700) == BASELINES[name](messages, 700) != ""
