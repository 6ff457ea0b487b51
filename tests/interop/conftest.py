"""Environments and homes of several versions of the real hermes-agent, made once for a run.

The environments are in `.peers/` of the repository and are kept between runs; MCP_SESSIONS_PEERS
may name another folder. Python 3.11, 3.12 or 3.13 is required: without one these tests fail, they
are never skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from session_core.state.sqlite.session_db import SessionDB
from tests.collection import list_items_in
from tests.interop import hermes
from tests.peers import HERMES_SCHEMAS, peer_python
from tests.thorough import is_in_share

HERE = Path(__file__).parent

pytest.register_assert_rewrite("tests.interop.twins")


LIBRARY_TESTS = (
    "test_cjk_home",
    "test_hermes_compaction_feed",
    "test_hermes_live",
    "test_hermes_maintenance_live",
    "test_hermes_schemas",
    "test_hermes_search",
    "test_hermes_writes",
)
"""Both sides write the same file or search the same index, with one SQLite library each."""

BUNDLED_PARTS = 10
"""With the bundled library one of so many of the other tests runs, since they compare rows."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of this folder as interop tests, with a long timeout."""
    for item in list_items_in(items, HERE):
        item.add_marker(pytest.mark.interop)
        item.add_marker(pytest.mark.timeout(600, func_only=True))
    if config.getoption("--sqlite") == "bundled":
        left_out = [item for item in items if not _runs_with_bundled(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _runs_with_bundled(item: pytest.Item) -> bool:
    is_here = HERE in item.path.parents
    return not is_here or item.path.stem in LIBRARY_TESTS or is_in_share(item.nodeid, BUNDLED_PARTS)


@pytest.fixture(scope="session", autouse=True)
def peers() -> None:
    """The environments, made before any test hides the user's folder with pip's configuration."""
    for version in HERMES_SCHEMAS:
        peer_python(f"h{version}")


@pytest.fixture(params=HERMES_SCHEMAS)
def version(request: pytest.FixtureRequest) -> str:
    """One version of hermes-agent."""
    return str(request.param)


@pytest.fixture(scope="session")
def built(peers: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The home of a version. Tests never open it, but copy it."""
    homes: dict[str, Path] = {}

    def get(version: str) -> Path:
        if version not in homes:
            homes[version] = hermes.build(version, tmp_path_factory.mktemp("built") / version)
        return homes[version]

    return get


@pytest.fixture
def home(version: str, built: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of the home of this version."""
    return hermes.copy(built(version), tmp_path / "copy")


@pytest.fixture
def theirs(version: str, home: Path) -> Iterator[hermes.Hermes]:
    """The real Hermes on that copy, running."""
    with hermes.Hermes(version, home) as running:
        yield running


@pytest.fixture
def ours(home: Path, theirs: hermes.Hermes) -> Iterator[SessionDB]:
    """Our database on the same copy."""
    with SessionDB(home / "state.db") as db:
        yield db
