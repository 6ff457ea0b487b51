"""The server of the SDK, with a surface that is loaded late and what the SDK does otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.types import (
    Completion,
    ListResourcesResult,
    PaginatedRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)

from mcp_serve.sdk import private
from mcp_serve.sdk.lazy import LazySurface, Surface
from mcp_serve.sdk.messages import clean_failures
from mcp_serve.subscriptions import Subscriptions


def create_lazy_server(
    name: str,
    *,
    title: str,
    version: str,
    instructions: str,
    load: Callable[[], Surface],
    **options: Any,
) -> MCPServer[Any]:
    """Return a server whose surface is loaded late."""
    subscriptions = Subscriptions()
    late = LazySurface(load, subscriptions)

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(late.load_after_answer)
            tasks.start_soon(late.publish_changes)
            yield
            tasks.cancel_scope.cancel()

    made: MCPServer[Any] = MCPServer(
        name,
        title=title,
        version=version,
        instructions=instructions,
        lifespan=lifespan,
        middleware=[clean_failures, late.__call__],
        log_level="WARNING",
        subscriptions=subscriptions.bus,
        **options,
    )
    late.server = made
    _add_subscriptions(made, subscriptions)
    _add_resource_pages(made, late)
    _add_completions(made, late)
    private.advertise_changes(made)
    return made


def make_stream_closer(made: MCPServer[Any]) -> Callable[[], None]:
    """Return what ends the open streams of the newer era: nothing else would before a client."""
    listen: Any = private.get_handler(made, "subscriptions/listen")
    close: Callable[[], None] = listen.close
    return close


def _add_subscriptions(made: MCPServer[Any], subscriptions: Subscriptions) -> None:
    """Serve subscriptions in both eras: the SDK has none for the older one."""
    for method, params, handle in (
        ("resources/subscribe", SubscribeRequestParams, subscriptions.subscribe),
        ("resources/unsubscribe", UnsubscribeRequestParams, subscriptions.unsubscribe),
        ("subscriptions/listen", SubscriptionsListenRequestParams, subscriptions.listen),
    ):
        private.set_handler(made, method, params, handle)


def _add_resource_pages(made: MCPServer[Any], late: LazySurface) -> None:
    """List resources a page at a time: the handler of the SDK returns all of them."""

    async def listed(_: Any, params: PaginatedRequestParams | None) -> ListResourcesResult:
        surface = late.surface
        if surface is None:  # what a test has registered alone
            return ListResourcesResult(resources=await made.list_resources())
        page = await surface.list_resources(params.cursor if params else None)
        if page.next_cursor is None:
            page.resources.extend(await made.list_resources())
        return page

    private.set_handler(made, "resources/list", PaginatedRequestParams, listed)


def _add_completions(made: MCPServer[Any], late: LazySurface) -> None:
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        del ref, context
        if late.surface is None:
            return Completion(values=[])
        return await late.surface.complete_argument(argument.name, argument.value)

    register: Any = made.completion
    register()(complete)
