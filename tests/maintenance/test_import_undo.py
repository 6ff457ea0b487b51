"""An import is a batch: listed, resumed after a kill, and undone by a plan."""

from __future__ import annotations

import json
import signal
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from session_core import Maintenance, SessionDB
from session_core.errors import Conflict
from session_core.ledger.execute import MARK_PREFIX as DONE
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from session_core.maintenance import ApplyResult, PlanPreview, RestoreResult
from session_core.maintenance.transfer.import_writer import MARK_PREFIX
from session_core.state import batch_size
from tests.cli.fork_server import ForkServer
from tests.homes import connect, make_hermes_database
from tests.maintenance.import_lines import make_line, make_long_line, write_lines
from tests.maintenance.transfer_homes import rows
from tests.thorough import mark_thorough


@pytest.fixture(params=["own", 22, mark_thorough(30)], ids=str)
def home(home_path: Path, request: pytest.FixtureRequest) -> Path:
    """A home with one session."""
    home_path.mkdir(exist_ok=True)
    path = home_path / "state.db"
    if request.param != "own":
        make_hermes_database(path, request.param)
    with SessionDB(path) as db:
        db.append_message("mine", "user", "kept", create={"source": "cli"})
        db.end_session("mine", "done")
    return path


@contextmanager
def open_maintenance(path: Path, **more: Any) -> Iterator[tuple[SessionDB, Maintenance]]:
    with (
        SessionDB(path) as db,
        Ledger(StateFolder(path)) as ledger,
        Maintenance(db, ledger, **more) as maintenance,
    ):
        yield db, maintenance


def undo_import(maintenance: Maintenance, batch: str) -> ApplyResult:
    """Undo an import by its plan."""
    return maintenance.apply(plan_undo(maintenance, batch).plan)


def plan_undo(maintenance: Maintenance, batch: str | None) -> PlanPreview:
    """Return the plan of the undo of an import."""
    result = maintenance.restore(batch)
    assert result.plan is not None
    assert (result.outcome, result.restored) == (result.plan.outcome, 0)
    return result.plan


def read_meta_keys(path: Path) -> list[str]:
    with connect(path, "ro") as connection:
        found = connection.execute("SELECT key FROM state_meta").fetchall()
    return [key for (key,) in found if key.startswith((DONE, MARK_PREFIX))]


def test_import_is_listed_as_single_batch(home: Path, file: Path):
    write_lines(file, make_line("a", 2), make_line("b", parent_session_id="a"), make_line("c"))
    with open_maintenance(home) as (_, maintenance):
        result = maintenance.import_sessions(file)
        (batch,) = maintenance.batches().items
        assert (batch.id, batch.what, batch.count) == (result.batch, "import", 3)
        assert maintenance.log().items[0].counts["batch"] == batch.id
        assert maintenance.import_sessions(file).batch is None
        assert len(maintenance.batches().items) == 1
    assert read_meta_keys(home) == []


def test_long_session_counts_once(home: Path, file: Path, monkeypatch: pytest.MonkeyPatch):
    with open_maintenance(home) as (_, maintenance):
        monkeypatch.setattr(batch_size, "_INITIAL_BYTES", 64_000)
        result = maintenance.import_sessions(make_long_line(file))
        assert len(maintenance._ledger.list_steps(str(result.batch))) > 3
        assert maintenance.batches().items[0].count == 1
        assert undo_import(maintenance, str(result.batch)).removed == 1


@pytest.mark.requirement("maintenance:import-undo")
def test_undo_restores_previous_home(home: Path, file: Path):
    before = rows(home)
    write_lines(
        file,
        *(
            make_line("a", 2, title="Trip"),
            make_line("b", parent_session_id="c", end_reason="compression"),
        ),
        *(make_line("c", parent_session_id="b"), make_line("d", archived=1)),
    )
    with open_maintenance(home) as (db, maintenance):
        result = maintenance.import_sessions(file)
        assert result.batch is not None
        preview = maintenance.preview_restore(result.batch)
        assert preview.plan is not None
        assert {item.id for item in preview.items} <= set("abcd")
        assert preview.count == len(preview.items)
        assert db.message_count("a") == 2
        removed = undo_import(maintenance, result.batch)
        assert (removed.outcome, removed.skipped) == ("applied", ())
        assert rows(home) == before
        with pytest.raises(Conflict, match="undone already"):
            maintenance.restore(result.batch)
        assert [batch.what for batch in maintenance.batches(undone=False).items] == [
            "undo an import"
        ]


