"""Fixtures that run verbs on a home, in a terminal or with pipes."""

from __future__ import annotations

import json
import os

import pytest

from tests.cli.command_user import PseudoTerminal
from tests.cli.fork_server import ForkServer, build_environment
from tests.cli.homes import build_home


@pytest.fixture(name="forks", scope="session")
def _forks():
    with ForkServer() as forks:
        yield forks


@pytest.fixture(name="script")
def _script(forks):
    """Run a verb with pipes, without a terminal to ask at."""

    def script(*arguments, given=""):
        user = os.environ["HOME"]
        return forks.run(arguments, build_environment(user), user, given)

    return script


@pytest.fixture(name="home")
def _home(tmp_path):
    return build_home(tmp_path / "home")


@pytest.fixture(name="person")
def _person(forks, home):
    """Run a verb on the home in a terminal."""

    def person(*arguments, columns=80):
        user = os.environ["HOME"]
        given = {"env": build_environment(user), "folder": user, "columns": columns}
        return PseudoTerminal(forks, "--home", str(home), *arguments, **given)

    return person


@pytest.fixture(name="run")
def _run(script, home):
    """Run a verb on the home with pipes."""
    return lambda *arguments, given="": script("--home", str(home), *arguments, given=given)


@pytest.fixture(name="answer")
def _answer(run):
    """Return the JSON document that a verb prints."""

    def answer(*arguments, code=0, given=""):
        done = run(*arguments, "--json", given=given)
        assert done.code == code, done.err
        return json.loads(done.out)

    return answer


@pytest.fixture(name="plan_of")
def _plan_of(answer):
    return lambda *arguments: answer(*arguments, "--plan-only")["plan"]
