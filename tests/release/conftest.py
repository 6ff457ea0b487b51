"""The released files, built once, and the programs that install them.

These programs come from the package index into `.peers/`, like other peers. If that fails, these
tests fail; they are never skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.collection import list_items_in
from tests.homes import fill_database, make_hermes_database
from tests.peers import find_uv_cache, peer_python
from tests.release.connected import list_session_ids

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class Released(NamedTuple):
    """Release artifacts."""

    wheel: Path
    sdist: Path
    bundle: Path
    entry: Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that build and install as slow."""
    for item in list_items_in(items, HERE):
        item.add_marker(pytest.mark.release)
        item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session", name="released")
def _released(tmp_path_factory) -> Released:
    """Build the artifacts with `python -m release`."""
    folder: Path = tmp_path_factory.mktemp("dist")
    result = subprocess.run(
        [sys.executable, "-m", "release", "--to", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr + result.stdout
    files = (sorted(folder.glob(f"*{end}")) for end in (".whl", ".tar.gz", ".mcpb", ".json"))
    (wheel,), (sdist,), (bundle,), (entry,) = files
    return Released(wheel, sdist, bundle, entry)


@pytest.fixture(scope="session", name="uv")
def _uv() -> Path:
    return peer_python("uv").parent / "uv"


@pytest.fixture(scope="session", name="pipx")
def _pipx() -> list[str]:
    return [str(peer_python("pipx")), "-m", "pipx"]


@pytest.fixture(name="person")
def _person(tmp_path) -> dict[str, str]:
    """An environment with an empty home directory and no active virtual environment."""
    home = tmp_path / "somebody"
    home.mkdir()
    # How an index is reached is the machine's business: certificates, proxies, its configuration.
    gone = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
    kept = {name: value for name, value in os.environ.items() if name not in gone}
    uv = {"UV_SYSTEM_CERTS": "1", "UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(find_uv_cache())}
    return kept | {"HOME": str(home), **uv}


@pytest.fixture(name="shell")
def _shell(person, tmp_path):
    """Run a command with this environment in an empty folder."""
    folder = tmp_path / "here"
    folder.mkdir()

    def shell(*command: object) -> str:
        result = subprocess.run(
            list(map(str, command)),
            cwd=folder,
            env=person,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return shell


@pytest.fixture(name="lists_all")
def _lists_all(person):
    """Return True if a client of a command lists the conversations of the Hermes home."""
    path = Path(person["HOME"], ".hermes", "state.db")
    make_hermes_database(path)
    there = fill_database(path, 3, 4)

    def lists_all(*command: object, **env: str) -> bool:
        return list_session_ids(command, person | env) == there

    return lists_all
