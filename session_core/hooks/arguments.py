"""Which arguments an implementation is given: those that it asks for, in whatever form it does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from session_core.errors import InvalidInput
from session_core.hooks.specs import FINALIZE, RESET, SessionHooks

HOOKS: Mapping[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(spec).parameters)[1:]
    for name, spec in vars(SessionHooks).items()
    if not name.startswith("_")
}
"""The hooks, and what each of them may be given."""

_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


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
    for parameter in _parameters(function) or ():
        needed = parameter.default is parameter.empty and parameter.kind not in _COLLECTING
        if needed and parameter.name not in HOOKS[hook]:
            raise InvalidInput(
                f"{hook} has no argument {parameter.name!r}; it has {', '.join(HOOKS[hook])}"
            )


def call_with(hook: str, function: Callable[..., object], given: Mapping[str, Any]) -> object:
    """Call a function with what it takes of what is given.

    What it asks for and is not known at this moment is None; `**kwargs` takes all that is given.
    """
    parameters = _parameters(function)
    if parameters is None:
        return function(**given)
    values = {**_implied(hook, given), **given}
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


def _implied(hook: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what goes without saying: what is finalized is the old, what is reset to the new."""
    names = {FINALIZE: "old_session_id", RESET: "new_session_id"}
    return {names[hook]: given.get("session_id")} if hook in names else {}


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
