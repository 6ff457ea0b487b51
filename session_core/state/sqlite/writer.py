"""The single write connection of a database, with group commit and checkpoints of its log.

Callers that arrive during a commit are committed together by the next one. If one of them fails,
nothing is committed and each job is retried alone, in the thread of its caller, so a failure
affects only its own caller. A caller returns after its change is durable, never before.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar, cast

from session_core import _sqlite3
from session_core.errors import Busy, InvalidInput, StorageError
from session_core.state.sqlite.connection import Connection
from session_core.state.sqlite.lock_wait import execute_with_retry, is_busy, run_without_waiting
from session_core.state.sqlite.transaction import Savepoint
from session_core.state.sqlite.write_queue import WriteJob, WriteQueue, WriteStep

T = TypeVar("T")

_MAX_WAIT_S = 1.0

_MAX_FOLLOW_UP_S = 0.25
"""Longest time for which a caller updates the search index before it returns."""

CHECKPOINT_ROWS = 400
"""Changed rows after which the log is checkpointed, at about a thousand pages.

A log that is reused costs half of one that grows.
"""

_INDEX_ROWS_PER_MESSAGE = 10
"""Rows of its search indexes that Hermes changes with each row of a message."""


class Writer:
    """Serializes the changes of all threads through one connection."""

    def __init__(
        self,
        open_handle: Callable[[], Connection],
        *,
        own: bool,
        patience_s: float,
        check: Callable[[], None] = lambda: None,
        overdue: bool = False,
        index_batch: Callable[[Connection], bool] = lambda _: False,
        prepare: Callable[[Connection], None] = lambda _: None,
        queue: WriteQueue | None = None,
    ) -> None:
        self._open_handle = open_handle
        self._index_batch = index_batch
        self._prepare = prepare
        self._patience_s = patience_s
        self._wait_ms = int(min(patience_s, _MAX_WAIT_S) * 1000)
        self._checkpointer = Checkpointer(own=own, wait_ms=self._wait_ms, overdue=overdue)
        self._check = check
        self._handle: Connection | None = None
        # Stores that share one connection share its queue.
        self._queue = WriteQueue() if queue is None else queue
        self._closed = False
        self._unfinished = False
        self._committing = False
        self._pid = os.getpid()

    @property
    def is_inherited(self) -> bool:
        """True if the writer belongs to a parent process.

        A commit here would overwrite the log of that process.
        """
        return self._pid != os.getpid()

    @property
    def current(self) -> Connection | None:
        """The connection of the transaction that this task has open in this thread, or None."""
        job = self._queue.leader
        is_own = job is not None and job.owner is self and job.is_open and job.is_of_caller
        return self._handle if is_own else None

    @property
    def change_token(self) -> object:
        """A token that changes after a transaction finds that messages may have changed."""
        return None if self._handle is None else self._handle.change_token

    def run_in_transaction(self, change: Callable[[Connection], T]) -> T:
        """Run `change` in a transaction and return its result after the commit is durable.

        In an open transaction of the caller, run it in a savepoint.
        """
        open_handle = self.current
        if open_handle is not None:
            # A step that fails undoes its own changes. The caller may catch the error and continue.
            with Savepoint(open_handle):
                return change(open_handle)
        job = self._make_job(change)
        try:
            # It comes a second time if its batch failed and each job is tried alone.
            while self._queue.wait_for_lead(job, job.deadline):
                self._commit_jobs(job, self._queue.take_jobs(job))
                self._checkpointer.checkpoint_if_due(self._handle)
        finally:
            # A store cannot be interrupted by a signal handler, a call could be cut short.
            job.over = True
            self._queue.leave_queue(job)
        if job.error is not None:
            raise job.error
        # After leaving the queue, so that waiting callers go first.
        self.run_due_indexing()
        return cast("T", job.result)

    def create_job(self, of: object, *, linked: bool = True) -> WriteJob:
        """Create the job of a transaction, which ends with the object `of` at the latest."""
        job = self._make_job()
        job.linked = linked
        # A transaction that is dropped without its exit would hold the lock until the process ends.
        job.transaction_ref = weakref.ref(of, lambda _: self._drop_transaction(job))
        return job

    def begin_transaction(self, job: WriteJob) -> None:
        """Wait for the connection and begin a transaction.

        The caller must end it in any case.
        """
        if self._queue.leader is not job:
            self._acquire_connection(job)
        handle = self._open_connection()
        self._begin_immediate(job, handle, job.deadline)
        self._prepare(handle)

    def end_transaction(self, job: WriteJob, *, commit: bool) -> None:
        """Commit or roll back a transaction and release the connection."""
        try:
            if commit:
                self._commit_transaction(job)
                self._checkpointer.checkpoint_if_due(self._handle)
        finally:
            # The connection stays with this job until `over` is set.
            if self._unfinished and self._queue.leader is job and self._handle is not None:
                self._handle.connection.rollback()
                self._roll_back(job)
            job.over, job.transaction_ref = True, None
            self._queue.leave_queue(job)

    def run_exclusively(
        self, function: Callable[[Connection], T], *, wait_s: float | None = None
    ) -> T:
        """Call `function` with exclusive use of the connection, outside of a transaction.

        If another process holds a lock, wait once, for at most the busy timeout of the connection.
        """
        job = self._make_job(wait_s=wait_s)
        try:
            self._acquire_connection(job)
            handle = self._open_connection()
            self._check()
            return function(handle)
        finally:
            job.over = True
            self._queue.leave_queue(job)

    def run_deferred_indexing(self, for_s: float) -> None:
        """Index messages in short transactions for up to `for_s` seconds.

        Other callers take their turn between these transactions.
        """
        if self.current is not None:
            return
        until = time.monotonic() + for_s
        # No change depends on this work, so an error only postpones it. It must not reach the
        # caller, who would repeat a change that is already durable.
        with suppress(Exception):
            while self._index_next_batch() and time.monotonic() < until:
                pass

    def run_due_indexing(self) -> None:
        """Index messages for a moment if a change has made the index due."""
        handle = self._handle
        if handle is not None and handle.indexing_due and self.current is None:
            handle.indexing_due = False
            self.run_deferred_indexing(_MAX_FOLLOW_UP_S)

    def check_task(self) -> None:
        """Refuse a change while another task of this thread has a transaction open.

        Raises:
            Busy: another task of this thread has a transaction open.
        """
        self._queue.check_task()

    def close(self, wait_s: float = math.inf) -> bool:
        """Close the connection after the change in progress.

        Return False if the wait timed out. A transaction of the calling thread is rolled back,
        since no other thread could end it.
        """
        if self.current is not None:
            self._close_connection()
            return True
        job = self._make_job(wait_s=wait_s)
        try:
            self._acquire_connection(job)
            self._close_connection()
        except (Busy, _sqlite3.load_library().OperationalError):
            return False
        finally:
            job.over = True
            self._queue.leave_queue(job)
        return True

    def _drop_transaction(self, job: WriteJob) -> None:
        """Roll back an abandoned transaction, unless it belongs to a parent process."""
        if not self.is_inherited:
            self.end_transaction(job, commit=False)

    def _acquire_connection(self, job: WriteJob) -> None:
        """Wait for exclusive use of the connection."""
        self._queue.wait_for_lead(job, job.deadline)
        self._queue.take_jobs(job)

    def _index_next_batch(self) -> bool:
        job = self._make_job()
        try:
            self._acquire_connection(job)
            handle = self._open_connection()
            # It waits for no lock of another process, since any later moment is as good.
            change = partial(self._run_transaction, job, self._index_batch, 0)
            more = run_without_waiting(handle, change, self._wait_ms)
            self._checkpointer.checkpoint_if_due(handle)
            return more
        finally:
            job.over = True
            self._queue.leave_queue(job)

    def _close_connection(self) -> None:
        # First, so that a thread whose turn comes next is refused and opens no second connection.
        self._closed = True
        handle, self._handle = self._handle, None
        if handle is not None:
            # SQLite refuses a checkpoint while a transaction is open.
            handle.connection.rollback()
            self._checkpointer.checkpoint_and_truncate(handle)
            handle.connection.close()

    def _commit_jobs(self, job: WriteJob, batch: list[WriteJob]) -> None:
        if batch == [job]:
            job.result = self._run_transaction(job, cast("WriteStep", job.step), job.deadline)
            job.done = True
        else:
            self._commit_batch(job, batch)

    def _commit_batch(self, job: WriteJob, batch: list[WriteJob]) -> None:
        """Commit a batch of jobs, or return each job to its own thread if the commit fails."""
        try:
            self._run_transaction(
                job, partial(_run_job_steps, batch), max(member.deadline for member in batch)
            )
        except Exception as error:  # noqa: BLE001 -- each job is retried in its own thread
            if not is_busy(error):
                self._queue.put_back_jobs(batch)
                return
            # The lock blocks every job of the batch, so none of them waits again.
            for member in batch:
                # One instance for each thread: raising adds the traceback of its thread to an
                # exception.
                member.error = type(error)(*error.args)
        except BaseException:
            # An interrupted COMMIT may have succeeded. A job that is tried again could be stored
            # twice.
            if not self._committing:
                self._queue.put_back_jobs([member for member in batch if member is not job])
            raise
        for member in batch:
            member.done = True
        self._queue.wake_jobs(batch)

    def _run_transaction(
        self, job: WriteJob, step: Callable[[Connection], T], deadline: float
    ) -> T:
        """Run a step in a transaction, completely or not at all."""
        handle = self._open_connection()
        try:
            self._begin_immediate(job, handle, deadline)
            # An index batch needs no schema update, and no change follows it.
            if step is not self._index_batch:
                self._prepare(handle)
            result = step(handle)
            self._commit_transaction(job)
        except BaseException:
            handle.connection.rollback()  # before any call of ours, which could be cut short
            self._roll_back(job)
            raise
        return result

    def _begin_immediate(self, job: WriteJob, handle: Connection, deadline: float) -> None:
        self._committing = False
        # SQLite refuses a checkpoint in a transaction, so it precedes BEGIN.
        self._checkpointer.checkpoint_if_overdue(handle)
        if handle.linked != job.linked:  # SQLite ignores this pragma inside a transaction
            handle.connection.execute(f"PRAGMA foreign_keys={'ON' if job.linked else 'OFF'}")
            handle.linked = job.linked
        # Set before BEGIN: an interrupt directly after it would leave an unknown transaction open.
        self._unfinished = True
        # A deferred transaction that has read cannot get the lock after a commit of another
        # process.
        execute_with_retry(handle, "BEGIN IMMEDIATE", deadline)
        # After the wait for the lock, during which the file may have been replaced.
        self._check()
        # Under the lock no other process commits, so the caches stay valid until the end.
        handle.forget_if_changed()
        # A public method called by the step, or by a signal handler, joins this transaction.
        job.inside = True

    def _commit_transaction(self, job: WriteJob) -> None:
        if self._queue.leader is not job:
            raise StorageError(
                "the transaction was rolled back when its thread ended; begin a new one"
            )
        # A call of a signal handler must not join a transaction that is being committed.
        job.inside = False
        self._committing = True
        execute_with_retry(cast("Connection", self._handle), "COMMIT", self._get_deadline())
        self._unfinished = False

    def _roll_back(self, job: WriteJob | None = None) -> None:
        handle = cast("Connection", self._handle)
        if job is not None:
            job.inside = False
        handle.connection.rollback()
        handle.forget_all()
        self._unfinished = False

    def _open_connection(self) -> Connection:
        if self._closed:
            raise InvalidInput("this session database is closed; open it again")
        if self._handle is None:
            handle = self._open_handle()
            handle.connection.execute(f"PRAGMA busy_timeout={self._wait_ms}")
            self._handle = handle
        # An interrupt ended a transaction, possibly of a store that shares the connection, before
        # its rollback.
        elif self._unfinished or self._handle.connection.in_transaction:
            self._roll_back()
        return self._handle

    def _make_job(self, step: WriteStep | None = None, *, wait_s: float | None = None) -> WriteJob:
        wait_s = self._patience_s if wait_s is None else wait_s
        job = WriteJob(step, time.monotonic() + wait_s)
        job.owner = self
        return job

    def _get_deadline(self) -> float:
        return time.monotonic() + self._patience_s


def _run_job_steps(batch: list[WriteJob], handle: Connection) -> None:
    for job in batch:
        job.result = cast("WriteStep", job.step)(handle)


class Checkpointer:
    """Checkpoints the write-ahead log after enough changes, without waiting for a lock."""

    def __init__(self, *, own: bool, wait_ms: int, overdue: bool) -> None:
        self._own = own
        self._wait_ms = wait_ms
        self._row_weight = 1 if own else _INDEX_ROWS_PER_MESSAGE
        self._rows_seen = 0
        self._overdue = overdue

    def checkpoint_if_overdue(self, handle: Connection) -> None:
        """Checkpoint a long log that was present when the database was opened."""
        # Processes that write a little and exit would leave a log that only grows. A new process
        # does not know how much of it was checkpointed, so it checkpoints before its first write.
        if self._overdue:
            self._overdue = False
            self._run_checkpoint(handle)

    def checkpoint_if_due(self, handle: Connection | None) -> None:
        """Checkpoint after enough changes."""
        if (
            handle is not None
            and self._count_changed_rows(handle) >= CHECKPOINT_ROWS * self._row_weight
        ):
            self._run_checkpoint(handle)

    def checkpoint_and_truncate(self, handle: Connection) -> None:
        """Checkpoint at close, and truncate the log of a home of our own.

        A copy of the database file alone is then complete, and the next open has no log to read,
        which takes 0.4 ms for each megabyte.
        """
        self._checkpoint(handle, "TRUNCATE" if self._own else "PASSIVE")

    def _count_changed_rows(self, handle: Connection) -> int:
        return handle.connection.total_changes - self._rows_seen

    def _run_checkpoint(self, handle: Connection) -> None:
        # FULL holds the write lock, so it cannot interleave with a commit, as a race in SQLite
        # before 3.51.3 needs.
        self._checkpoint(handle, "FULL" if self._own else "PASSIVE")

    def _checkpoint(self, handle: Connection, mode: str) -> None:
        """Run a checkpoint.

        If it fails, the log keeps all changes for the next checkpoint.
        """
        # Also if it fails: while a reader blocks it, it is tried once for this number of rows.
        self._rows_seen = handle.connection.total_changes
        # The change is already durable. An error here would report to its caller that it is not.
        with suppress(_sqlite3.load_library().Error):
            sql = f"PRAGMA wal_checkpoint({mode})"
            run_without_waiting(
                handle, lambda: handle.connection.execute(sql).fetchall(), self._wait_ms
            )
