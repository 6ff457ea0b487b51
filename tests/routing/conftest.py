"""Fixtures of the session store: a clock, databases and stores."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB, SessionStore
from session_core.routing import sql_backend
from tests.homes import make_hermes_database, make_own_database
from tests.routing.chats import IDLE, Clock, begin_session

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
    """A state database of our own, created before any file of a Hermes home."""
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
    """The state database of an older Hermes home without a table of routes."""
    make_hermes_database(home_path / "state.db", 16)
    with SessionDB(home_path / "state.db") as db:
        yield db


@pytest.fixture
def make(folder: Path, clock: Clock) -> Iterator[Make]:
    """Makes stores of this home, each as in a process of its own."""
    stores: list[SessionStore] = []

    def make(db: SessionDB | None = None, **options: Any) -> SessionStore:
        stores.append(SessionStore(folder, db=db, now=clock, **options))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def store(make: Make, db: SessionDB) -> SessionStore:
    """A store on a home of our own."""
    return make(db)


@pytest.fixture
def expired(make: Any, db: SessionDB, clock: Clock) -> SessionStore:
    """A store with a session that has expired."""
    store: SessionStore = make(db, config=IDLE)
    begin_session(store, db)
    clock.advance(minutes=61)
    return store


@pytest.fixture
def dead() -> str:
    """The token of a process that has ended."""
    code = "from session_core.routing import leases; print(leases.create_token())"
    answer = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    return answer.stdout.strip()


@pytest.fixture(params=["table", "file", "hermes", "older"])
def any_store(request: pytest.FixtureRequest, make: Make) -> SessionStore:
    """A store with its routes in a table or in a file, of our own or of a Hermes home."""
    names = {"table": "db", "hermes": "hermes", "older": "older"}
    name = names.get(request.param)
    return make(request.getfixturevalue(name) if name else None)


@pytest.fixture
def hold_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays the mirror after ordinary changes, so that a test sees urgent writes alone."""
    monkeypatch.setattr(sql_backend, "MIRROR_DELAY_S", 3600.0)
