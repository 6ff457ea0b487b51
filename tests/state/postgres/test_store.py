"""Homes of one database, and connections that are lost."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import psycopg
import pytest

from session_core import Busy, InvalidInput
from session_core.state.postgres.session_db import PostgresDB
from session_core.state.postgres.store import PostgresStore
from tests import postgres_server


def cut_connections(home: str) -> None:
    """End every connection of the server but this one, as a restart does."""
    with psycopg.connect(postgres_server.get_address(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND application_name = %s",
            (home,),
        )


@pytest.fixture
def named(address: str, tmp_path: Any) -> Any:
    """Return a home whose connections have a name of their own, and that name."""
    name = f"test-{abs(hash(str(tmp_path))) % 10**9}"
    with PostgresDB(f"{address}&application_name={name}") as db:
        yield db, name


def test_homes_of_one_database_are_apart(address: str) -> None:
    with PostgresDB(address) as one, PostgresDB(f"{address}2") as two:
        for db in (one, two):
            db.append_message("s", "user", "hello", create={"source": "cli"})
            db.set_session_title("s", "Trip")
            db.set_meta("key", db.admin.get_home_id() or "")
        two.append_message("s", "user", "more")
        two.delete_session("s")
        assert [row["content"] for row in one.get_messages("s")] == ["hello"]
        assert one.get_meta("key") != two.get_meta("key")
        assert (one.message_count(), two.message_count()) == (1, 0)
        assert len(one.search("hello").hits) == 1
        assert two.search("hello").hits == []


def test_cursor_of_another_home_reports_gap(address: str) -> None:
    with PostgresDB(address) as one, PostgresDB(f"{address}2") as two:
        for db in (one, two):
            db.create_session("s", "cli")
        assert two.read_changes(one.read_changes().cursor).gap


def test_lost_connection_is_replaced(named: tuple[PostgresDB, str]) -> None:
    db, name = named
    db.append_message("s", "user", "one", create={"source": "cli"})
    cut_connections(name)
    assert db.message_count("s") == 1
    cut_connections(name)
    db.append_message("s", "user", "two")
    assert db.message_count("s") == 2


def test_step_runs_again_after_lost_connection(named: tuple[PostgresDB, str]) -> None:
    db, name = named
    db.create_session("s", "cli")
    attempts: list[int] = []

    def step(handle: Any) -> int:
        handle.execute_update("UPDATE sessions SET model = 'm' WHERE id = 's'")
        if not attempts:
            attempts.append(1)
            cut_connections(name)
        return handle.execute_update("UPDATE sessions SET cwd = '/srv' WHERE id = 's'")

    assert db._store.write(step) == 1
    row = dict(db.get_session("s") or {})
    assert (row["model"], row["cwd"], attempts) == ("m", "/srv", [1])


def test_lost_transaction_of_caller_is_reported(named: tuple[PostgresDB, str]) -> None:
    db, name = named
    db.create_session("s", "cli")

    def run() -> None:
        with db.transaction():
            db.append_message("s", "user", "one")
            cut_connections(name)
            db.append_message("s", "user", "two")

    with pytest.raises(Busy):
        run()
    assert db.message_count("s") == 0
    db.append_message("s", "user", "three")
    assert db.message_count("s") == 1


@pytest.mark.parametrize("is_stored", [True, False])
def test_outcome_of_lost_commit_is_found(
    named: tuple[PostgresDB, str], monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    db, name = named
    db.create_session("s", "cli")
    store = db._store
    begin = PostgresStore.begin_write

    def begin_and_cut(self: PostgresStore) -> Any:
        handle = begin(self)
        run = handle.run_script

        def lose_commit(script: str) -> Any:
            if script != "COMMIT":
                return run(script)
            if is_stored:
                run(script)
            cut_connections(name)
            return run("SELECT 1")

        monkeypatch.setattr(handle, "run_script", lose_commit)
        return handle

    monkeypatch.setattr(PostgresStore, "begin_write", begin_and_cut)
    expected = contextlib.nullcontext() if is_stored else pytest.raises(Busy, match="nothing")
    with expected:
        store.write(lambda handle: handle.execute_update("UPDATE sessions SET model = 'm'"))
    monkeypatch.undo()
    assert dict(db.get_session("s") or {})["model"] == ("m" if is_stored else None)


def test_restored_messages_are_no_news(db: PostgresDB) -> None:
    db.append_message("s", "user", "old", create={"source": "cli"})
    images = [*db.rows.read_session_images("s"), db.rows.read_message_images("s", None, 10_000)[0]]
    db.delete_session("s")
    cursor = db.read_changes().cursor
    db.rows.put_images(images)
    db.append_message("s", "user", "new")
    assert [event.text for event in db.read_changes(cursor).events] == ["new"]


def test_read_only_home_refuses_changes(address: str) -> None:
    with PostgresDB(address) as db:
        db.create_session("s", "cli")
    with PostgresDB(address, read_only=True) as db:
        assert db.get_session("s") is not None
        with pytest.raises(Exception, match="read-only"):
            db.create_session("t", "cli")


def test_number_beyond_64_bits_is_refused(db: PostgresDB) -> None:
    with pytest.raises(InvalidInput):
        db.get_message(2**64)


def test_dropped_transaction_is_rolled_back(address: str) -> None:
    with PostgresDB(address, patience_s=5.0) as db:
        db.create_session("s", "cli")
        transaction = db.transaction()
        transaction.__enter__()
        db.append_message("s", "user", "never")
        del transaction
        gc.collect()
        with PostgresDB(address, patience_s=5.0) as other:
            other.append_message("s", "user", "kept")
        assert [row["content"] for row in db.get_messages("s")] == ["kept"]
