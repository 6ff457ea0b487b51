"""Fixtures of several fault tests: labs, a folder for a sweep, and a folder for other users."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.faults.labs import LabPool
from tests.faults.template import find_memory_folder


@pytest.fixture(scope="session")
def lab_pool():
    """Labs with the SQLite of Python."""
    with LabPool() as labs:
        yield labs


@pytest.fixture(scope="session")
def bundled_lab_pool():
    """Labs with the bundled SQLite."""
    with LabPool("bundled") as labs:
        yield labs


@pytest.fixture
def folder():
    """A folder of its own, in memory where there is any."""
    with tempfile.TemporaryDirectory(prefix="faults_", dir=find_memory_folder()) as made:
        yield Path(made)


@pytest.fixture
def shared():
    """Yield a folder that other users may enter. The folders of pytest belong to one user."""
    path = Path(tempfile.mkdtemp(prefix="faults_"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
