"""The official suite in both revisions: on the real server, and with its fixtures added.

`scenarios.txt` lists the scenarios and the number of passing checks, so that none vanishes
silently. On the real server only the scenarios that concern every server have a meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.conformance.proxy import add_header_proxy
from tests.conformance.suite import Scenario, Suite
from tests.homes import fill_database, make_hermes_database
from tests.peers import ROOT
from tests.wire.conftest import TOKEN, make_environment, serve_command, start_listening

Run = Callable[[str, str], dict[str, Scenario]]

REVISIONS = ("2025-11-25", "2026-07-28")
LISTED = Path(__file__).parent / "scenarios.txt"

WARNINGS = {
    # Streams are not resumed: a client that lost one sends the request again.
    ("everything", "2025-11-25"): {"server-sse-priming-event", "server-sse-retry-field"},
    # The suite changes these lists by tools of its own, which the real server has not.
    ("real", "2026-07-28"): {
        "sep-2575-server-sends-prompts-list-changed-on-subscription",
        "sep-2575-server-sends-tools-list-changed-on-subscription",
    },
}
"""Recommended features that the suite does not find, with the reason."""


def list_required_scenarios(server: str, revision: str) -> dict[str, int]:
    """Return the required scenarios with the number of their checks."""
    lines = (line.split() for line in LISTED.read_text(encoding="utf-8").splitlines())
    return {name: int(checks) for of, at, name, checks in lines if (of, at) == (server, revision)}


@pytest.fixture(params=REVISIONS)
def revision(request) -> str:
    """A revision of the protocol."""
    return request.param


@pytest.fixture(params=["real", "everything"])
def server(request) -> str:
    """The server of the command line, or the same with fixtures of the suite."""
    return request.param


@pytest.fixture(scope="session")
def run_suite(suite: Suite, tmp_path_factory) -> Run:
    """Run a revision on a server, once for all tests in any order."""

    @cache
    def run(server: str, revision: str) -> dict[str, Scenario]:
        folder = tmp_path_factory.mktemp(server)
        make_hermes_database(folder / "home" / "state.db")
        fill_database(folder / "home" / "state.db", 6, 12)
        line = [*serve_command(folder / "home"), "--http", "--port", "0"]
        if server == "everything":
            line[2] = "tests.conformance.everything"
        env = make_environment(folder / "home") | {
            "MCP_SESSIONS_TOKEN": TOKEN,
            "PYTHONPATH": str(ROOT),
        }
        header = f"Authorization: Bearer {TOKEN}"
        with start_listening(line, env) as (_, port), add_header_proxy(header, port) as door:
            return suite.run(door, revision, folder / "results")

    return run


@pytest.fixture
def scenario_results(run_suite: Run, server: str, revision: str) -> dict[str, Scenario]:
    """The results of each scenario of a revision on a server."""
    return run_suite(server, revision)


@pytest.fixture
def required_results(
    scenario_results: dict[str, Scenario], server: str, revision: str
) -> dict[str, Scenario]:
    """The results of the required scenarios."""
    return {
        name: scenario_results[name]
        for name in scenario_results
        if name in list_required_scenarios(server, revision)
    }


@pytest.mark.requirement("server:conformance")
def test_required_scenarios_pass_every_check(required_results, server, revision, capsys):
    passed = {name: scenario.passed for name, scenario in required_results.items()}
    with capsys.disabled():
        text = f"{len(passed)} scenarios, {sum(passed.values())} checks"
        print(f"\n{revision} on the {server} server: {text} passed")
        print(", ".join(f"{name} {checks}" for name, checks in passed.items()))
    assert {
        name: scenario.failed for name, scenario in required_results.items() if scenario.failed
    } == {}
    assert passed == list_required_scenarios(server, revision)


@pytest.mark.requirement("server:conformance")
def test_recommendations_are_known(required_results, server, revision):
    warned = {check for scenario in required_results.values() for check in scenario.warned}
    assert warned == WARNINGS.get((server, revision), set())


@pytest.mark.requirement("server:conformance")
@pytest.mark.parametrize("server", ["everything"], indirect=True)
def test_only_listed_scenarios_run(scenario_results, server, revision):
    assert scenario_results.keys() - list_required_scenarios(server, revision).keys() == set()


@pytest.mark.requirement("server:conformance")
@pytest.mark.parametrize("server", ["everything"], indirect=True)
def test_required_scenarios_are_listed(suite, server, revision):
    assert suite.required(revision) - list_required_scenarios(server, revision).keys() == set()
