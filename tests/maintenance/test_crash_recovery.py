"""The next change removes marks that a killed process has left in a Hermes home."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from session_core import Compressor, Ledger, Maintenance, SessionDB
from session_core.maintenance import PlanRequest
from tests.cli.fork_server import get_fork_server
from tests.homes import connect, make_hermes_database
from tests.ledger.worker import SCRIPT


@pytest.fixture
def path(home_path: Path) -> Path:
    """A Hermes home with old sessions, an empty one, and a long one."""
    path = home_path / "state.db"
    make_hermes_database(path)
    with SessionDB(path) as db:
        for name in ("a", "b"):
            db.append_message(name, "user", f"said in {name}", create={"source": "cli"})
            db.end_session(name, "cli_close")
        db.create_session("ghost", "tui", started_at=1.6e9)
        for number in range(40):
            text = f"ticket ABC-{number}: we decided to use port {8000 + number}. " + "well, " * 200
            db.append_message("long", "user", text, create={"source": "cli"})
    return path


def kill_step(path: Path, stage: str) -> None:
    """Run a step in another process, and kill it at a stage."""
    with SessionDB(path) as db, Ledger.open(db) as ledger:
        batch = ledger.add_batch("prune sessions").id
    with get_fork_server().start_script(SCRIPT, path, batch, stage) as process:
        assert process.stdout.readline() == "there\n"
        process.kill()


def list_marks(path: Path) -> list[str]:
    with connect(path) as connection:
        sql = "SELECT key FROM state_meta WHERE key LIKE 'mcp_sessions%'"
        return [key for (key,) in connection.execute(sql)]


def run_edit(maintenance: Maintenance, _: Path) -> None:
    maintenance.edit("b", title="B")


def run_prune(maintenance: Maintenance, _: Path) -> None:
    plan = maintenance.plan(PlanRequest("ghosts", older_than_days=0)).plan
    assert plan is not None
    maintenance.apply(plan)


def run_vacuum(maintenance: Maintenance, _: Path) -> None:
    plan = maintenance.plan(PlanRequest("index")).plan
    assert plan is not None
    maintenance.apply(plan)


def run_import(maintenance: Maintenance, folder: Path) -> None:
    message = {"role": "user", "content": "x", "timestamp": 1.7e9}
    line = {"id": "new", "source": "cli", "started_at": 1.7e9, "messages": [message]}
    (folder / "new.jsonl").write_text(json.dumps(line) + "\n")
    maintenance.import_sessions(folder / "new.jsonl")


def run_settle(maintenance: Maintenance, _: Path) -> None:
    maintenance.settle()


@pytest.mark.parametrize("stage", ["committed", "done"])
@pytest.mark.parametrize("change", [run_edit, run_prune, run_vacuum, run_import, run_settle])
def test_next_change_clears_marks_of_killed_process(
    path: Path, tmp_path: Path, change: Callable[[Maintenance, Path], None], stage: str
) -> None:
    kill_step(path, stage)
    assert len(list_marks(path)) == 1
    with SessionDB(path) as db, Ledger.open(db) as ledger, Maintenance(db, ledger) as maintenance:
        change(maintenance, tmp_path)
    assert list_marks(path) == []


def test_compressor_clears_marks_of_done_steps(path: Path) -> None:
    kill_step(path, "done")
    with SessionDB(path) as db, Ledger.open(db) as ledger, Compressor(db, ledger) as compressor:
        compressor.compress("long", keep_last=5)
    assert list_marks(path) == []
