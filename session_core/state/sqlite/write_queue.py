"""Whose turn it is: one connection, many callers, and nobody who is gone keeps it.

A signal handler may cut a caller short at any call that it makes. So whoever leaves says so by a
plain store, which nothing can cut short, before anything else; and a leader that has left without a
word, since its thread has ended or is no longer at it, is not waited for. What a handler raises
hits the main thread alone: there a caller does no work of others, which could fail for it.
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
"""At most so many callers share one commit, which bounds how long the lock is held."""

_RECHECK_S = 0.25
"""How long is waited to be woken before the one who should do it is looked at."""


class ThreadToken:
    """What ends with its thread: a number is given to a later one again."""

    __slots__ = ("__weakref__", "number")

    def __init__(self) -> None:
        self.number = threading.get_ident()


class _ThreadTokens(threading.local):
    def __init__(self) -> None:
        self.own = ThreadToken()


_thread_tokens = _ThreadTokens()


def get_thread_token() -> weakref.ref[ThreadToken]:
    """Return what tells this thread from all others, earlier and later ones too."""
    return weakref.ref(_thread_tokens.own)


class WriteJob:
    """What one caller wants: a step, which others may do for it, or the connection to itself."""

    __slots__ = (
        "deadline",
        "done",
        "error",
        "inside",
        "linked",
        "of",
        "over",
        "result",
        "solo",
        "step",
        "task",
        "thread",
        "wake",
    )

    def __init__(self, step: WriteStep | None, deadline: float) -> None:
        self.step = step
        self.deadline = deadline
        self.thread = get_thread_token()
        self.task = get_current_task()
        self.solo = step is None
        """Whether no other thread may do it."""
        self.result: Any = None
        self.error: Exception | None = None
        self.done = False
        self.inside = False
        """Whether it has a transaction open."""
        self.linked = True
        """Whether its transaction sees to it that what is referred to is there."""
        self.over = False
        """Whether its caller has left."""
        self.of: weakref.ref[Any] | None = None
        """What it ends with, where that is no call."""
        self.wake: threading.Lock | None = None

    @property
    def is_open(self) -> bool:
        """Whether what its caller calls now is a part of its transaction."""
        return self.inside and not self.over and (self.of is None or self.of() is not None)

    @property
    def is_of_caller(self) -> bool:
        """Whether this thread and this task have made it."""
        return self.thread == get_thread_token() and self.task == get_current_task()


class WriteQueue:
    """The queue of the callers, and who of them leads."""

    def __init__(self) -> None:
        # A signal handler may write, too, also while this is held.
        self._mutex = threading.RLock()
        self.queue: deque[WriteJob] = deque()
        self.leader: WriteJob | None = None

    def wait_for_lead(self, job: WriteJob, until: float) -> bool:
        """Wait until the caller may lead; False where somebody else has done its job by then.

        Raises:
            Busy: that was not in time, or will never be.
            StorageError: who was at it is gone, and nobody knows what became of it.
        """
        if self.leader is not job:
            self.queue.append(job)
        closely = False
        while True:
            with self._mutex:
                if job.done or self._try_to_lead(job, closely=closely):
                    return not job.done
                wake = job.wake
            left = until - time.monotonic()
            if left <= 0 and self._withdraw_job(job):
                raise self._make_timeout_error()
            # Without end only as long as somebody is at it, which is looked at each time.
            wait_s = min(left, _RECHECK_S) if left > 0 else _RECHECK_S
            closely = wake is not None and not wake.acquire(timeout=wait_s)

    def take_jobs(self, job: WriteJob) -> list[WriteJob]:
        """Return what the leader is to do now: its own job alone, or what came first."""
        with self._mutex:
            batch: list[WriteJob] = []
            if not _is_solo(job):
                while self.queue and len(batch) < MAX_BATCH_JOBS and not self.queue[0].solo:
                    first = self.queue.popleft()
                    if not first.over:
                        batch.append(first)
            if not batch:
                self.queue.remove(job)
            return batch or [job]

    def put_back_jobs(self, jobs: Iterable[WriteJob]) -> None:
        """Give each back to its own thread, before all others."""
        with self._mutex:
            for job in jobs:
                job.solo = True
            self.queue.extendleft(reversed([job for job in jobs if not job.over]))

    def wake_jobs(self, jobs: Iterable[WriteJob]) -> None:
        """Wake those whose jobs are done."""
        with self._mutex:
            for job in jobs:
                _wake_job(job)

    def leave_queue(self, job: WriteJob) -> None:
        """Step out, after `job.over` was set; the next one is told."""
        with self._mutex:
            if self.leader is job:
                self.leader = None
            self._wake_first()

    def check_task(self) -> None:
        """Make sure that no other task of this thread has a transaction open.

        Raises:
            Busy: one has.
        """
        leader = self.leader
        if leader is not None and leader.is_open and leader.thread == get_thread_token():
            job = WriteJob(None, 0.0)
            if leader.task != job.task:
                raise _make_deadlock_error(leader, job)

    def _try_to_lead(self, job: WriteJob, *, closely: bool) -> bool:
        """Make a job the leader where it may be."""
        if self.leader is job:
            self.leader = None
        if self._is_led(job, closely=closely):
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

    def _is_led(self, job: WriteJob, *, closely: bool) -> bool:
        leader = self.leader
        if leader is None or leader.over:
            return False
        return not (closely or leader.thread == job.thread) or _is_active(leader)

    def _is_first(self, job: WriteJob) -> bool:
        if self.queue and self.queue[0] is job:
            return True
        if job not in self.queue:
            raise StorageError("the change was interrupted, perhaps after it was made; read again")
        # A job of the same thread that came before goes on when what interrupted it is over.
        # Of a copy, since a signal handler that writes joins the queue meanwhile.
        before = itertools.takewhile(lambda one: one is not job, list(self.queue))
        return all(one.over or one.thread == job.thread for one in before)

    def _wake_first(self) -> None:
        while self.queue and self.queue[0].over:
            self.queue.popleft()
        if self.leader is None and self.queue:
            _wake_job(self.queue[0])

    def _withdraw_job(self, job: WriteJob) -> bool:
        """Take a job out of the queue, unless somebody is at it."""
        with self._mutex:
            if job not in self.queue:
                return False
            self.queue.remove(job)
            return True

    def _make_timeout_error(self) -> Exception:
        leader = self.leader
        if leader is not None and leader.is_open:
            return Busy("a transaction of this process has the database; end it, then try again")
        # Whoever is before this one waits for another process, which is named where it is known.
        locked: Exception = _sqlite3.load_library().OperationalError("database is locked")
        return locked


def _make_deadlock_error(leader: WriteJob, job: WriteJob) -> Busy:
    if leader.task == job.task:
        return Busy("a change of this very thread is under way; try again after it")
    return Busy(
        "another task of this thread has a transaction open, and to wait for it would block both; "
        "run a transaction as one function: await AsyncSessionDB(db).run(step)"
    )


def _wake_job(job: WriteJob) -> None:
    if job.wake is not None and job.wake.locked():
        job.wake.release()


def _is_solo(job: WriteJob) -> bool:
    """Whether its thread does nothing but this job."""
    mark = job.thread()
    return job.solo or mark is None or mark.number == threading.main_thread().ident


def _is_active(leader: WriteJob) -> bool:
    """Whether one that has not said that it leaves is still there: in a frame, as `job`."""
    mark = leader.thread()
    if mark is None:
        return False
    frame = sys._current_frames().get(mark.number)  # noqa: SLF001 -- there is no other way to see it
    if frame is not None and leader.of is not None and leader.is_open:
        return True
    while frame is not None:
        if frame.f_locals.get("job") is leader:
            return True
        frame = frame.f_back
    return False
