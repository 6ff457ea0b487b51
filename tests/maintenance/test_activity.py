"""Activity: live signs count. Dead and foreign ones do not."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionStore, activity
from session_core.activity import HomeActivity
from session_core.types import Claim, Holder, Lease
from tests.maintenance.homes import DAY, NOW, Home, opened

_HOLDER = """
import sys
from session_core import SessionDB
with SessionDB(sys.argv[1]) as db:
    db.get_session("x")
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(home: Home) -> Iterator[int]:
    """Another process that has the database open."""
    command = [sys.executable, "-c", _HOLDER, str(home.db.path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        yield child.pid
        child.communicate(timeout=10)


@pytest.fixture
def gateway(home: Home) -> Iterator[int]:
    """A process that looks like a live gateway of this home."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "hermes", "gateway", "run"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
        record = {"pid": process.pid, "kind": "hermes-gateway", "argv": command[3:]}
        (home.folder / "gateway.pid").write_text(json.dumps(record))
        yield process.pid
        process.communicate(timeout=10)


def gather_activity(home: Home, **options: Any) -> activity.ActivitySnapshot:
    return activity.gather_activity(home.db, home.store, NOW, **options)


def test_own_home_has_no_other_process(home: Home) -> None:
    home.session("s", 1)
    assert gather_activity(home) == activity.ActivitySnapshot(HomeActivity(NOW))


@pytest.mark.needs_files
def test_activity_names_other_database_holder(home: Home, holder: int) -> None:
    assert [other.pid for other in gather_activity(home).company.holders] == [holder]


@pytest.mark.needs_files
def test_gateway_is_found_by_routes_folder(home: Home, gateway: int) -> None:
    assert gather_activity(home).company.gateway == f"a gateway (pid {gateway})"
    apart = home.folder.parent / "apart"
    apart.mkdir()
    (home.folder / "gateway.pid").rename(apart / "gateway.pid")
    assert gather_activity(home).company.gateway is None
    with SessionStore(apart / "sessions", db=home.db) as store:
        found = activity.gather_activity(home.db, store, NOW)
    assert found.company.gateway == f"a gateway (pid {gateway})"


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:alive")
def test_leases_of_live_processes_count(home: Home) -> None:
    folder = home.folder / "runtime"
    folder.mkdir()
    entries = [
        {"lease_id": "1", "session_id": "here", "surface": "cli", "pid": os.getpid()},
        {"lease_id": "2", "session_id": "dead", "surface": "cli", "pid": 2**22 + 1},
    ]
    (folder / "active_sessions.json").write_text(json.dumps({"entries": entries}))
    assert gather_activity(home).company.leases == {"here": Lease("here", os.getpid(), "1", "cli")}


@pytest.mark.needs_files
@pytest.mark.requirement("maintenance:alive")
def test_routes_of_existing_folders_count(home: Home, tmp_path: Path) -> None:
    key = home.route("1", "here", 1)
    suspended = home.route("2", "kept", 1, suspended=True)
    second = home.route("3", "here", 1)
    own = str(home.store.sessions_dir.resolve())
    other = tmp_path / "other"
    other.mkdir()
    for scope, name, text in (
        (str(other), "theirs", {"session_id": "there"}),
        (str(tmp_path / "gone"), "lost", {"session_id": "nowhere"}),
        (own, "broken", {"session_id": "half"}),
        (own, "_note", {"session_id": "noted"}),
        (own, "list", []),
    ):
        home.db.routes.save_entry(name, json.dumps(text), scope=scope, expect=None)
    home.db.routes.save_entry("no json", "{", scope=own, expect=None)
    found = gather_activity(home)
    assert found.routes == {
        "here": (key, second),
        "kept": (suspended,),
        "there": ("theirs",),
        "half": ("broken",),
    }
    assert found.suspended == {"kept"}
    assert set(activity.gather_activity(home.db, None, NOW).routes) == set(found.routes)


def test_locks_and_turns_count_until_expiry(home_path: Path) -> None:
    with opened(home_path, 30) as home:
        home.session("s", 1)
        home.db.try_acquire_compression_lock("s", "me", 60)
        home.sql("INSERT INTO session_turn_leases VALUES ('s', 'you', ?, ?)", NOW, NOW + 9)
        found = gather_activity(home, pinned={"p"})
        assert (found.compressing, found.company.turns) == ({"s": "me"}, {"s": "you"})
        assert found.pinned == {"p"}
        late = activity.gather_activity(home.db, home.store, NOW + 61)
        assert (late.compressing, late.company.turns) == ({}, {})


@pytest.mark.requirement("maintenance:alive")
@pytest.mark.parametrize(
    ("claim", "lives"),
    [
        (Claim("gateway", None, "gw", NOW - 299, None, os.getpid(), platform.node()), True),
        (Claim("gateway", None, "gw", NOW - 301, None, os.getpid(), platform.node()), False),
        (Claim("gateway", None, "gw", NOW, None, 2**22 + 1, platform.node()), False),
        (Claim("gateway", None, "gw", NOW, None, 2**22 + 1, ""), False),
        (Claim("gateway", None, "gw", NOW, None, 2**22 + 1, "another machine"), True),
        (Claim("compression", "s", "me", NOW, None), True),
        (Claim("turn", "s", "me", NOW - DAY, NOW), False),
    ],
)
def test_claim_counts_while_owner_may_live(claim: Claim, lives: bool) -> None:
    assert activity.is_live_claim(claim, NOW) == lives


def test_gateway_heartbeat_counts_without_record(home_path: Path) -> None:
    with opened(home_path, 30) as home:
        home.sql("INSERT INTO gateway_heartbeats VALUES ('gw', 7, 1, ?, '', 'there')", NOW)
        assert gather_activity(home).company.gateway == "a gateway (pid 7)"


HELD = HomeActivity(NOW, holders=(Holder(7, "hermes"),))


@pytest.mark.requirement("maintenance:alive")
@pytest.mark.parametrize(
    ("company", "active_at", "routed", "said"),
    [
        (HomeActivity(NOW), None, True, None),
        (HomeActivity(NOW, gateway="a gateway (pid 7)"), 0, False, None),
        (HomeActivity(NOW, gateway="a gateway (pid 7)"), 0, True, "a gateway (pid 7) has a chat"),
        (
            HomeActivity(NOW, leases={"s": Lease("s", 7, "", "cli")}),
            0,
            False,
            "cli (pid 7) has this",
        ),
        (HomeActivity(NOW, leases={"t": Lease("t", 7)}), 0, False, None),
        (HomeActivity(NOW, turns={"s": "you"}), 0, False, "you is at a turn"),
        (HELD, NOW - 3599, False, "within the hour, and hermes (pid 7) has the database open"),
        (HELD, NOW - 3600, False, None),
        (HELD, None, False, "within the hour"),
        (HELD, "soon", False, "within the hour"),
    ],
)
def test_company_describes_active_processes(
    company: HomeActivity, active_at: Any, routed: bool, said: str | None
) -> None:
    active_user = company.describe_active_user("s", active_at, routed=routed)
    assert active_user is None if said is None else said in str(active_user)
