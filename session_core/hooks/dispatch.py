"""What is told when a session begins, ends or is compressed, and how nobody is harmed by it.

Implementations observe: what they return is ignored. Each is called on its own, once its earlier
calls have ended, and waited for until `timeout_s` is over; one that raises, hangs or is async
breaks nothing, and the report names it. While it is behind nobody waits for it. An async one runs
on the loop of who awaits the step that calls it, else on one of its own. A boundary finalizes the
old session, and only then resets to the new one; each of that happens once. What is behind when
the process ends is given a moment, and what is not told by then is reported.

Which boundary of which session was passed, so that each is passed once, whoever races for it.
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
from session_core.hooks.calls import IsolatedCall, Reporter, log_fault
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

BeginCheck = Callable[[str], bool]
"""Is asked just before a hook is told, by its name; False where it is not to be told here."""

_CallFault = Literal["raised", "timed_out", "behind", "left_out"]
_MAX_WAITING = 100
"""An implementation that is so many calls behind is left out until one has ended."""

DRAIN_S = 1.0
"""How long the end of a runtime, or of the process, waits for calls that are behind."""

_all_hooks: weakref.WeakSet[Hooks] = weakref.WeakSet()
"""Whose calls the end of the process waits for; one that is behind is held by its calls."""

_active_implementations: ContextVar[tuple[_ImplementationKey, ...]] = ContextVar(
    "hooks_inside", default=()
)
"""The implementations that this code is called by, which cannot end before it does."""


class Hooks(HookRegistry):
    """The implementations of the hooks, from code and from plugins that are installed.

    `group` is where plugins are looked for, at the first call; None for none.
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
        self._boundaries = FiredBoundaries()
        _all_hooks.add(self)

    def call(self, hook: str, /, **arguments: Any) -> HookReport:
        """Call the implementations of a hook, one after another. Never raises."""
        return self._call_all(hook, arguments)

    def call_once(
        self, hook: str, begins: BeginCheck | None = None, /, **arguments: Any
    ) -> HookReport:
        """Call a hook unless it was called for this session already. Never raises.

        A session that was finalized can be finalized again once it has begun again: by a start, by
        a reset to it, or by `reopened`. Whoever comes second waits until the first has finished.
        Where `begins` is given it decides, whatever is remembered here: it is asked at the very
        last, and notes for all processes and times that the hook is being told.
        """
        return self._call_once(hook, arguments, begins)

    def call_boundary(
        self,
        old: str | None,
        new: str | None,
        platform: str,
        reason: str | None = None,
        begins: BeginCheck | None = None,
    ) -> BoundaryReport:
        """Finalize the old session, then reset to the new one; either may be none. Never raises."""
        finalize, reset = _build_arguments(old, new, platform, reason)
        return BoundaryReport(
            None if finalize is None else self._call_once(FINALIZE, finalize, begins),
            None if reset is None else self._call_once(RESET, reset, begins),
        )

    def has_listeners(self) -> bool:
        """Whether anybody may want to know of a boundary, as far as can be told. Never raises."""
        try:
            return not self.is_loaded or any(map(self.list_implementations, (FINALIZE, RESET)))
        except Exception as error:  # noqa: BLE001 -- a reset goes on whatever its hooks do
            self._report_fault(HookFault("the dispatcher", "", "dispatcher", error))
            return True

    def has_finalized(self, session_id: str) -> bool:
        """Whether a session was finalized here since it last began, as far as is remembered."""
        return self._boundaries.has_fired(session_id, FINALIZE)

    def mark_reopened(self, session_id: str) -> None:
        """Note that a session goes on, so that it is finalized again when it ends again."""
        self._boundaries.forget(session_id)

    def drain(self, wait_s: float = DRAIN_S) -> tuple[HookFault, ...]:
        """Wait until all that was called has ended, so long at most; return, and report, the rest.

        The end of the process does it. The implementations that this is called by are left out.
        """
        deadline = time.monotonic() + wait_s
        while calls := self._list_unfinished():
            if not all(
                call.wait_until_ended(max(0.0, deadline - time.monotonic())) for _, call in calls
            ):
                break
        left = tuple(
            HookFault(plugin, hook, "undelivered") for (plugin, hook), _ in self._list_unfinished()
        )
        for fault in left:
            self._report_fault(fault)
        return left

    def _list_unfinished(self) -> list[tuple[_ImplementationKey, IsolatedCall]]:
        with self._lock:
            return [
                (place, call)
                for place, calls in self._calls.items()
                if place not in _active_implementations.get()
                for call in calls
                if call.is_running
            ]

    def _call_once(self, hook: str, given: _Arguments, begins: BeginCheck | None) -> HookReport:
        session_id = given.get("session_id")
        try:
            bound_s = self.timeout_s * (len(self.list_implementations(hook)) + 1)
            with self._boundaries.enter_boundary(session_id, hook, wait_s=bound_s) as first:
                if first:
                    return self._call_all(hook, given, begins)
            if session_id is not None and begins is not None and begins(hook):
                self.mark_reopened(
                    session_id
                )  # as is stored; what is remembered is not true any more
                with self._boundaries.enter_boundary(session_id, hook, wait_s=0):
                    return self._call_all(hook, given)
        except Exception as error:  # noqa: BLE001 -- a reset goes on whatever its hooks do
            fault = HookFault("the dispatcher", hook, "dispatcher", error)
            self._report_fault(fault)
            return HookReport(hook, session_id, failed=(fault,))
        return HookReport(hook, session_id, repeated=True)

    def _call_all(
        self, hook: str, given: _Arguments, begins: BeginCheck | None = None
    ) -> HookReport:
        called: list[str] = []
        failed: list[HookFault] = []
        refused = False
        try:
            failed += self.load_installed()
            implementations = self.list_implementations(hook)
            refused = begins is not None and not begins(hook)
            for implementation in () if refused else implementations:
                name = implementation.plugin_name
                how, error = self._call_one(hook, implementation, given)
                if how not in {"behind", "left_out"}:
                    called.append(name)
                if how is not None:
                    failed.append(HookFault(name, hook, how, error))
        except Exception as error:  # noqa: BLE001 -- a reset goes on whatever its hooks do
            failed.append(HookFault("the dispatcher", hook, "dispatcher", error))
        for fault in failed:
            self._report_fault(fault)
        return HookReport(hook, given.get("session_id"), tuple(called), tuple(failed), refused)

    def _call_one(
        self, hook: str, implementation: pluggy.HookImpl, given: _Arguments
    ) -> tuple[_CallFault | None, BaseException | None]:
        place = (implementation.plugin_name, hook)
        work = partial(
            self._call_implementation, place, implementation.function, _normalize_platform(given)
        )
        with self._lock:
            ahead = [call for call in self._calls.get(place, ()) if call.is_running]
            if len(ahead) >= _MAX_WAITING:
                return "left_out", None
            call = IsolatedCall(
                work, self.timeout_s, get_waiting_loop(), after=ahead[-1] if ahead else None
            )
            self._calls[place] = [*ahead, call]
        if place in _active_implementations.get() or any(earlier.is_late for earlier in ahead):
            return "behind", None
        how = call.wait()
        return how, call.error if how == "raised" else None

    def _call_implementation(
        self, place: _ImplementationKey, function: Callable[..., object], given: _Arguments
    ) -> object:
        _active_implementations.set((*_active_implementations.get(), place))
        return call_with_arguments(place[1], function, given)

    def _report_fault(self, fault: HookFault) -> None:
        with suppress(Exception):  # a report that fails has nobody to be reported to
            self._report(str(fault), fault.error)


