"""Upkeep on SQLite: rows of a session, short transactions, read-only checks, sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from session_core import SessionDB
from session_core.state.batch_size import BatchSize
from session_core.state.sqlite import deletion
from session_core.state.sqlite.admin import admin
from session_core.state.sqlite.connection import Connection
from tests.homes import connect, make_hermes_database
from tests.state.conftest import append_words


def execute_statements(path: Path, *statements: str) -> None:
    with connect(path) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        for statement in statements:
            connection.execute(statement)


def count_rows(path: Path, table: str) -> int:
    with connect(path, mode="ro") as connection:
        count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
        return count


def test_delete_removes_rows_of_unknown_tables(db: SessionDB, path: Path) -> None:
    execute_statements(
        path,
        'CREATE TABLE "odd ""name" (session_id TEXT, note TEXT)',
        "CREATE TABLE linked (origin TEXT REFERENCES sessions(id), note TEXT)",
        "CREATE TABLE implied (origin TEXT REFERENCES sessions, note TEXT)",
    )
    for name in ("s", "kept"):
        append_words(db, name)
        for table in ('"odd ""name"', "linked", "implied"):
            execute_statements(path, f"INSERT INTO {table} VALUES ('{name}', '')")  # noqa: S608
    assert db.delete_session("s")
    assert (
        count_rows(path, '"odd ""name"')
        == count_rows(path, "linked")
        == count_rows(path, "implied")
        == 1
    )


def test_delete_removes_locks_and_leases(db: SessionDB, path: Path) -> None:
    append_words(db)
    tables = {"compression_locks": "session_id"}
    with connect(path) as connection:
        if connection.execute("PRAGMA table_info(session_turn_leases)").fetchone():
            tables["session_turn_leases"] = "conversation_id"
    for table, key in tables.items():
        for name in ("s", "other"):
            execute_statements(
                path,
                f"INSERT INTO {table} ({key}, holder, acquired_at, expires_at)"  # noqa: S608
                f" VALUES ('{name}', 'h', 1, 2)",
            )
    assert db.delete_session("s")
    assert [count_rows(path, table) for table in tables] == [1] * len(tables)


def test_delete_keeps_routes_and_generations(home_path: Path) -> None:
    path = home_path / "state.db"
    make_hermes_database(path, 30)
    with SessionDB(path) as db:
        append_words(db)
        db.update_session("s", session_key="k")
        execute_statements(
            path,
            "INSERT INTO gateway_routing VALUES ('', 'k', '{\"session_id\": \"s\"}', 1)",
            "CREATE TABLE IF NOT EXISTS conversation_generations"
            " (source TEXT, session_key TEXT, generation INTEGER)",
            "INSERT INTO conversation_generations (source, session_key, generation)"
            " VALUES ('cli', 'k', 3)",
        )
        assert db.delete_session("s")
        assert (
            count_rows(path, "gateway_routing") == count_rows(path, "conversation_generations") == 1
        )


def test_delete_removes_session_row_last(db: SessionDB) -> None:
    append_words(db, messages=50)
    remaining = []
    while True:
        done, deleted = db._write(lambda handle: deletion.delete_batch(handle, ["s"], {}, 4_000))
        remaining.append(db.message_count("s"))
        if done:
            break
        assert (deleted, db.get_session("s") is not None) == (set(), True)
    assert remaining == sorted(remaining, reverse=True)
    assert len(remaining) > 2
    assert remaining[-1] == 0
    assert db.get_session("s") is None


def test_delete_includes_message_appended_meanwhile(db: SessionDB) -> None:
    append_words(db, messages=50)
    db._write(lambda handle: deletion.delete_batch(handle, ["s"], {}, 4_000))
    db.append_message("s", "user", "one more")
    assert db.delete_session("s")
    assert (db.message_count(), db.get_session("s")) == (0, None)


def test_delete_step_always_makes_progress(db: SessionDB) -> None:
    append_words(db, messages=3)
    config = json.dumps({"_delegate_from": "s"})
    for number in range(3):
        db.create_session(f"d{number}", "cli", parent_session_id="s", model_config=config)
    for _ in range(10):
        done, _ = db._write(lambda handle: deletion.delete_batch(handle, ["s"], {}, 1))
        if done:
            break
    assert done == 1
    assert (db.message_count(), db.list_children("s") if db.get_session("s") else []) == (0, [])


def test_null_flag_rows_count_as_live(home_path: Path) -> None:
    path = home_path / "state.db"
    make_hermes_database(path, 16, null_flags=True)
    with SessionDB(path) as db:
        append_words(db, messages=2)
        since = db.read_changes().cursor
        execute_statements(
            path,
            "UPDATE messages SET active = NULL",
            "INSERT INTO messages (session_id, role, content, timestamp, active)"
            " VALUES ('s', 'assistant', 'third', 5, NULL)",
            "UPDATE sessions SET message_count = 3",
        )
        assert [event.text for event in db.read_changes(since).events] == ["third"]
        assert db.admin.find_drifted_sessions() == []
        assert db.admin.recount_session("s") is False


def test_pace_slows_down_but_never_stops() -> None:
    now = [0.0]
    pace = BatchSize(lambda: now[0])
    rooms = []
    for took in [0.001] * 8 + [5.0] * 40:
        pace.begin_batch()
        now[0] += took
        pace.end_batch()
        rooms.append(pace.max_bytes)
    assert rooms[7] > rooms[0]
    assert 0 < rooms[-1] < rooms[0]


def test_delete_leaves_consistent_index(db: SessionDB) -> None:
    for name in ("a", "b", "c"):
        append_words(db, name, 300)
    db.delete_sessions(["a", "c"])
    assert db.admin.check_integrity(deep=True) == []
    assert len(db.search("words", per="message", limit=100).hits) == 100
    assert db.search("a").hits == []


def test_recount_repeats_after_concurrent_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, said = admin.count_session, iter(["y"])
    with SessionDB(tmp_path / "state.db") as db, SessionDB(tmp_path / "state.db") as other:
        db.append_message("s", "user", "x", create={"source": "cli"})

        def count_slowly(handle: Connection, session_id: str) -> tuple[int, int, int]:
            counted = count(handle, session_id)
            for text in said:
                other.append_message("s", "user", text)
                other.rows.put_session_fields("s", {"message_count": 9})
            return counted

        monkeypatch.setattr(admin, "count_session", count_slowly)
        assert db.admin.recount_session("s") is True
        assert (db.get_session("s") or {})["message_count"] == 2
