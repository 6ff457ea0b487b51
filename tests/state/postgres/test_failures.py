"""Errors of the server: changes run again if nothing was stored, and are reported otherwise."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from session_core import Busy, open_home
from session_core.state.postgres.session_db import PostgresDB
from tests import postgres_server
from tests.faults.postgres_proxy import CuttingProxy

_FAIL = "DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$"


def add_option(address: str, option: str) -> str:
    return f"{address}&options=-c%20{option}"


@pytest.fixture
def proxied(address: str) -> Iterator[tuple[str, CuttingProxy]]:
    """Return the address of the home through a proxy, and the proxy."""
    host = postgres_server.get_folder()
    with CuttingProxy(host) as proxy:
        yield address.replace(str(host), str(proxy.folder)), proxy


@contextmanager
def lock_rows(address: str, *sessions: str) -> Iterator[psycopg.Connection[Any]]:
    """Lock rows of sessions from outside, without the lock of the home, until the block ends."""
    owner = postgres_server.get_owner_address()
    with psycopg.connect(owner, options="-c search_path=mcp_sessions") as connection:
        name = dict(part.split("=", 1) for part in address.split("?")[1].split("&"))["home"]
        connection.execute("SELECT set_config('home.name', %s, true)", (name,))
        for session in sessions:
            lock_row(connection, session)
        yield connection
        connection.rollback()


def lock_row(connection: psycopg.Connection[Any], session: str) -> None:
    connection.execute(
        "SELECT 1 FROM session_rows WHERE id = %s FOR UPDATE", (session,), prepare=False
    )


@pytest.mark.requirement("postgres:errors")
def test_serialization_failure_runs_step_again(db: PostgresDB) -> None:
    db.create_session("s", "cli")
    attempts: list[int] = []

    def step(handle: Any) -> None:
        handle.execute_update("UPDATE sessions SET model = 'm' WHERE id = 's'")
        attempts.append(1)
        if len(attempts) < 3:
            handle.run_script(_FAIL)

    db._store.write(step)
    assert (len(attempts), dict(db.get_session("s") or {})["model"]) == (3, "m")


@pytest.mark.requirement("postgres:errors")
def test_deadlock_runs_step_again(address: str) -> None:
    # Only a superuser sets the time after which a deadlock is looked for.
    owner = address.replace(postgres_server.get_address(), postgres_server.get_owner_address())
    with PostgresDB(add_option(owner, "deadlock_timeout%3D20ms")) as db:
        ids = [db.create_session(f"{address} {name}", "cli") for name in "ab"]
        attempts: list[int] = []
        with lock_rows(address, ids[0]) as other:
            other.execute("SET deadlock_timeout = '60s'")

            def step(handle: Any) -> None:
                attempts.append(1)
                for name in reversed(ids):
                    handle.execute_update("UPDATE sessions SET model = 'm' WHERE id = ?", (name,))
                    if name == ids[1] and len(attempts) == 1:
                        waiting.start()

            def wait_and_end() -> None:
                lock_row(other, ids[1])
                other.rollback()

            waiting = threading.Thread(target=wait_and_end)
            db._store.write(step)
            waiting.join()
        assert [dict(db.get_session(name) or {})["model"] for name in ids] == ["m", "m"]
        assert len(attempts) > 1


@pytest.mark.requirement("postgres:errors")
def test_statement_timeout_of_role_stores_nothing(address: str) -> None:
    with PostgresDB(address) as plain:
        name = plain.create_session(address, "cli")
        with (
            PostgresDB(add_option(address, "statement_timeout%3D50")) as db,
            lock_rows(address, name),
            pytest.raises(Busy),
        ):
            db.append_message(name, "user", "never")
        assert plain.message_count(name) == 0


@pytest.mark.requirement("postgres:errors")
def test_locked_row_is_busy_after_patience(address: str) -> None:
    with PostgresDB(address, patience_s=0.05) as db:
        name = db.create_session(address, "cli")
        with lock_rows(address, name), pytest.raises(Busy, match="locked"):
            db.append_message(name, "user", "never")
        db.append_message(name, "user", "kept")
        assert db.message_count(name) == 1


def test_home_in_use_is_busy_after_patience(address: str) -> None:
    with PostgresDB(address) as holder, PostgresDB(address, patience_s=0.05) as db:
        holder.create_session("s", "cli")
        db.get_session("s")
        with holder.transaction(), pytest.raises(Busy, match="locked the home"):
            db.append_message("s", "user", "never")
        assert db.append_message("s", "user", "kept") == 1


@pytest.mark.requirement("postgres:errors")
def test_append_is_stored_once_at_any_cut(proxied: tuple[str, CuttingProxy]) -> None:
    address, proxy = proxied
    with open_home(address) as home:
        home.db.create_session("s", "cli")
    proxy.arm(None)
    with open_home(address) as home:
        home.db.append_message("s", "user", "first")
    ends = proxy.boundaries[::3]
    acknowledged = 0
    for number, end in enumerate(ends):
        proxy.arm(end - number % 2)
        try:
            with open_home(address) as home:
                home.db.append_message("s", "user", f"{number}", platform_message_id=f"{number}")
            acknowledged += 1
            is_stored: bool | None = True
        except Busy as error:
            is_stored = False if "nothing was stored" in str(error) else None
        proxy.finish()
        with open_home(address) as home:
            rows = [row for row in home.db.get_messages("s") if row["content"] == str(number)]
            has_it = home.db.has_platform_message_id("s", str(number))
        assert len(rows) == has_it
        assert is_stored in (None, has_it)
    assert acknowledged > 0
