"""Fixtures for the ledger: a home of each kind, a clock and a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from tests.homes import make_hermes_database, make_own_database
from tests.postgres_home import can_run, make_postgres, share_postgres

START = 1_800_000_000.0


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["own", "hermes"])
def kind(request: pytest.FixtureRequest) -> str:
    """Both kinds of homes. A test of the ledger alone takes one."""
    return str(request.param)


@pytest.fixture
def db(home_path: Path, kind: str) -> Iterator[SessionDB]:
    """The database of a home with three sessions."""
    path = home_path / "state.db"
    make_own_database(path) if kind == "own" else make_hermes_database(path)
    with SessionDB(path) as db:
        for session in ("a", "b", "c"):
            db.append_message(session, "user", f"said in {session}", create={"source": "cli"})
        yield db


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a ledger in PostgreSQL too."""
    if "ledger_kind" in metafunc.fixturenames:
        kinds = ["file"]
        if "db" not in metafunc.fixturenames:  # a file of its own
            kinds.append(share_postgres(metafunc.function.__name__))
        metafunc.parametrize("ledger_kind", kinds)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the tests that need files on homes without them."""
    items[:] = [item for item in items if can_run(item)]


@pytest.fixture
def folder(home_path: Path) -> StateFolder:
    if not (home_path / "state.db").exists():
        make_own_database(home_path / "state.db")
    return StateFolder(home_path / "state.db")


@pytest.fixture
def open_ledger(
    request: pytest.FixtureRequest, home_path: Path, clock: Clock, ledger_kind: str
) -> Iterator[Callable[..., Ledger]]:
    """Open ledgers of the home, and close all of them at the end."""
    with ExitStack() as stack:

        def open_one(**more: Any) -> Ledger:
            if ledger_kind == "postgres":
                db = stack.enter_context(make_postgres(home_path))
                return stack.enter_context(Ledger.open(db, clock=clock, **more))
            folder = StateFolder(request.getfixturevalue("folder").db_path)
            return stack.enter_context(Ledger(folder, clock=clock, **more))

        yield open_one


@pytest.fixture
def ledger(open_ledger: Callable[..., Ledger]) -> Ledger:
    return open_ledger()
