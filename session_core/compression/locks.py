"""The compression lock of Hermes, held and refreshed by this process.

The lock of a dead process of this program is taken over at once. The lock of any other holder must
expire first.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import TypeVar

from session_core import processes
from session_core.compression.types import NotCompressed
from session_core.errors import InvalidInput, SessionError
from session_core.hooks.foreign_calls import log_fault
from session_core.state.protocol import StateDatabase

T = TypeVar("T")

REFRESH_S = 60.0
"""Interval of refreshes, a fifth of the lock's lifetime, so that a few may fail."""

LOCK_TIMEOUT_S = 10.0
"""Maximum time to wait for a lock; the step of another process takes less."""

_RETRY_PAUSE_S = 0.05
_AGENT_NAME = "mcp-sessions"


class CompressionLocks:
    """The locks that threads of this process hold. A thread may take a lock again."""

    def __init__(self, db: StateDatabase) -> None:
        self._db = db
        self._thread_state = threading.local()

    def run_locked(
        self, session_ids: Sequence[str], step: Callable[[], T], *, patient: bool = False
    ) -> T:
        """Call `step` while holding the locks of sessions.

        With `patient`, wait for a lock, because its holder may be running the same step. The locks
        are released after any interrupt.

        Raises:
            NotCompressed: another holder has one of the locks.
            InvalidInput: a transaction is open.
        """
        held = self._get_held_locks()
        missing = [session_id for session_id in session_ids if session_id not in held]
        if not missing:
            return step()
        if self._db.in_transaction:
            raise InvalidInput("a compression needs its own transactions; end the open one first")
        # The gate is an interpreter lock, so no interrupt can come between taking it and the step.
        lock_thread = _LockThread(self._db, missing, LOCK_TIMEOUT_S if patient else 0.0)
        try:
            with lock_thread.gate:
                lock_thread.acquire_locks()
                try:
                    self._thread_state.held = {**held, **dict.fromkeys(missing, lock_thread.holder)}
                    return step()
                finally:
                    self._thread_state.held = held
        finally:
            # Without the wait, the next compression of this caller could find its own old lock.
            if lock_thread.is_alive():
                lock_thread.join()

    def confirm_lock(self, session_id: str) -> None:
        """Check that a lock is still held, just before the change that it protects.

        Raises:
            NotCompressed: the lock has expired, and another holder may have it.
        """
        if not self._db.refresh_compression_lock(session_id, self._get_held_locks()[session_id]):
            raise _make_locked_error(session_id, self._db.get_compression_lock_holder(session_id))

    def _get_held_locks(self) -> dict[str, str]:
        held: dict[str, str] = self._thread_state.__dict__.setdefault("held", {})
        return held


class _LockThread(threading.Thread):
    """Takes locks, refreshes them, and releases them as soon as `gate` is free.

    Signals interrupt only the main thread, so this thread always releases the locks.
    """

    def __init__(self, db: StateDatabase, session_ids: Sequence[str], patience_s: float) -> None:
        super().__init__(name="compression lock", daemon=True)
        self.gate = threading.Lock()
        self.holder = _make_holder()
        self._db = db
        self._session_ids = session_ids
        self._patience_s = patience_s
        # A plain lock, because an interrupt may leave the lock of a threading.Event held.
        self._tried = threading.Lock()
        self._error: Exception | None = None

    def acquire_locks(self) -> None:
        """Start the thread and wait for the locks. The caller must hold `gate`.

        Raises:
            NotCompressed: another holder has one of the locks.
        """
        self._tried.acquire()
        self.start()
        self._tried.acquire()
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        """Hold the locks until `gate` is free."""
        acquired: list[str] = []
        try:
            for session_id in self._session_ids:
                self._acquire_lock(session_id)
                acquired.append(session_id)
        except Exception as error:  # noqa: BLE001 -- acquire_locks raises it again
            self._error = error
        self._tried.release()
        while not self._wait_for_gate(REFRESH_S):
            for session_id in acquired:
                with suppress(SessionError):  # the next refresh or `confirm_lock` finds out
                    self._db.refresh_compression_lock(session_id, self.holder)
        for session_id in acquired:  # the gate is open: the step has ended
            self._release_lock(session_id)

    def _acquire_lock(self, session_id: str) -> None:
        deadline = time.monotonic() + self._patience_s
        while not self._db.try_acquire_compression_lock(session_id, self.holder):
            holder = self._db.get_compression_lock_holder(session_id)
            if holder is not None and _is_dead_holder(holder):
                # Only if it still has this holder: another process may have taken it over.
                self._db.release_compression_lock(session_id, holder)
            elif time.monotonic() >= deadline or self._wait_for_gate(_RETRY_PAUSE_S):
                raise _make_locked_error(session_id, holder)

    def _wait_for_gate(self, within_s: float) -> bool:
        is_open = self.gate.acquire(timeout=within_s)
        if is_open:
            self.gate.release()
        return is_open

    def _release_lock(self, session_id: str) -> None:
        try:
            self._db.release_compression_lock(session_id, self.holder)
        except SessionError as error:
            log_fault(f"the lock of session {session_id} stays until it expires", error)


def _make_holder() -> str:
    nonce, thread = uuid.uuid4().hex[:8], threading.get_native_id()
    return (
        f"pid={os.getpid()}:tid={thread}:"
        f"agent={_AGENT_NAME}:{_identify_process(os.getpid())}:nonce={nonce}"
    )


# By pid, so that a forked child does not use the text of its parent.
@cache
def _identify_process(pid: int) -> str:
    """Return a text that distinguishes a process from others with its pid, on all machines."""
    return f"start={processes.get_start_time(pid) or ''}:host={processes.identify_host()}"


def _parse_holder(holder: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in holder.split(":") if "=" in part)


def _is_dead_holder(holder: str) -> bool:
    """Return True if a holder is a process of this program and machine that has ended."""
    fields = _parse_holder(holder)
    if (fields.get("agent"), fields.get("host")) != (_AGENT_NAME, processes.identify_host()):
        return False
    pid = fields.get("pid", "")
    return pid.isdecimal() and not processes.is_alive(int(pid), fields.get("start"))


def _make_locked_error(session_id: str, holder: str | None) -> NotCompressed:
    if holder is None:
        return NotCompressed(
            "locked", f"another process has compressed session {session_id}; plan again"
        )
    return NotCompressed(
        "locked",
        f"session {session_id} is being compressed by {_describe_holder(holder)}; wait, "
        "then try again",
    )


def _describe_holder(holder: str) -> str:
    fields = _parse_holder(holder)
    if fields.get("pid") == str(os.getpid()) and fields.get("host") == processes.identify_host():
        return "another thread of this process"
    if "pid" not in fields:
        return holder
    return f"{fields.get('agent', 'a program')} (pid {fields['pid']})"
