"""The official conformance suite, on a Node of its own, against real servers over HTTP.

The suite is made ready in `.peers/` once, as the environments of the other peers are; where that
cannot be done these tests fail, they are never skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.suite import Suite

HERE = Path(__file__).parent

pytest.register_assert_rewrite("tests.wire.conftest")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is of the suite; making it ready takes its time."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.conformance)
            item.add_marker(pytest.mark.timeout(120, func_only=True))


@pytest.fixture(scope="session", autouse=True)
def suite() -> Suite:
    """The suite; made before any test hides the user's folder, where pip and npm are configured."""
    return Suite.ready()
