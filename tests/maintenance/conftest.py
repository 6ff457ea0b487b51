"""Fixtures of the maintenance tests: homes with known content, and maintained homes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collection import list_items_in
from tests.maintenance.changed_homes import Changing, changing
from tests.maintenance.homes import KINDS, Home, fill, opened
from tests.maintenance.transfer_homes import Place, place
from tests.postgres_home import can_run, share_postgres
from tests.thorough import share_kinds, take_main_kinds

CHANGED_KINDS = ("own", 16, 22, 26, 30, "postgres")
"""What is changed and restored also is a home whose routes are in the file alone."""


KIND_FIXTURES = ("db", "desk", "empty", "fresh", "full", "home", "others", "pruned", "restored")
"""The parameters that are a home of our own or of Hermes."""


@pytest.fixture(params=KINDS, ids=str)
def empty(home_path: Path, request: pytest.FixtureRequest) -> Iterator[Home]:
    """An empty home of each kind."""
    with opened(home_path, request.param) as home:
        yield home


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a home of our own on PostgreSQL too."""
    if "home_kind" not in metafunc.fixturenames:
        return
    metafunc.parametrize("home_kind", ["own", share_postgres(metafunc.function.__name__)])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the tests that need files on homes without them. Share those of Hermes homes."""
    items[:] = [item for item in items if can_run(item)]
    here = list_items_in(items, Path(__file__).parent)
    share_kinds(here, KIND_FIXTURES, {22: 3, 30: 3})
    share_kinds(here, ["usual"], {30: 3})  # kinds of Hermes homes alone


@pytest.fixture
def home(home_path: Path, home_kind: str) -> Iterator[Home]:
    """An empty home of our own."""
    with opened(home_path, home_kind) as made:
        yield made


@pytest.fixture
def changed(home: Home, tmp_path: Path) -> Iterator[Changing]:
    """An empty home of our own with its maintenance."""
    with changing(home, tmp_path / "kept") as made:
        yield made


@pytest.fixture
def hermes(home_path: Path, tmp_path: Path) -> Iterator[Changing]:
    """An empty Hermes home with its maintenance."""
    with opened(home_path, 22) as home, changing(home, tmp_path / "kept") as made:
        yield made


@pytest.fixture(params=KINDS, ids=str, scope="session")
def full(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Home]:
    """A filled home of each kind, which tests only read."""
    folder = tmp_path_factory.mktemp("full") / "home"
    with opened(folder, request.param) as home:
        fill(home)
        home.store.close()  # the mirror is written and up to date
        yield home


@pytest.fixture(params=take_main_kinds(CHANGED_KINDS), ids=str, scope="module")
def restored(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Changing]:
    """A filled home of each kind, which each test leaves unchanged."""
    folder = tmp_path_factory.mktemp("changed")
    with opened(folder / "home", request.param) as home:
        fill(home)
        home.store.close()
        with changing(home, folder / "kept") as made:
            yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The path of a file to import."""
    return tmp_path / "sessions.jsonl"


@pytest.fixture(params=["own", 22], ids=str)
def fresh(home_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty home for an import."""
    with place(home_path, request.param) as home:
        yield home
