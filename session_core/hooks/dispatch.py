"""Calls of the hooks: each once per boundary, bounded in time, and harmless to the caller.

Implementations observe; their return values are ignored. Each call of an implementation begins
after its earlier calls have ended. The caller waits up to `timeout_s` per implementation, or not at
all while that implementation has a backlog. An implementation that raises, hangs or is async does
not disturb the caller, and its faults are reported. An async implementation runs on the event loop
of a caller that awaits the change, else on a loop of its own. At the end of the process, `drain`
waits up to `DRAIN_S` for the backlog and reports the remaining calls.

`CalledHooks` remembers which hooks were called for which session, so that threads that race for
a boundary deliver it once.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from session_core.event_loops import get_waiting_loop
from session_core.hooks.foreign_calls import IsolatedCall, Reporter, log_fault
from session_core.hooks.registry import HookRegistry
from session_core.hooks.specs import (
    FINALIZE,
    GROUP,
    RESET,
    BoundaryReport,
    HookFault,
    HookReport,
    call_with_arguments,
)

if TYPE_CHECKING:
    import pluggy


_Arguments = Mapping[str, Any]
_ImplementationKey = tuple[str, str]

RecordBegin = Callable[[str], bool]
"""Records that the named hook is called now; returns False if it must not be called."""

_CallFault = Literal["raised", "timed_out", "behind", "left_out"]
_MAX_WAITING = 100
"""The number of queued calls of an implementation; further calls are dropped and reported."""

DRAIN_S = 1.0
"""The time that the end of a runtime or of the process waits for queued calls."""

_all_hooks: weakref.WeakSet[Hooks] = weakref.WeakSet()
"""The objects whose calls the end of the process waits for. Queued calls keep their object alive.
"""

_active_implementations: ContextVar[tuple[_ImplementationKey, ...]] = ContextVar(
    "hooks_inside", default=()
)
"""The implementations that called this code, and therefore cannot end before it."""


class Hooks(HookRegistry):
    """The hook implementations, added in code or installed as plugins.

    `register` adds an implementation. The runtime, the session store, the compressor and the
    maintenance call the hooks.

    Args:
        timeout_s: the number of seconds that a caller waits for each implementation.
        group: the entry-point group of the plugins, which are loaded at the first call. None loads
            no plugins.
        report: a function that receives a message and an error of an implementation.
    """

    def __init__(
        self,
        *,
        timeout_s: float = 5.0,
        group: str | None = GROUP,
        report: Reporter = log_fault,
    ) -> None:
        super().__init__(group, timeout_s)
        self._report = report
        self._calls: dict[_ImplementationKey, list[IsolatedCall]] = {}
        self._called_hooks = CalledHooks()
        _all_hooks.add(self)

    def call(self, hook: str, /, **arguments: Any) -> HookReport:
        """Call the implementations of a hook in order.

        The result lists the called plugins and the faults. This method never raises.

        Args:
            hook: the name of the hook, for example `on_session_finalize`.
            arguments: the arguments of the hook; an implementation receives the arguments that it
                declares.
        """
        return self._call_all(hook, arguments)

    def call_once(
        self, hook: str, begins: RecordBegin | None = None, /, **arguments: Any
    ) -> HookReport:
        """Call a hook unless it was called for this session already. Never raises.

        A session can be finalized again after a start, a reset to it, or `mark_reopened`. A second
        caller waits until the first has finished.

        If `begins` is given, `begins(hook)` is called directly before the implementations. It
        records the call for all processes and decides whether the hook is called; the memory of
        this object does not count then.
        """
        return self._call_once(hook, arguments, begins)

    def call_boundary(
        self,
        old: str | None,
        new: str | None,
        platform: str,
        reason: str | None = None,
        begins: RecordBegin | None = None,
    ) -> BoundaryReport:
        """Finalize the session `old`, then report the reset to `new`. Never raises.

        Either session may be None. `begins` is used as in `call_once`.
        """
        finalize, reset = _build_arguments(old, new, platform, reason)
        return BoundaryReport(
            None if finalize is None else self._call_once(FINALIZE, finalize, begins),
            None if reset is None else self._call_once(RESET, reset, begins),
        )

    def has_listeners(self) -> bool:
        """Return True if an implementation may observe boundaries. Never raises."""
        try:
            # Until they are loaded, installed plugins may be listeners.
            return not self.is_loaded or any(map(self.list_implementations, (FINALIZE, RESET)))
        except Exception as error:  # noqa: BLE001 -- a fault of hooks does not stop a reset
            self._report_fault(HookFault("the dispatcher", "", "dispatcher", error))
            return True

    def has_finalized(self, session_id: str) -> bool:
        """Return True if this object remembers that a session was finalized and not reopened."""
        return self._called_hooks.has_called(session_id, FINALIZE)

    def mark_reopened(self, session_id: str) -> None:
        """Record that a session continues, so that its next end is finalized again."""
        self._called_hooks.forget(session_id)

    def drain(self, wait_s: float = DRAIN_S) -> tuple[HookFault, ...]:
        """Wait up to `wait_s` until all calls have ended.

        Report and return the unfinished calls. The end of the process calls this method. It does
        not wait for implementations that called this code.
        """
        deadline = time.monotonic() + wait_s
        # Repeated, because a call may queue others while it runs.
        while calls := self._list_unfinished():
            if not all(
                call.wait_until_ended(max(0.0, deadline - time.monotonic())) for _, call in calls
            ):
                break
        faults = tuple(
            HookFault(plugin, hook, "undelivered") for (plugin, hook), _ in self._list_unfinished()
        )
        for fault in faults:
            self._report_fault(fault)
        return faults

    def _list_unfinished(self) -> list[tuple[_ImplementationKey, IsolatedCall]]:
        with self._lock:
            return [
                (key, call)
                for key, calls in self._calls.items()
                if key not in _active_implementations.get()
                for call in calls
                if call.is_running
            ]

    def _call_once(
        self, hook: str, arguments: _Arguments, begins: RecordBegin | None
    ) -> HookReport:
        session_id = arguments.get("session_id")
        try:
            # One timeout for each implementation, and one for the installed plugins.
            bound_s = self.timeout_s * (len(self.list_implementations(hook)) + 1)
            with self._called_hooks.enter_call(session_id, hook, wait_s=bound_s) as is_first:
                if is_first:
                    return self._call_all(hook, arguments, begins)
            if session_id is not None and begins is not None and begins(hook):
                # The store has recorded that the call is still pending: the memory is out of date.
                self.mark_reopened(session_id)
                with self._called_hooks.enter_call(session_id, hook, wait_s=0):
                    return self._call_all(hook, arguments)
        except Exception as error:  # noqa: BLE001 -- a fault of hooks does not stop a reset
            fault = HookFault("the dispatcher", hook, "dispatcher", error)
            self._report_fault(fault)
            return HookReport(hook, session_id, failed=(fault,))
        return HookReport(hook, session_id, repeated=True)

    def _call_all(
        self, hook: str, arguments: _Arguments, begins: RecordBegin | None = None
    ) -> HookReport:
        called: list[str] = []
        failed: list[HookFault] = []
        refused = False
        try:
            # Before `begins`: a hook that is recorded as called must reach the installed plugins
            # too.
            failed += self.load_installed()
            implementations = self.list_implementations(hook)
            refused = begins is not None and not begins(hook)
            for implementation in () if refused else implementations:
                name = implementation.plugin_name
                outcome, error = self._call_one(hook, implementation, arguments)
                if outcome not in {"behind", "left_out"}:
                    called.append(name)
                if outcome is not None:
                    failed.append(HookFault(name, hook, outcome, error))
        except Exception as error:  # noqa: BLE001 -- a fault of hooks does not stop a reset
            failed.append(HookFault("the dispatcher", hook, "dispatcher", error))
        for fault in failed:
            self._report_fault(fault)
        return HookReport(hook, arguments.get("session_id"), tuple(called), tuple(failed), refused)

    def _call_one(
        self, hook: str, implementation: pluggy.HookImpl, arguments: _Arguments
    ) -> tuple[_CallFault | None, BaseException | None]:
        key = (implementation.plugin_name, hook)
        run_implementation = partial(
            self._call_implementation, key, implementation.function, _normalize_platform(arguments)
        )
        with self._lock:
            running = [call for call in self._calls.get(key, ()) if call.is_running]
            if len(running) >= _MAX_WAITING:
                return "left_out", None
            # Created under the lock, so that calls of an implementation are in their order.
            call = IsolatedCall(
                run_implementation,
                self.timeout_s,
                get_waiting_loop(),
                after=running[-1] if running else None,
            )
            self._calls[key] = [*running, call]
        # An implementation cannot wait for itself, and no caller waits for a late call.
        if key in _active_implementations.get() or any(earlier.is_late for earlier in running):
            return "behind", None
        failure = call.wait()
        return failure, call.error if failure == "raised" else None

    def _call_implementation(
        self, key: _ImplementationKey, function: Callable[..., object], arguments: _Arguments
    ) -> object:
        _active_implementations.set((*_active_implementations.get(), key))
        return call_with_arguments(key[1], function, arguments)

    def _report_fault(self, fault: HookFault) -> None:
        with suppress(Exception):  # a failed report cannot be reported
            self._report(str(fault), fault.error)


@atexit.register
def _drain_all() -> None:
    deadline = time.monotonic() + DRAIN_S
    for hooks in list(_all_hooks):
        hooks.drain(max(0.0, deadline - time.monotonic()))


if hasattr(os, "register_at_fork"):  # a child process has no threads of its parent
    os.register_at_fork(after_in_child=_all_hooks.clear)


def _normalize_platform(arguments: _Arguments) -> _Arguments:
    """Return the arguments with the platform as a plain string."""
    platform = arguments.get("platform")
    return {**arguments, "platform": str(platform)} if platform is not None else arguments


def _build_arguments(
    old: str | None, new: str | None, platform: str, reason: str | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the arguments of finalize and reset, or None for a hook without a session."""
    common: dict[str, Any] = {"platform": platform}
    if reason is not None:
        common["reason"] = reason
    if old is not None and new is not None:
        common |= {"old_session_id": old, "new_session_id": new}
    finalize = None if old is None else {"session_id": old, **common}
    reset = None if new is None else {"session_id": new, **common}
    return finalize, reset


