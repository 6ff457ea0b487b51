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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

from session_core import processes
from session_core.compression.records import NotCompressed
from session_core.errors import SessionError
from session_core.isolated import log_fault
from session_core.state.contract import StateDatabase

REFRESH_S = 60.0
"""A fifth of what the lock is taken for, so that a few may fail."""

PATIENCE_S = 10.0
"""So long does waiting for a lock make sense: what another does in a step is over by then."""

_PAUSE_S = 0.05
_AGENT = "mcp-sessions"


class Locks:
    """The locks that threads of this process hold; one that holds a lock may take it again."""

    def __init__(self, db: StateDatabase) -> None:
        self._db = db
        self._mine = threading.local()

    @contextmanager
    def of(self, session_id: str, *, patient: bool = False) -> Iterator[None]:
        """Hold the lock of a session; wait for it where somebody may do the very same.

        Raises:
            NotCompressed: somebody else holds it.
        """
        held = self._held()
        if session_id in held:
            yield
            return
        holder = _holder()
        self._take(session_id, holder, PATIENCE_S if patient else 0.0)
        held[session_id] = holder
        over = threading.Event()
        try:
            self._refresh_until(over, session_id, holder)
            yield
        finally:
            over.set()
            del held[session_id]
            self._release(session_id, holder)

    def keep(self, session_id: str) -> None:
        """Make sure of a lock just before what it is for.

        Raises:
            NotCompressed: it has run out, and somebody else may have it.
        """
        if not self._db.refresh_compression_lock(session_id, self._held()[session_id]):
            raise _locked(session_id, self._db.get_compression_lock_holder(session_id))

    def _take(self, session_id: str, holder: str, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while not self._db.try_acquire_compression_lock(session_id, holder):
            other = self._db.get_compression_lock_holder(session_id)
            if other is not None and _has_died(other):
                self._db.release_compression_lock(session_id, other)
            elif time.monotonic() < deadline:
                time.sleep(_PAUSE_S)
            else:
                raise _locked(session_id, other)

    def _release(self, session_id: str, holder: str) -> None:
        try:
            self._db.release_compression_lock(session_id, holder)
        except SessionError as error:
            log_fault(f"the lock of session {session_id} stays until it runs out", error)

    def _refresh_until(self, over: threading.Event, session_id: str, holder: str) -> None:
        def refresh() -> None:
            while not over.wait(REFRESH_S):
                with suppress(SessionError):  # the next time, or `keep` says so
                    self._db.refresh_compression_lock(session_id, holder)

        threading.Thread(target=refresh, name="compression lock", daemon=True).start()

    def _held(self) -> dict[str, str]:
        held: dict[str, str] = self._mine.__dict__.setdefault("held", {})
        return held


def _holder() -> str:
    nonce, thread = uuid.uuid4().hex[:8], threading.get_native_id()
    return f"pid={os.getpid()}:tid={thread}:agent={_AGENT}:{_here(os.getpid())}:nonce={nonce}"


@cache
def _here(pid: int) -> str:
    """Return what tells this process from others with its pid, here and on other machines."""
    return f"start={processes.started_at(pid) or ''}:host={_host()}"


def _host() -> str:
    return platform.node().replace(":", "")


def _said(holder: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in holder.split(":") if "=" in part)


def _has_died(holder: str) -> bool:
    """Whether a holder is a process of ours, on this machine, that is not there any more."""
    said = _said(holder)
    if (said.get("agent"), said.get("host")) != (_AGENT, _host()):
        return False
    pid = said.get("pid", "")
    return pid.isdecimal() and not processes.alive(int(pid), said.get("start"))


def _locked(session_id: str, holder: str | None) -> NotCompressed:
    if holder is None:
        return NotCompressed(
            "locked", f"somebody has compressed session {session_id} meanwhile; plan again"
        )
    return NotCompressed(
        "locked",
        f"session {session_id} is being compressed by {_named(holder)}; wait, then try again",
    )


def _named(holder: str) -> str:
    said = _said(holder)
    if said.get("pid") == str(os.getpid()) and said.get("host") == _host():
        return "another thread of this process"
    if "pid" not in said:
        return holder
    return f"{said.get('agent', 'a program')} (pid {said['pid']})"
