"""Fixtures that run verbs on a home, in a terminal or with pipes."""

from __future__ import annotations

import json
import os

import pytest

from mcp_serve.cli import sample_home
from session_core import SessionDB, SessionSource, SessionStore
from tests.cli.command_user import CommandUser, PseudoTerminal
from tests.cli.fork_server import build_environment
from tests.cli.homes import build_home


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
        result = run(*arguments, "--json", given=given)
        assert result.code == code, result.err
        return json.loads(result.out)

    return answer


@pytest.fixture(name="plan_of")
def _plan_of(answer):
    return lambda *arguments: answer(*arguments, "--plan-only")["plan"]


@pytest.fixture(name="sample_home", scope="session")
def _sample_home(tmp_path_factory):
    """A home with made-up conversations, two routes and a store."""
    home = tmp_path_factory.mktemp("home")
    (home / "profiles" / "work").mkdir(parents=True)
    clock = sample_home.SampleClock()
    with SessionDB(home / "state.db", clock=clock) as db:
        sample_home.build_home(db, clock)
        with SessionStore(home / "sessions", db=db) as store:
            for chat in ("1", "2"):
                store.get_or_create_session(SessionSource(platform="telegram", chat_id=chat))
    with SessionDB(home / "profiles" / "work" / "state.db") as db:
        db.append_message("w1", "user", "at work \x1b]0;x\x07", create={"source": "cli"})
    return home


@pytest.fixture(name="reader")
def _reader(forks, tmp_path, sample_home):
    """A user of the home with made-up conversations, which tests only read."""
    return CommandUser(forks, tmp_path, sample_home)


@pytest.fixture(name="screen")
def _screen(reader):
    """Run a verb in a pseudo-terminal, and return its styled output."""

    def screen(columns, *arguments):
        code, seen = reader.sees(columns, *arguments)
        assert code == 0, seen
        return seen

    return screen
