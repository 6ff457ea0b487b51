"""The expiry watcher: ends what the policies say is over, once, and keeps the house.

A tick runs in a worker thread, so the loop is never blocked; telling the watcher to stop ends it at
once. On a Hermes home nothing is removed and no entry is marked: its own watcher does that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from session_core.isolated import Report, log_fault
from session_core.keys import platform_of
from session_core.routing.entries import SessionEntry

if TYPE_CHECKING:
    from session_core.lifecycle.runtime import SessionRuntime

INTERVAL_S = 300.0
START_DELAY_S = 60.0
PRUNE_EVERY_S = 3600.0

_TRIES = 3


class ExpiryWatcher:
    """Looks at all entries now and then."""

    def __init__(
        self,
        runtime: SessionRuntime,
        *,
        interval_s: float = INTERVAL_S,
        start_delay_s: float = START_DELAY_S,
        report: Report = log_fault,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._interval_s = interval_s
        self._start_delay_s = start_delay_s
        self._report = report
        self._clock = clock
        self._stopped = anyio.Event()
        self._failures: dict[tuple[str, str], int] = {}
        self._pruned_at: float | None = None

    async def run(self) -> None:
        """Tick until `stop` is called or the task is cancelled."""
        delay_s = self._start_delay_s
        while not self._stopped.is_set():
            with anyio.move_on_after(delay_s):
                await self._stopped.wait()
                return
            try:
                await to_thread.run_sync(self.tick, abandon_on_cancel=True)
            except Exception as error:  # noqa: BLE001 -- the next tick may do better
                self._report("a tick of the expiry watcher failed", error)
            delay_s = self._interval_s

    def stop(self) -> None:
        """Let `run` return, at once."""
        self._stopped.set()

    def tick(self) -> list[str]:
        """Do one round; return the sessions that were finalized."""
        finalized = [
            entry.session_id
            for entry in self._store.entries().values()
            if not entry.expiry_finalized
            and self._store.is_session_expired(entry)
            and self._finalize(entry)
        ]
        self._runtime.cache.sweep(self._waits_for_expiry)
        self._prune()
        return finalized

    def _finalize(self, entry: SessionEntry) -> bool:
        """Tell the hooks, let the agent go and mark the entry; after three failures only mark."""
        where = entry.session_key, entry.session_id
        try:
            self._runtime.hooks.once(
                "on_session_finalize",
                session_id=entry.session_id,
                platform=str(entry.platform or platform_of(entry.session_key)),
                reason="session_expired",
            )
            self._runtime.cache.evict(entry.session_key)
            self._store.set_expiry_finalized(entry)
        except Exception as error:  # noqa: BLE001 -- one entry must not keep the others
            self._failures[where] = self._failures.get(where, 0) + 1
            self._report(f"the session of {entry.session_key} could not be finalized", error)
            if self._failures[where] < _TRIES:
                return False
            self._store.set_expiry_finalized(entry, clear_model_override=False)
        self._failures.pop(where, None)
        return True

    def _waits_for_expiry(self, session_key: str) -> bool:
        """An idle agent of a session that will expire stays, so that it can be finalized whole."""
        entry = self._store.get(session_key)
        return (
            entry is not None
            and self._store.is_session_finalizable(entry)
            and not self._store.is_session_expired(entry)
        )

    def _prune(self) -> None:
        now = self._clock()
        if self._pruned_at is not None and now - self._pruned_at < PRUNE_EVERY_S:
            return
        self._pruned_at = now
        if self._runtime.db.kind != "hermes":
            self._store.prune_old_entries(self._store.config.session_store_max_age_days)
