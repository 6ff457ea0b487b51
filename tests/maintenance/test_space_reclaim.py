"""The index is merged in steps. The file is rewritten only if no other process has it open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from session_core import Denied, SessionDB, StorageFull
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.maintenance import space_reclaim
from session_core.maintenance.home_context import HomeContext
from session_core.maintenance.space_reclaim import NO_UNDO_WARNING
from session_core.maintenance.types import ApplyRequest, ApplyResult, PlanPreview, PlanRequest
from tests.homes import fill_database, make_hermes_database, make_own_database
from tests.maintenance.changed_homes import live_gateway

HOLD = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM sessions');"
HOLD += "print('open', flush=True); sys.stdin.read()"


class SpaceReclaimer:
    """The plans that reclaim the space of a home."""

    def __init__(self, home: HomeContext) -> None:
        self._home = home

    def make_plan(self) -> PlanPreview:
        """Make a plan."""
        return space_reclaim.make_plan(self._home, PlanRequest("index"))

    def apply_plan(self, handle: str, for_s: float = 20.0, **asked: Any) -> ApplyResult:
        """Apply a plan."""
        plan = self._home.ledger.get_plan(handle)
        return space_reclaim.apply_plan(self._home, plan, ApplyRequest("test", for_s, **asked))


@pytest.fixture(params=["own", 22, 30], ids=str)
def db(home_path: Path, request: pytest.FixtureRequest) -> Iterator[SessionDB]:
    """A home with most messages deleted."""
    path = home_path / "state.db"
    make_own_database(path) if request.param == "own" else make_hermes_database(path, request.param)
    fill_database(path, 40, 20)
    with SessionDB(path) as db:
        db.delete_sessions([f"fill_0_{number:05}" for number in range(38)])
        yield db


@pytest.fixture
def ledger(db: SessionDB) -> Iterator[Ledger]:
    with Ledger(StateFolder(db.path)) as ledger:
        yield ledger


@pytest.fixture
def reclaim(db: SessionDB, ledger: Ledger) -> SpaceReclaimer:
    return create_reclaim(db, ledger)


def create_reclaim(db: SessionDB, ledger: Ledger) -> SpaceReclaimer:
    return SpaceReclaimer(HomeContext(db, ledger))


@contextmanager
def open_elsewhere(path: Path) -> Iterator[int]:
    """Let another process open the file."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        yield holder.pid
        holder.communicate(b"")


def plan_vacuum(reclaim: SpaceReclaimer) -> str:
    handle = reclaim.make_plan().plan
    assert handle is not None
    return handle


@pytest.mark.requirement("maintenance:reclaim")
def test_vacuum_frees_space_and_keeps_search(reclaim: SpaceReclaimer, db: SessionDB):
    before = db.search("deploy").hits
    size = db.admin.measure_sizes().db + db.admin.measure_sizes().wal
    rows = [db.get_messages(item.id) for item in db.admin.list_inventory()]
    result = reclaim.apply_plan(plan_vacuum(reclaim))
    assert (result.outcome, result.warnings, db.admin.measure_sizes().free) == ("applied", (), 0)
    assert db.admin.measure_sizes().db + db.admin.measure_sizes().wal < size / 2
    assert (
        result.bytes.returned_to_disk
        == size - db.admin.measure_sizes().db - db.admin.measure_sizes().wal
        > size / 4
    )
    assert (result.bytes.free_in_file, result.bytes.needed_now) == (0, 0)
    assert [db.get_messages(item.id) for item in db.admin.list_inventory()] == rows
    assert db.search("deploy").hits == before != []


@pytest.mark.requirement("maintenance:reclaim")
def test_vacuum_plan_estimates_and_warns(reclaim: SpaceReclaimer, db: SessionDB):
    plan = reclaim.make_plan()
    assert plan.warnings == (NO_UNDO_WARNING,)
    sizes = db.admin.measure_sizes()
    assert plan.bytes.returned_to_disk == sizes.free + sizes.index_dead > 0
    assert plan.bytes.free_in_file == 0
    assert plan.bytes.needed_now > 0
    assert [item.id for item in plan.items] == ["index"]


