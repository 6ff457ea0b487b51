"""What tests of the session store have: a clock, a database, stores on it, and chats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB, SessionStore
from session_core.routing import sql_backend
from tests.homes import make_hermes_database, make_own_database
from tests.routing.chats import Clock

Make = Callable[..., SessionStore]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(home_path: Path) -> Path:
    """The folder of the session store."""
    return home_path / "sessions"


@pytest.fixture
def db(home_path: Path) -> Iterator[SessionDB]:
    """A state database of our own, made before any file that would look like a Hermes home."""
    make_own_database(home_path / "state.db")
    with SessionDB(home_path / "state.db") as db:
        yield db


@pytest.fixture
def hermes(home_path: Path) -> Iterator[SessionDB]:
    """The state database of a Hermes home."""
    make_hermes_database(home_path / "state.db")
    with SessionDB(home_path / "state.db") as db:
        yield db


@pytest.fixture
def older(home_path: Path) -> Iterator[SessionDB]:
    """The state database of a Hermes home that has no table of routes."""
    make_hermes_database(home_path / "state.db", 16)
    with SessionDB(home_path / "state.db") as db:
        yield db


@pytest.fixture
def make(folder: Path, clock: Clock) -> Iterator[Make]:
    """Makes stores of this home, each as a process of its own would have one."""
    made: list[SessionStore] = []

    def make(db: SessionDB | None = None, **options: Any) -> SessionStore:
        made.append(SessionStore(folder, db=db, now=clock, **options))
        return made[-1]

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(make: Make, db: SessionDB) -> SessionStore:
    """A store on a home of our own."""
    return make(db)


@pytest.fixture(params=["table", "file", "hermes", "older"])
def any_store(request: pytest.FixtureRequest, make: Make) -> SessionStore:
    """A store with its routes in a table, in a file alone, and the same of Hermes homes."""
    names = {"table": "db", "hermes": "hermes", "older": "older"}
    name = names.get(request.param)
    return make(request.getfixturevalue(name) if name else None)


@pytest.fixture
def hold_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror follows ordinary changes late, so that a test sees what is written at once."""
    monkeypatch.setattr(sql_backend, "MIRROR_DELAY_S", 3600.0)
