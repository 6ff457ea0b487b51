"""The store of one home in a PostgreSQL database, with its pool of connections.

Every read is one read-only transaction, a snapshot. Every change is one transaction under the lock
of its home, an advisory lock that ends with the transaction. Settings are `SET LOCAL`, and nothing
is prepared, so a pooler in transaction mode may stand between.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import ClientCursor, errors
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from session_core.errors import (
    Busy,
    Denied,
    InvalidInput,
    SessionError,
    StorageError,
    StorageFull,
    Unsupported,
)
from session_core.state.caller_blocks import find_block_of_caller
from session_core.state.postgres import fts
from session_core.state.postgres.address import list_missing_timeouts, parse_address
from session_core.state.postgres.connection import (
    STANDBY,
    PostgresConnection,
    register_texts,
    translate_error,
)
from session_core.state.postgres.holders import HolderNote
from session_core.state.postgres.server_clock import ServerClock
from session_core.state.postgres.transaction import ReadSnapshot, Transaction

T = TypeVar("T")

_MAX_CONNECTIONS = 16
_MAX_TIDY_S = 5.0
_CLOSE_WAIT_S = 1.0
_MAX_WAIT_S = 3600.0
_RECONNECT_S = 1.0
_MAX_TIMEOUT_MS = 2**31 - 1
_STATUS_WAIT_S = 10.0
"""The seconds for which the outcome of a commit is asked for after its connection was lost."""

_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "
_BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
_SETTINGS = "SET LOCAL search_path = {schema}; SET LOCAL mcp_sessions.home = '{home}'; "
_BY_NAME = "BEGIN; SELECT set_config('mcp_sessions.home_name', ?, true); {statement}; {end}"
_GET_TIME = "extract(epoch FROM clock_timestamp())::double precision"
# Ids of transactions that a crash or a failover has lost are given again, so an id counts within
# one life of a server: a crash resets its statistics, and a promotion begins a timeline.
_GET_LIFE = (
    f"CASE WHEN pg_is_in_recovery() THEN '{STANDBY}' "
    "ELSE left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END || ' ' || "
    "extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())"
)
# The snapshot of a standby does not name running transactions, so it ends before the first of them.
_GET_SNAPSHOT = (
    f"SELECT {_GET_TIME}, {_GET_LIFE}, CASE WHEN pg_is_in_recovery() "
    "THEN replace('#:#:', '#', pg_snapshot_xmin(pg_current_snapshot())::text) "
    "ELSE pg_current_snapshot()::text END"
)
# A machine that vanishes in a change would hold the home for hours by default.
_DETECT_LOSS = ", ".join(
    f"set_config('{name}', '{value}', true)"
    for name, value in (
        ("tcp_keepalives_idle", 5),
        ("tcp_keepalives_interval", 3),
        ("tcp_keepalives_count", 3),
        ("tcp_user_timeout", 14_000),
    )
)
_LOCK_HOME = (
    f"SET LOCAL lock_timeout = {{timeout}}; SELECT {_DETECT_LOSS}, "
    "pg_advisory_xact_lock('homes'::regclass::oid::integer, {home}), "
    f"{_GET_TIME}, {_GET_LIFE}, pg_current_xact_id()::text; "
    "SET LOCAL lock_timeout = {rows_timeout}"
)

_GET_STATUS_AFTER_CRASH = """
SELECT CASE WHEN ?::xid8 >= pg_snapshot_xmax(pg_current_snapshot()) THEN 'aborted'
    ELSE 'unknown' END
