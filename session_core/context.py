"""The current session of a turn, as context variables of each thread or task.

A variable that was never set falls back to `os.environ`; a cleared one does not. Only the session
id is also written to `os.environ`, for code that reads it there. That copy is right for one turn at
a time, and an id that another turn has left there is ignored.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from session_core.errors import InvalidInput

SESSION_ID = "HERMES_SESSION_ID"

VARIABLE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "platform": "HERMES_SESSION_PLATFORM",
        "source": "HERMES_SESSION_SOURCE",
        "chat_id": "HERMES_SESSION_CHAT_ID",
        "chat_name": "HERMES_SESSION_CHAT_NAME",
        "thread_id": "HERMES_SESSION_THREAD_ID",
        "user_id": "HERMES_SESSION_USER_ID",
        "user_name": "HERMES_SESSION_USER_NAME",
        "session_key": "HERMES_SESSION_KEY",
        "session_id": SESSION_ID,
        "message_id": "HERMES_SESSION_MESSAGE_ID",
        "profile": "HERMES_SESSION_PROFILE",
        "ui_session_id": "HERMES_UI_SESSION_ID",
        "deliver_platform": "HERMES_CRON_AUTO_DELIVER_PLATFORM",
        "deliver_chat_id": "HERMES_CRON_AUTO_DELIVER_CHAT_ID",
        "deliver_thread_id": "HERMES_CRON_AUTO_DELIVER_THREAD_ID",
    }
)
"""The names that `session_context` accepts and their variables."""

_ALL_VARIABLES = frozenset(VARIABLE_NAMES.values())
_variables: ContextVar[Mapping[str, str]] = ContextVar(
    "session_variables", default=MappingProxyType({})
)


class _ProcessState:
    """The id written to the environment of this process, and whether turns have contexts."""

    lock = threading.Lock()
    written: str | None = None
    has_contexts = False


def set_current_session_id(session_id: str | None) -> None:
    """Set the current session in this context and in `os.environ`.

    None or '' clears it.

    Raises:
        InvalidInput: the id cannot be stored in an environment variable.
    """
    if session_id and (not isinstance(session_id, str) or _clean_value(session_id) != session_id):
        raise InvalidInput(
            "session id must be text without NUL and lone surrogates, as in an environment variable"
        )
    with _ProcessState.lock:
        if session_id:
            os.environ[SESSION_ID] = session_id
        else:
            os.environ.pop(SESSION_ID, None)
        _ProcessState.written = session_id
    # Empty, not removed: without a value here the environment would be read.
    _variables.set({**_variables.get(), SESSION_ID: session_id or ""})


def get_session_env(name: str, default: str = "") -> str:
    """Return a session variable of this context, else of the process, else the default."""
    value = _variables.get().get(name)
    if value is None:
        value = os.environ.get(name)
        if name == SESSION_ID and _is_stale_session(value):
            return default
    return default if value is None else value


def get_current_session_id() -> str | None:
    """Return the id of the current session."""
    return get_session_env(SESSION_ID) or None


@contextmanager
def session_context(*, inherit: bool = True, **variables: Any) -> Iterator[None]:
    """Set session variables inside the block, then restore the previous values.

    A value of None or '' clears a variable. Characters that no environment can hold are removed.
    `os.environ` is neither written nor restored.

    Args:
        inherit: False to clear all other variables, so that a turn that another turn starts
            inherits nothing.
        variables: the values by name, for example `session_id`, `platform` or `chat_id`.

    Raises:
        InvalidInput: a variable name is unknown.

    Example:
        >>> from session_core import get_current_session_id, session_context
        >>> with session_context(session_id="s1", platform="telegram"):
        ...     get_current_session_id()
        's1'
    """
    outer = _variables.get() if inherit else dict.fromkeys(_ALL_VARIABLES, "")
    named = {_resolve_variable(name): _clean_value(value) for name, value in variables.items()}
    # From now on the environment may hold the id of another turn.
    _ProcessState.has_contexts = True
    token = _variables.set({**outer, **named})
    try:
        yield
    finally:
        with suppress(ValueError):  # the block ends in another context, with its own variables
            _variables.reset(token)


def build_child_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a subprocess of this turn, without changing `os.environ`.

    A session id that another turn has left in `os.environ` is not passed on.
    """
    variables = _variables.get()
    # os.environ must not change while it is copied.
    with _ProcessState.lock:
        env = dict(os.environ)
    if SESSION_ID not in variables and _is_stale_session(env.get(SESSION_ID)):
        env.pop(SESSION_ID, None)
    return {**env, **variables, **(extra or {})}


def _is_stale_session(session_id: str | None) -> bool:
    """Return True if another turn has left this id in the environment."""
    return _ProcessState.has_contexts and session_id == _ProcessState.written


def _clean_value(value: Any) -> str:
    """Return a value as environment text: without NUL, and with lone surrogates replaced."""
    text = "" if value is None else str(value)
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _resolve_variable(name: str) -> str:
    if name in _ALL_VARIABLES:
        return name
    try:
        return VARIABLE_NAMES[name]
    except KeyError:
        names = ", ".join(VARIABLE_NAMES)
        raise InvalidInput(f"session variable must be one of {names}, got {name!r}") from None
