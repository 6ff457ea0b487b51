"""In a storm of raising signal handlers nothing is lost or doubled, and other threads go on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.faults import state
from tests.faults.process import ChildProcess

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals"),
]


@pytest.mark.requirement("faults:interrupts")
@pytest.mark.parametrize("threads", [0, 4])
def test_interrupt_storm_loses_no_write(tmp_path: Path, threads: int) -> None:
    with ChildProcess("storm", tmp_path / "state.db", str(threads)) as process:
        came_to = json.loads(process.read_line())
    assert came_to.pop("interrupts") > 50
    assert came_to.pop("acknowledged") > 50
    assert came_to == {
        "lost": [],
        "doubled": [],
        "torn": [],
        "miscounted": False,
        "told": [],
        "hanging": 0,
        "after": ["written", "written"],
    }
    assert state.find_damage(tmp_path) == []
