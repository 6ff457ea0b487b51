"""A fault at every write of every change of the routes: before or after, and no chat is lost."""

from __future__ import annotations

import pytest

from session_core.routing.session_store import SessionStore
from tests.faults import routes, state
from tests.faults.hook_mutations import HOOK_MUTATIONS
from tests.faults.hook_sweep import HookSweep
from tests.faults.points import FAULTS
from tests.faults.route_sweep import RouteSweep
from tests.faults.routes import READING_NAMES, ROUTE_MUTATIONS

pytestmark = pytest.mark.faults


@pytest.fixture
def sweep(lab_pool):
    return RouteSweep(lab_pool)


@pytest.fixture
def told_sweep(lab_pool):
    return HookSweep(lab_pool)


@pytest.mark.requirement("routes:faults")
@pytest.mark.parametrize("name", ROUTE_MUTATIONS)
def test_fault_keeps_route_change_atomic(sweep, folder, name):
    outcomes = sweep.run(ROUTE_MUTATIONS[name], folder)
    assert [problem for outcome in outcomes for problem in outcome.problems] == []
    assert [outcome.fault for outcome in outcomes if outcome.points] == list(FAULTS)


@pytest.mark.requirement("routes:told")
@pytest.mark.parametrize("name", HOOK_MUTATIONS)
def test_end_hook_is_called_once_after_fault(told_sweep, folder, name):
    outcomes = told_sweep.run(HOOK_MUTATIONS[name], folder)
    assert [problem for outcome in outcomes for problem in outcome.problems] == []
    assert [outcome.fault for outcome in outcomes if outcome.points] == list(FAULTS)


@pytest.mark.parametrize("kind", ["own", "hermes", "older", "file"])
def test_route_fault_homes_are_small(tmp_path, kind):
    routes.build_home(tmp_path / "home", kind)
    assert state.count_rows(tmp_path / "home") <= 40
    assert len(routes.read_state(tmp_path / "home").file) == 4


@pytest.mark.requirement("routes:faults")
def test_every_route_change_is_covered():
    public = {name for name in dir(SessionStore) if not name.startswith("_")}
    swept = {mutation.method for mutation in ROUTE_MUTATIONS.values()}
    assert public - READING_NAMES - swept == set()
    assert [name for name in swept if not hasattr(SessionStore, name)] == []
