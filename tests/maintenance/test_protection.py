"""Protection: sessions that may be in use stay, those of other processes too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.maintenance.changing import Changing, list_skip_reasons


def test_pin_added_after_plan_protects(changed: Changing) -> None:
    changed.home.session("old", 140, reason="idle")
    planned = changed.plan()
    changed.ledger.pins.set_pins({"old": True})
    result = changed.apply(planned)
    assert list_skip_reasons(result) == {"old": "session old: it is pinned"}


HOLDER = """
import sys
from pathlib import Path
from tests.homes import connect
with connect(Path(sys.argv[1]), "ro") as connection:
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sessions").fetchone()
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def beside(changed: Changing) -> Iterator[Changing]:
    """A home that another process has open too, with sessions that it may be using."""
    home = changed.home
    home.session("open", 140)
    home.session("lately", 140, reason="idle", ended=2)
    home.session("long_ago", 140, reason="idle")
    command = [sys.executable, "-c", HOLDER, str(home.db.path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        yield changed
        child.communicate(timeout=10)


def test_holder_limits_prune_to_old_ends(beside: Changing) -> None:
    planned = beside.plan(ids=("open", "lately", "long_ago"))
    assert planned.protected == {"never ended": 1, "ended lately": 1}
    assert "has the database open" in planned.warnings[0]
    assert beside.apply(planned).removed == 1
    assert beside.sessions() == {"open", "lately"}


def test_new_holder_protects_open_sessions(
    changed: Changing, request: pytest.FixtureRequest
) -> None:
    changed.home.session("unended", 140)
    planned = changed.plan(ids=("unended",))
    request.getfixturevalue("beside")
    result = changed.apply(planned)
    assert list_skip_reasons(result) == {
        "unended": "session unended: it never ended, and another process has the database open"
    }


def test_open_sessions_are_finalized_despite_holder(beside: Changing) -> None:
    assert beside.plan_and_apply("sessions", "finalize", ids=("open",)).finalized == 1
    assert beside.home.db.get_session("open")["end_reason"] == "finalized"
