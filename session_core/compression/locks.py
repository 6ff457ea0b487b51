"""The compression lock of a session, as Hermes has it, held by this process for a while.

It is refreshed for as long as it is held. That of a process of ours which has died is taken over at
once; for anybody else's we wait until it has run out.
"""

from __future__ import annotations

import os
import platform
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
from session_core.hooks.calls import log_fault
from session_core.state.protocol import StateDatabase

T = TypeVar("T")

REFRESH_S = 60.0
"""A fifth of what the lock is taken for, so that a few may fail."""

LOCK_TIMEOUT_S = 10.0
"""So long does waiting for a lock make sense: what another does in a step is over by then."""

_RETRY_PAUSE_S = 0.05
_AGENT_NAME = "mcp-sessions"


class CompressionLocks:
    """The locks that threads of this process hold; one that holds a lock may take it again."""

    def __init__(self, db: StateDatabase) -> None:
        self._db = db
        self._mine = threading.local()

    def run_locked(
        self, session_ids: Sequence[str], step: Callable[[], T], *, patient: bool = False
    ) -> T:
        """Run a step under the locks of sessions; wait where somebody may do the very same.

        Whatever interrupts it, they are given back: what is open is a lock of the interpreter, and
        between that and the step there is no place for an interrupt.

        Raises:
            NotCompressed: somebody else holds one.
            InvalidInput: a transaction is open.
        """
        before = self._get_held_locks()
        wanted = [each for each in session_ids if each not in before]
        if not wanted:
            return step()
        if self._db.in_transaction:
            raise InvalidInput("a compression has its own transactions; end the one that is open")
        keeper = _LockThread(self._db, wanted, LOCK_TIMEOUT_S if patient else 0.0)
        try:
            with keeper.gate:
                keeper.acquire_locks()
                try:
                    self._mine.held = {**before, **dict.fromkeys(wanted, keeper.holder)}
                    return step()
                finally:
                    self._mine.held = before
        finally:
            if keeper.is_alive():
                keeper.join()

    def confirm_lock(self, session_id: str) -> None:
        """Make sure of a lock just before what it is for.

        Raises:
            NotCompressed: it has run out, and somebody else may have it.
        """
        if not self._db.refresh_compression_lock(session_id, self._get_held_locks()[session_id]):
            raise _make_locked_error(session_id, self._db.get_compression_lock_holder(session_id))

    def _get_held_locks(self) -> dict[str, str]:
        held: dict[str, str] = self._mine.__dict__.setdefault("held", {})
        return held


class _LockThread(threading.Thread):
    """Takes locks, refreshes them, and gives them back as soon as the gate is open.

    Signals interrupt the main thread alone, so that none can keep this from giving them back.
    """

    def __init__(self, db: StateDatabase, session_ids: Sequence[str], patience_s: float) -> None:
        super().__init__(name="compression lock", daemon=True)
        self.gate = threading.Lock()
        self.holder = _make_holder()
        self._db = db
        self._session_ids = session_ids
        self._patience_s = patience_s
        # No event: Python's own may be left locked by an interrupt.
        self._tried = threading.Lock()
        self._error: Exception | None = None

    def acquire_locks(self) -> None:
        """Have the locks taken; the gate is shut.

        Raises:
            NotCompressed: somebody else holds one.
        """
        self._tried.acquire()
        self.start()
        self._tried.acquire()
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        """Hold the locks until the gate is open."""
        taken: list[str] = []
        try:
            for each in self._session_ids:
                self._acquire_lock(each)
                taken.append(each)
        except Exception as error:  # noqa: BLE001 -- raised where it is waited for
            self._error = error
        self._tried.release()
        while not self._is_gate_open(REFRESH_S):
            for each in taken:
                with suppress(SessionError):  # the next time, or `keep` says so
                    self._db.refresh_compression_lock(each, self.holder)
        for each in taken:
            self._release_lock(each)

    def _acquire_lock(self, session_id: str) -> None:
        deadline = time.monotonic() + self._patience_s
        while not self._db.try_acquire_compression_lock(session_id, self.holder):
            other = self._db.get_compression_lock_holder(session_id)
            if other is not None and _is_dead_holder(other):
                self._db.release_compression_lock(session_id, other)
            elif time.monotonic() >= deadline or self._is_gate_open(_RETRY_PAUSE_S):
                raise _make_locked_error(session_id, other)

    def _is_gate_open(self, within_s: float) -> bool:
        over = self.gate.acquire(timeout=within_s)
        if over:
            self.gate.release()
        return over

    def _release_lock(self, session_id: str) -> None:
        try:
            self._db.release_compression_lock(session_id, self.holder)
        except SessionError as error:
            log_fault(f"the lock of session {session_id} stays until it runs out", error)


def _make_holder() -> str:
    nonce, thread = uuid.uuid4().hex[:8], threading.get_native_id()
    return (
        f"pid={os.getpid()}:tid={thread}:"
        f"agent={_AGENT_NAME}:{_identify_process(os.getpid())}:nonce={nonce}"
    )


@cache
def _identify_process(pid: int) -> str:
    """Return what tells this process from others with its pid, here and on other machines."""
    return f"start={processes.get_start_time(pid) or ''}:host={_identify_host()}"


def _identify_host() -> str:
    return platform.node().replace(":", "")


def _parse_holder(holder: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in holder.split(":") if "=" in part)


def _is_dead_holder(holder: str) -> bool:
    """Whether a holder is a process of ours, on this machine, that is not there any more."""
    said = _parse_holder(holder)
    if (said.get("agent"), said.get("host")) != (_AGENT_NAME, _identify_host()):
        return False
    pid = said.get("pid", "")
    return pid.isdecimal() and not processes.is_alive(int(pid), said.get("start"))


def _make_locked_error(session_id: str, holder: str | None) -> NotCompressed:
    if holder is None:
        return NotCompressed(
            "locked", f"somebody has compressed session {session_id} meanwhile; plan again"
        )
    return NotCompressed(
        "locked",
        f"session {session_id} is being compressed by {_describe_holder(holder)}; wait, "
        "then try again",
    )


def _describe_holder(holder: str) -> str:
    said = _parse_holder(holder)
    if said.get("pid") == str(os.getpid()) and said.get("host") == _identify_host():
        return "another thread of this process"
    if "pid" not in said:
        return holder
    return f"{said.get('agent', 'a program')} (pid {said['pid']})"
