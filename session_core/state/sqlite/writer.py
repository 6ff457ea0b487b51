"""The one writing connection of a database: short transactions, many callers, one commit.

Callers that arrive while a commit is under way are committed together by the next one. Where one
of them fails nothing is committed, and each is tried alone, in its own thread, so that it takes
nothing from the others. A caller returns when its change is committed, never before.

When the log is folded back into the database file, which is never waited for.
"""

from __future__ import annotations

import math
import os
import random
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar, cast

from session_core import _sqlite3
from session_core.errors import Busy, InvalidInput, StorageError
from session_core.state.sqlite.connection import Connection, is_busy
from session_core.state.sqlite.transaction import Savepoint
from session_core.state.sqlite.write_queue import WriteJob, WriteQueue, WriteStep

T = TypeVar("T")

_JITTER_S = (0.02, 0.15)
_MAX_WAIT_S = 1.0

_MAX_FOLLOW_UP_S = 0.25
"""How long a caller that has changed something does what was left over, before it returns."""


class Writer:
    """Serialises the changes of all threads through one connection."""

    def __init__(
        self,
        open_handle: Callable[[], Connection],
        *,
        own: bool,
        patience_s: float,
        check: Callable[[], None] = lambda: None,
        overdue: bool = False,
        afterwards: Callable[[Connection], bool] = lambda _: False,
    ) -> None:
        self._open_handle = open_handle
        self._afterwards = afterwards
        self._patience_s = patience_s
        self._wait_ms = int(min(patience_s, _MAX_WAIT_S) * 1000)
        self._log = Checkpointer(own=own, wait_ms=self._wait_ms, overdue=overdue)
        self._check = check
        self._handle: Connection | None = None
        self._turns = WriteQueue()
        self._closed = False
        self._unfinished = False
        self._committing = False
        self._pid = os.getpid()

    @property
    def is_inherited(self) -> bool:
        """Whether it is that of a parent process, whose log a commit of ours would overwrite."""
        return self._pid != os.getpid()

    @property
    def current(self) -> Connection | None:
        """The handle of the transaction that this task has open in this thread, if any."""
        job = self._turns.leader
        mine = job is not None and job.is_open and job.is_of_caller
        return self._handle if mine else None

    @property
    def moment(self) -> object:
        """What is renewed as soon as a transaction finds that messages may have been changed."""
        return None if self._handle is None else self._handle.moment

    def run_step(self, step: Callable[[Connection], T]) -> T:
        """Run `step` in a transaction and return its result once that is durable."""
        inside = self.current
        if inside is not None:
            with Savepoint(inside):
                return step(inside)
        job = WriteJob(step, self._get_deadline())
        try:
            while self._turns.wait_for_lead(job, job.deadline):
                self._commit_jobs(job, self._turns.take_jobs(job))
                self._log.checkpoint_if_due(self._handle)
        finally:
            job.over = True
            self._turns.leave_queue(job)
        if job.error is not None:
            raise job.error
        self.run_due_leftovers()
        return cast("T", job.result)

    def create_job(self, of: object, *, linked: bool = True) -> WriteJob:
        """Return what a transaction is begun and ended with; it ends with `of` at the latest."""
        job = WriteJob(None, self._get_deadline())
        job.linked = linked
        job.of = weakref.ref(of, lambda _: self._drop_transaction(job))
        return job

    def begin_transaction(self, job: WriteJob) -> None:
        """Wait for the connection and begin a transaction; it is to be ended in any case."""
        self._acquire_connection(job)
        self._begin_immediate(job, self._open_connection(), job.deadline)

    def end_transaction(self, job: WriteJob, *, commit: bool) -> None:
        """Commit a transaction or undo it, and let the next one have the connection."""
        try:
            if commit:
                self._commit_transaction(job)
                self._log.checkpoint_if_due(self._handle)
        finally:
            # The connection is that of the next one as soon as this one is over, not before.
            if self._unfinished and self._turns.leader is job and self._handle is not None:
                self._handle.connection.rollback()
                self._roll_back(job)
            job.over, job.of = True, None
            self._turns.leave_queue(job)

    def run_alone(self, work: Callable[[Connection], T]) -> T:
        """Do something with the connection outside of any transaction, and nobody else meanwhile.

        Whoever has the lock is waited for as the connection waits, once.
        """
        job = WriteJob(None, self._get_deadline())
        try:
            self._acquire_connection(job)
            handle = self._open_connection()
            self._check()
            return work(handle)
        finally:
            job.over = True
            self._turns.leave_queue(job)

    def run_leftovers(self, for_s: float) -> None:
        """Do what was left over, in short transactions between which others have their turn.

        No change of anybody depends on it, so the first error leaves it for another time. Nor may
        one be told: a change that is durable by now would be made again.
        """
        if self.current is not None:
            return
        until = time.monotonic() + for_s
        with suppress(Exception):
            while self._run_leftovers_once() and time.monotonic() < until:
                pass

    def run_due_leftovers(self) -> None:
        """Do what a change has left for transactions of its own, for a moment."""
        handle = self._handle
        if handle is not None and handle.due and self.current is None:
            handle.due = False
            self.run_leftovers(_MAX_FOLLOW_UP_S)

    def check_task(self) -> None:
        """Make sure that no other task of this thread has a transaction open.

        Raises:
            Busy: one has.
        """
        self._turns.check_task()

    def close(self, wait_s: float = math.inf) -> bool:
        """Close the connection once the change that is under way is over; say if it was in time.

        A transaction that this very thread has open is rolled back: nobody else could end it.
        """
        if self.current is not None:
            self._close_connection()
            return True
        job = WriteJob(None, time.monotonic() + wait_s)
        try:
            self._acquire_connection(job)
            self._close_connection()
        except (Busy, _sqlite3.load_library().OperationalError):
            return False
        finally:
            job.over = True
            self._turns.leave_queue(job)
        return True

    def _drop_transaction(self, job: WriteJob) -> None:
        """Undo a transaction that nobody has any more, unless it is the one of a parent process."""
        if not self.is_inherited:
            self.end_transaction(job, commit=False)

    def _acquire_connection(self, job: WriteJob) -> None:
        """Wait until nobody else has the connection."""
        self._turns.wait_for_lead(job, job.deadline)
        self._turns.take_jobs(job)

    def _run_leftovers_once(self) -> bool:
        job = WriteJob(None, self._get_deadline())
        try:
            self._acquire_connection(job)
            handle = self._open_connection()
            change = partial(self._run_transaction, job, self._afterwards, 0)
            more = run_without_waiting(handle, change, self._wait_ms)
            self._log.checkpoint_if_due(handle)
            return more
        finally:
            job.over = True
            self._turns.leave_queue(job)

    def _close_connection(self) -> None:
        self._closed = True
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.connection.rollback()
            self._log.checkpoint_and_truncate(handle)
            handle.connection.close()

    def _commit_jobs(self, job: WriteJob, batch: list[WriteJob]) -> None:
        if batch == [job]:
            job.result = self._run_transaction(job, cast("WriteStep", job.step), job.deadline)
            job.done = True
        else:
            self._commit_batch(job, batch)

    def _commit_batch(self, job: WriteJob, batch: list[WriteJob]) -> None:
        """Commit a batch, or nothing of it: then each goes back to its own thread."""
        try:
            self._run_transaction(
                job, partial(_run_batch, batch), max(each.deadline for each in batch)
            )
        except Exception as error:  # noqa: BLE001 -- each caller gets his own, in his own thread
            if not is_busy(error):
                self._turns.put_back_jobs(batch)
                return
            # Whoever has the lock has it for each of them: they do not wait one after another.
            for each in batch:
                each.error = type(error)(*error.args)
        except BaseException:
            if not self._committing:
                self._turns.put_back_jobs([each for each in batch if each is not job])
            raise
        for each in batch:
            each.done = True
        self._turns.wake_jobs(batch)

    def _run_transaction(
        self, job: WriteJob, step: Callable[[Connection], T], deadline: float
    ) -> T:
        """Run a step in a transaction, whole or not at all."""
        handle = self._open_connection()
        try:
            self._begin_immediate(job, handle, deadline)
            result = step(handle)
            self._commit_transaction(job)
        except BaseException:
            handle.connection.rollback()  # before any call of ours, which could be cut short
            self._roll_back(job)
            raise
        return result

    def _begin_immediate(self, job: WriteJob, handle: Connection, deadline: float) -> None:
        self._committing = False
        self._log.checkpoint_if_overdue(handle)
        if handle.linked != job.linked:  # which SQLite takes between transactions alone
            handle.connection.execute(f"PRAGMA foreign_keys={'ON' if job.linked else 'OFF'}")
            handle.linked = job.linked
        self._unfinished = True
        execute_with_retry(handle, "BEGIN IMMEDIATE", deadline)
        self._check()
        handle.forget_if_changed()
        # A step that calls a public method, or a signal handler that does, goes on inside.
        job.inside = True

    def _commit_transaction(self, job: WriteJob) -> None:
        if self._turns.leader is not job:
            raise StorageError("the transaction was undone as its thread ended; begin it anew")
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
        elif self._unfinished:  # by one who was cut short
            self._roll_back()
        return self._handle

    def _get_deadline(self) -> float:
        return time.monotonic() + self._patience_s


