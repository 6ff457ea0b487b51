"""The official conformance suite, on its own Node, against real servers over HTTP.

The suite is installed in `.peers/` once, like the environments of the other peers. If that fails,
these tests fail; they are never skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collection import list_items_in
from tests.conformance.suite import Suite

HERE = Path(__file__).parent

pytest.register_assert_rewrite("tests.wire.conftest")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder. Installing the suite takes time."""
    for item in list_items_in(items, HERE):
        item.add_marker(pytest.mark.conformance)
        item.add_marker(pytest.mark.timeout(900, func_only=True))


@pytest.fixture(scope="session", autouse=True)
def suite() -> Suite:
    """The suite, installed before a test hides the user's folder with pip and npm settings."""
    return Suite.ready()
