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
from session_core.event_loops import current_task
from session_core.state.sqlite.connection import Handle

Step = Callable[[Handle], Any]

BATCH = 64
"""At most so many callers share one commit, which bounds how long the lock is held."""

_RECHECK_S = 0.25
"""How long is waited to be woken before the one who should do it is looked at."""


class Mark:
    """What ends with its thread: a number is given to a later one again."""

    __slots__ = ("__weakref__", "number")

    def __init__(self) -> None:
        self.number = threading.get_ident()


class _Marks(threading.local):
    def __init__(self) -> None:
        self.own = Mark()


_marks = _Marks()


def this_thread() -> weakref.ref[Mark]:
    """Return what tells this thread from all others, earlier and later ones too."""
    return weakref.ref(_marks.own)


class Job:
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

    def __init__(self, step: Step | None, deadline: float) -> None:
        self.step = step
        self.deadline = deadline
        self.thread = this_thread()
        self.task = current_task()
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
    def includes(self) -> bool:
        """Whether what its caller calls now is a part of its transaction."""
        return self.inside and not self.over and (self.of is None or self.of() is not None)

    @property
    def is_of_caller(self) -> bool:
        """Whether this thread and this task have made it."""
        return self.thread == this_thread() and self.task == current_task()


class Turns:
    """The queue of the callers, and who of them leads."""

    def __init__(self) -> None:
        # A signal handler may write, too, also while this is held.
        self._mutex = threading.RLock()
        self.queue: deque[Job] = deque()
        self.leader: Job | None = None

    def lead(self, job: Job, until: float) -> bool:
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
                if job.done or self._try(job, closely=closely):
                    return not job.done
                wake = job.wake
            left = until - time.monotonic()
            if left <= 0 and self._withdraw(job):
                raise self._too_late()
            # Without end only as long as somebody is at it, which is looked at each time.
            wait_s = min(left, _RECHECK_S) if left > 0 else _RECHECK_S
            closely = wake is not None and not wake.acquire(timeout=wait_s)

    def take(self, job: Job) -> list[Job]:
        """Return what the leader is to do now: its own job alone, or what came first."""
        with self._mutex:
            batch: list[Job] = []
            if not _alone(job):
                while self.queue and len(batch) < BATCH and not self.queue[0].solo:
                    first = self.queue.popleft()
                    if not first.over:
                        batch.append(first)
            if not batch:
                self.queue.remove(job)
            return batch or [job]

    def put_back(self, jobs: Iterable[Job]) -> None:
        """Give each back to its own thread, before all others."""
        with self._mutex:
            for job in jobs:
                job.solo = True
            self.queue.extendleft(reversed([job for job in jobs if not job.over]))

    def tell(self, jobs: Iterable[Job]) -> None:
        """Wake those whose jobs are done."""
        with self._mutex:
            for job in jobs:
                _wake(job)

    def leave(self, job: Job) -> None:
        """Step out, after `job.over` was set; the next one is told."""
        with self._mutex:
            if self.leader is job:
                self.leader = None
            self._tell_first()

    def check_task(self) -> None:
        """Make sure that no other task of this thread has a transaction open.

        Raises:
            Busy: one has.
        """
        leader = self.leader
        if leader is not None and leader.includes and leader.thread == this_thread():
            job = Job(None, 0.0)
            if leader.task != job.task:
                raise _held_by_this_thread(leader, job)

    def _try(self, job: Job, *, closely: bool) -> bool:
        """Make a job the leader where it may be."""
        if self.leader is job:
            self.leader = None
        if self._is_led(job, closely=closely):
            if self.leader is not None and self.leader.thread == job.thread:
                raise _held_by_this_thread(self.leader, job)
        elif self._is_first(job):
            self.leader = job
            return True
        else:
            self._tell_first()
        if job.wake is None:
            job.wake = threading.Lock()
            job.wake.acquire()
        return False

    def _is_led(self, job: Job, *, closely: bool) -> bool:
        leader = self.leader
        if leader is None or leader.over:
            return False
        return not (closely or leader.thread == job.thread) or _at_work(leader)

    def _is_first(self, job: Job) -> bool:
        if self.queue and self.queue[0] is job:
            return True
        if job not in self.queue:
            raise StorageError("the change was interrupted, perhaps after it was made; read again")
        # A job of the same thread that came before goes on when what interrupted it is over.
        # Of a copy, since a signal handler that writes joins the queue meanwhile.
        before = itertools.takewhile(lambda one: one is not job, list(self.queue))
        return all(one.over or one.thread == job.thread for one in before)

    def _tell_first(self) -> None:
        while self.queue and self.queue[0].over:
            self.queue.popleft()
        if self.leader is None and self.queue:
            _wake(self.queue[0])

    def _withdraw(self, job: Job) -> bool:
        """Take a job out of the queue, unless somebody is at it."""
        with self._mutex:
            if job not in self.queue:
                return False
            self.queue.remove(job)
            return True

    def _too_late(self) -> Exception:
        leader = self.leader
        if leader is not None and leader.includes:
            return Busy("a transaction of this process has the database; end it, then try again")
        # Whoever is before this one waits for another process, which is named where it is known.
        locked: Exception = _sqlite3.library().OperationalError("database is locked")
        return locked


def _held_by_this_thread(leader: Job, job: Job) -> Busy:
    if leader.task == job.task:
        return Busy("a change of this very thread is under way; try again after it")
    return Busy(
        "another task of this thread has a transaction open, and to wait for it would block both; "
        "run a transaction as one function: await AsyncSessionDB(db).run(step)"
    )


def _wake(job: Job) -> None:
    if job.wake is not None and job.wake.locked():
        job.wake.release()


def _alone(job: Job) -> bool:
    """Whether its thread does nothing but this job."""
    mark = job.thread()
    return job.solo or mark is None or mark.number == threading.main_thread().ident


def _at_work(leader: Job) -> bool:
    """Whether one that has not said that it leaves is still there: in a frame, as `job`."""
    mark = leader.thread()
    if mark is None:
        return False
    frame = sys._current_frames().get(mark.number)  # noqa: SLF001 -- there is no other way to see it
    if frame is not None and leader.of is not None and leader.includes:
        return True
    while frame is not None:
        if frame.f_locals.get("job") is leader:
            return True
        frame = frame.f_back
    return False
