"""The one writing connection of a database: short transactions, many callers, one commit.

Callers that arrive while a commit is under way are committed together by the next one. Where one
of them fails nothing is committed, and each is tried alone, so that it takes nothing from the
others. A caller returns when its change is committed, never before.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

from session_core import driver
from session_core.errors import Busy, InvalidInput, SessionError, StorageError
from session_core.state.sqlite.handle import Handle, is_busy

T = TypeVar("T")
Step = Callable[[Handle], T]

BATCH = 64
"""At most so many callers share one commit, which bounds how long the lock is held."""

CHECKPOINT_ROWS = 400
"""After so many changed rows the log is folded back, at about a thousand pages.

A log that is reused costs half of one that grows.
"""

_INDEX_ROWS = 10
"""So many rows of its search indexes does Hermes change with one of a message."""

_JITTER_S = (0.02, 0.15)
_LONGEST_WAIT_S = 1.0

_AFTERWARDS_S = 0.25
"""How long a caller that has changed something does what was left over, before it returns."""


class _Job:
    """One caller's step, and what became of it."""

    __slots__ = ("deadline", "done", "error", "leads", "result", "step", "turn")

    def __init__(self, step: Step[Any] | None, deadline: float) -> None:
        self.step = step
        self.deadline = deadline
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.leads = False
        self.turn = threading.Lock()
        self.turn.acquire()


