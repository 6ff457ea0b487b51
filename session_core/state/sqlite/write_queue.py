"""Queue of callers that wait for the one write connection.

A signal handler may interrupt a caller at any call. A caller therefore leaves the queue by a plain
store, which cannot be interrupted, before it does anything else. A leader that left without that
store, because its thread has ended or has returned from the call, is detected and replaced.
Exceptions of signal handlers reach only the main thread, so the main thread never runs the jobs of
other threads: such an exception would fail them.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from session_core import _sqlite3
from session_core.errors import Busy, StorageError
from session_core.event_loops import get_current_task
from session_core.state.sqlite.connection import Connection

WriteStep = Callable[[Connection], Any]

MAX_BATCH_JOBS = 64
"""Largest number of jobs in one commit, which bounds how long the lock is held."""

_RECHECK_S = 0.25
"""The seconds that a caller waits to be woken before it checks that the leader is still active."""


class ThreadToken:
    """Identifies a thread for its lifetime, since thread numbers are reused."""

    __slots__ = ("__weakref__", "number")

    def __init__(self) -> None:
        self.number = threading.get_ident()


class _ThreadTokens(threading.local):
    def __init__(self) -> None:
        self.own = ThreadToken()


_thread_tokens = _ThreadTokens()


def get_thread_token() -> weakref.ref[ThreadToken]:
    """Return a reference that differs from the references of all other threads, past and future."""
    return weakref.ref(_thread_tokens.own)


class WriteJob:
    """A function queued for the leader thread, or a request for exclusive use of the connection."""

    __slots__ = (
        "deadline",
        "done",
        "error",
        "inside",
        "linked",
        "over",
        "owner",
        "result",
        "solo",
        "step",
        "task",
        "thread",
        "transaction_ref",
        "wake",
    )

    def __init__(self, step: WriteStep | None, deadline: float) -> None:
        self.step = step
        self.deadline = deadline
        self.thread = get_thread_token()
        self.task = get_current_task()
        self.solo = step is None
        """Whether only the thread of the caller may run the job."""
        self.result: Any = None
        self.error: Exception | None = None
        self.done = False
        self.inside = False
        """Whether the job has a transaction open."""
        self.linked = True
        """Whether the transaction enforces foreign keys."""
        self.over = False
        """Whether the caller has left."""
        self.owner: object = None
        """The writer that made the job."""
        self.transaction_ref: weakref.ref[Any] | None = None
        """The object whose end ends the transaction, if it is not bound to one call."""
        self.wake: threading.Lock | None = None

    @property
    def is_open(self) -> bool:
        """True if calls of the job's caller are now part of its transaction."""
        return (
            self.inside
            and not self.over
            and (self.transaction_ref is None or self.transaction_ref() is not None)
        )

    @property
    def is_of_caller(self) -> bool:
        """True if the current thread and task created the job."""
        return self.thread == get_thread_token() and self.task == get_current_task()


