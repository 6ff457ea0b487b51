"""A call over HTTP whose client has left, which the older protocol does not take as its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
from mcp.server.mcpserver import Context

from session_core import Busy

T = TypeVar("T")

LEFT_KEY = "mcp_sessions.left"
"""Where the state of a request keeps the event that its client has left."""


async def run_while_connected(context: Context[Any, Any], work: Callable[[], Awaitable[T]]) -> T:
    """Do something for a client while it is there.

    Raises:
        Busy: it has left, or this server ends.
    """
    state = getattr(context.request_context.request, "state", None)
    left: anyio.Event | None = getattr(state, LEFT_KEY, None)
    if left is None:
        return await work()
    found: list[T] = []
    failed: list[Exception] = []

    async def do() -> None:
        try:
            found.append(await work())
        except Exception as error:  # noqa: BLE001 -- raised again below, alone and not in a group
            failed.append(error)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(do)
        await left.wait()
        tasks.cancel_scope.cancel()
    for error in failed:
        raise error
    for answer in found:
        return answer
    raise Busy("this server ends, and with it the wait")