def execute_with_retry(handle: Connection, sql: str, deadline: float) -> None:
    """Run a statement that needs the lock, with jitter, for as long as the patience lasts."""
    while True:
        try:
            handle.connection.execute(sql)
        except _sqlite3.load_library().OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(random.uniform(*_JITTER_S))  # noqa: S311 -- jitter, not a secret
        else:
            return


def _run_batch(batch: list[WriteJob], handle: Connection) -> None:
    for job in batch:
        job.result = cast("WriteStep", job.step)(handle)


CHECKPOINT_ROWS = 400
"""After so many changed rows the log is folded back, at about a thousand pages.

A log that is reused costs half of one that grows.
"""

_INDEX_ROWS_PER_MESSAGE = 10
"""So many rows of its search indexes does Hermes change with one of a message."""


class Checkpointer:
    """What was changed through one connection since its log was folded back."""

    def __init__(self, *, own: bool, wait_ms: int, overdue: bool) -> None:
        self._own = own
        self._wait_ms = wait_ms
        self._row_weight = 1 if own else _INDEX_ROWS_PER_MESSAGE
        self._rows_seen = 0
        self._overdue = overdue

    def checkpoint_if_overdue(self, handle: Connection) -> None:
        """Fold back a long log that was found.

        Processes that write a little and end would leave one that only ever grows: who opens it
        first has forgotten what was folded back, so that is done before a write.
        """
        if self._overdue:
            self._overdue = False
            self._run_checkpoint(handle)

    def checkpoint_if_due(self, handle: Connection | None) -> None:
        """Fold the log back after enough changes."""
        if (
            handle is not None
            and self._count_changed_rows(handle) >= CHECKPOINT_ROWS * self._row_weight
        ):
            self._run_checkpoint(handle)

    def checkpoint_and_truncate(self, handle: Connection) -> None:
        """Fold the log back, and leave none where the home is ours.

        Whoever copies the one file, as people do, has all of it, and the next one who opens it has
        no log to read through, which takes 0.4 ms a megabyte.
        """
        self._checkpoint(handle, "TRUNCATE" if self._own else "PASSIVE")

    def _count_changed_rows(self, handle: Connection) -> int:
        return handle.connection.total_changes - self._rows_seen

    def _run_checkpoint(self, handle: Connection) -> None:
        self._checkpoint(handle, "FULL" if self._own else "PASSIVE")

    def _checkpoint(self, handle: Connection, mode: str) -> None:
        """Checkpoint; where that fails, the log still has all of it, and the next one does it."""
        self._rows_seen = handle.connection.total_changes
        # The change is durable already: an error now would tell its caller that it is not.
        with suppress(_sqlite3.load_library().Error):
            sql = f"PRAGMA wal_checkpoint({mode})"
            run_without_waiting(
                handle, lambda: handle.connection.execute(sql).fetchall(), self._wait_ms
            )


def run_without_waiting(handle: Connection, work: Callable[[], T], wait_ms: int) -> T:
    """Do something for which whoever has the lock is not waited for."""
    try:
        handle.connection.execute("PRAGMA busy_timeout=0")
        return work()
    finally:
        handle.connection.execute(f"PRAGMA busy_timeout={wait_ms}")
