"""End a call over HTTP when its client has left, which the older protocol does not do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
from mcp.server.mcpserver import Context

from session_core import Busy

T = TypeVar("T")

# Key in the state of a request: the event that its client has left.
LEFT_KEY = "mcp_sessions.left"


async def run_while_connected(context: Context[Any, Any], work: Callable[[], Awaitable[T]]) -> T:
    """Await a call while its client is connected.

    Raises:
        Busy: the client has left, or the server shuts down.
    """
    state = getattr(context.request_context.request, "state", None)
    has_left: anyio.Event | None = getattr(state, LEFT_KEY, None)
    if has_left is None:
        return await work()
    answers: list[T] = []
    failures: list[Exception] = []

    async def await_call() -> None:
        try:
            answers.append(await work())
        except Exception as error:  # noqa: BLE001 -- raised again below, outside the exception group
            failures.append(error)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(await_call)
        await has_left.wait()
        tasks.cancel_scope.cancel()
    for error in failures:
        raise error
    for answer in answers:
        return answer
    raise Busy("the server is shutting down; call again after its restart")
