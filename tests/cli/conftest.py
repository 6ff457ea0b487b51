"""Verbs on a home of their own, run by a person or by a script."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.cli.forks import Forks
from tests.cli.homes import build
from tests.cli.people import Person


@pytest.fixture(name="forks", scope="module")
def _forks():
    with Forks() as forks:
        yield forks


@pytest.fixture(name="home")
def _home(tmp_path):
    return build(tmp_path / "home")


@pytest.fixture(name="person")
def _person(forks, home):
    return partial(Person, forks, home)


@pytest.fixture(name="run")
def _run(forks, home):
    """Run a verb as a script does, which nobody can answer."""

    def run(*arguments, given=""):
        forks.start(["--home", str(home), *arguments], given)
        return forks.ended()

    return run


@pytest.fixture(name="answer")
def _answer(run):
    """Return the JSON of a verb, which is all of its standard output."""

    def answer(*arguments, code=0, given=""):
        done = run(*arguments, "--json", given=given)
        assert done.code == code, done.err
        return json.loads(done.out)

    return answer


@pytest.fixture(name="plan_of")
def _plan_of(answer):
    return lambda *arguments: answer(*arguments, "--plan-only")["plan"]