class Writer:
    """Serialises the changes of all threads through one connection."""

    def __init__(
        self,
        open_handle: Callable[[], Handle],
        *,
        checkpoint: str,
        patience_s: float,
        check: Callable[[], None] = lambda: None,
        overdue: bool = False,
        afterwards: Step[bool] = lambda _: False,
    ) -> None:
        self._open_handle = open_handle
        self._afterwards = afterwards
        self._checkpoint = checkpoint
        self._patience_s = patience_s
        self._wait_ms = int(min(patience_s, _LONGEST_WAIT_S) * 1000)
        self._check = check
        self._handle: Handle | None = None
        self._queue: deque[_Job] = deque()
        self._mutex = threading.Lock()
        self._leading = False
        self._owner: int | None = None
        self._closed = False
        self._row_weight = 1 if checkpoint == "FULL" else _INDEX_ROWS
        self._rows_seen = 0
        self._overdue = overdue

    @property
    def current(self) -> Handle | None:
        """The handle of the transaction that this thread has open, if any."""
        return self._handle if self._owner == threading.get_ident() else None

    def run(self, step: Step[T]) -> T:
        """Run `step` in a transaction and return its result once that is durable."""
        inside = self.current
        if inside is not None:
            with _savepoint(inside):
                return step(inside)
        job = _Job(step, self._deadline())
        try:
            if not self._join(job, self._patience_s):
                self._give_up(job)
            if job.leads:
                self._commit(self._take())
        finally:
            if job.leads or not job.done:
                self._leave(job)
        result: T = _outcome(job)
        self._follow_up()
        return result

    @contextmanager
    def transaction(self) -> Iterator[Handle]:
        """All that this thread changes inside is one transaction."""
        inside = self.current
        if inside is not None:
            with _savepoint(inside):
                yield inside
            return
        with self._turn() as deadline, self._changes(deadline) as handle:
            yield handle
        self._follow_up()

    def tidy(self, for_s: float) -> None:
        """Do what was left over, in short transactions between which others have their turn.

        No change of anybody depends on it, so the first error leaves it for another time.
        """
        if self.current is not None:
            return
        until = time.monotonic() + for_s
        with suppress(driver.library().Error, SessionError):
            while self._tidy_once() and time.monotonic() < until:
                pass

    def _tidy_once(self) -> bool:
        with self._turn():
            handle = self._opened()
            with self._in_a_hurry(), self._changes(0):
                return self._afterwards(handle)

    def _follow_up(self) -> None:
        handle = self._handle
        if handle is not None and handle.due and self.current is None:
            handle.due = False
            self.tidy(_AFTERWARDS_S)

    @contextmanager
    def alone(self) -> Iterator[Handle]:
        """The connection with no transaction open, for what cannot run in one."""
        with self._turn():
            yield self._opened()

    def close(self, wait_s: float = -1) -> bool:
        """Close the connection once the change that is under way is over; say if it was in time.

        A transaction that this very thread has open is rolled back: nobody else could end it.
        """
        if self.current is not None:
            self._owner = None
            self._shut()
            return True
        job = _Job(None, self._deadline())
        try:
            in_time = self._join(job, wait_s)
            if in_time:
                self._shut()
            return in_time
        finally:
            self._leave(job)

    def _shut(self) -> None:
        self._closed = True
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.connection.close()

    def _deadline(self) -> float:
        return time.monotonic() + self._patience_s

    @contextmanager
    def _turn(self) -> Iterator[float]:
        """Nobody else uses the connection meanwhile; the value is when patience ends."""
        job = _Job(None, self._deadline())
        try:
            if not self._join(job, self._patience_s):
                self._give_up(job)
            with self._mutex:
                self._queue.remove(job)
            yield job.deadline
        finally:
            self._leave(job)

    def _join(self, job: _Job, wait_s: float) -> bool:
        """Queue up and wait until this caller leads or is done; say whether that was in time."""
        with self._mutex:
            self._queue.append(job)
            if not self._leading:
                self._leading = job.leads = True
                return True
        return job.turn.acquire(timeout=min(wait_s, threading.TIMEOUT_MAX))

    def _give_up(self, job: _Job) -> None:
        """Take the job out of the queue; one that is being committed is waited for."""
        with self._mutex:
            if job in self._queue and not job.leads:
                self._queue.remove(job)
                raise Busy("a transaction of this process has the database; end it, then try again")
        job.turn.acquire()

    def _take(self) -> list[_Job]:
        with self._mutex:
            batch: list[_Job] = []
            while self._queue and len(batch) < BATCH and self._queue[0].step is not None:
                batch.append(self._queue.popleft())
            return batch

    def _leave(self, job: _Job) -> None:
        """Step out: a leader hands over, a caller that was interrupted takes its job back."""
        with self._mutex:
            if job in self._queue:
                self._queue.remove(job)
            if not job.leads:
                return
            job.leads = False
            if not self._queue:
                self._leading = False
                return
            following = self._queue[0]
            following.leads = True
            following.turn.release()

    def _commit(self, batch: list[_Job]) -> None:
        try:
            if len(batch) == 1 or not self._commit_together(batch):
                for job in batch:
                    self._commit_alone(job)
        finally:
            for job in batch:
                if not job.done:
                    job.error = job.error or StorageError("the change was interrupted; read again")
                    job.done = True
            for job in batch[1:]:
                job.turn.release()

    def _commit_alone(self, job: _Job) -> None:
        step = cast("Step[Any]", job.step)
        try:
            with self._changes(job.deadline) as handle:
                result = step(handle)
        except Exception as error:  # noqa: BLE001 -- raised in the caller's thread
            job.error = error
        else:
            job.result = result
        job.done = True

    def _commit_together(self, batch: list[_Job]) -> bool:
        """Commit a batch; return False, with nothing changed, where each must be tried alone."""
        try:
            with self._changes(max(job.deadline for job in batch)) as handle:
                for job in batch:
                    job.result = cast("Step[Any]", job.step)(handle)
        except Exception as error:  # noqa: BLE001 -- each caller gets his own, in his own thread
            # Whoever has the lock has it for each of them: they do not wait one after another.
            busy = isinstance(error, driver.library().Error) and is_busy(error)
            for job in batch:
                job.result, job.error = None, type(error)(*error.args) if busy else None
            if not busy:
                return False
        for job in batch:
            job.done = True
        return True

    @contextmanager
    def _changes(self, deadline: float) -> Iterator[Handle]:
        """A transaction, whole or not at all; an error means that nothing was committed."""
        handle = self._opened()
        if self._overdue:
            # Processes that write a little and end would leave a log that only ever grows: who
            # opens it first has forgotten what was folded back, so that is done before a write.
            self._overdue = False
            self._fold_back(handle)
        try:
            patiently(handle, "BEGIN IMMEDIATE", deadline)
            self._check()
            handle.look_again()
            # A step that calls a public method, or a signal handler that does, goes on inside.
            self._owner = threading.get_ident()
            yield handle
            self._owner = None
            patiently(handle, "COMMIT", self._deadline())
        except BaseException:
            self._owner = None
            _roll_back(handle)
            raise
        changed = handle.connection.total_changes
        if changed - self._rows_seen >= CHECKPOINT_ROWS * self._row_weight:
            self._rows_seen = changed
            self._fold_back(handle)

    def _opened(self) -> Handle:
        if self._closed:
            raise InvalidInput("this session database is closed; open it again")
        if self._handle is None:
            self._handle = self._open_handle()
            self._let_wait(self._wait_ms)
        return self._handle

    @contextmanager
    def _in_a_hurry(self) -> Iterator[None]:
        """Inside, whoever has the lock is not waited for."""
        self._let_wait(0)
        try:
            yield
        finally:
            self._let_wait(self._wait_ms)

    def _let_wait(self, milliseconds: int) -> None:
        """Set how long one statement waits for the lock; the patience is made of such waits."""
        if self._handle is not None:
            self._handle.connection.execute(f"PRAGMA busy_timeout={milliseconds}")

    def _fold_back(self, handle: Handle) -> None:
        """Checkpoint; where that fails, the log still has all of it, and the next one does it."""
        # The change is durable already: an error now would tell its caller that it is not.
        with self._in_a_hurry(), suppress(driver.library().Error):
            handle.connection.execute(f"PRAGMA wal_checkpoint({self._checkpoint})").fetchall()


def patiently(handle: Handle, sql: str, deadline: float) -> None:
    """Run a statement that needs the lock, with jitter, for as long as the patience lasts."""
    while True:
        try:
            handle.connection.execute(sql)
        except driver.library().OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(random.uniform(*_JITTER_S))  # noqa: S311 -- jitter, not a secret
        else:
            return


@contextmanager
def _savepoint(handle: Handle) -> Iterator[None]:
    connection = handle.connection
    connection.execute("SAVEPOINT step")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO step")
            connection.execute("RELEASE step")
            handle.forget()
        raise
    connection.execute("RELEASE step")


def _roll_back(handle: Handle) -> None:
    handle.forget()
    if handle.connection.in_transaction:
        handle.connection.execute("ROLLBACK")


def _outcome(job: _Job) -> Any:
    if job.error is not None:
        raise job.error
    return job.result
