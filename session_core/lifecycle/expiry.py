"""`ExpiryWatcher`, which finalizes expired sessions and prunes old routes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import anyio

from session_core.aio import get_worker_threads
from session_core.chats import get_key_platform
from session_core.errors import InvalidInput, SessionError
from session_core.hooks.foreign_calls import Reporter, log_fault
from session_core.lifecycle.runtime import SessionRuntime
from session_core.routing.entries import SessionEntry
from session_core.state.validation import check_minimum

TICK_INTERVAL_S = 300.0
START_DELAY_S = 60.0
PRUNE_INTERVAL_S = 3600.0

_MAX_TRIES = 3


class ExpiryWatcher:
    """Checks all routes periodically and finalizes each expired session once.

    A tick runs on its own thread: it never blocks the event loop, `stop` takes effect at once, and
    the process does not wait for a tick at exit. On a Hermes home no entry is removed or marked,
    because the gateway's own watcher does that; deliveries are recorded in our state folder
    instead.

    Args:
        runtime: the runtime of the chats.
        interval_s: the number of seconds between two ticks.
        start_delay_s: the number of seconds from the call of `run` to the first tick.
        report: a function that receives a message and an error of a tick.
        clock: a function that returns a time in seconds that never goes back.
    """

    def __init__(
        self,
        runtime: SessionRuntime,
        *,
        interval_s: float = TICK_INTERVAL_S,
        start_delay_s: float = START_DELAY_S,
        report: Reporter = log_fault,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_minimum("interval_s", interval_s, 0)
        check_minimum("start_delay_s", start_delay_s, 0)
        self._runtime = runtime
        self._store = runtime.store
        self._interval_s = interval_s
        self._start_delay_s = start_delay_s
        self._report = report
        self._clock = clock
        self._stopped = threading.Event()
        self._ran = False
        self._failures: dict[tuple[str, str], int] = {}
        self._pruned_at: float | None = None

    async def run(self) -> None:
        """Call `tick` periodically until `stop` is called or the task is cancelled.

        Raises:
            InvalidInput: the watcher was started before.
        """
        if self._ran:
            raise InvalidInput("the watcher was started before; create a new ExpiryWatcher")
        self._ran = True
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._wait_for_stop, group.cancel_scope)
                await anyio.sleep(self._start_delay_s)
                while True:
                    await self._tick_in_thread()
                    await anyio.sleep(self._interval_s)
        finally:
            # A tick that is under way in its thread then checks no further entry.
            self.stop()

    def stop(self) -> None:
        """End `run` at once. A tick that is running checks no further entry.

        The method can be called from any thread.
        """
        self._stopped.set()

    def tick(self) -> list[str]:
        """Finalize the sessions that have expired and return their ids."""
        try:
            self._store.deliver_pending_hooks()
        except (SessionError, OSError) as error:
            self._report("pending hook calls will be delivered later", error)
        finalized = [
            session_id
            for key in self._store.load_entries()
            for session_id in self._finalize_expired(key)
        ]
        if not self._stopped.is_set():
            self._runtime.cache.sweep(self._can_expire_later)
            self._prune_routes()
        return finalized

    async def _wait_for_stop(self, scope: anyio.CancelScope) -> None:
        await get_worker_threads(self, "watch").run(self._stopped.wait)
        scope.cancel()

    async def _tick_in_thread(self) -> None:
        try:
            await get_worker_threads(self, "watch").run(self.tick)
        except Exception as error:  # noqa: BLE001 -- the watcher continues with the next tick
            self._report("a tick of the expiry watcher failed", error)

    def _finalize_expired(self, session_key: str) -> Iterator[str]:
        """Finalize the session of a chat if it has expired, and yield its id."""
        if self._stopped.is_set() or session_key in self._runtime.running:
            return  # a turn is active: the session is in use
        entry = None
        try:
            # Read now, since the hooks of other sessions in this tick may have taken long.
            entry = self._find_expired(session_key)
            if (
                entry is not None
                and self._store.claim_expiry(entry)
                and self._finalize_entry(entry)
            ):
                yield entry.session_id
        except Exception as error:  # noqa: BLE001 -- one entry must not block the others
            self._report(f"the session of {session_key} could not be finalized", error)
            if (
                entry is not None
                and self._add_failure_and_check_limit(entry)
                and self._mark_failed_entry(entry)
            ):
                yield entry.session_id

    def _find_expired(self, session_key: str) -> SessionEntry | None:
        entry = self._store.get(session_key)
        if entry is None or not self._store.find_expiry_reason(entry):
            return None
        return None if self._store.is_end_delivered(entry) else entry

    def _finalize_entry(self, entry: SessionEntry) -> bool:
        """Call the hooks, evict the agent and mark the entry.

        Return True if it was marked. If marking fails, the next tick tries again without calling
        the hooks again. If the session was reopened meanwhile, it is not marked and its next end is
        reported.
        """
        self._runtime.hooks.call_once(
            "on_session_finalize",
            lambda _: self._store.begin_end_delivery(entry.key, entry.session_id),
            session_id=entry.session_id,
            platform=str(entry.platform or get_key_platform(entry.session_key)),
            reason="session_expired",
        )
        self._runtime.cache.evict(entry.key)
        is_marked = self._store.set_expiry_finalized(entry)
        self._failures.pop((entry.key, entry.session_id), None)
        return is_marked

    def _add_failure_and_check_limit(self, entry: SessionEntry) -> bool:
        """Count a failure of an entry, and return True if the limit is reached."""
        key = entry.key, entry.session_id
        self._failures[key] = self._failures.get(key, 0) + 1
        return self._failures[key] >= _MAX_TRIES

    def _mark_failed_entry(self, entry: SessionEntry) -> bool:
        """Mark an entry as finalized after repeated failures.

        Its model override is kept.
        """
        try:
            self._store.set_expiry_finalized(entry, clear_model_override=False)
        except Exception as error:  # noqa: BLE001 -- the next tick tries again
            self._report(f"the session of {entry.key} could not be marked", error)
            return False
        del self._failures[entry.key, entry.session_id]
        return True

    def _can_expire_later(self, session_key: str) -> bool:
        """Return True if the session can expire later.

        Its idle agent is kept until then.
        """
        entry = self._store.get(session_key)
        return (
            entry is not None
            and self._store.is_session_finalizable(entry)
            and not self._store.find_expiry_reason(entry)
        )

    def _is_still_expired(self, session_key: str, session_id: str) -> bool:
        entry = self._find_expired(session_key)
        return entry is not None and entry.session_id == session_id

    def _prune_routes(self) -> None:
        """Prune old routes once an hour, unless an end must still be delivered."""
        self._failures = {
            key: n for key, n in self._failures.items() if self._is_still_expired(*key)
        }
        if self._failures:
            return  # an old route may still need its end reported
        now = self._clock()
        if self._pruned_at is not None and now - self._pruned_at < PRUNE_INTERVAL_S:
            return
        self._pruned_at = now
        # A gateway of another program prunes its own routes.
        if self._runtime.db.admin.get_capabilities().foreign_gateway:
            self._store.forget_stale_marks()
        else:
            self._store.prune_old_entries(self._store.config.session_store_max_age_days)