@pytest.mark.requirement("maintenance:reclaim")
@pytest.mark.parametrize("db", [22, 30], ids=str, indirect=True)
def test_holder_blocks_rewrite_not_merge(reclaim: SpaceReclaimer, db: SessionDB):
    with open_elsewhere(db.path) as pid:
        plan = reclaim.make_plan()
        assert plan.bytes.returned_to_disk == 0
        assert plan.bytes.free_in_file == db.admin.measure_sizes().index_dead > 0
        assert f"pid {pid}" in plan.warnings[1]
        size = db.path.stat().st_size
        result = reclaim.apply_plan(str(plan.plan))
        assert (result.outcome, result.bytes.returned_to_disk) == ("applied", 0)
        assert result.bytes.free_in_file > 0
        assert f"pid {pid}" in result.warnings[0]
        assert "stop that" in result.warnings[0]
        assert db.path.stat().st_size >= size
    assert not db.admin.optimize_step()


@pytest.mark.parametrize("db", [22, 30], ids=str, indirect=True)
def test_gateway_blocks_rewrite(reclaim: SpaceReclaimer, db: SessionDB):
    with live_gateway(SimpleNamespace(folder=db.path.parent)):
        result = reclaim.apply_plan(plan_vacuum(reclaim))
    assert (result.bytes.returned_to_disk, "a gateway" in result.warnings[0]) == (0, True)


def test_index_merge_runs_to_end(
    reclaim: SpaceReclaimer, db: SessionDB, monkeypatch: pytest.MonkeyPatch
):
    more = iter([True, True, False])
    monkeypatch.setattr(db.admin, "optimize_step", lambda: next(more))
    handle = plan_vacuum(reclaim)
    assert reclaim.apply_plan(handle, for_s=0).outcome == "partial"
    assert reclaim.apply_plan(handle).outcome == "applied"
    assert list(more) == []


@pytest.mark.requirement("maintenance:reclaim")
@pytest.mark.parametrize("error", [StorageFull, Denied])
def test_full_disk_is_reported(
    reclaim: SpaceReclaimer, db: SessionDB, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
):
    def full(**_: object) -> None:
        raise error("a vacuum needs room")

    monkeypatch.setattr(db.admin, "vacuum", full)
    result = reclaim.apply_plan(plan_vacuum(reclaim))
    assert (result.outcome, result.warnings) == ("applied", ("a vacuum needs room",))


@pytest.mark.requirement("maintenance:reclaim")
def test_stopped_vacuum_resumes(reclaim: SpaceReclaimer, db: SessionDB):
    handle = plan_vacuum(reclaim)
    reports: list[int] = []
    part = reclaim.apply_plan(
        handle, progress=lambda done: reports.append(done.remaining), stop=lambda: bool(reports)
    )
    assert (part.outcome, part.remaining, reports) == ("partial", 1, [1])
    assert db.admin.measure_sizes().free > 0
    assert reclaim.apply_plan(handle).outcome == "applied"
    assert db.admin.measure_sizes().free == 0


def test_finished_vacuum_plan_returns_result(reclaim: SpaceReclaimer, ledger: Ledger):
    handle = plan_vacuum(reclaim)
    result = reclaim.apply_plan(handle)
    assert reclaim.apply_plan(handle) == result
    assert len(ledger.list_audit_entries().items) == 1


def test_vacuum_has_no_batch_but_audit_entry(reclaim: SpaceReclaimer, ledger: Ledger):
    handle = plan_vacuum(reclaim)
    result = reclaim.apply_plan(handle)
    assert ledger.list_batches().items == []
    (line,) = ledger.list_audit_entries().items
    assert (line.what, line.plan, line.client) == ("prune index", handle, "test")
    returned = result.bytes.returned_to_disk
    assert line.counts == {"free_in_file": 0, "returned_to_disk": returned}


def test_second_vacuum_plans_nothing(reclaim: SpaceReclaimer):
    reclaim.apply_plan(plan_vacuum(reclaim))
    plan = reclaim.make_plan()
    assert (plan.outcome, plan.plan, plan.bytes.returned_to_disk) == ("nothing", None, 0)
    assert "not worth it" in plan.warnings[0]


def test_missing_file_needs_no_vacuum(tmp_path: Path):
    path = tmp_path / "none" / "state.db"
    with SessionDB(path) as db, Ledger(StateFolder(path)) as ledger:
        assert create_reclaim(db, ledger).make_plan().outcome == "nothing"