@pytest.mark.requirement("maintenance:import-undo")
def test_restored_undo_brings_sessions_back(home: Path, file: Path):
    write_lines(file, make_line("a", 2, title="Trip"), make_line("b", 3, parent_session_id="a"))
    with open_maintenance(home) as (_, maintenance):
        result = maintenance.import_sessions(file)
        after = rows(home)
        removed = undo_import(maintenance, str(result.batch))
        restored = maintenance.restore(str(removed.batch))
        assert isinstance(restored, RestoreResult)
        assert restored.unfit == ()
        assert rows(home) == after


@pytest.mark.requirement("maintenance:import-undo")
def test_session_used_since_stays(home: Path, file: Path):
    used = ("said", "titled", "archived", "continued")
    write_lines(
        file, *(make_line(name, ended_at=2.0, end_reason="done") for name in (*used, "left"))
    )
    with open_maintenance(home) as (db, maintenance):
        result = maintenance.import_sessions(file)
        db.append_message("said", "user", "and then")
        db.set_session_title("titled", "A trip")
        maintenance.edit("archived", archived=True)
        db.create_session("next", "cli", parent_session_id="continued")
        with connect(home) as connection:
            connection.execute(
                "UPDATE sessions SET end_reason = 'compression' WHERE id = 'continued'"
            )
            connection.execute("UPDATE sessions SET started_at = 3.0 WHERE id = 'next'")
        plan = plan_undo(maintenance, str(result.batch))
        assert [item.id for item in plan.items] == ["left"]
        assert plan.protected == {"used since": 4}
        assert all(name in plan.warnings[0] for name in used)
        assert undo_import(maintenance, str(result.batch)).removed == 1
        assert {item.id for item in db.admin.list_inventory()} == {"mine", "next", *used}
        second = plan_undo(maintenance, str(result.batch))
        assert (second.outcome, second.plan) == ("nothing", None)


def test_stopped_undo_resumes(home: Path, file: Path):
    before = rows(home)
    write_several_sessions(file)
    with open_maintenance(home) as (_, maintenance):
        batch = str(maintenance.import_sessions(file).batch)
        plan = plan_undo(maintenance, batch)
        part = maintenance.apply(str(plan.plan), 0)
        assert part.outcome == "partial"
        assert plan_undo(maintenance, batch) == plan
        while maintenance.apply(str(plan.plan)).outcome == "partial":
            pass
        assert rows(home) == before
        with pytest.raises(Conflict, match="undone already"):
            maintenance.restore(batch)


def test_session_used_after_plan_stays(home: Path, file: Path):
    write_lines(file, make_line("a"), make_line("b"))
    with open_maintenance(home) as (db, maintenance):
        plan = plan_undo(maintenance, str(maintenance.import_sessions(file).batch))
        db.append_message("a", "user", "and then")
        result = maintenance.apply(str(plan.plan))
        assert isinstance(result, ApplyResult)
        assert [item.id for item in result.skipped] == ["a"]
        assert {item.id for item in db.admin.list_inventory()} == {"mine", "a"}
        assert len(maintenance.batches(undone=False).items) == 2


def test_pruned_import_counts_as_undone(home: Path, file: Path):
    with open_maintenance(home) as (db, maintenance):
        result = maintenance.import_sessions(write_lines(file, make_line("a")))
        db.delete_sessions(["a"])
        nothing = maintenance.preview_restore(str(result.batch)).plan
        assert nothing is not None
        assert nothing.outcome == "nothing"
        with pytest.raises(Conflict, match="undone already"):
            maintenance.restore(str(result.batch))
        assert maintenance.import_sessions(file).sessions == 1


