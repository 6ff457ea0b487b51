"""Fixtures for tests of the lifecycle: databases, caches, hooks and runtimes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core import AgentCache, Hooks, SessionDB
from tests.homes import make_own_database
from tests.lifecycle.agents import Agent, Factory, Monotonic
from tests.lifecycle.runtimes import IDLE, World


@pytest.fixture
def db(home_path: Path) -> Iterator[SessionDB]:
    """The database under test, with a session `s1` of one message."""
    make_own_database(home_path / "state.db")
    db = SessionDB(home_path / "state.db")
    db.append_message("s1", "user", "hello", create={"source": "telegram"})
    yield db
    db.close()


@pytest.fixture
def other(db: SessionDB, home_path: Path) -> Iterator[SessionDB]:
    """The same database, opened as by another process."""
    other = SessionDB(home_path / "state.db")
    yield other
    other.close()


@pytest.fixture
def cache(db: SessionDB) -> AgentCache[Agent]:
    """A cache for the database with session `s1`."""
    return AgentCache(db)


@pytest.fixture
def factory() -> Factory:
    return Factory()


@pytest.fixture
def monotonic() -> Monotonic:
    """The clock of a watcher and a cache."""
    return Monotonic()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that calls can wait for. It is set when the test ends."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def told() -> list[tuple[str, BaseException | None]]:
    """The reported faults."""
    return []


@pytest.fixture
def hooks(told: list[tuple[str, BaseException | None]]) -> Hooks:
    return Hooks(group=None, report=lambda what, error: told.append((what, error)))


@pytest.fixture
def world(home_path: Path) -> Iterator[World]:
    """A runtime whose sessions never expire."""
    world = World(home_path)
    yield world
    world.close()


@pytest.fixture
def expiring(home_path: Path) -> Iterator[World]:
    """A runtime whose sessions expire after an hour."""
    world = World(home_path, config=IDLE)
    yield world
    world.close()
