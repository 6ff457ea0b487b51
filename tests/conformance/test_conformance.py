"""The official suite of both revisions: on the real server, and with what it wants to find there.

`scenarios.txt` lists what runs and how many checks pass, so that nothing vanishes silently. On the
real server only those scenarios say something that are about what every server has.
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
    # No stream is resumed here: who has lost one asks again.
    ("everything", "2025-11-25"): {"server-sse-priming-event", "server-sse-retry-field"},
    # The suite changes these lists by tools of its own, which the real server has not.
    ("real", "2026-07-28"): {
        "sep-2575-server-sends-prompts-list-changed-on-subscription",
        "sep-2575-server-sends-tools-list-changed-on-subscription",
    },
}
"""What the suite recommends and does not find, and why not."""


def list_required_scenarios(server: str, revision: str) -> dict[str, int]:
    """Return the scenarios that have to pass, with the number of their checks."""
    lines = (line.split() for line in LISTED.read_text(encoding="utf-8").splitlines())
    return {name: int(checks) for of, at, name, checks in lines if (of, at) == (server, revision)}


@pytest.fixture(params=REVISIONS)
def revision(request) -> str:
    """A revision of the protocol."""
    return request.param


@pytest.fixture(params=["real", "everything"])
def server(request) -> str:
    """The server of the command line, or that one with what the suite wants to find."""
    return request.param


@pytest.fixture(scope="session")
def runs(suite: Suite, tmp_path_factory) -> Run:
    """Run a revision on a server, once for all tests, whatever their order."""

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
def ran(runs: Run, server: str, revision: str) -> dict[str, Scenario]:
    """What came of each scenario of a revision on a server."""
    return runs(server, revision)


@pytest.fixture
def found(ran: dict[str, Scenario], server: str, revision: str) -> dict[str, Scenario]:
    """What came of those that have to pass."""
    return {name: ran[name] for name in ran if name in list_required_scenarios(server, revision)}


@pytest.mark.requirement("server:conformance")
def test_required_scenarios_pass_every_check(found, server, revision, capsys):
    passed = {name: scenario.passed for name, scenario in found.items()}
    with capsys.disabled():
        said = f"{len(passed)} scenarios, {sum(passed.values())} checks"
        print(f"\n{revision} on the {server} server: {said} passed")
        print(", ".join(f"{name} {checks}" for name, checks in passed.items()))
    assert {name: scenario.failed for name, scenario in found.items() if scenario.failed} == {}
    assert passed == list_required_scenarios(server, revision)


@pytest.mark.requirement("server:conformance")
def test_recommendations_are_known(found, server, revision):
    warned = {check for scenario in found.values() for check in scenario.warned}
    assert warned == WARNINGS.get((server, revision), set())


@pytest.mark.requirement("server:conformance")
@pytest.mark.parametrize("server", ["everything"], indirect=True)
def test_only_listed_scenarios_run(ran, server, revision):
    assert ran.keys() - list_required_scenarios(server, revision).keys() == set()


@pytest.mark.requirement("server:conformance")
@pytest.mark.parametrize("server", ["everything"], indirect=True)
def test_required_scenarios_are_listed(suite, server, revision):
    assert suite.required(revision) - list_required_scenarios(server, revision).keys() == set()
