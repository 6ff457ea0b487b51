"""What tests of the life of a session have: a database with two instances, as of two processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core import SessionDB


@pytest.fixture
def db(home_path: Path) -> Iterator[SessionDB]:
    """The database of the process that is tested, with one session `s1` of one message."""
    db = SessionDB(home_path / "state.db")
    db.append_message("s1", "user", "hello", create={"source": "telegram"})
    yield db
    db.close()


@pytest.fixture
def other(db: SessionDB, home_path: Path) -> Iterator[SessionDB]:
    """The same database as another process has it open."""
    other = SessionDB(home_path / "state.db")
    yield other
    other.close()
