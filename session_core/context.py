"""The current session, as a context variable: each turn, in whatever thread or task, sees its own.

A variable that was never set is looked up in `os.environ`; one that was cleared is not. The one
variable that is also written to `os.environ` is the session id, for code that only looks there; it
is right only for one turn at a time, and what another turn has left there is not taken from it.
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
"""What `session_context` takes, and the variable that each of them is."""

_ALL_VARIABLES = frozenset(VARIABLE_NAMES.values())
_variables: ContextVar[Mapping[str, str]] = ContextVar(
    "session_variables", default=MappingProxyType({})
)


class _ProcessState:
    """What was written to the environment of this process, and whether turns have contexts."""

    lock = threading.Lock()
    written: str | None = None
    has_contexts = False


def set_current_session_id(session_id: str | None) -> None:
    """Make this the current session, here and in `os.environ`; None or '' is no session.

    Raises:
        InvalidInput: no environment can hold that.
    """
    if session_id and (not isinstance(session_id, str) or _clean_value(session_id) != session_id):
        raise InvalidInput("the id of a session is text without a NUL or half a character")
    with _ProcessState.lock:
        if session_id:
            os.environ[SESSION_ID] = session_id
        else:
            os.environ.pop(SESSION_ID, None)
        _ProcessState.written = session_id
    _variables.set({**_variables.get(), SESSION_ID: session_id or ""})


def get_session_env(name: str, default: str = "") -> str:
    """Return a session variable: of this context, else of the process, else the default."""
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
    """Set session variables for what runs inside, then restore what was there before.

    `session_context(session_id="s1", platform="telegram", chat_id=42)`; a value of None or ''
    clears a variable, and what no environment can hold is left out of a name. Without `inherit` all
    that is not named is cleared: a turn that is started from another one takes nothing from it.
    `os.environ` is neither written nor restored.

    Raises:
        InvalidInput: there is no such variable.
    """
    outer = _variables.get() if inherit else dict.fromkeys(_ALL_VARIABLES, "")
    named = {_resolve_variable(name): _clean_value(value) for name, value in variables.items()}
    _ProcessState.has_contexts = True
    token = _variables.set({**outer, **named})
    try:
        yield
    finally:
        with suppress(ValueError):  # it is left in another context, whose variables are its own
            _variables.reset(token)


def build_child_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a subprocess of this turn; `os.environ` is not touched.

    The id that another turn has left in `os.environ` is not passed on.
    """
    variables = _variables.get()
    with _ProcessState.lock:
        env = dict(os.environ)
    if SESSION_ID not in variables and _is_stale_session(env.get(SESSION_ID)):
        env.pop(SESSION_ID, None)
    return {**env, **variables, **(extra or {})}


def _is_stale_session(session_id: str | None) -> bool:
    """Whether an id of the environment is what another turn has left there."""
    return _ProcessState.has_contexts and session_id == _ProcessState.written


def _clean_value(value: Any) -> str:
    """Return what a subprocess can be given: people have names that were cut within an emoji."""
    text = "" if value is None else str(value)
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _resolve_variable(name: str) -> str:
    if name in _ALL_VARIABLES:
        return name
    try:
        return VARIABLE_NAMES[name]
    except KeyError:
        known = ", ".join(VARIABLE_NAMES)
        raise InvalidInput(f"no session variable {name!r}; there are {known}") from None
