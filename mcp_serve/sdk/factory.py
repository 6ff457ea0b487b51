"""Create a server of the SDK whose tools are loaded late, and add missing features."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

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

from mcp_serve.features.subscriptions import Subscriptions
from mcp_serve.sdk import private
from mcp_serve.sdk.extensions import AppsExtension, SkillsExtension
from mcp_serve.sdk.lazy import LateFeatures, LazyFeatures
from mcp_serve.sdk.wire_messages import call_with_clean_errors

if TYPE_CHECKING:
    from mcp.server.mcpserver.tools import Tool


def create_lazy_server(
    name: str,
    *,
    title: str,
    version: str,
    instructions: str,
    list_tools: Callable[[], Sequence[Tool]],
    load: Callable[[], LateFeatures],
    prepare: Callable[[], None],
    **options: Any,
) -> MCPServer[Any]:
    """Return a server whose tools and features are loaded late.

    `prepare` is called in a thread after the tool list was answered.
    """
    subscriptions = Subscriptions()
    lazy = LazyFeatures(list_tools, load, prepare, subscriptions)

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lazy.prepare_and_publish_changes)
            yield
            tasks.cancel_scope.cancel()

    server: MCPServer[Any] = MCPServer(
        name,
        title=title,
        version=version,
        instructions=instructions,
        lifespan=lifespan,
        middleware=[call_with_clean_errors, lazy.__call__],
        log_level="WARNING",
        subscriptions=subscriptions.bus,
        extensions=[SkillsExtension(lazy.get_skills), AppsExtension()],
        **options,
    )
    lazy.server = server
    _add_subscriptions(server, subscriptions)
    _add_resource_pages(server, lazy)
    _add_completions(server, lazy)
    private.advertise_changes(server)
    return server


def make_stream_closer(server: MCPServer[Any]) -> Callable[[], None]:
    """Return a function that ends the streams of newer clients.

    Otherwise a stream lasts until its client ends.
    """
    listen: Any = private.get_handler(server, "subscriptions/listen")
    close: Callable[[], None] = listen.close
    return close


def _add_subscriptions(server: MCPServer[Any], subscriptions: Subscriptions) -> None:
    """Serve subscriptions in both protocol versions, since the SDK has only the newer ones."""
    for method, params, handle in (
        ("resources/subscribe", SubscribeRequestParams, subscriptions.subscribe),
        ("resources/unsubscribe", UnsubscribeRequestParams, subscriptions.unsubscribe),
        ("subscriptions/listen", SubscriptionsListenRequestParams, subscriptions.listen),
    ):
        private.set_handler(server, method, params, handle)


def _add_resource_pages(server: MCPServer[Any], lazy: LazyFeatures) -> None:
    """List resources in pages, since the handler of the SDK returns all of them."""

    async def list_resources(_: Any, params: PaginatedRequestParams | None) -> ListResourcesResult:
        features = lazy.features
        if features is None:  # a test registered resources without a features
            return ListResourcesResult(resources=await server.list_resources())
        page = await features.list_resources(params.cursor if params else None)
        if page.next_cursor is None:
            page.resources.extend(await server.list_resources())
        return page

    private.set_handler(server, "resources/list", PaginatedRequestParams, list_resources)


def _add_completions(server: MCPServer[Any], lazy: LazyFeatures) -> None:
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        del ref, context
        if lazy.features is None:
            return Completion(values=[])
        return await lazy.features.complete_argument(argument.name, argument.value)

    register: Any = server.completion
    register()(complete)
