"""What is told when a session begins, ends or is compressed, and how nobody is harmed by it.

Implementations observe: what they return is ignored. Each is called on its own, for at most
`timeout_s`; one that raises, hangs or is async breaks nothing, and the report names it. A boundary
finalizes the old session, and only then resets to the new one; each of that happens once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from session_core.hooks.arguments import call_with
from session_core.hooks.boundaries import Boundaries
from session_core.hooks.registry import Registry
from session_core.hooks.specs import (
    FINALIZE,
    GROUP,
    RESET,
    BoundaryReport,
    HookFault,
    HookReport,
)
from session_core.isolated import Call, Report, log_fault, off_loop, running_loop

if TYPE_CHECKING:
    import asyncio

    import pluggy

_Given = Mapping[str, Any]
_Loop: TypeAlias = "asyncio.AbstractEventLoop | None"
_MAX_LEFT_BEHIND = 3
"""An implementation of which so many calls still hang is not called again until one has ended."""


class Hooks(Registry):
    """The implementations of the hooks, from code and from plugins that are installed.

    `group` is where plugins are looked for, at the first call; None for none.
    """

    def __init__(
        self,
        *,
        timeout_s: float = 5.0,
        group: str | None = GROUP,
        report: Report = log_fault,
    ) -> None:
        self.timeout_s = timeout_s
        super().__init__(group)
        self._report = report
        self._left_behind: dict[tuple[str, str], list[Call]] = {}
        self._boundaries = Boundaries()

    def call(self, hook: str, /, **arguments: Any) -> HookReport:
        """Call the implementations of a hook, one after another. Never raises."""
        return self._call(hook, arguments)

    async def acall(self, hook: str, /, **arguments: Any) -> HookReport:
        """Call the implementations of a hook while the loop goes on; async ones run on it."""
        return await self._aside(self._call, hook, arguments)

    def once(self, hook: str, /, **arguments: Any) -> HookReport:
        """Call a hook unless it was called for this session already. Never raises.

        A session that was finalized can be finalized again once it has begun again: by a start, by
        a reset to it, or by `reopened`. Whoever comes second waits until the first has finished.
        """
        return self._once(hook, arguments)

    async def aonce(self, hook: str, /, **arguments: Any) -> HookReport:
        """Do what `once` does while the loop goes on."""
        return await self._aside(self._once, hook, arguments)

    def boundary(
        self, old: str | None, new: str | None, platform: str, reason: str | None = None
    ) -> BoundaryReport:
        """Finalize the old session, then reset to the new one; either may be none. Never raises."""
        return self._boundary(*_steps(old, new, platform, reason))

    async def aboundary(
        self, old: str | None, new: str | None, platform: str, reason: str | None = None
    ) -> BoundaryReport:
        """Do what `boundary` does while the loop goes on."""
        finalize, reset = _steps(old, new, platform, reason)
        try:
            return await off_loop(partial(self._boundary, finalize, reset, running_loop()))
        except Exception as error:  # noqa: BLE001 -- not even a thread was to be had
            return BoundaryReport(
                None if finalize is None else self._failure(FINALIZE, finalize, error),
                None if reset is None else self._failure(RESET, reset, error),
            )

    def reopened(self, session_id: str) -> None:
        """Note that a session goes on, so that it is finalized again when it ends again."""
        self._boundaries.forget(session_id)

    def _boundary(
        self, finalize: _Given | None, reset: _Given | None, loop: _Loop = None
    ) -> BoundaryReport:
        return BoundaryReport(
            None if finalize is None else self._once(FINALIZE, finalize, loop),
            None if reset is None else self._once(RESET, reset, loop),
        )

    def _once(self, hook: str, given: _Given, loop: _Loop = None) -> HookReport:
        session_id = given.get("session_id")
        try:
            bound_s = self.timeout_s * (len(self.implementations(hook)) + 1)
            with self._boundaries.once(session_id, hook, wait_s=bound_s) as first:
                if first:
                    return self._call(hook, given, loop)
        except Exception as error:  # noqa: BLE001 -- a reset goes on whatever its hooks do
            return self._failure(hook, given, error)
        return HookReport(hook, session_id, repeated=True)

    def _call(self, hook: str, given: _Given, loop: _Loop = None) -> HookReport:
        called: list[str] = []
        failed: list[HookFault] = []
        try:
            failed += self.load_installed()
            for implementation in self.implementations(hook):
                name = implementation.plugin_name
                how, error = self._call_one(hook, implementation, given, loop)
                if how != "left_out":
                    called.append(name)
                if how is not None:
                    failed.append(HookFault(name, hook, how, error))
        except Exception as error:  # noqa: BLE001 -- a reset goes on whatever its hooks do
            failed.append(HookFault("the dispatcher", hook, "dispatcher", error))
        for fault in failed:
            self._tell(fault)
        return HookReport(hook, given.get("session_id"), tuple(called), tuple(failed))

    async def _aside(
        self, step: Callable[[str, _Given, _Loop], HookReport], hook: str, given: _Given
    ) -> HookReport:
        try:
            return await off_loop(partial(step, hook, given, running_loop()))
        except Exception as error:  # noqa: BLE001 -- not even a thread was to be had
            return self._failure(hook, given, error)

    def _failure(self, hook: str, given: _Given, error: Exception) -> HookReport:
        fault = HookFault("the dispatcher", hook, "dispatcher", error)
        self._tell(fault)
        return HookReport(hook, given.get("session_id"), failed=(fault,))

    def _call_one(
        self,
        hook: str,
        implementation: pluggy.HookImpl,
        given: _Given,
        loop: _Loop,
    ) -> tuple[Literal["raised", "timed_out", "left_out"] | None, BaseException | None]:
        place = (implementation.plugin_name, hook)
        with self._lock:
            hanging = [call for call in self._left_behind.pop(place, ()) if call.running]
            if hanging:
                self._left_behind[place] = hanging
        if len(hanging) >= _MAX_LEFT_BEHIND:
            return "left_out", None
        work = partial(call_with, hook, implementation.function, _plain(given))
        call = Call(work, self.timeout_s, loop)
        how = call.wait()
        if call.running:
            with self._lock:
                self._left_behind.setdefault(place, []).append(call)
        return how, call.error if how == "raised" else None

    def _tell(self, fault: HookFault) -> None:
        with suppress(Exception):  # a report that fails has nobody to be reported to
            self._report(str(fault), fault.error)


def _plain(given: _Given) -> _Given:
    """Return what is given with the platform as the string that it is."""
    platform = given.get("platform")
    return {**given, "platform": str(platform)} if platform is not None else given


def _steps(
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
