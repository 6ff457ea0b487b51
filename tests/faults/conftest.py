"""What several fault tests have: a folder that others may enter."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def shared():
    """A folder that everybody may pass through; those of pytest are its user's alone."""
    path = Path(tempfile.mkdtemp(prefix="faults_"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
