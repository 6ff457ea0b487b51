"""Protection: sessions that may be in use stay, those of other processes too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from session_core.activity import ActivitySnapshot, HomeActivity
from session_core.maintenance.select.protection import describe_end, find_protection, format_age
from session_core.types import Holder, InventoryItem, Revision
from tests.maintenance.changed_homes import Changing, list_skip_reasons
from tests.maintenance.homes import DAY, NOW


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


@pytest.mark.needs_files
def test_holder_limits_prune_to_old_ends(beside: Changing) -> None:
    planned = beside.plan(ids=("open", "lately", "long_ago"))
    assert planned.protected == {"never ended": 1, "ended lately": 1}
    assert "has the database open" in planned.warnings[0]
    assert beside.apply(planned).removed == 1
    assert beside.sessions() == {"open", "lately"}


@pytest.mark.needs_files
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


@pytest.mark.needs_files
def test_open_sessions_are_finalized_despite_holder(beside: Changing) -> None:
    assert beside.plan_and_apply("sessions", "finalize", ids=("open",)).finalized == 1
    assert beside.home.db.get_session("open")["end_reason"] == "finalized"


SESSION = InventoryItem(
    id="s",
    source="cli",
    title=None,
    parent_id=None,
    link=None,
    session_key=None,
    started_at=NOW - 9 * DAY,
    ended_at=NOW - 8 * DAY,
    end_reason="idle",
    archived=False,
    pinned=False,
    api_calls=None,
    expiry_finalized=False,
    last_active_at=NOW - 8 * DAY,
    live=1,
    rows=1,
    counted=1,
    revision=Revision(1, 1, 0, 0, None),
)
OPENED = HomeActivity(NOW, holders=(Holder(7, "agent"),))


@pytest.mark.parametrize(
    ("activity", "session", "reason"),
    [
        (ActivitySnapshot(HomeActivity(NOW)), SESSION, None),
        (ActivitySnapshot(HomeActivity(NOW), pinned=frozenset("s")), SESSION, "pinned"),
        (ActivitySnapshot(HomeActivity(NOW)), replace(SESSION, pinned=True), "pinned"),
        (ActivitySnapshot(HomeActivity(NOW), compressing={"s": "x"}), SESSION, "compressing"),
        (ActivitySnapshot(HomeActivity(NOW), routes={"s": ("k",)}), SESSION, "routed"),
        (ActivitySnapshot(HomeActivity(NOW, turns={"s": "x"})), SESSION, "live"),
        (ActivitySnapshot(OPENED), SESSION, None),
        (ActivitySnapshot(OPENED), replace(SESSION, ended_at=None), "never ended"),
        (ActivitySnapshot(OPENED), replace(SESSION, ended_at=NOW - 6 * DAY), "ended lately"),
        (
            ActivitySnapshot(HomeActivity(NOW)),
            replace(SESSION, last_active_at=None),
            "no known age",
        ),
    ],
)
def test_sign_of_use_protects(
    activity: ActivitySnapshot, session: InventoryItem, reason: str | None
) -> None:
    assert find_protection([session], activity, removed=True) == reason
    assert find_protection([replace(SESSION, id="o"), session], activity, removed=True) == reason


def test_strongest_reason_is_reported() -> None:
    activity = ActivitySnapshot(OPENED, routes={"s": ("k",)}, pinned=frozenset("s"))
    ended = replace(SESSION, ended_at=None)
    assert find_protection([ended], activity, removed=True) == "routed"
    assert find_protection([ended], activity, removed=True, exempt=["routed"]) == "pinned"
    exempt: Any = ("routed", "pinned")
    assert find_protection([ended], activity, removed=True, exempt=exempt) == "never ended"
    assert find_protection([ended], activity, removed=False, exempt=exempt) is None


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (NOW - 5, "within a day"),
        (NOW - DAY, "1 day ago"),
        (NOW - 1500 * DAY, "1,500 days ago"),
        (None, "at an unknown time"),
    ],
)
def test_age_is_in_days(at: float | None, text: str) -> None:
    assert format_age(at, NOW) == text


def test_end_quotes_unusual_reasons() -> None:
    assert describe_end(replace(SESSION, ended_at=None)) == "never ended"
    assert describe_end(replace(SESSION, ended_at=0.0)) == "ended 1970-01-01 (idle)"
    assert describe_end(replace(SESSION, ended_at=1e300)) == "ended at an unknown time (idle)"
    hostile = replace(SESSION, ended_at=0.0, end_reason='a) "b"\n')
    assert describe_end(hostile) == 'ended 1970-01-01 ("a) \\"b\\"\\n")'
