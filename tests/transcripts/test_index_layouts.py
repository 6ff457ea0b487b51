"""The index files of earlier versions of the program."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_core import _sqlite3
from session_core.transcripts import index

_WEEKS_S = 15 * 86_400


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A folder with nothing else in it."""
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


@pytest.fixture
def earlier(state: Path) -> Iterator[_sqlite3.Connection]:
    """An index of layout 1 that was written long ago, and its connection."""
    db = _sqlite3.connect(f"{(state / 'index-1.db').as_uri()}?mode=rwc", busy_timeout_s=0)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE words (text)")
    age_files(state)
    yield db
    db.close()


def age_files(folder: Path) -> None:
    """Give all files a time of weeks ago."""
    for path in folder.iterdir():
        os.utime(path, (time.time() - _WEEKS_S,) * 2)


def list_names(folder: Path) -> list[str]:
    """Return the names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_abandoned_index_is_removed(state: Path, earlier: _sqlite3.Connection) -> None:
    earlier.close()
    age_files(state)
    for name in ("index-2.db", "index-x.db", "labels.db"):
        (state / name).touch()
    age_files(state)
    index.remove_abandoned_files(state, 2)
    assert list_names(state) == ["index-2.db", "index-x.db", "labels.db"]


def test_damaged_abandoned_index_is_removed(state: Path) -> None:
    (state / "index-1.db").write_bytes(b"no database" * 1000)
    age_files(state)
    index.remove_abandoned_files(state, 2)
    assert list_names(state) == []


def test_open_index_is_left(state: Path, earlier: _sqlite3.Connection) -> None:
    index.remove_abandoned_files(state, 2)
    assert earlier.execute("SELECT count(*) FROM words").fetchone() == (0,)
    assert "index-1.db" in list_names(state)


def test_lately_written_index_is_left(state: Path, earlier: _sqlite3.Connection) -> None:
    earlier.close()
    (state / "index-1.db").touch()
    index.remove_abandoned_files(state, 2)
    assert list_names(state) == ["index-1.db"]


def test_removal_at_once_takes_all(state: Path, earlier: _sqlite3.Connection) -> None:
    index.remove_earlier_files(state, 2)
    assert list_names(state) == []