class WriteQueue:
    """The queue of callers and its current leader."""

    def __init__(self) -> None:
        # Reentrant, since a signal handler may write while this thread holds it.
        self._mutex = threading.RLock()
        self.queue: deque[WriteJob] = deque()
        self.leader: WriteJob | None = None

    def wait_for_lead(self, job: WriteJob, until: float) -> bool:
        """Wait until the caller may lead.

        Return False if another thread has done its job.

        Raises:
            Busy: the wait timed out, or would never end.
            StorageError: the thread that ran the job is gone, and its result is unknown.
        """
        # A leader that comes again is in the queue already: its batch failed and was put back.
        if self.leader is not job:
            self.queue.append(job)
        closely = False
        while True:
            with self._mutex:
                if job.done or self._try_to_lead(job, closely=closely):
                    return not job.done
                wake = job.wake
            remaining_s = until - time.monotonic()
            if remaining_s <= 0 and self._withdraw_job(job):
                raise self._make_timeout_error()
            # After the deadline the wait goes on only while the job runs, which is checked often.
            wait_s = min(remaining_s, _RECHECK_S) if remaining_s > 0 else _RECHECK_S
            closely = wake is not None and not wake.acquire(timeout=wait_s)

    def take_jobs(self, job: WriteJob) -> list[WriteJob]:
        """Return the jobs for the leader to run: a batch from the front, or its own job alone."""
        with self._mutex:
            batch: list[WriteJob] = []
            if not _is_solo(job):
                while self.queue and len(batch) < MAX_BATCH_JOBS and not self.queue[0].solo:
                    first = self.queue.popleft()
                    if not first.over:
                        batch.append(first)
            if not batch:
                # Not always the first: a job of the same thread that it interrupted stays before
                # it.
                self.queue.remove(job)
            return batch or [job]

    def put_back_jobs(self, jobs: Iterable[WriteJob]) -> None:
        """Return jobs to their own threads, at the front of the queue."""
        with self._mutex:
            for job in jobs:
                # From now on it runs alone, so it can fail no other job again.
                job.solo = True
            self.queue.extendleft(reversed([job for job in jobs if not job.over]))

    def wake_jobs(self, jobs: Iterable[WriteJob]) -> None:
        """Wake the callers of jobs that are done."""
        with self._mutex:
            for job in jobs:
                _wake_job(job)

    def leave_queue(self, job: WriteJob) -> None:
        """Leave the queue after `job.over` was set, and wake the next caller."""
        with self._mutex:
            if self.leader is job:
                self.leader = None
            self._wake_first()

    def check_task(self) -> None:
        """Refuse a change while another task of this thread has a transaction open.

        Raises:
            Busy: another task of this thread has a transaction open.
        """
        leader = self.leader
        if leader is not None and leader.is_open and leader.thread == get_thread_token():
            job = WriteJob(None, 0.0)
            # A wait would block the thread in which the other task has to end its transaction.
            if leader.task != job.task:
                raise _make_deadlock_error(leader, job)

    def _try_to_lead(self, job: WriteJob, *, closely: bool) -> bool:
        """Make the job the leader if its turn has come."""
        if self.leader is job:
            self.leader = None
        if self._has_active_leader(job, closely=closely):
            # Only this thread could end that transaction, so the wait would never end.
            if self.leader is not None and self.leader.thread == job.thread:
                raise _make_deadlock_error(self.leader, job)
        elif self._is_first(job):
            self.leader = job
            return True
        else:
            self._wake_first()
        if job.wake is None:
            job.wake = threading.Lock()
            job.wake.acquire()
        return False

    def _has_active_leader(self, job: WriteJob, *, closely: bool) -> bool:
        leader = self.leader
        if leader is None or leader.over:
            return False
        # Frames of another thread are read only after a wait in which no caller woke this one.
        return not (closely or leader.thread == job.thread) or _is_active(leader)

    def _is_first(self, job: WriteJob) -> bool:
        if self.queue and self.queue[0] is job:
            return True
        if job not in self.queue:
            raise StorageError("the change was interrupted, possibly after its commit; read again")
        # An earlier job of the same thread resumes after this one, which interrupted it.
        # The queue is copied, since a signal handler that writes may extend it meanwhile.
        before = itertools.takewhile(lambda other: other is not job, list(self.queue))
        return all(other.over or other.thread == job.thread for other in before)

    def _wake_first(self) -> None:
        while self.queue and self.queue[0].over:
            self.queue.popleft()
        if self.leader is None and self.queue:
            _wake_job(self.queue[0])

    def _withdraw_job(self, job: WriteJob) -> bool:
        """Remove a job from the queue, unless a thread is running it.

        Return True if it was removed.
        """
        with self._mutex:
            if job not in self.queue:
                # It is being run and may be committed, so a timeout would be a wrong answer.
                return False
            self.queue.remove(job)
            return True

    def _make_timeout_error(self) -> Exception:
        leader = self.leader
        if leader is not None and leader.is_open:
            return Busy(
                "a transaction of this process has locked the database; end it, then try again"
            )
        # The leader waits for another process, which the caller names if it is known.
        locked: Exception = _sqlite3.load_library().OperationalError("database is locked")
        return locked


def _make_deadlock_error(leader: WriteJob, job: WriteJob) -> Busy:
    if leader.task == job.task:
        return Busy("a change of this thread is in progress; try again after it")
    return Busy(
        "another task of this thread has a transaction open, and waiting for it would deadlock; "
        "run a transaction as one function: await AsyncSessionDB(db).run(step)"
    )


def _wake_job(job: WriteJob) -> None:
    if job.wake is not None and job.wake.locked():
        job.wake.release()


def _is_solo(job: WriteJob) -> bool:
    """Return True if the job's thread runs only this job."""
    mark = job.thread()
    # A signal handler raises in the main thread, where it would fail the jobs of other threads.
    return job.solo or mark is None or mark.number == threading.main_thread().ident


def _is_active(leader: WriteJob) -> bool:
    """Return True if a leader that has not left the queue still runs.

    Its thread then has a frame with the leader as the local `job`.
    """
    mark = leader.thread()
    if mark is None:
        return False
    frame = sys._current_frames().get(mark.number)  # noqa: SLF001 -- the only access to frames
    # The block of a transaction is code of its caller, which has no frame with the job.
    if frame is not None and leader.transaction_ref is not None and leader.is_open:
        return True
    while frame is not None:
        if frame.f_locals.get("job") is leader:
            return True
        frame = frame.f_back
    return False
