"""The fixtures of the engine's own tests: a home in the server of the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from session_core.state.postgres.session_db import PostgresDB
from tests import postgres_server


@pytest.fixture
def address(tmp_path: Path) -> str:
    """Return the address of a home that only this test has."""
    return f"{postgres_server.get_address()}&home={quote(str(tmp_path))}"


@pytest.fixture
def db(address: str) -> Iterator[PostgresDB]:
    """Return an empty home."""
    with PostgresDB(address) as instance:
        yield instance
