"""Indexes of Hermes merge less often during a large delete, and keep their settings after it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from session_core import SessionDB
from tests.homes import connect, make_hermes_database

TABLES = ("messages_fts", "messages_fts_trigram")
CHOSEN = "SELECT k, v FROM {}_config WHERE k <> 'version'"
FOUND = "SELECT count(*) FROM {0} WHERE {0} MATCH 'needle'"


@pytest.fixture(params=[0, 1, 3])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SessionDB]:
    """A Hermes home with many indexed texts."""
    path = tmp_path / "state.db"
    make_hermes_database(path, 22 if request.param == 0 else 30, fts_layout=request.param)
    drawn = random.Random(7)
    with SessionDB(path) as opened:
        opened.create_session("s", "cli")
        for _ in range(40):
            opened.append_message("s", "user", f"needle {drawn.randbytes(3000).hex()}")
        yield opened


def remove_messages_singly(db: SessionDB, count: int = 36) -> None:
    """Remove messages, each in its own transaction."""
    for row in db.get_messages("s")[:count]:
        db.rows.remove_messages({"s": ([row["id"]], db.get_revision("s"))})


def query_each_index(db: SessionDB, sql: str) -> list[tuple[Any, ...]]:
    """Return the results of each index."""
    with connect(db.path, "ro") as connection:
        return [row for table in TABLES for row in connection.execute(sql.format(table))]


def test_automerge_setting_is_restored_after_removal(db: SessionDB) -> None:
    remove_messages_singly(db)
    assert query_each_index(db, CHOSEN) == []
    assert query_each_index(db, FOUND) == [(4,), (4,)]
    assert db.admin.check_integrity(deep=True) == []


def test_automerge_setting_is_restored_after_restore(db: SessionDB) -> None:
    image, _ = db.rows.read_message_images("s", None, 10**9)
    remove_messages_singly(db)
    db.rows.put_images([image])
    assert query_each_index(db, CHOSEN) == []
    assert query_each_index(db, FOUND) == [(40,), (40,)]
    assert db.admin.check_integrity(deep=True) == []


def test_automerge_setting_of_user_stays(db: SessionDB) -> None:
    with connect(db.path) as connection:
        for table in TABLES:
            connection.execute(f"INSERT INTO {table}({table}, rank) VALUES ('automerge', 2)")  # noqa: S608
    remove_messages_singly(db, 2)
    assert query_each_index(db, CHOSEN) == [("automerge", 2)] * 2


def test_automerge_setting_survives_rollback(db: SessionDB) -> None:
    with suppress(ZeroDivisionError), db.transaction():
        remove_messages_singly(db, 2)
        raise ZeroDivisionError
    assert query_each_index(db, CHOSEN) == []
    assert query_each_index(db, FOUND) == [(40,), (40,)]
    remove_messages_singly(db)
    assert db.admin.check_integrity(deep=True) == []


def test_removal_merges_less_often(db: SessionDB, tmp_path: Path) -> None:
    count = "SELECT count(DISTINCT segid) FROM {}_idx"
    plain = tmp_path / "plain.db"
    with connect(db.path, "ro") as connection, connect(plain, "rwc") as other:
        connection.backup(other)
        for (row_id,) in other.execute("SELECT id FROM messages ORDER BY id LIMIT 36").fetchall():
            other.execute("DELETE FROM messages WHERE id = ?", (row_id,))
        by_itself = [other.execute(count.format(table)).fetchone() for table in TABLES]
    remove_messages_singly(db)
    assert sum(n for (n,) in query_each_index(db, count)) > sum(n for (n,) in by_itself)
