"""The index is merged in steps, and the file written anew only where nobody else has it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from session_core import Denied, SessionDB, StorageFull
from session_core.errors import InvalidInput
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.maintenance.planner import Planner
from session_core.maintenance.vacuum import NO_UNDO_WARNING, SpaceReclaimer
from tests.homes import fill_database, make_hermes_database, make_own_database
from tests.maintenance.changing import live_gateway

HOLD = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM sessions');"
HOLD += "print('open', flush=True); sys.stdin.read()"


@pytest.fixture(params=["own", 22, 30], ids=str)
def db(home_path: Path, request: pytest.FixtureRequest) -> Iterator[SessionDB]:
    """A home most of which was deleted."""
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
    return reclaim_of(db, ledger)


def reclaim_of(db: SessionDB, ledger: Ledger) -> SpaceReclaimer:
    planner = Planner(db, ledger, None, clock=time.time)
    return SpaceReclaimer(db, ledger, client="test", scene=planner.take_snapshot)


@contextmanager
def held(path: Path) -> Iterator[int]:
    """Let another process have the file open."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        yield holder.pid
        holder.communicate(b"")


def planned(reclaim: SpaceReclaimer) -> str:
    handle = reclaim.make_plan().plan
    assert handle is not None
    return handle


@pytest.mark.requirement("maintenance:reclaim")
def test_room_is_won_and_what_is_found_stays_the_same(reclaim: SpaceReclaimer, db: SessionDB):
    before = db.search("deploy").hits
    size = db.measure_sizes().db + db.measure_sizes().wal
    rows = [db.get_messages(each.id) for each in db.list_inventory()]
    done = reclaim.apply_plan(planned(reclaim))
    assert (done.outcome, done.warnings, db.measure_sizes().free) == ("applied", (), 0)
    assert db.measure_sizes().db + db.measure_sizes().wal < size / 2
    assert (
        done.bytes.returned_to_disk
        == size - db.measure_sizes().db - db.measure_sizes().wal
        > size / 4
    )
    assert (done.bytes.free_in_file, done.bytes.needed_now) == (0, 0)
    assert [db.get_messages(each.id) for each in db.list_inventory()] == rows
    assert db.search("deploy").hits == before != []


@pytest.mark.requirement("maintenance:reclaim")
def test_a_plan_says_what_is_won_and_that_it_has_no_undo(reclaim: SpaceReclaimer, db: SessionDB):
    plan = reclaim.make_plan()
    assert plan.warnings == (NO_UNDO_WARNING,)
    sizes = db.measure_sizes()
    assert plan.bytes.returned_to_disk == sizes.free + sizes.index_dead > 0
    assert plan.bytes.free_in_file == 0
    assert plan.bytes.needed_now > 0
    assert [each.id for each in plan.items] == ["index"]


@pytest.mark.requirement("maintenance:reclaim")
@pytest.mark.parametrize("db", [22, 30], ids=str, indirect=True)
def test_beside_another_holder_the_index_is_merged_and_who_to_stop_is_said(
    reclaim: SpaceReclaimer, db: SessionDB
):
    with held(db.path) as pid:
        plan = reclaim.make_plan()
        assert plan.bytes.returned_to_disk == 0
        assert plan.bytes.free_in_file == db.measure_sizes().index_dead > 0
        assert f"pid {pid}" in plan.warnings[1]
        size = db.path.stat().st_size
        done = reclaim.apply_plan(str(plan.plan))
        assert (done.outcome, done.bytes.returned_to_disk) == ("applied", 0)
        assert done.bytes.free_in_file > 0
        assert f"pid {pid}" in done.warnings[0]
        assert "stop that" in done.warnings[0]
        assert db.path.stat().st_size >= size
    assert not db.optimize_step()


@pytest.mark.parametrize("db", [22, 30], ids=str, indirect=True)
def test_beside_a_live_gateway_the_file_stays(reclaim: SpaceReclaimer, db: SessionDB):
    with live_gateway(SimpleNamespace(folder=db.path.parent)):
        done = reclaim.apply_plan(planned(reclaim))
    assert (done.bytes.returned_to_disk, "a gateway" in done.warnings[0]) == (0, True)


def test_the_index_is_merged_until_there_is_no_more_to_do(
    reclaim: SpaceReclaimer, db: SessionDB, monkeypatch: pytest.MonkeyPatch
):
    more = iter([True, True, False])
    monkeypatch.setattr(db, "optimize_step", lambda: next(more))
    handle = planned(reclaim)
    assert reclaim.apply_plan(handle, for_s=0).outcome == "partial"
    assert reclaim.apply_plan(handle).outcome == "applied"
    assert list(more) == []


@pytest.mark.requirement("maintenance:reclaim")
@pytest.mark.parametrize("error", [StorageFull, Denied])
def test_without_room_on_the_disk_that_is_said(
    reclaim: SpaceReclaimer, db: SessionDB, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
):
    def full(**_: object) -> None:
        raise error("a vacuum needs room")

    monkeypatch.setattr(db, "vacuum", full)
    done = reclaim.apply_plan(planned(reclaim))
    assert (done.outcome, done.warnings) == ("applied", ("a vacuum needs room",))


@pytest.mark.requirement("maintenance:reclaim")
def test_a_run_that_is_stopped_is_gone_on_with(reclaim: SpaceReclaimer, db: SessionDB):
    handle = planned(reclaim)
    told: list[int] = []
    half = reclaim.apply_plan(
        handle, progress=lambda done: told.append(done.remaining), stop=lambda: bool(told)
    )
    assert (half.outcome, half.remaining, told) == ("partial", 1, [1])
    assert db.measure_sizes().free > 0
    assert reclaim.apply_plan(handle).outcome == "applied"
    assert db.measure_sizes().free == 0


def test_a_finished_plan_answers_what_it_came_to(reclaim: SpaceReclaimer, ledger: Ledger):
    handle = planned(reclaim)
    done = reclaim.apply_plan(handle)
    assert reclaim.apply_plan(handle) == done
    assert len(ledger.list_audit_entries().items) == 1


def test_there_is_nothing_to_undo_and_a_line_in_the_log(reclaim: SpaceReclaimer, ledger: Ledger):
    handle = planned(reclaim)
    done = reclaim.apply_plan(handle)
    assert ledger.list_batches().items == []
    (line,) = ledger.list_audit_entries().items
    assert (line.what, line.plan, line.client) == ("prune index", handle, "test")
    returned = done.bytes.returned_to_disk
    assert line.counts == {"free_in_file": 0, "returned_to_disk": returned}


def test_second_prune_index_has_nothing_to_do(reclaim: SpaceReclaimer):
    reclaim.apply_plan(planned(reclaim))
    plan = reclaim.make_plan()
    assert (plan.outcome, plan.plan, plan.bytes.returned_to_disk) == ("nothing", None, 0)
    assert "not worth it" in plan.warnings[0]


def test_a_plan_of_another_kind_is_not_applied(reclaim: SpaceReclaimer, ledger: Ledger):
    with pytest.raises(InvalidInput, match="prune trash"):
        reclaim.apply_plan(ledger.add_plan("prune trash", [], {}).handle)


def test_where_there_is_no_file_there_is_nothing_to_win(tmp_path: Path):
    path = tmp_path / "none" / "state.db"
    with SessionDB(path) as db, Ledger(StateFolder(path)) as ledger:
        assert reclaim_of(db, ledger).make_plan().outcome == "nothing"
