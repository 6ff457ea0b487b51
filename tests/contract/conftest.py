"""What a test of the contract has: an engine, its database, a second instance, a way to reopen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import StateDatabase
from tests.contract.engines import ENGINES, Engine

Open = Callable[[], StateDatabase]


@pytest.fixture(params=ENGINES, scope="session")
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    return ENGINES[request.param]


@pytest.fixture
def open_again(engine: Engine, home_path: Path) -> Iterator[Open]:
    """Opens an instance on the home of this test; all are closed at its end."""
    opened: list[StateDatabase] = []

    def open_one() -> StateDatabase:
        opened.append(engine(home_path))
        return opened[-1]

    yield open_one
    for instance in reversed(opened):
        instance.close()


@pytest.fixture
def db(open_again: Open) -> StateDatabase:
    """The database, empty."""
    return open_again()


@pytest.fixture
def other(db: StateDatabase, open_again: Open) -> StateDatabase:
    """A second instance on the same database."""
    return open_again()


@pytest.fixture
def reopen(db: StateDatabase, open_again: Open) -> Open:
    """Closes `db` and opens the database again."""

    def close_and_open() -> StateDatabase:
        db.close()
        return open_again()

    return close_and_open


@pytest.fixture
def strange(engine: Engine, home_path: Path) -> Callable[..., int]:
    """Runs one SQL statement as a careless process beside us would."""

    def run(sql: str, *values: Any) -> int:
        return engine.run_foreign_sql(home_path, sql, *values)

    return run
