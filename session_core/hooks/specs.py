"""The specifications of the hooks, the reports of their calls, and argument passing.

An implementation is called with the arguments that its signature names.
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
"""The entry-point group of plugins and the pluggy project name of the markers."""

FINALIZE = "on_session_finalize"
RESET = "on_session_reset"

_hookspec = pluggy.HookspecMarker(GROUP)


class SessionHooks:
    """The specifications of all hooks, with all arguments that an implementation can take."""

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
        """Called when the first turn of a session begins."""

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
        """Called after each turn, despite the name."""

    @_hookspec
    def on_session_finalize(
        self,
        session_id: str,
        platform: str,
        reason: str | None,
        old_session_id: str | None,
        new_session_id: str | None,
    ) -> None:
        """Called after a session has ended. `session_id` is the session that ended."""

    @_hookspec
    def on_session_reset(
        self,
        session_id: str,
        platform: str,
        reason: str | None,
        old_session_id: str | None,
        new_session_id: str | None,
    ) -> None:
        """Called after a chat has moved to another session. `session_id` is the new session."""

    @_hookspec
    def before_compression(
        self,
        session_id: str,
        platform: str,
        reason: str | None,
        in_place: bool | None,
        message_count: int | None,
    ) -> None:
        """Called before a session is compressed."""

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
        """Called after a session was compressed. `session_id` is the session that continues."""


HookFaultKind = Literal[
    "raised", "timed_out", "behind", "left_out", "undelivered", "refused", "dispatcher"
]

_FAULT_TEXTS: dict[HookFaultKind, str] = {
    "raised": "raised",
    "timed_out": "did not end in time and was abandoned",
    "behind": "has a backlog of calls and will be called later",
    "left_out": "was not called: too many of its calls are queued",
    "undelivered": "did not end before the process",
    "refused": "is refused",
    "dispatcher": "could not be called",
}


@dataclass(frozen=True, slots=True)
class HookFault:
    """A fault of one implementation, of one plugin, or of the dispatcher."""

    plugin: str
    hook: str
    how: HookFaultKind
    error: BaseException | None = None

    def __str__(self) -> str:
        kind = "" if self.error is None else f": {type(self.error).__name__}"
        return f"hook {self.hook or '(any)'} of {self.plugin} {_FAULT_TEXTS[self.how]}{kind}"


@dataclass(frozen=True, slots=True)
class HookReport:
    """The plugins that were called, and the faults of the call.

    `repeated` is True if the hook was called before and was therefore not called again.
    """

    hook: str
    session_id: str | None
    called: tuple[str, ...] = ()
    failed: tuple[HookFault, ...] = ()
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class BoundaryReport:
    """The reports of the finalize and reset calls, each None if the boundary has no such call."""

    finalize: HookReport | None
    reset: HookReport | None

    @property
    def called(self) -> tuple[str, ...]:
        """The plugins that were called."""
        halves = (self.finalize, self.reset)
        return tuple(name for half in halves if half for name in half.called)

    @property
    def failed(self) -> tuple[HookFault, ...]:
        """The faults of both hooks."""
        return tuple(fault for half in (self.finalize, self.reset) if half for fault in half.failed)


HOOKS: Mapping[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(spec).parameters)[1:]
    for name, spec in vars(SessionHooks).items()
    if not name.startswith("_")
}
"""The names of the hooks and of their arguments."""

_VARIADIC_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_hook(hook: str) -> None:
    """Raise `InvalidInput` unless a hook exists.

    Raises:
        InvalidInput: there is no hook of this name.
    """
    if hook not in HOOKS:
        raise InvalidInput(f"hook {hook!r} does not exist; hooks are {', '.join(HOOKS)}")


def check_function(hook: str, function: Callable[..., object]) -> None:
    """Raise `InvalidInput` unless a hook can call a function.

    Raises:
        InvalidInput: the hook does not exist, or the function requires an argument that it lacks.
    """
    check_hook(hook)
    # A builtin without a signature can be checked only by its call.
    for parameter in _get_parameters(function) or ():
        is_required = parameter.default is parameter.empty and parameter.kind not in _VARIADIC_KINDS
        if is_required and parameter.name not in HOOKS[hook]:
            raise InvalidInput(
                f"{hook} has no argument {parameter.name!r}; it has {', '.join(HOOKS[hook])}"
            )


def call_with_arguments(
    hook: str, function: Callable[..., object], arguments: Mapping[str, Any]
) -> object:
    """Call a function with the arguments that its signature names.

    An argument that has neither a value nor a default is None. `**kwargs` receives all arguments
    that have a value.
    """
    parameters = _get_parameters(function)
    if parameters is None:  # a builtin without a signature
        return function(**arguments)
    values = {**_derive_arguments(hook, arguments), **arguments}
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            named = {**arguments, **named}
        elif parameter.kind is parameter.VAR_POSITIONAL:
            continue
        # The function's own default replaces a value that is unknown at this moment.
        elif parameter.name in values or parameter.default is parameter.empty:
            value = values.get(parameter.name)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
    return function(*positional, **named)


def _derive_arguments(hook: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that follow from others, such as `old_session_id` of finalize."""
    names = {FINALIZE: "old_session_id", RESET: "new_session_id"}
    return {names[hook]: arguments.get("session_id")} if hook in names else {}


def _get_parameters(function: Callable[..., object]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
