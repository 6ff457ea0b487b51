"""A fault at every write of every mutation: the state before or the one after, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from session_core.errors import StorageError
from session_core.state.protocol import StateDatabase
from session_core.state.sqlite.session_db import SessionDB
from tests.faults import state, template
from tests.faults.mutations import DATABASE_MUTATIONS, READING_METHODS
from tests.faults.points import FAULTS, KILL, Injection
from tests.faults.sweep import FaultSweep
from tests.public_names import list_public_names

pytestmark = pytest.mark.faults


@pytest.fixture
def sweep(lab_pool):
    return FaultSweep(lab_pool)


@pytest.fixture
def bundled_sweep(bundled_lab_pool):
    return FaultSweep(bundled_lab_pool)


@pytest.mark.requirement("faults:sweep")
@pytest.mark.parametrize("name", DATABASE_MUTATIONS)
def test_fault_keeps_mutation_atomic(sweep, folder, name):
    outcomes = sweep.run(DATABASE_MUTATIONS[name], folder)
    assert [problem for outcome in outcomes for problem in outcome.problems] == []
    assert [outcome.fault for outcome in outcomes if outcome.points] == list(FAULTS)


@pytest.mark.skipif(find_spec("pysqlite3") is None, reason="it has no wheel here")
@pytest.mark.parametrize(
    "name",
    [
        "append_message",
        "append_message, together",
        "append_message, first of a home",
        # The other library has written the search index of this home.
        "rewind_to_message, hermes",
        "archive_and_compact, hermes",
        "delete_session, hermes",
        # This one makes no copy in memory, but in a file.
        "admin.vacuum",
        "admin.vacuum, hermes",
    ],
)
def test_bundled_sqlite_fault_keeps_mutation_atomic(bundled_sweep, folder, name):
    outcomes = bundled_sweep.run(DATABASE_MUTATIONS[name], folder)
    assert [problem for outcome in outcomes for problem in outcome.problems] == []


@pytest.mark.parametrize("name", DATABASE_MUTATIONS)
def test_mutation_fault_homes_are_small(tmp_path, name):
    template.build_home(tmp_path / "home", DATABASE_MUTATIONS[name].kind)
    template.prepare_home(tmp_path / "home", DATABASE_MUTATIONS[name])
    assert state.count_rows(tmp_path / "home") <= 40


@pytest.mark.parametrize("engine", [StateDatabase, SessionDB])
def test_every_mutating_method_is_covered(engine):
    public = list_public_names(engine)
    swept = {mutation.method for mutation in DATABASE_MUTATIONS.values()}
    assert public - READING_METHODS - swept == set()


def test_covered_methods_exist():
    swept = {mutation.method for mutation in DATABASE_MUTATIONS.values()}
    # `path` is an attribute of each object of SQLite, so the class does not have it.
    known = list_public_names(SessionDB) | list_public_names(StateDatabase)
    assert swept | READING_METHODS <= known
    assert swept & READING_METHODS == set()


def test_next_writer_rolls_back_interrupted_change(lab_pool, tmp_path):
    home = tmp_path / "home"
    template.build_home(home, "journal")
    with lab_pool.borrow_lab() as lab:
        mutation = DATABASE_MUTATIONS["append_message, journal"]
        kill = (Injection("unlink", 1, lasts=False, error=KILL),)
        assert lab.run_mutation(mutation, home, inject=kill, log=tmp_path / "log").is_killed
    with (
        SessionDB(home / "state.db", read_only=True) as db,
        pytest.raises(StorageError, match="unfinished change"),
    ):
        db.get_messages("chat")
    with SessionDB(home / "state.db") as db:
        db.set_meta("key", "value")
        assert len(db.get_messages("chat")) == 5


def test_unknown_mutation_is_refused():
    result = subprocess.run(
        [sys.executable, "-m", "tests.faults", "nonsense"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert "no mutation is named 'nonsense'; name a mutation" in result.stderr
