"""The fixtures of the contract suite: an engine, its database, and more instances of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from session_core import StateDatabase
from tests import postgres_bare, postgres_server
from tests.collection import list_items_in
from tests.contract.engines import (
    ENGINES,
    FEATURES,
    MAIN_ENGINES,
    SHARED_ENGINES,
    Engine,
    ForeignWriter,
)
from tests.thorough import is_in_share, mark_thorough, share_kinds

Open = Callable[[], StateDatabase]

LONG_TABLE = 100
"""The cases of a long table, on all engines."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on the main engines with the features that it needs, and on its schemas."""
    if "engine" not in metafunc.fixturenames:
        return
    marks = list(metafunc.definition.iter_markers("schemas"))
    extra = {f"sqlite-hermes-{schema}" for mark in marks for schema in mark.args}
    names = [name for name in ENGINES if name in MAIN_ENGINES or name in extra]
    if any(mark.kwargs.get("only") for mark in marks):
        names = [name for name in ENGINES if name in extra]
    needs = {need for mark in metafunc.definition.iter_markers("needs") for need in mark.args}
    assert needs <= FEATURES.keys(), f"unknown features: {needs - FEATURES.keys()}"
    names = [name for name in names if needs <= ENGINES[name].features]
    # These tests take many statements, each of which PostgreSQL gets as a message.
    is_costly = any(metafunc.definition.iter_markers("costly"))
    left_out = {
        name
        for name, parts in SHARED_ENGINES.items()
        if not is_in_share((metafunc.function.__name__, name), parts)
    }
    if is_costly:
        left_out |= set(names) - {"sqlite", "sqlite-hermes"}
    engines = [mark_thorough(name) if name in left_out else name for name in names]
    metafunc.parametrize("engine", engines, indirect=True, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tables in full on our own engine, and a fourth of their cases on Hermes."""
    here = list_items_in(items, Path(__file__).parent)
    cases = Counter((item.path, getattr(item, "originalname", "")) for item in here)
    tables = {test for test, number in cases.items() if number >= LONG_TABLE}
    long = [item for item in here if (item.path, getattr(item, "originalname", "")) in tables]
    share_kinds(long, ["engine"], {"sqlite-hermes": 4})


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Return the engine of the run."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "postgres":
            postgres_server.get_address()  # processes of a test use the server of this one
            if postgres_bare.VARIABLE in os.environ:
                patch.setenv(postgres_server.ADDRESS_VARIABLE, postgres_bare.make_schema(patch))
                postgres_server.get_address.cache_clear()
                postgres_bare.patch_statements(patch)
        yield ENGINES[request.param]


@pytest.fixture
def open_again(engine: Engine, home_path: Path) -> Iterator[Open]:
    """Return a function that opens an instance on the test's home. All are closed at its end."""
    opened: list[StateDatabase] = []

    def open_one() -> StateDatabase:
        opened.append(engine(home_path))
        return opened[-1]

    yield open_one
    for instance in reversed(opened):
        instance.close()


@pytest.fixture
def db(open_again: Open) -> StateDatabase:
    """Return an empty database."""
    return open_again()


@pytest.fixture
def other(db: StateDatabase, open_again: Open) -> StateDatabase:
    """Return a second instance on the same database."""
    return open_again()


@pytest.fixture
def reopen(db: StateDatabase, open_again: Open) -> Open:
    """Return a function that closes `db` and opens the database again."""

    def close_and_open() -> StateDatabase:
        db.close()
        return open_again()

    return close_and_open


@pytest.fixture
def foreign(engine: Engine, home_path: Path) -> ForeignWriter:
    """Return a careless foreign process that changes rows of the test's home."""
    return engine.make_foreign_writer(home_path)


@pytest.fixture
def session(db: StateDatabase) -> str:
    """Return the id of an empty session."""
    return db.create_session("s", "cli")
