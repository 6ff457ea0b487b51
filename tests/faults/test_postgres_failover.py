"""Failover to a standby with another address: acknowledged data, and the following changes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from mcp import Client
from psycopg import errors

from session_core import Busy, StateDatabase
from session_core.state.postgres.session_db import PostgresDB
from tests.faults.process import ChildProcess
from tests.postgres_cluster import PostgresCluster, run_statement
from tests.wire.test_address_homes import call, connect

pytestmark = pytest.mark.faults

_SESSIONS = ("first", "second", "third")
_LEAST_STORED = 15
_WAIT_S = 30.0


class Reader:
    """Follows the feed of a home until it is stopped."""

    def __init__(self, db: StateDatabase) -> None:
        self._db = db
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self.texts: list[str | None] = []
        self.gaps = 0
        self._cursor = db.read_changes().cursor
        self._thread.start()

    def end(self) -> None:
        """Stop the thread, and read the remaining lines."""
        self._stop.set()
        self._thread.join(_WAIT_S)
        assert not self._thread.is_alive()
        while self._read(0.0):
            pass

    def _follow(self) -> None:
        while not self._stop.is_set():
            self._read(_WAIT_S)

    def _read(self, timeout_s: float) -> bool:
        page = self._db.read_changes(self._cursor, timeout_s=timeout_s, stop=self._stop)
        self._cursor = page.cursor
        self.gaps += page.gap
        self.texts += [event.text for event in page.events if event.type == "message"]
        return bool(page.events)


class Writers:
    """Processes that append, and the words that they report."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self._processes = [
            stack.enter_context(ChildProcess("postgres_writer", address, name))
            for name in _SESSIONS
        ]
        self.reports: list[tuple[str, str]] = []

    def read_reports(self, least: int) -> None:
        """Read until each process has stored as many messages more."""
        for process in self._processes:
            count = 0
            while count < least:
                count += self._add(process.read_line())

    def end(self) -> None:
        """Stop the processes, and read their reports."""
        for process in self._processes:
            process.write_line()
        for process in self._processes:
            while line := process.read_line():
                self._add(line)

    def list_tokens(self, *words: str) -> set[str]:
        """Return the messages about which a word was reported."""
        return {token for word, token in self.reports if word in words}

    def _add(self, line: str) -> bool:
        word, _, token = line.partition(" ")
        self.reports.append((word, token))
        return word in {"stored", "found"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(name="pair")
def _pair() -> Iterator[PostgresCluster]:
    """A primary with a synchronous standby."""
    with PostgresCluster(is_synchronous=True) as cluster:
        yield cluster


@pytest.fixture(name="loose_pair")
def _loose_pair() -> Iterator[PostgresCluster]:
    """A primary with an asynchronous standby."""
    with PostgresCluster(is_synchronous=False) as cluster:
        yield cluster


@pytest.mark.anyio
@pytest.mark.requirement("postgres:failover")
async def test_acknowledged_appends_survive_failover(pair: PostgresCluster, tmp_path: Path) -> None:
    address = f"{pair.address}&home=team"
    with ExitStack() as stack:
        db = stack.enter_context(PostgresDB(address))
        db.create_session("locked", "cli")
        assert db.try_acquire_compression_lock("locked", "holder", 300.0)
        reader = Reader(db)
        stack.callback(reader.end)
        async with connect(address, tmp_path) as client:
            await _check_client(client)
            cursor = (await call(client, "events_wait", timeout_s=0))["cursor"]
            writers = Writers(address, stack)
            await anyio.to_thread.run_sync(writers.read_reports, _LEAST_STORED)
            pair.primary.kill()
            await anyio.to_thread.run_sync(pair.promote_standby)
            await anyio.to_thread.run_sync(writers.read_reports, _LEAST_STORED)
            heard = await call(client, "events_wait", cursor=cursor, timeout_s=20)
            assert heard["gap"]
            heard = await call(client, "events_wait", cursor=heard["cursor"], timeout_s=20)
            assert heard["events"]
            await anyio.to_thread.run_sync(writers.end)
            await _check_client(client)
        assert db.get_compression_lock_holder("locked") == "holder"
        assert not db.try_acquire_compression_lock("locked", "another", 300.0)
        assert db.refresh_compression_lock("locked", "holder", 300.0)
        reader.end()
        texts = Counter(row["content"] for session in _SESSIONS for row in db.get_messages(session))
    stored = writers.list_tokens("stored", "found")
    assert set(texts) == stored
    assert set(texts.values()) == {1}
    assert reader.gaps == 1
    assert len(set(reader.texts)) == len(reader.texts) > _LEAST_STORED
    assert set(reader.texts) <= stored


async def _check_client(client: Client) -> None:
    """List and change sessions through a server."""
    listed = await call(client, "sessions_list")
    assert listed["sessions"]
    await call(client, "sessions_edit", sessions=["locked"], title=f"Title {time.monotonic()}")


@pytest.mark.requirement("postgres:failover")
def test_lost_commit_is_not_confirmed(loose_pair: PostgresCluster) -> None:
    with PostgresDB(f"{loose_pair.address}&home=team", patience_s=10.0) as db:
        db.append_message("s", "user", "kept", create={"source": "cli"})
        loose_pair.wait_for_standby()
        cursor = db.read_changes().cursor
        loose_pair.standby.kill()
        db.append_message("s", "user", "acknowledged by the primary alone")
        changes = db.read_changes(cursor)
        handle = db._store.begin_write()
        handle.execute_update("UPDATE sessions SET model = 'm' WHERE id = 's'")
        loose_pair.primary.kill()
        loose_pair.standby.start_again()
        loose_pair.promote_standby()
        # Its transactions get the ids of those that were lost.
        with PostgresDB(f"{loose_pair.address}&home=other") as other:
            other.create_session("t", "cli")
            other.append_message("t", "user", "later")
        assert _get_last_change(loose_pair) >= int(handle.change)
        with pytest.raises(Busy, match="unknown"), db._store.translate_errors():
            db._store.end_write(handle, commit=True)
        assert dict(db.get_session("s") or {})["model"] is None
        assert [row["content"] for row in db.get_messages("s")] == ["kept"]
        db.append_message("s", "user", "new")
        page = db.read_changes(changes.cursor)
        assert (page.gap, page.events) == (True, [])
        db.append_message("s", "user", "newer")
        assert [event.text for event in db.read_changes(page.cursor).events] == ["newer"]


def _get_last_change(cluster: PostgresCluster) -> int:
    with psycopg.connect(cluster.standby.address) as connection:
        row: Any = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())").fetchone()
        return int(row[0]) - 1


