"""Calls of agents and of their factories, each of which may be sync or async."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import anyio

from session_core.aio import WorkerThreads
from session_core.errors import InvalidInput
from session_core.event_loops import running_loop
from session_core.lifecycle.ending import Ending


def settled(value: Any) -> Any:
    """Return a value, waiting for it on a loop of its own where it is awaitable.

    Raises:
        InvalidInput: a loop runs in this thread, which cannot be waited for.
    """
    if not inspect.isawaitable(value):
        return value
    if running_loop() is not None:
        if inspect.iscoroutine(value):
            value.close()
        raise InvalidInput("an async agent is not run by `handle` inside a loop; await `ahandle`")

    async def settle() -> Any:
        return await value

    return anyio.run(settle)


def check_agent(made: Any) -> Any:
    """Return the agent that a factory has made.

    Raises:
        InvalidInput: it is none.
    """
    if not callable(made):
        raise InvalidInput(
            f"build(run) has returned {_kind(made)}; let it return the agent of the session, "
            "a function of run and message"
        )
    return made


def check_result(result: Any) -> Any:
    """Return what an agent has answered with.

    Raises:
        InvalidInput: that is nothing that a person can be answered.
    """
    told = result.get("final_response") if isinstance(result, Mapping) else result
    if told is not None and not isinstance(told, str):
        raise InvalidInput(
            f"the agent has answered with {_kind(told)}; let it return text, None, or a mapping "
            "whose final_response is one of these"
        )
    return result


def _kind(given: Any) -> str:
    return "None" if given is None else f"something of the type {type(given).__name__}"


async def called(
    function: Callable[..., Any], *args: Any, threads: WorkerThreads, ending: Ending
) -> Any:
    """Call a function; one that is sync runs in a worker thread and keeps the turn open."""
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    ending.hold()
    value = await threads.run(partial(function, *args), on_end=ending.let_go)
    return await value if inspect.isawaitable(value) else value
