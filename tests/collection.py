"""Items of the tests by folder, for conftest files that mark their own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest


def list_items_in(items: Iterable[pytest.Item], folder: Path) -> list[pytest.Item]:
    """Return the items of a folder and of those below it."""
    # As text, since each conftest looks at the thousands of items of all folders.
    beginning = f"{folder}{os.sep}"
    return [item for item in items if str(item.path).startswith(beginning)]
