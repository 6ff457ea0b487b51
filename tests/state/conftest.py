"""Fixtures of the tests of the state on SQLite: a home of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core import SessionDB
from tests.collection import list_items_in
from tests.homes import make_hermes_database, make_own_database
from tests.thorough import share_kinds, take_main_kinds


@pytest.fixture(params=take_main_kinds(["own", 16, 22, 30]))
def path(request: pytest.FixtureRequest, home_path: Path) -> Path:
    """A home of our own, or a Hermes home of each schema."""
    path = home_path / "state.db"
    if request.param == "own":
        make_own_database(path)
    else:
        make_hermes_database(path, request.param)
    return path


@pytest.fixture
def db(path: Path) -> Iterator[SessionDB]:
    with SessionDB(path) as db:
        yield db


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run about a third of the tests on the newest schema of Hermes."""
    here = list_items_in(items, Path(__file__).parent)
    share_kinds(here, ("path", "schema", "shared"), {30: 3})


def append_words(db: SessionDB, session_id: str = "s", messages: int = 20) -> None:
    rows = [{"role": "user", "content": f"words of {session_id} {n}"} for n in range(messages)]
    db.append_messages(session_id, rows, create={"source": "cli"})