def test_stopped_import_resumes_in_same_batch(
    home: Path, file: Path, monkeypatch: pytest.MonkeyPatch
):
    reports: list[tuple[int, int]] = []
    write_lines(file, make_line("a"), make_line("b"), make_line("c"))
    with open_maintenance(home) as (db, maintenance):
        monkeypatch.setattr(batch_size, "_INITIAL_BYTES", 1)  # a step for each session
        part = maintenance.import_sessions(
            file, progress=lambda *done: reports.append(done), stop=lambda: len(reports) == 2
        )
        rest = maintenance.import_sessions(file)
        assert (part.outcome, rest.outcome, part.batch) == ("partial", "applied", rest.batch)
        assert maintenance.batches().items[0].count == 3
        assert undo_import(maintenance, str(rest.batch)).removed == 3
        assert [item.id for item in db.admin.list_inventory()] == ["mine"]


def test_undone_partial_import_cannot_resume(
    home: Path, file: Path, monkeypatch: pytest.MonkeyPatch
):
    reports: list[tuple[int, int]] = []
    write_lines(file, make_line("a"), make_line("b"), make_line("c"))
    with open_maintenance(home) as (db, maintenance), open_maintenance(home) as (_, other):

        def take_back(*done: int) -> None:
            reports.append((done[0], done[1]))
            if len(reports) == 1:
                (batch,) = other.batches().items
                undo_import(other, batch.id)

        monkeypatch.setattr(batch_size, "_INITIAL_BYTES", 1)  # a step for each session
        with pytest.raises(Conflict):
            maintenance.import_sessions(file, progress=take_back)
        assert [item.id for item in db.admin.list_inventory()] == ["mine"]
        assert maintenance.import_sessions(file).sessions == 3


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from session_core import Ledger, Maintenance, SessionDB, StateFolder
    from session_core.state import batch_size

    path, file, point = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    db = SessionDB(path)
    maintenance = Maintenance(db, Ledger(StateFolder(path)))
    batch_size._INITIAL_BYTES = 20_000
    put, calls = db.rows.put_images, iter(range(1_000))

    def putting(images, **more):
        if next(calls) == point:
            os.kill(os.getpid(), signal.SIGKILL)
        return put(images, **more)

    db.rows.put_images = putting
    maintenance.import_sessions(file)
"""


def run_killed_import(forks: ForkServer, home: Path, file: Path, point: int) -> None:
    """Import in a process that is killed in the transaction of this number."""
    result = forks.run_script(textwrap.dedent(KILLED), home, file, point)
    assert result.code == -signal.SIGKILL, result.err


def write_several_sessions(file: Path) -> Path:
    """Write two short sessions around one that takes several transactions.

    The ids of the messages are taken, so that each first transaction is tried twice.
    """
    middle = json.loads(make_long_line(file, 60).read_text())
    return write_lines(file, make_line("a"), middle, make_line("z", parent_session_id="long"))


@pytest.mark.requirement("maintenance:import-undo")
@pytest.mark.parametrize("point", [2, 4, 7])
@pytest.mark.parametrize("how", ["resumed", "undone"])
def test_killed_import_is_resumed_or_undone(
    forks: ForkServer, home: Path, file: Path, point: int, how: str
):
    before = rows(home)
    run_killed_import(forks, home, write_several_sessions(file), point)
    with open_maintenance(home) as (db, maintenance):
        (batch,) = maintenance.batches().items
        if how == "resumed":
            result = maintenance.import_sessions(file)
            assert (result.batch, result.outcome) == (batch.id, "applied")
            assert db.message_count("long") == 60
            assert maintenance.batches().items[0].count == 3
        assert undo_import(maintenance, batch.id).skipped == ()
        assert rows(home) == before
    # The mark that forbids the killed step stays for a day: its process may only be suspended.
    assert [key for key in read_meta_keys(home) if not key.startswith(DONE)] == []


def test_import_undo_works_after_trash_emptied(home: Path, file: Path):
    with open_maintenance(home) as (_, maintenance):
        result = maintenance.import_sessions(write_lines(file, make_line("a")))
        maintenance._ledger.empty_trash(0.0)
        assert undo_import(maintenance, str(result.batch)).removed == 1
