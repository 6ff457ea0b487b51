"""Fixtures for the ledger: a home of each kind, a clock and a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from session_core import SessionDB
from session_core.ledger.ledger import Ledger
from session_core.ledger.state_folder import StateFolder
from tests.homes import make_hermes_database, make_own_database

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
    """Both kinds of homes; a test of the ledger alone takes one."""
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


@pytest.fixture
def folder(home_path: Path) -> StateFolder:
    if not (home_path / "state.db").exists():
        make_own_database(home_path / "state.db")
    return StateFolder(home_path / "state.db")


@pytest.fixture
def open_ledger(folder: StateFolder, clock: Clock) -> Iterator[Callable[..., Ledger]]:
    """Open ledgers of the home, and close all of them at the end."""
    opened: list[Ledger] = []

    def open_one(**more: object) -> Ledger:
        opened.append(Ledger(StateFolder(folder.db_path), clock=clock, **more))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(open_ledger: Callable[..., Ledger]) -> Ledger:
    return open_ledger()
