"""The estimate of the blocks freed by a merge, compared with a real merge."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from session_core import SessionDB
from tests.homes import (
    add_message,
    add_session,
    connect,
    fill_database,
    make_hermes_database,
    make_own_database,
)
from tests.thorough import take_main_kinds

KINDS = ["own", 16, 22, 23, 30]
PAGE = 4096


@pytest.fixture(params=take_main_kinds(KINDS), ids=str)
def path(request: pytest.FixtureRequest, home_path: Path) -> Path:
    """A home with many segments: each conversation was appended in its own transaction."""
    path = home_path / "state.db"
    if request.param == "own":
        make_own_database(path)
        append_conversations(path)
    else:
        make_hermes_database(path, request.param)
        for number in range(20):
            fill_database(path, 5, 30, seed=number)
    return path


def append_conversations(path: Path) -> None:
    """Fill a home of our own through the library, which feeds its index."""
    chance = random.Random(0)
    with SessionDB(path) as db:
        for number in range(100):
            session_id = db.create_session(f"fill_{number // 5}_{number % 5:05}", source="cli")
            for turn in range(30):
                words = (f"word{chance.randrange(2000)}" for _ in range(30))
                db.append_message(session_id, role="user", content=f"{turn} {' '.join(words)}")


def index_bytes(path: Path) -> int:
    """Return the size of all search indexes, page by page."""
    sql = "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE name LIKE '%\\_data' ESCAPE '\\'"
    with connect(path, "ro") as connection:
        return int(connection.execute(sql).fetchone()[0])


def merge_index(db: SessionDB) -> None:
    while db.admin.optimize_step():
        pass


def test_append_only_index_has_no_dead_bytes(path: Path) -> None:
    with SessionDB(path) as db:
        assert db.admin.measure_sizes().index_dead == 0


def test_dead_bytes_match_merged_bytes(path: Path) -> None:
    with SessionDB(path) as db:
        merge_index(db)
        db.delete_sessions([f"fill_{seed}_{n:05}" for seed in range(8) for n in range(5)])
        before, estimate = index_bytes(path), db.admin.measure_sizes().index_dead
        merge_index(db)
        freed = before - index_bytes(path)
        assert freed > 10 * PAGE
        assert estimate == pytest.approx(freed, rel=0.35)
        assert db.admin.measure_sizes().index_dead == 0


def test_large_texts_are_estimated_too(home_path: Path) -> None:
    path = home_path / "state.db"
    make_hermes_database(path, 22)
    with connect(path) as connection:
        for number in range(6):
            session_id = add_session(connection, f"s{number}")
            add_message(connection, session_id, content="word " * 40_000)
    with SessionDB(path) as db:
        assert db.admin.measure_sizes().index_dead == 0
        db.delete_sessions(["s0", "s1", "s2"])
        sizes = db.admin.measure_sizes()
        assert 0 <= sizes.index_dead <= sizes.index