@pytest.mark.requirement("postgres:failover")
def test_change_that_promotion_lost_is_refused(loose_pair: PostgresCluster) -> None:
    with PostgresDB(f"{loose_pair.address}&home=team", patience_s=10.0) as db:
        db.append_message("s", "user", "kept", create={"source": "cli"})
        loose_pair.wait_for_standby()
        loose_pair.standby.kill()
        for number in range(20):
            db.append_message("s", "user", f"lost {number}")
        handle = db._store.begin_write()
        loose_pair.primary.kill()
        loose_pair.standby.start_again()
        loose_pair.promote_standby()
        with pytest.raises(Busy, match="nothing was stored"), db._store.translate_errors():
            db._store.end_write(handle, commit=True)


@pytest.mark.requirement("postgres:failover")
def test_found_commit_waits_for_standby(pair: PostgresCluster) -> None:
    with PostgresDB(f"{pair.address}&home=team") as db:
        db.create_session("s", "cli")
        pair.wait_for_standby()
        pair.standby.kill()
        append = threading.Thread(target=db.append_message, args=("s", "user", "kept"))
        append.start()
        _cut_waiting_commit(pair)
        # It is stored on the primary, and the standby lacks it.
        append.join(1.0)
        assert append.is_alive()
        pair.standby.start_again()
        append.join(_WAIT_S)
        assert not append.is_alive()
        pair.primary.kill()
        pair.promote_standby()
        assert [row["content"] for row in db.get_messages("s")] == ["kept"]


def _cut_waiting_commit(pair: PostgresCluster) -> None:
    """Wait until a commit of the primary waits for the standby, and end its connection."""
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    until = time.monotonic() + _WAIT_S
    while not run_statement(pair.primary.address, cut):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.requirement("postgres:failover")
def test_feed_of_standby_reports_late_commits(pair: PostgresCluster) -> None:
    address = f"{pair.address}&home=team"
    follower = address.replace("read-write", "standby")
    with (
        PostgresDB(address) as db,
        PostgresDB(f"{pair.address}&home=other") as other,
        PostgresDB(follower, read_only=True) as standby,
    ):
        db.create_session("s", "cli")
        pair.wait_for_standby()
        cursor = standby.read_changes().cursor
        with db.transaction():
            db.append_message("s", "user", "late")
            other.append_message("t", "user", "first", create={"source": "cli"})
            pair.wait_for_standby()
            page = standby.read_changes(cursor)
        pair.wait_for_standby()
        late = standby.read_changes(page.cursor)
    assert [event.text for event in (*page.events, *late.events)] == ["late"]


@pytest.mark.requirement("postgres:errors")
def test_conflict_on_standby_is_busy(loose_pair: PostgresCluster) -> None:
    run_statement(loose_pair.standby.address, "ALTER SYSTEM SET max_standby_streaming_delay = 0")
    run_statement(loose_pair.standby.address, "SELECT pg_reload_conf()")
    follower = f"{loose_pair.address}&home=team".replace("read-write", "standby")
    with PostgresDB(f"{loose_pair.address}&home=team") as db:
        db.append_message("s", "user", "kept", create={"source": "cli"})
        loose_pair.wait_for_standby()
        with PostgresDB(follower, read_only=True) as standby:
            with standby.snapshot():
                assert standby.message_count("s") == 1
                # The primary removes rows that the snapshot of the standby still sees.
                db.delete_session("s")
                run_statement(loose_pair.primary.address, "VACUUM mcp_sessions.session_rows")
                loose_pair.wait_for_standby()
                with pytest.raises(Busy) as conflict:
                    standby.get_session("s")
                assert isinstance(conflict.value.__cause__, errors.SerializationFailure)
            assert standby.get_session("s") is None