"""
"""An id that the server has not reached was lost, and another transaction may have a lower one."""

_LEAST_ROW_WAIT_MS = 250
"""Rows that a program without the lock of the home has locked are waited for as long at least."""

_LOST = (psycopg.OperationalError, psycopg.InterfaceError)
_RETRIED = (errors.SerializationFailure, errors.DeadlockDetected)


class PostgresStore:
    """Reads and writes one home through a pool of connections."""

    path = None
    change_token = None

    def __init__(
        self,
        address: str,
        *,
        read_only: bool = False,
        patience_s: float = 20.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if not patience_s >= 0:
            raise InvalidInput(f"patience_s must be >= 0, got {patience_s}")
        self.address = parse_address(address)
        self.read_only = read_only
        self.server_clock = ServerClock()
        self.clock = self.server_clock if clock is None else clock
        self.snapshots: list[weakref.ref[ReadSnapshot]] = []
        self.transactions: list[weakref.ref[Transaction]] = []
        self._patience_s = patience_s
        self._pid = os.getpid()
        self._closed = False
        self._note = HolderNote()
        self.mark: str | None = None
        """The id that the home got at its creation, None before it was found."""
        self._home = 0
        self._columns: dict[str, tuple[str, ...]] = {}
        self._schema: dict[Any, Any] = {}
        self._pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
            self.address.conninfo,
            min_size=0,
            max_size=_MAX_CONNECTIONS,
            open=False,
            num_workers=1,
            reconnect_timeout=_RECONNECT_S,
            configure=register_texts,
            kwargs={
                "autocommit": True,
                "prepare_threshold": None,
                "cursor_factory": ClientCursor,
                "client_encoding": "utf8",
                **list_missing_timeouts(self.address),
            },
        )
        self._closer = weakref.finalize(self, _close_pool, self._pool, os.getpid())

    @property
    def in_transaction(self) -> bool:
        """True if this task has a transaction open in this thread."""
        return self.find_transaction() is not None

    def transaction(self, *, linked: bool = True) -> Transaction:
        """Return the transaction of this task. `PostgresDB.transaction` documents its rules."""
        self.check_open()
        return Transaction(self, linked=linked)

    def find_transaction(self) -> Transaction | None:
        """Return the transaction that this task has open in this thread, or None."""
        return find_block_of_caller(self.transactions)

    def find_snapshot(self) -> ReadSnapshot | None:
        """Return the snapshot that this task has open in this thread, or None."""
        return find_block_of_caller(self.snapshots)

    def check_open(self) -> None:
        """Refuse a closed database, and a database that the parent process has opened."""
        if self._closed:
            raise InvalidInput("this session database is closed; open it again")
        if self._pid != os.getpid():
            raise Unsupported("the database was opened before a fork; open it in the child process")

    def check_writable(self) -> None:
        """Refuse a change if the database is closed, read-only or in a snapshot."""
        self.check_open()
        if self.read_only:
            raise Denied("this session database was opened read-only")
        if self.snapshots and self.find_snapshot() is not None:
            raise InvalidInput("a snapshot of this task is open; make the change after it")
        self._check_task()

    def close(self) -> None:
        """Close every connection.

        Every change that has returned is durable.
        """
        if self.in_transaction:
            raise InvalidInput("this thread has a transaction open; close the database after it")
        if self.find_snapshot() is not None:
            raise InvalidInput("this thread has a snapshot open; close the database after it")
        self._check_task()
        self._delete_note()
        self._closed = True
        self._closer()

    def _delete_note(self) -> None:
        """Delete the holder note of this instance.

        If that fails, the note expires.
        """
        if self._closed or not self._note.is_stored or self._pid != os.getpid():
            return
        self._patience_s = min(self._patience_s, _CLOSE_WAIT_S)
        with suppress(SessionError, psycopg.Error):
            # Without the lock of the home, which another program may hold for long.
            handle = self._begin(_BEGIN_WRITE, _GET_SNAPSHOT)
            try:
                # A standby that is missing holds up a commit, and the note would expire anyway.
                handle.run_script("SET LOCAL synchronous_commit = off")
                self._note.delete(handle)
                handle.run_script("COMMIT")
            finally:
                self.release_connection(handle)

    def read(self, function: Callable[[PostgresConnection], T]) -> T:
        """Call `function` with one snapshot of the database and return its result."""
        self.check_open()
        with self.translate_errors():
            transaction = self.find_transaction() if self.transactions else None
            if transaction is not None:
                handle = transaction.get_handle()
                handle.seen.clear()
                # An error of the server would end the whole transaction of the caller.
                with handle.isolate_failure():
                    return function(handle)
            snapshot = self.find_snapshot() if self.snapshots else None
            if snapshot is not None:
                return function(snapshot.get_handle())
            handle = self.begin_read()
            try:
                return function(handle)
            finally:
                self.end_read(handle)

    def write(self, function: Callable[[PostgresConnection], T]) -> T:
        """Run `function` in a transaction and return its result.

        The function may run again, so it must have no effect outside of the database.
        """
        self.check_open()
        with self.translate_errors():
            transaction = self.find_transaction() if self.transactions else None
            if transaction is not None:
                handle = transaction.get_handle()
                try:
                    with handle.isolate_failure():
                        return function(handle)
                except BaseException:
                    handle.forget_all()
                    raise
            self.check_writable()
            return self._write_alone(function)

    def _write_alone(self, function: Callable[[PostgresConnection], T]) -> T:
        """Run a function in a transaction of its own, again if it is known not to be committed."""
        until = time.monotonic() + self._patience_s
        while True:
            handle = self.begin_write()
            try:
                result = function(handle)
            except psycopg.Error as error:
                self.release_connection(handle)
                # Nothing was committed: the COMMIT was never sent.
                can_retry = isinstance(error, _RETRIED) or _is_lost(error)
                if not can_retry or time.monotonic() >= until:
                    raise
                continue
            except BaseException:
                self.release_connection(handle)
                raise
            self.end_write(handle, commit=True)
            return result

    def begin_read(self) -> PostgresConnection:
        """Take a connection and begin a snapshot."""
        return self._begin(_BEGIN_READ, _GET_SNAPSHOT)

    def end_read(self, handle: PostgresConnection) -> None:
        """End a snapshot and give the connection back."""
        self.release_connection(handle)

    def begin_write(self) -> PostgresConnection:
        """Take a connection and begin a transaction under the lock of the home."""
        self._check_task()
        if not self._home:
            self._create_home()
        wait_ms = self._patience_s * 1000
        timeout = 0 if wait_ms > _MAX_TIMEOUT_MS else max(int(wait_ms), 1)
        rows_timeout = timeout and max(timeout, _LEAST_ROW_WAIT_MS)
        lock = _LOCK_HOME.format(timeout=timeout, rows_timeout=rows_timeout, home=self._home)
        is_due = self._note.is_due
        handle = self._begin(_BEGIN_WRITE, f"{lock}; {self._note.compose()}" if is_due else lock)
        handle.has_note = is_due
        return handle

    def end_write(self, handle: PostgresConnection, *, commit: bool) -> None:
        """Commit or roll back a transaction and give the connection back."""
        if not commit:
            self.release_connection(handle)
            return
        if not handle.in_transaction:
            self.release_connection(handle)
            raise StorageError("the transaction was ended by an error; begin a new one")
        try:
            handle.run_script("COMMIT")
        except _LOST as error:
            self.release_connection(handle)
            if isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized == "ERROR":
                raise  # The server answered, and nothing was stored.
            self._require_commit(handle, error)
        else:
            self.release_connection(handle)
        if handle.has_note:
            self._note.confirm()

    def update_search_index(self) -> None:
        """Index queued texts.

        If that fails, a search reads these texts itself.
        """
        snapshot = self.find_snapshot()
        if snapshot is not None:
            snapshot.is_index_behind = True
            return
        until = time.monotonic() + _MAX_TIDY_S
        with suppress(SessionError), self.translate_errors():
            while self._index_once() and time.monotonic() < until:
                pass

    def _index_once(self) -> bool:
        if self.in_transaction:
            return self.write(fts.index_batch)
        # No lock of the home: each batch takes its own rows of the queue.
        handle = self._begin(_BEGIN_WRITE, _GET_SNAPSHOT)
        try:
            more = fts.index_batch(handle)
            handle.run_script("COMMIT")
        finally:
            self.release_connection(handle)
        return more

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise errors of the driver as errors of our tree."""
        try:
            yield
        except errors.LockNotAvailable as error:
            raise self._make_busy_error() from error
        except PoolTimeout as error:
            raise Busy(
                "no connection to the server in time; check the server and the number of callers"
            ) from error
        except PoolClosed as error:
            raise InvalidInput("this session database is closed; open it again") from error
        except psycopg.Error as error:
            raise translate_error(error) from error
        except (OverflowError, UnicodeEncodeError) as error:
            raise InvalidInput(
                "a value is a number beyond 64 bits or text with a lone surrogate"
            ) from error

    def read_server_state(self) -> tuple[str, str]:
        """Return the life and the present snapshot of the server.

        They change with each commit.
        """
        _, life, snapshot = self._run_alone(lambda handle: handle.fetch_tuples(_GET_SNAPSHOT)[0])
        return str(life), str(snapshot)

    def _check_task(self) -> None:
        """Refuse a change while another task of this thread has a transaction open."""
        for reference in list(self.transactions):
            transaction = reference()
            if (
                transaction is not None
                and transaction.is_of_thread
                and not transaction.is_of_caller
            ):
                raise Busy(
                    "another task of this thread has a transaction open, and waiting for it would "
                    "deadlock; run a transaction as one function: "
                    "await AsyncSessionDB(db).run(step)"
                )

    def _make_busy_error(self) -> Busy:
        if any(reference() is not None for reference in self.transactions):
            return Busy("a transaction of this process has locked the home; end it, then try again")
        return Busy("another transaction has locked the home; let it finish, then try again")

    def _begin(self, begin: str, last: str) -> PostgresConnection:
        """Begin a transaction on a connection of the pool.

        A connection that was lost meanwhile is replaced.
        """
        if not self._home:
            self._load_home()
        settings = _SETTINGS.format(schema=self.address.schema, home=self._home)
        until = time.monotonic() + self._patience_s
        while True:
            handle = self._take_connection()
            try:
                cursor = handle.run_script(begin + settings + last)
                self._read_transaction_start(handle, cursor, is_read=begin is _BEGIN_READ)
            except psycopg.Error as error:
                self.release_connection(handle)
                if not _is_lost(error) or time.monotonic() >= until:
                    raise
            except BaseException:
                self.release_connection(handle)
                raise
            else:
                return handle

    def _read_transaction_start(
        self, handle: PostgresConnection, cursor: psycopg.Cursor[Any], *, is_read: bool
    ) -> None:
        """Read the results of the first statements of a transaction."""
        handle.forget_transaction()
        rows = [row for row in _iter_results(cursor) if row is not None]
        *_, server_time, handle.life, number = rows[-1]
        self.server_clock.compare(server_time)
        handle.snapshot = handle.change = str(number)
        handle.reads_one_moment = is_read

    def _take_connection(self) -> PostgresConnection:
        self.check_open()
        if self._pool.closed:
            with suppress(psycopg.Error):
                self._pool.open()
        handle = PostgresConnection(self._wait_for_connection())
        # The schema changes by migrations only, which a process meets when it opens the database.
        handle.share_schema(self._columns, self._schema)
        return handle

    def _wait_for_connection(self) -> psycopg.Connection[Any]:
        """Return a connection of the pool.

        Each call begins an attempt to connect if none is running, so the wait is made of short
        ones: the pool by itself would double the pause after each failed attempt.
        """
        until = time.monotonic() + max(min(self._patience_s, _MAX_WAIT_S), 1.0)
        while True:
            left_s = until - time.monotonic()
            try:
                return self._pool.getconn(timeout=max(min(left_s, _RECONNECT_S), 0.0))
            except PoolTimeout:
                if left_s <= _RECONNECT_S:
                    raise

    def release_connection(self, handle: PostgresConnection) -> None:
        """Roll back an open transaction and return the connection to the pool."""
        connection = handle.driver
        with suppress(psycopg.Error):
            if connection.info.transaction_status.name != "IDLE" and not connection.closed:
                connection.rollback()
        self._pool.putconn(connection)

    def _load_home(self) -> None:
        """Load the number and the mark of the home if it exists."""
        row = self._run_by_name("SELECT id, mark FROM {schema}.homes WHERE name = ?")
        if row is not None:
            self._home, self.mark = int(row[0]), str(row[1])

    def _create_home(self) -> None:
        self._run_by_name(
            "INSERT INTO {schema}.homes (name) VALUES (?) ON CONFLICT DO NOTHING", commit=True
        )
        self._load_home()

    def _run_by_name(self, statement: str, *, commit: bool = False) -> tuple[Any, ...] | None:
        """Run a statement with the name of the home, whose id is not known yet."""
        name = self.address.home
        script = _BY_NAME.format(
            statement=statement.format(schema=self.address.schema),
            end="COMMIT" if commit else "ROLLBACK",
        )

        def run_script(handle: PostgresConnection) -> tuple[Any, ...] | None:
            try:
                return list(_iter_results(handle.execute(script, (name, name))))[-1]
            except errors.UndefinedTable as error:
                raise StorageError(
                    "the database has no tables of this program; run the migrations"
                ) from error

        return self._run_alone(run_script)

    def _run_alone(self, step: Callable[[PostgresConnection], T]) -> T:
        """Run a step that may run twice, again if its connection was lost."""
        until = time.monotonic() + self._patience_s
        while True:
            handle = self._take_connection()
            try:
                return step(handle)
            except _LOST as error:
                if not _is_lost(error) or time.monotonic() >= until:
                    raise
            finally:
                self.release_connection(handle)

    def _require_commit(self, lost: PostgresConnection, error: Exception) -> None:
        """Raise `Busy` unless the server confirms the commit of a transaction.

        Its connection was lost during the COMMIT.
        """
        until = time.monotonic() + min(self._patience_s, _STATUS_WAIT_S)
        status = None
        while status is None and time.monotonic() < until:
            with suppress(psycopg.Error, PoolTimeout):
                status = self._find_outcome(lost)
            if status is None:
                time.sleep(0.05)
        if status == "committed":
            return
        if status == "aborted":
            raise Busy("the connection was lost and nothing was stored; try again") from error
        if isinstance(error, errors.DiskFull):
            raise StorageFull(
                "the server has no room left and has stopped, and it is unknown whether the change "
                "was stored; free some space, and read again before you retry"
            ) from error
        raise Busy(
            "the connection was lost at the commit, and it is unknown whether the change was "
            "stored; read again before you retry"
        ) from error

    def _find_outcome(self, lost: PostgresConnection) -> str | None:
        """Return the outcome of a transaction, or None if the server does not know it yet."""
        handle = self.begin_read()
        try:
            if handle.life == lost.life:
                status = handle.fetch_value("SELECT pg_xact_status(?::xid8)", (lost.change,))
            elif handle.life.startswith(STANDBY):
                return None
            else:
                status = handle.fetch_value(_GET_STATUS_AFTER_CRASH, (lost.change,))
        finally:
            self.end_read(handle)
        if status == "committed":
            self._wait_for_standbys()
        return None if status == "in progress" else str(status)

    def _wait_for_standbys(self) -> None:
        """Return after synchronous standbys have all that was committed, if there are any."""
        note = "SELECT pg_logical_emit_message(true, 'mcp_sessions', '')"
        self._run_alone(lambda handle: handle.run_script(note))


def _is_lost(error: psycopg.Error) -> bool:
    """Return whether an error is the end of a connection, which says nothing of a statement."""
    code = error.sqlstate
    return isinstance(error, _LOST) and (code is None or code.startswith(("08", "57P")))


def _iter_results(cursor: psycopg.Cursor[Any]) -> Iterator[tuple[Any, ...] | None]:
    """Yield the first row of each statement that has rows."""
    while True:
        if cursor.description is not None:
            yield cursor.fetchone()
        if not cursor.nextset():
            return


def _close_pool(pool: ConnectionPool[Any], pid: int) -> None:
    """Close a pool, unless it belongs to the threads of a parent process."""
    if pid == os.getpid():
        pool.close(timeout=_CLOSE_WAIT_S)