_MAX_REMEMBERED = 10_000


class CalledHooks:
    """The hooks that were called for each session since it last began or ended.

    A start clears the record of an end, and an end clears the record of a start. This object
    prevents races within the process. At most `_MAX_REMEMBERED` sessions are remembered: the oldest
    are forgotten, but never a running call. A caller with a session store asks the store first,
    which has the deliveries of all processes, and calls `forget` if a hook is to be called anyway.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: OrderedDict[str, dict[str, threading.Event]] = OrderedDict()

    @contextmanager
    def enter_call(self, session_id: str | None, hook: str, *, wait_s: float) -> Iterator[bool]:
        """Yield True to the first caller of a hook for a session, and False to later callers.

        A later caller waits until the first has finished, at most `wait_s`.
        """
        if session_id is None:
            yield True
            return
        finished, is_first = self._claim_call(session_id, hook)
        if not is_first:
            finished.wait(wait_s)
            yield False
            return
        try:
            yield True
        finally:
            finished.set()

    def has_called(self, session_id: str, hook: str) -> bool:
        """Return True if this object remembers that the hook was called."""
        with self._lock:
            return hook in self._calls.get(session_id, {})

    def forget(self, session_id: str) -> None:
        """Forget the end of a session and the reset to it, except running calls."""
        with self._lock:
            calls = self._calls.get(session_id, {})
            for hook in (FINALIZE, RESET):
                if hook in calls and calls[hook].is_set():
                    del calls[hook]

    def _claim_call(self, session_id: str, hook: str) -> tuple[threading.Event, bool]:
        with self._lock:
            calls = self._calls.setdefault(session_id, {})
            self._calls.move_to_end(session_id)
            if hook in calls:
                return calls[hook], False
            # An end undoes the earlier start and reset; a start or reset undoes the end.
            if hook == FINALIZE:
                calls.clear()
            else:
                calls.pop(FINALIZE, None)
            event = calls[hook] = threading.Event()
            self._forget_oldest()
            return event, True

    def _forget_oldest(self) -> None:
        excess = len(self._calls) - _MAX_REMEMBERED
        finished_ids = (
            session_id
            for session_id, calls in self._calls.items()
            if all(event.is_set() for event in calls.values())
        )
        for session_id in list(islice(finished_ids, max(excess, 0))):
            del self._calls[session_id]
