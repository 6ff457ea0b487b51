"""A PostgreSQL server without disk space: errors, stored data, and the following changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from session_core import Busy, StorageFull
from session_core.state.postgres.session_db import PostgresDB
from session_core.state.postgres.store import PostgresStore
from tests import postgres_server
from tests.postgres_cluster import run_statement
from tests.postgres_disk import SmallDisk
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.faults

_DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
_TEXT = "needle " + random.Random("text").randbytes(150_000).hex()  # takes its size when compressed
_MOST = 400


@pytest.fixture(name="disk")
def _disk() -> Iterator[SmallDisk]:
    """A disk of 24 MB, of which 8 are taken."""
    with SmallDisk("24m", "8m") as disk:
        yield disk


def _start(stack: ExitStack, disk: SmallDisk, *options: str, **settings: str) -> PostgresServer:
    server = postgres_server.start_server(
        before=disk.before, initialize_options=options, **_DURABLE, **settings
    )
    stack.callback(server.stop)
    return server


def _append_until_error(db: PostgresDB, acknowledged: list[str]) -> None:
    """Append until the server has no room."""
    for number in range(_MOST):
        db.append_message(
            *("s", "user", _TEXT), platform_message_id=str(number), create={"source": "cli"}
        )
        acknowledged.append(str(number))
    raise AssertionError("the disk does not fill up")


@pytest.mark.requirement("faults:full")
def test_full_tablespace_refuses_until_room(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        server = _start(stack, disk)
        run_statement(server.address, f"CREATE TABLESPACE small LOCATION '{disk.data}'")
        run_statement(server.address, "CREATE DATABASE full_one TABLESPACE small")
        owner = server.address.replace("/postgres?", "/full_one?")
        address = f"{postgres_server.prepare_database(owner)}&home=team"
        acknowledged: list[str] = []
        begun: list[int] = []
        with PostgresDB(address) as db:
            begin = PostgresStore.begin_write

            def count_and_begin(store: PostgresStore) -> Any:
                begun.append(1)
                return begin(store)

            monkeypatch.setattr(PostgresStore, "begin_write", count_and_begin)
            with pytest.raises(StorageFull, match="free some space"):
                _append_until_error(db, acknowledged)
            # The refused append was tried once.
            assert len(begun) == len(acknowledged) + 1
            with pytest.raises(StorageFull):
                db.append_message("s", "user", _TEXT)
            assert _list_ids(db) == acknowledged
            assert not db.has_platform_message_id("s", str(len(acknowledged)))
            disk.make_room()
            db.append_message("s", "user", _TEXT, platform_message_id=str(len(acknowledged)))
            assert _list_ids(db) == [*acknowledged, str(len(acknowledged))]
            assert len(db.search("needle").hits) == 1


@pytest.mark.requirement("faults:full")
def test_full_log_refuses_until_room(disk: SmallDisk) -> None:
    with ExitStack() as stack:
        waldir = disk.data / "wal"
        server = _start(
            stack,
            disk,
            *("--waldir", str(waldir), "--wal-segsize=1"),
            max_wal_size="1GB",
            checkpoint_timeout="1h",
        )
        address = f"{postgres_server.prepare_database(server.address)}&home=team"
        acknowledged: list[str] = []
        with PostgresDB(address, patience_s=2.0) as db:
            with pytest.raises(StorageFull, match="unknown whether"):
                _append_until_error(db, acknowledged)
            with pytest.raises(Busy):
                db.append_message("s", "user", _TEXT)
            disk.make_room()
            server.process.wait(30)
            server.start_again()
            last = str(len(acknowledged))
            ids = _list_ids(db)
            assert ids in (acknowledged, [*acknowledged, last])
            assert db.has_platform_message_id("s", last) == (ids != acknowledged)
            db.append_message("s", "user", "works", platform_message_id="works")
            assert _list_ids(db) == [*ids, "works"]


def _list_ids(db: PostgresDB) -> list[str]:
    return [row["platform_message_id"] for row in db.get_messages("s")]
