"""What several fault tests have: labs in which strace runs, and a folder that others may enter."""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.faults.strace import Lab


@pytest.fixture(scope="module")
def labs():
    """Two labs, and the threads that take turns with them."""
    free = SimpleQueue()
    with Lab() as first, Lab() as second, ThreadPoolExecutor(2) as pool:
        free.put(first)
        free.put(second)
        yield free, pool


@pytest.fixture
def shared():
    """A folder that everybody may pass through; those of pytest are its user's alone."""
    path = Path(tempfile.mkdtemp(prefix="faults_"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