@atexit.register
def _drain_all() -> None:
    deadline = time.monotonic() + DRAIN_S
    for hooks in list(_all_hooks):
        hooks.drain(max(0.0, deadline - time.monotonic()))


if hasattr(os, "register_at_fork"):  # the threads of the calls are not there in a child
    os.register_at_fork(after_in_child=_all_hooks.clear)


def _normalize_platform(given: _Arguments) -> _Arguments:
    """Return what is given with the platform as the string that it is."""
    platform = given.get("platform")
    return {**given, "platform": str(platform)} if platform is not None else given


def _build_arguments(
    old: str | None, new: str | None, platform: str, reason: str | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return what finalize and reset are given: the ids of both where there are two."""
    given: dict[str, Any] = {"platform": platform}
    if reason is not None:
        given["reason"] = reason
    if old is not None and new is not None:
        given |= {"old_session_id": old, "new_session_id": new}
    finalize = None if old is None else {"session_id": old, **given}
    reset = None if new is None else {"session_id": new, **given}
    return finalize, reset


_MAX_REMEMBERED = 10_000


class FiredBoundaries:
    """What was fired since a session last began or ended: a beginning undoes an end, and reverse.

    It guards against races of a process with itself: what is being fired is never forgotten, of
    what was fired the oldest is. Whoever has a store asks that first, which knows what was told in
    whatever process, and says `forget` where something is to be told whatever is remembered here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fired: OrderedDict[str, dict[str, threading.Event]] = OrderedDict()

    @contextmanager
    def enter_boundary(self, session_id: str | None, hook: str, *, wait_s: float) -> Iterator[bool]:
        """Yield whether this is the first; if not, the first has finished, or `wait_s` is over."""
        if session_id is None:
            yield True
            return
        finished, first = self._claim_boundary(session_id, hook)
        if not first:
            finished.wait(wait_s)
            yield False
            return
        try:
            yield True
        finally:
            finished.set()

    def has_fired(self, session_id: str, hook: str) -> bool:
        """Whether this was fired, as far as is remembered."""
        with self._lock:
            return hook in self._fired.get(session_id, {})

    def forget(self, session_id: str) -> None:
        """Let the end of a session be fired again, and the reset to it; not what is being fired."""
        with self._lock:
            fired = self._fired.get(session_id, {})
            for hook in (FINALIZE, RESET):
                if hook in fired and fired[hook].is_set():
                    del fired[hook]

    def _claim_boundary(self, session_id: str, hook: str) -> tuple[threading.Event, bool]:
        with self._lock:
            fired = self._fired.setdefault(session_id, {})
            self._fired.move_to_end(session_id)
            if hook in fired:
                return fired[hook], False
            if hook == FINALIZE:
                fired.clear()
            else:
                fired.pop(FINALIZE, None)
            event = fired[hook] = threading.Event()
            self._forget_oldest()
            return event, True

    def _forget_oldest(self) -> None:
        over = len(self._fired) - _MAX_REMEMBERED
        done = (
            session_id
            for session_id, fired in self._fired.items()
            if all(event.is_set() for event in fired.values())
        )
        for session_id in list(islice(done, max(over, 0))):
            del self._fired[session_id]
