"""Which hooks there are, what they may be given, and what is reported of a call.

Which arguments an implementation is given: those that it asks for, in whatever form it does.
"""

# ruff: noqa: PLR0917 -- pluggy passes arguments of a specification by position only

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pluggy

from session_core.errors import InvalidInput

GROUP = "mcp_sessions"
"""The entry-point group of plugins, and the name by which their markers are found."""

FINALIZE = "on_session_finalize"
RESET = "on_session_reset"

_hookspec = pluggy.HookspecMarker(GROUP)


class SessionHooks:
    """Every hook with all that an implementation may ask for."""

    @_hookspec
    def on_session_start(
        self,
        session_id: str,
        platform: str,
        reason: str | None,
        old_session_id: str | None,
        new_session_id: str | None,
        model: str | None,
    ) -> None:
        """Observe that the first turn of a session begins."""

    @_hookspec
    def on_session_end(
        self,
        session_id: str,
        platform: str,
        reason: str | None,
        old_session_id: str | None,
        new_session_id: str | None,
        model: str | None,
        completed: bool | None,
        interrupted: bool | None,
        task_id: str | None,
        turn_id: str | None,
    ) -> None:
        """Observe that a turn has ended: once per turn, despite the name."""

    @_hookspec
    def on_session_finalize(
        self,
        session_id: str,
        platform: str,
        reason: str | None,
        old_session_id: str | None,
        new_session_id: str | None,
    ) -> None:
        """Observe that a session is over; `session_id` is the old one."""

    @_hookspec
    def on_session_reset(
        self,
        session_id: str,
        platform: str,
        reason: str | None,
        old_session_id: str | None,
        new_session_id: str | None,
    ) -> None:
        """Observe that a chat is in another session now; `session_id` is the new one."""

    @_hookspec
    def before_compression(
        self,
        session_id: str,
        platform: str,
        reason: str | None,
        in_place: bool | None,
        message_count: int | None,
    ) -> None:
        """Observe that a session is about to be compressed."""

    @_hookspec
    def after_compression(
        self,
        session_id: str,
        platform: str,
        reason: str | None,
        old_session_id: str | None,
        new_session_id: str | None,
        in_place: bool | None,
        message_count: int | None,
        compression_count: int | None,
    ) -> None:
        """Observe that a session was compressed; `session_id` is where it goes on."""


HookFaultKind = Literal[
    "raised", "timed_out", "behind", "left_out", "undelivered", "refused", "dispatcher"
]

_FAULT_TEXTS: dict[HookFaultKind, str] = {
    "raised": "raised",
    "timed_out": "did not end in time and was left behind",
    "behind": "is behind with earlier calls and will be told later",
    "left_out": "was left out: too many earlier calls of it wait",
    "undelivered": "was not told to its end, for which there is no more time",
    "refused": "is refused",
    "dispatcher": "could not be called",
}


@dataclass(frozen=True, slots=True)
class HookFault:
    """What went wrong with one implementation, one plugin, or with calling them at all."""

    plugin: str
    hook: str
    how: HookFaultKind
    error: BaseException | None = None

    def __str__(self) -> str:
        kind = "" if self.error is None else f": {type(self.error).__name__}"
        return f"hook {self.hook or '(any)'} of {self.plugin} {_FAULT_TEXTS[self.how]}{kind}"


@dataclass(frozen=True, slots=True)
class HookReport:
    """Who was called, and who of them failed; `repeated` where somebody had done it before."""

    hook: str
    session_id: str | None
    called: tuple[str, ...] = ()
    failed: tuple[HookFault, ...] = ()
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class BoundaryReport:
    """The two halves of a boundary; None for a half that it does not have."""

    finalize: HookReport | None
    reset: HookReport | None

    @property
    def called(self) -> tuple[str, ...]:
        """Whose hooks were called."""
        halves = (self.finalize, self.reset)
        return tuple(name for half in halves if half for name in half.called)

    @property
    def failed(self) -> tuple[HookFault, ...]:
        """What went wrong in either half."""
        return tuple(fault for half in (self.finalize, self.reset) if half for fault in half.failed)


HOOKS: Mapping[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(spec).parameters)[1:]
    for name, spec in vars(SessionHooks).items()
    if not name.startswith("_")
}
"""The hooks, and what each of them may be given."""

_VARIADIC_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_hook(hook: str) -> None:
    """Check a name.

    Raises:
        InvalidInput: there is no such hook.
    """
    if hook not in HOOKS:
        raise InvalidInput(f"no hook {hook!r}; hooks are {', '.join(HOOKS)}")


def check_function(hook: str, function: Callable[..., object]) -> None:
    """Check that a function can be called by a hook.

    Raises:
        InvalidInput: there is no such hook, or no such argument of it.
    """
    check_hook(hook)
    for parameter in _get_parameters(function) or ():
        needed = parameter.default is parameter.empty and parameter.kind not in _VARIADIC_KINDS
        if needed and parameter.name not in HOOKS[hook]:
            raise InvalidInput(
                f"{hook} has no argument {parameter.name!r}; it has {', '.join(HOOKS[hook])}"
            )


def call_with_arguments(
    hook: str, function: Callable[..., object], given: Mapping[str, Any]
) -> object:
    """Call a function with what it takes of what is given.

    What it asks for and is not known at this moment is None; `**kwargs` takes all that is given.
    """
    parameters = _get_parameters(function)
    if parameters is None:
        return function(**given)
    values = {**_derive_arguments(hook, given), **given}
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            named = {**given, **named}
        elif parameter.kind is parameter.VAR_POSITIONAL:
            continue
        elif parameter.name in values or parameter.default is parameter.empty:
            value = values.get(parameter.name)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
    return function(*positional, **named)


def _derive_arguments(hook: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what goes without saying: what is finalized is the old, what is reset to the new."""
    names = {FINALIZE: "old_session_id", RESET: "new_session_id"}
    return {names[hook]: given.get("session_id")} if hook in names else {}


def _get_parameters(function: Callable[..., object]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
