"""Disk figures compared with the files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core.ledger.execute import prepare_step
from session_core.maintenance.types import HealthFinding, HealthReport
from session_core.state.sqlite.database_file import get_sidecar_path
from tests.homes import connect
from tests.maintenance.changed_homes import Changing, changing
from tests.maintenance.homes import opened

HOLD = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM sessions');"
HOLD += "print('open', flush=True); sys.stdin.read()"
WORDS = ("schema", "deploy", "invoice", "backup", "window", "garden", "bridge", "signal")


@pytest.fixture(params=["own", 22, 30], ids=str)
def pruned(request: pytest.FixtureRequest, home_path: Path, tmp_path: Path) -> Iterator[Changing]:
    """A home with old conversations of long messages and new ones of short messages."""
    with opened(home_path, request.param) as home, changing(home, tmp_path / "kept") as changed:
        for number in range(60):
            is_old = number < 40
            home.session(f"s{number}", 140 if is_old else 3, messages=0)
            length, at = (80, 140) if is_old else (20, 3)
            messages = [
                {
                    "role": "user",
                    "content": f"{number}.{turn} {repeat_words(number + turn, length)}",
                    "timestamp": home.clock.now - at * 86_400,
                }
                for turn in range(30)
            ]
            home.db.append_messages(f"s{number}", messages)
            home.db.end_session(f"s{number}", "idle")
        yield changed


def repeat_words(first: int, length: int) -> str:
    return " ".join(WORDS[(first + at) % 8] for at in range(length))


def measure_freed(report: HealthReport) -> HealthFinding | None:
    return next((finding for finding in report.findings if finding.code == "free_pages"), None)


def read_free_bytes(path: Path) -> int:
    with connect(path, "ro") as connection:
        return int(connection.execute("PRAGMA freelist_count").fetchone()[0]) * 4096


def list_files(path: Path) -> int:
    return sum(item.stat().st_size for item in path.parent.glob(f"{path.name}*")
               if not item.name.endswith("-shm"))  # fmt: skip


@pytest.mark.requirement("maintenance:disk")
def test_second_search_index_is_no_finding(pruned: Changing) -> None:
    report = pruned.maintenance.health()
    assert report.sizes is not None
    assert measure_freed(report) is None
    assert {finding.plan for finding in report.findings} <= {"sessions", None}


@pytest.mark.requirement("maintenance:disk")
def test_finding_is_gone_after_its_plan(pruned: Changing) -> None:
    pruned.plan_and_apply()
    finding = measure_freed(pruned.maintenance.health())
    assert finding is not None
    assert (finding.tool, finding.plan, finding.bytes > 0) == ("prune", "index", True)
    pruned.plan_and_apply("index")
    assert measure_freed(pruned.maintenance.health()) is None
    assert pruned.plan("index").outcome == "nothing"


@pytest.mark.requirement("maintenance:disk")
def test_prune_figures_are_measured(pruned: Changing) -> None:
    path = pruned.home.db.path
    before = read_free_bytes(path)
    planned = pruned.plan()
    assert (planned.bytes.returned_to_disk, planned.bytes.trash > 0) == (0, True)
    result = pruned.apply(planned)
    assert result.bytes.free_in_file == max(read_free_bytes(path) - before, 0)
    assert result.bytes.returned_to_disk == 0
    assert result.bytes.trash == pruned.ledger.get_batch(str(result.batch)).bytes > 0
    assert result.shrinks


@pytest.mark.requirement("maintenance:disk")
def test_index_figures_are_measured(pruned: Changing) -> None:
    pruned.plan_and_apply()
    path = pruned.home.db.path
    before = list_files(path)
    result = pruned.plan_and_apply("index")
    assert result.bytes.returned_to_disk == before - list_files(path) > 0
    assert (result.bytes.free_in_file, result.shrinks) == (0, False)


def test_figures_survive_partial_run(pruned: Changing) -> None:
    path = pruned.home.db.path
    before = read_free_bytes(path)
    planned = pruned.plan()
    assert pruned.apply(planned, 0.0).outcome == "partial"
    result = pruned.apply(planned)
    assert result.bytes.free_in_file == max(read_free_bytes(path) - before, 0)


@pytest.mark.requirement("maintenance:disk")
def test_growth_is_unchanged_by_pruning(pruned: Changing) -> None:
    growth = pruned.maintenance.health().growth_per_week
    assert growth > 0
    result = pruned.plan_and_apply()
    assert pruned.maintenance.health().growth_per_week == growth
    pruned.plan_and_apply("index")
    assert pruned.maintenance.health().growth_per_week == growth
    pruned.restore(result)
    assert pruned.maintenance.health().growth_per_week == growth


def test_growth_is_remeasured_after_weeks(pruned: Changing) -> None:
    pruned.plan_and_apply()
    pruned.home.clock.now += 29 * 86_400
    report = pruned.maintenance.health()
    assert report.growth_per_week >= 0
    assert report.sizes is not None
    pruned.home.clock.now -= 2 * 86_400
    assert pruned.maintenance.health().weeks[0].messages == 0


@pytest.mark.requirement("maintenance:disk")
def test_finding_names_no_tool_while_held(pruned: Changing) -> None:
    pruned.plan_and_apply()
    while pruned.home.db.admin.optimize_step():
        pass
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(pruned.home.db.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        finding = measure_freed(pruned.maintenance.health())
        planned = pruned.plan("index")
        holder.communicate(b"")
    assert finding is not None
    assert (finding.tool, f"pid {holder.pid}" in finding.what) == (None, True)
    assert (planned.outcome, f"pid {holder.pid}" in planned.warnings[0]) == ("nothing", True)


def test_growth_of_files_is_measured(pruned: Changing) -> None:
    path = pruned.home.db.path
    result = pruned.plan_and_apply()
    pruned.plan_and_apply("index")
    before = list_files(path)
    restored = pruned.restore(result)
    grown, log = list_files(path) - before, get_sidecar_path(path).stat().st_size
    # A page that is only in the log so far counts for the file too.
    assert 0 < grown - 200_000 < restored.bytes.needed_now <= grown + log


@pytest.mark.requirement("maintenance:restored-trash")
def test_restore_deletes_its_trash(pruned: Changing) -> None:
    other = pruned.plan_and_apply(ids=("s59",))
    result = pruned.plan_and_apply()
    before = pruned.ledger.count_disk_bytes()
    restored = pruned.restore(result)
    returned = before - pruned.ledger.count_disk_bytes()
    assert restored.bytes.returned_to_disk == pytest.approx(returned, abs=100_000)
    assert (restored.bytes.trash, returned > 0) == (0, True)
    listed = {batch.id: batch for batch in pruned.maintenance.batches().items}
    assert listed[str(result.batch)].undone_at is not None
    assert pruned.maintenance.log().items[0].what == f"restore {result.batch}"
    assert pruned.restore(other).restored == 1


@pytest.mark.requirement("maintenance:restored-trash")
def test_interrupted_deletion_is_finished_later(pruned: Changing) -> None:
    result = pruned.plan_and_apply()
    batch = str(result.batch)
    for step in pruned.ledger.list_steps(batch):
        undoing = pruned.ledger.add_batch("restore").id
        restored = prepare_step(pruned.ledger, undoing, [], undoes=step.id)
        pruned.ledger.finish_step(restored.id, {"rows": 0, "unfit": [], "left": None})
    assert pruned.ledger.get_batch(batch).bytes > 0
    pruned.maintenance.edit("s59", title="Another change")
    assert pruned.ledger.get_batch(batch).bytes == 0
