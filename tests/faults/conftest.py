"""What several fault tests have: labs and a folder for a sweep, and one that others may enter."""

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
    """A folder that everybody may pass through; those of pytest are its user's alone."""
    path = Path(tempfile.mkdtemp(prefix="faults_"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
